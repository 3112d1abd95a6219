"""Hostile data: time in proportion to the file, memory in proportion to a block, no raw error."""

import gzip
import os
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc

import pytest
from tests.cases.files import pairs, write

from hashembed.readers import DataError, read, read_batches, read_text_batches, read_texts, streams
from hashembed.readers.formats.dialect import Dialect, Table

MB = 1 << 20


def python(code, *arguments, **options):
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


# --- time -------------------------------------------------------------------------------------

BROKEN = [b'x","y\n', b'a,"b\n', b'"a","b"\n"\n', b'",\n', b'"""\n', b'a,""b"\n', b'"a"b,"c\n']


@pytest.mark.parametrize("unit", BROKEN)
def test_broken_quotes_cost_linear_time(unit):
    """These take a few milliseconds; four megabytes took an hour."""
    Table.scan(unit, 1, 0, Dialect(",", True), range(2))  # compiles
    start = time.perf_counter()
    Table.scan(unit * (4 * MB // len(unit)), 1, 0, Dialect(",", True), range(2))
    assert time.perf_counter() - start < 5


def test_a_file_of_broken_quotes_is_read_at_once(tmp_path):
    path = write(tmp_path / "a.csv", b"label,text\na,x\n" + b'x","y\n' * 200_000)
    start = time.perf_counter()
    data = read(path, on_error="skip")
    assert time.perf_counter() - start < 20
    assert (len(data), data.report.skipped) == (1, 200_000)


def test_a_row_broken_far_behind_its_begin(tmp_path, monkeypatch):
    """The same rows and problems wherever blocks end."""
    content = b"label,text\na,x\n" + b'x","y\n' * 300 + b'b,"z"\n' + b'q,"r" s\n' * 5 + b"c,u\n"
    path = write(tmp_path / "a.csv", content)
    expected = read(path, on_error="skip")
    for block, most in [(7, 1 << 20), (1 << 20, 64), (100, 200)]:
        monkeypatch.setattr(streams, "BLOCK", block)
        monkeypatch.setattr(streams, "MAX_LINES", most)
        data = read(path, on_error="skip")
        assert pairs(data) == pairs(expected)
        assert data.report.skipped == expected.report.skipped


def test_a_row_at_the_end_of_what_is_given_up_is_read(tmp_path, monkeypatch):
    """An open quote is given up after so many lines, but not the rows that are open by then."""
    rows = "".join(f'{i % 3},"one\n{i}"\n' for i in range(500))
    path = write(tmp_path / "a.csv", f'label,text\nq,"open"" \n{rows}')
    monkeypatch.setattr(streams, "BLOCK", 64)
    monkeypatch.setattr(streams, "MAX_LINES", 33)
    data = read(path, on_error="skip")
    assert data.texts.to_pylist() == [f"one\n{i}" for i in range(500)]


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_ends_the_reading(tmp_path):
    path = write(tmp_path / "a.csv", b"label,text\na,x\n" + b'x","y\n' * 10_000_000)
    code = """
        import sys
        from hashembed.readers import read
        print("reading", flush=True)
        while True:  # whatever the machine's speed, it is reading when the signal comes
            read(sys.argv[1], on_error="skip")
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(path)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Tests that a shell runs in the background ignore the signal, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        process.stdout.readline()
        time.sleep(1.5)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        start = time.perf_counter()
        process.wait(30)
        assert time.perf_counter() - start < 10
        assert b"KeyboardInterrupt" in process.stderr.read()


# --- memory -----------------------------------------------------------------------------------

# name, the head, what is repeated, how many MB of it, whether texts alone are read; rows that come
LARGE = [
    ("open_quote.csv", b'label,text\nq,"open\n', b"a,x\n", 12, False, 3 * MB),
    ("open_blank.csv", b'label,text\nq,"open\n', b"\n", 12, False, 0),
    ("bad_rows.csv", b"label,text\na,x\n", b"b\n", 12, False, 1),
    ("broken.csv", b"label,text\na,x\n", b'x","yz\n', 14, False, 1),
    ("all_broken.csv", b"", b'x","yz\n', 14, False, 0),
    ("no_labels.ft", b"__label__a x\n", b"b\n", 12, False, 1),
    ("blank.csv.gz", b"", b"\n", 100, False, 0),
    ("blank.jsonl.gz", b"", b"\n", 100, False, 0),
    ("blank.gz", b"", b" \n", 100, False, 0),
    ("rows_then_blank.csv.gz", b"label,text\na,x\n", b"\n", 50, False, 1),
    ("broken.jsonl", b'{"label": 1, "text": "x"}\n', b"{\n", 2, False, 1),
    ("latin.csv", b"label,text\n", b"a,\xe9\n", 4, False, 1 * MB),
    ("nul.csv", b"label,text\na,x\n", b"\0\n", 2, False, 1),
    ("nul_open.csv", b'label,text\na,"x\n', b"\0\n", 2, False, 0),
    ("empty_lines.txt", b"", b"\n", 10, True, 10 * MB),
    ("nul_lines.txt", b"", b"\0\n", 2, True, 1 * MB),
]


def fill(path, head, unit, size):
    """A file of so many bytes, the first of which are the head."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "wb") as file:
        file.write(head)
        while size > 0:
            part = min(size, MB)
            file.write(unit * (part // len(unit)))
            size -= part
    return path


@pytest.mark.parametrize("case", LARGE, ids=[c[0] for c in LARGE])
def test_memory_is_that_of_a_block(tmp_path, monkeypatch, case):
    """All at a hundredth: a file of about 120 kB, or 1 MB compressed, in blocks of 16 kB."""
    name, head, unit, size, texts, rows = case
    for limit, value in [("BLOCK", 1 << 14), ("LINES", 1 << 10), ("MAX_LINES", 1 << 12)]:
        monkeypatch.setattr(streams, limit, value, raising=False)
    path = fill(tmp_path / name, head, unit, size * MB // 100)
    reader = read_text_batches if texts else read_batches

    def go():
        found = 0
        try:
            for batch in reader(path, on_error="skip", rows=1000):
                found += len(batch)
        except DataError:
            assert rows == 0
        return found

    found = go()  # compiles, imports
    assert abs(found - rows // 100) <= 1 if rows > 1 else found == rows
    tracemalloc.start()
    try:
        go()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * MB


# Reads a file in batches, within so much more address space than it has after the same with a
# small file, and prints the peak of resident memory above that.
MEASURE = """
    import resource, sys
    from hashembed.readers import DataError, read_batches, read_text_batches

    path, small, texts, limit = sys.argv[1], sys.argv[2], sys.argv[3] == "True", int(sys.argv[4])

    def go(path):
        rows = 0
        try:
            for batch in (read_text_batches if texts else read_batches)(path, on_error="skip"):
                rows += len(batch)
        except DataError as error:
            pass
        return rows

    go(small)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    resource.setrlimit(resource.RLIMIT_AS, (used + limit, used + limit))
    print(go(path), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS and /proc")
@pytest.mark.parametrize("case", LARGE, ids=[c[0] for c in LARGE])
def test_memory_is_that_of_a_block_at_full_size(tmp_path, case):
    name, head, unit, size, texts, rows = case
    small = fill(tmp_path / f"small_{name}", head or b"label,text\na,x\n", unit, 100)
    large = fill(tmp_path / name, head, unit, size * MB)
    result = python(MEASURE, large, small, texts, 700 * MB)
    assert result.returncode == 0, result.stderr[-2000:]
    found, grown = map(int, result.stdout.split())
    assert found == rows
    assert grown < 400 * MB


def test_a_folder_of_large_documents_is_read_in_parts(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    for i in range(20):
        write(tmp_path / f"a/{i:02}.txt", "x" * 1000)
    monkeypatch.setattr(streams, "BLOCK", 5000)
    assert [len(b) for b in read_batches(tmp_path, rows=5)] == [5] * 4
    monkeypatch.setattr(streams, "MAX_ROW", 999)
    with pytest.raises(
        DataError, match=r"00\.txt: found more than 999 bytes|of more than 999 bytes"
    ):
        read(tmp_path)


# --- folders, standard input, encodings ---------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_a_folder_that_contains_itself(tmp_path):
    """Two links to itself are 2^40 ways through it, as far as the system follows."""
    folder = tmp_path / "data"
    (folder / "pos" / "more").mkdir(parents=True)
    write(folder / "pos/1.txt", "good")
    write(folder / "pos/more/2.txt", "fine")
    for name in ("self", "again", "more/up"):
        (folder / "pos" / name).symlink_to(folder / "pos")
    start = time.perf_counter()
    assert pairs(read(folder)) == [("pos", "good"), ("pos", "fine")]
    assert read_texts(folder).texts.to_pylist() == ["good", "fine"]
    # a link to other documents is followed, also from two classes
    (folder / "neg").mkdir()
    write(tmp_path / "elsewhere.txt", "bad")
    (folder / "neg" / "3.txt").symlink_to(tmp_path / "elsewhere.txt")
    (folder / "pos" / "more" / "up").unlink()
    (folder / "neg" / "more").symlink_to(folder / "pos" / "more")
    assert [y for y, _ in pairs(read(folder))] == ["neg", "neg", "pos", "pos"]
    assert time.perf_counter() - start < 10


@pytest.mark.skipif(os.name != "posix", reason="pipes and links")
def test_what_is_no_file_in_a_folder(tmp_path):
    """A named pipe would wait for its writer for ever; a device may have no end."""
    (tmp_path / "a").mkdir()
    write(tmp_path / "a/1.txt", "x")
    os.mkfifo(tmp_path / "a/2.txt")
    with pytest.raises(DataError, match=r"2\.txt: is a named pipe, expected a file"):
        read(tmp_path)
    (tmp_path / "a/3.txt").symlink_to("/dev/zero")
    (tmp_path / "a/4.txt").symlink_to(tmp_path / "nowhere")
    (tmp_path / "a/5.txt").symlink_to(tmp_path / "a/5.txt")
    data = read(tmp_path, on_error="skip")
    assert (pairs(data), data.report.skipped) == ([("a", "x")], 4)
    reasons = [problem.reason for problem in data.report.problems]
    assert reasons[:2] == ["is a named pipe, expected a file", "is a device, expected a file"]
    assert all(reason.startswith("cannot be read: ") for reason in reasons[2:])
    with pytest.raises(DataError, match=r"2\.txt: is a named pipe"):
        read_texts(tmp_path / "a" / "*.txt")


@pytest.mark.parametrize("state", ["closed", "None", "text"])
def test_standard_input_that_is_not_there(monkeypatch, state):
    import io

    stdin = {"closed": io.TextIOWrapper(io.BytesIO()), "None": None, "text": io.StringIO("x")}[
        state
    ]
    if state == "closed":
        stdin.close()
    monkeypatch.setattr(sys, "stdin", stdin)
    for reader in (read, read_texts):
        with pytest.raises(DataError, match="standard input: cannot be read: it is closed"):
            reader("-")


def test_standard_input_that_the_shell_closed():
    code = "from hashembed.readers import read; read('-')"
    result = python(code, preexec_fn=lambda: os.close(0))
    assert "DataError: standard input: cannot be read" in result.stderr


@pytest.mark.parametrize(
    "encoding",
    [
        "zip",
        "zlib",
        "bz2",
        "hex",
        "base64",
        "quopri",
        "uu",
        "rot13",
        "idna",
        "punycode",
        "undefined",
        "klingon",
        "",
        "utf\x00",
        "Ω",
        3,
        b"utf-8",
    ],
)
def test_codecs_that_are_no_encodings(tmp_path, encoding):
    path = write(tmp_path / "a.csv", "label,text\na,x\n")
    with pytest.raises(ValueError, match="encoding must be an encoding that Python knows"):
        read(path, encoding=encoding)
