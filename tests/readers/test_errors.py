"""Bad data: each kind has its answer, with the file and the line."""

import bz2
import gzip
import lzma

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cases.files import pairs, write, zstd

from hashembed.readers import DataError, read, read_batches, read_texts, report, streams


def stops(path, message, **options):
    """Reading stops with this message, behind the name of the file."""
    with pytest.raises(DataError) as caught:
        read(path, **options)
    assert str(caught.value).startswith(f"{path}{message}"), str(caught.value)


GOOD = [("a", "x"), ("b", "y"), ("c", "z")]

# name, content, where and what, the rows that are left; the header keeps recognition out of it
ROWS = [
    ("ragged.csv", "label,text\na,x\nb\nb,y\nq,r,s\nc,z\n", ", line 3: found 1 column, expected 2"),
    ("ragged.tsv", "label\ttext\na\tx\nb\ty\nq\tr\ts\nc\tz\n", ", line 4: found 3 columns"),
    ("empty_label.csv", 'label,text\na,x\nb,y\n" ",q\nc,z\n', ", line 4: the label is empty"),
    ("nul.csv", "label,text\na,x\nb,y\nq,r\0s\nc,z\n", ", line 4: found a NUL byte (byte 4 of"),
    (
        "behind_quotes.csv",
        'label,text\na,x\nq,"one" two\nb,y\nc,z\n',
        ", line 3: found text after a closing quote",
    ),
    (
        "swallowed.csv",  # an open quote must not eat the rows behind it
        'label,text\na,x\nq,"open\nb,y\n"c","z"\n',
        ", line 3: found text after a closing quote",
    ),
    (
        "open_at_end.csv",
        'label,text\na,x\nb,"y"\nc,z\nq,"never closed\n',
        ", line 5: found a quote that is never closed",
    ),
    (
        "open_then_rows.csv",
        'label,text\na,x\nq,"never closed\nb,y\nc,z',
        ", line 3: found a quote that is never closed",
    ),
    (
        "after_quoted_lines.csv",  # the line number counts lines within quotes
        'label,text\r\na,x\r\nb,y\r\nc,z\r\nq,"1\r\n2\r\n3",r\r\n',
        ", line 5: found 3 columns, expected 2",
    ),
    (
        "nul_in_quotes.csv",
        'label,text\na,x\nb,y\nq,"1\n2\0\n3"\nc,z\n',
        ", line 5: found a NUL byte (byte 2 of",
    ),
    (
        "null_text.jsonl",
        '{"label":"a","text":"x"}\n{"label":"b","text":"y"}\n{"label":"q","text":null}\n'
        '{"label":"c","text":"z"}\n{"label":"q"}\n',
        ", line 3: found null for 'text', expected a string",
    ),
    (
        "broken.jsonl",
        '{"label":"a","text":"x"}\n{"label":"b","text":"y"}\n{"label":"q","text"\n\n'
        '{"label":"c","text":"z"}\n',
        ", line 3: found invalid JSON (Expecting ':' delimiter, column 20)",
    ),
    (
        "first_broken.jsonl",
        '{"label\n{"label":"a","text":"x"}\n{"label":"b","text":"y"}\n{"label":"c","text":"z"}',
        ", line 1: found invalid JSON",
    ),
    (
        "two_in_a_line.jsonl",
        '{"label":"a","text":"x"}\n{"label":"b","text":"y"}\n{"label":"c","text":"z"}\n'
        '{"label":"q","text":"1"}{"label":"q","text":"2"}\n',
        ", line 4: found invalid JSON (Extra data, column 25)",
    ),
    (
        "no_key.jsonl",
        '{"label":"a","text":"x"}\n{"text":"q", "z": 1}\n{"label":"b","text":"y"}\n'
        '{"label":"c","text":"z"}\n',
        ", line 2: found no key 'label'; the keys are 'text', 'z'",
    ),
    (
        "null_label.jsonl",
        '{"label":"a","text":"x"}\n{"label":null,"text":"q"}\n{"label":"b","text":"y"}\n'
        '{"label":"c","text":"z"}\n',
        ", line 2: found null for the label",
    ),
    (
        "empty_label.jsonl",
        '{"label":"a","text":"x"}\n{"label":"b","text":"y"}\n\n{"label":"","text":"q"}\n'
        '{"label":"c","text":"z"}\n',
        ", line 4: the label is empty",
    ),
    (
        "text_kind.jsonl",
        '{"label":"a","text":"x"}\n{"label":"b","text":"y"}\n{"label":"c","text":"z"}\n'
        '{"label":"q","text":7}\n',
        ", line 4: found a number for 'text', expected a string",
    ),
    (
        "list.jsonl",
        '{"label":"a","text":"x"}\n[1]\n{"label":"b","text":"y"}\n{"label":"c","text":"z"}\n',
        ", line 2: found a list, expected an object",
    ),
    (
        "no_label.txt",
        "__label__a x\n__label__b y\nno label\n__label__c z\n",
        ", line 3: found no label, expected a line that begins with __label__NAME",
    ),
    (
        "empty_label.txt",
        "__label__a x\n__label__b y\n\n__label__ q\n__label__c z\n",
        ", line 4: the label is empty",
    ),
]


@pytest.mark.parametrize(("name", "content", "message"), ROWS, ids=[r[0] for r in ROWS])
@pytest.mark.parametrize("block", [8, 1 << 20])
def test_bad_rows(tmp_path, monkeypatch, name, content, message, block):
    """The first stops the reading, or they are skipped and counted and the others stay."""
    monkeypatch.setattr(streams, "BLOCK", block)
    path = write(tmp_path / name, content)
    stops(path, message)
    data = read(path, on_error="skip")
    assert pairs(data) == GOOD
    found = data.report
    assert found.skipped == len(found.problems) >= 1
    assert str(found.problems[0]).startswith(f"{path}{message}")
    assert f"; skipped {found.skipped} row" in str(found)
    assert str(path) in str(found)


def test_a_stream_may_begin_with_a_bad_row(tmp_path, monkeypatch):
    path = write(tmp_path / "a.csv", 'q,"r" s\n"a","x"\n"b","y"\n')
    stops(path, ", line 1: found text after a closing quote")
    for block in (4, 1 << 20):
        monkeypatch.setattr(streams, "BLOCK", block)
        data = read(path, on_error="skip")
        assert (pairs(data), data.report.skipped) == (GOOD[:2], 1)
    stops(write(path, 'q,"r" s\n'), ", line 1: found text after a closing quote")


def test_many_problems_are_counted_and_the_first_listed(tmp_path):
    path = write(tmp_path / "a.csv", "label,text\n" + "a,x\nb\n" * 1000)
    found = read(path, on_error="skip").report
    assert (found.rows, found.skipped, len(found.problems)) == (1000, 1000, report.KEPT)
    assert str(found).endswith("line 7: found 1 column, expected 2; and 997 more")


def test_texts_keep_their_place(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "x"}\n{"text": 1}\n{"text": "z"}\n')
    data = read_texts(path, on_error="skip")
    assert data.texts.to_pylist() == ["x", None, "z"]
    assert data.report.skipped == 1
    with pytest.raises(DataError, match="line 2"):
        read_texts(path)
    path = write(tmp_path / "a.txt", b"x\nr\0s\n\n")
    data = read_texts(path)
    assert data.texts.to_pylist() == ["x", "r\0s", ""]
    assert str(data.report.repairs[0]) == f"{path}, line 2: kept a NUL byte (byte 2 of the line)"


def test_parquet_problems(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"label": ["a", None, "", "b"], "text": ["x", "q", "q", None]}), path)
    stops(path, ", row 2: found no label (null)")
    data = read(path, on_error="skip")
    assert pairs(data) == [("a", "x")]
    assert [str(p).removeprefix(str(path)) for p in data.report.problems] == [
        ", row 2: found no label (null)",
        ", row 3: the label is empty",
        ", row 4: found no text (null)",
    ]
    pq.write_table(pa.table({"label": [["a", None], ["b"]], "text": ["q", "x"]}), path)
    stops(path, ", row 1: found a null among the labels")
    assert pairs(read(path, on_error="skip")) == [(["b"], "x")]
    binary = pa.array([b"ok", b"\xff"])
    invalid = pa.StringArray.from_buffers(2, binary.buffers()[1], binary.buffers()[2])
    pq.write_table(pa.table({"label": ["a", "q"], "text": invalid}), path)
    stops(path, ", row 2: found bytes that are not UTF-8")
    pq.write_table(pa.table({"label": [1.5], "text": ["x"]}), path)
    stops(path, ": the label column 'label' holds double, expected strings, whole numbers")
    pq.write_table(pa.table({"label": ["a"], "text": [1]}), path)
    stops(path, ": the text column 'text' holds int64, expected strings")
    path.write_bytes(path.read_bytes()[:-20])
    stops(path, ": cannot be read as Parquet")


# --- encodings -------------------------------------------------------------------------------

TEXT = "naïve café – “quoted” ☃ 雪 😀"


@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"]
)
@pytest.mark.parametrize("block", [5, 1 << 20])
def test_byte_order_marks(tmp_path, monkeypatch, encoding, block):
    monkeypatch.setattr(streams, "BLOCK", block)
    mark = "\ufeff" if encoding[-2:] in ("le", "be") else ""
    path = write(tmp_path / "a.csv", f"{mark}label,text\r\na,{TEXT}\r\n", encoding)
    data = read(path)
    assert pairs(data) == [("a", TEXT)]
    expected = [] if encoding == "utf-8-sig" else [encoding[:6].upper()]
    assert data.report.encodings == expected


def test_latin_1_is_read_and_reported(tmp_path):
    path = write(tmp_path / "a.csv", b"label,text\na,plain\nb,caf\xe9 \x93q\x94 \x81\nc,x\n")
    data = read(path)
    assert pairs(data) == [("a", "plain"), ("b", "café “q” \x81"), ("c", "x")]
    found = data.report
    assert (found.rows, found.skipped, found.repaired) == (3, 0, 1)
    assert found.encodings == ["Windows-1252"]
    assert str(found.repairs[0]) == f"{path}, line 3: not UTF-8, read as Windows-1252"
    assert "encoding Windows-1252; repaired 1 line: " in str(found)


def test_damaged_utf8_stays_utf8(tmp_path):
    path = write(tmp_path / "a.csv", b"label,text\na," + "雪山雪山".encode()[:-1] + b"\n")
    data = read(path)
    assert pairs(data) == [("a", "雪山雪\ufffd")]
    assert data.report.encodings == []
    assert "read as U+FFFD" in str(data.report)


def test_an_encoding_is_insisted_on(tmp_path):
    path = write(tmp_path / "a.csv", b"label,text\na,x\nb,\xe9\nb,y\n")
    stops(path, ", line 3: found bytes that are not UTF-8", encoding="utf8")
    assert pairs(read(path, encoding="utf8", on_error="skip")) == [("a", "x"), ("b", "y")]
    data = read(path, encoding="latin-1")
    assert pairs(data)[1] == ("b", "é")
    assert data.report.encodings == ["ISO8859-1"]
    stops(path, ", line 3: found bytes that are not ASCII", encoding="ascii")
    with pytest.raises(ValueError, match="encoding must be an encoding that Python knows"):
        read(path, encoding="klingon")


def test_damaged_utf16(tmp_path):
    content = "\ufefflabel,text\na,x\nb,?\nb,y\n".encode("utf-16-le").replace(b"?\0", b"\0\xdc")
    path = write(tmp_path / "a.csv", content)
    stops(path, ", line 3: found bytes that are not UTF-16")
    assert pairs(read(path, on_error="skip")) == [("a", "x"), ("b", "y")]


def test_utf16_without_a_mark_is_not_taken_for_text(tmp_path):
    path = write(tmp_path / "a.csv", "label,text\na,x\n", "utf-16-le")
    with pytest.raises(DataError, match="NUL byte"):
        read(path, label=1, text=2)
    assert pairs(read(path, encoding="utf-16-le")) == [("a", "x")]


# --- files -----------------------------------------------------------------------------------


def test_empty_files(tmp_path):
    path = write(tmp_path / "a.csv", "")
    stops(path, ": the file is empty")
    stops(write(path, b"\xef\xbb\xbf"), ": the file is empty")
    stops(write(path, "\n\r\n\n"), ": the file has only blank lines")
    with pytest.raises(DataError, match="found no rows with a label: read 0 rows from 1 file"):
        read(write(path, "label,text\n"))
    with pytest.raises(DataError, match=r"found no rows with a label.*the file is empty"):
        read(write(path, ""), on_error="skip")
    other = write(tmp_path / "b.csv", "label,text\na,x\n")
    data = read([path, other], on_error="skip")
    assert pairs(data) == [("a", "x")]
    assert "the file is empty" in str(data.report)


def test_missing_files(tmp_path):
    write(tmp_path / "train.csv", "a,b\n")
    stops(tmp_path / "trian.csv", f": no such file: did you mean {tmp_path}/train.csv?")
    stops(tmp_path / "train", f": no such file: did you mean {tmp_path}/train.csv?")
    stops(tmp_path / "zzz", f": no such file in {tmp_path}")
    stops(tmp_path / "no" / "train.csv", f": no such file, and no such folder: {tmp_path}/no")
    stops(tmp_path / "*.tsv", ": no file matches this pattern")
    for paths in ([], ["-", "-"], "", "a\0b"):
        with pytest.raises(DataError):
            read(paths)
    with pytest.raises(TypeError):
        read([3])


def test_folders_without_classes(tmp_path):
    stops(tmp_path, ": expected one folder for each class (folder/class/document.txt), found an")
    (tmp_path / "train" / "pos").mkdir(parents=True)
    write(tmp_path / "train/pos/1.txt", "x")
    stops(tmp_path, ": expected one folder for each class (folder/class/document.txt), but 'train'")
    stops(tmp_path / "train", ": is a folder. To read its files as csv", format="csv")
    write(tmp_path / "part.parquet", "x")
    with pytest.raises(DataError, match=r"give '.*/\*\.parquet'"):
        read(tmp_path)
    stops(tmp_path / "part.parquet", ": is a file, expected a folder", format="folder")


def test_documents_that_cannot_be_read(tmp_path):
    (tmp_path / "a").mkdir()
    write(tmp_path / "a/1.txt", "x")
    bad = write(tmp_path / "a/2.txt", "one\ntwo\0")
    with pytest.raises(DataError) as caught:
        read(tmp_path)
    assert str(caught.value).startswith(f"{bad}, line 2: found a NUL byte")
    data = read(tmp_path, on_error="skip")
    assert (pairs(data), data.report.skipped) == ([("a", "x")], 1)


@pytest.mark.parametrize("kind", ["gzip", "bzip2", "xz", "zstd"])
def test_files_cut_short(tmp_path, kind):
    content = "".join(f"{i % 2},text {i * i}\n" for i in range(60_000)).encode()
    compressed = {
        "gzip": lambda: gzip.compress(content, 1),
        "bzip2": lambda: bz2.compress(content, 1),
        "xz": lambda: lzma.compress(content, preset=0),
        "zstd": lambda: zstd(content),
    }[kind]()
    path = write(tmp_path / "a.csv", compressed[:-1000])
    with pytest.raises(DataError, match=r"a\.csv, line [\d,]+: damaged or truncated"):
        read(path)
    data = read(path, on_error="skip")
    assert data.texts.to_pylist() == [f"text {i * i}" for i in range(len(data))]
    assert len(data) > 1000
    assert "damaged or truncated" in str(data.report)
    assert data.report.problems[0].line == len(data) + 1


def test_columns_that_are_not_there(tmp_path):
    path = write(tmp_path / "a.csv", "id,text,colour\n1,x,red\n")
    stops(path, ": found no label column: the columns are 'id', 'text', 'colour'. Choose one with")
    stops(
        path, ": found no label column 'kind': the columns are 'id', 'text', 'colour'", label="kind"
    )
    stops(path, ": found no text column 4: the columns are", label=1, text=4)
    path = write(tmp_path / "b.csv", "1,x\n2,y\n")
    stops(path, ": found no label column 'kind': the columns are '1', 'x'. Row 1 was", label="kind")
    there = ": found no label column 'kind': the columns have no names, give a"
    stops(path, there, label="kind", header=False)
    path = write(tmp_path / "c.jsonl", '{"a": "x", "b": "y", "c": 1}\n')
    stops(path, ": found no label key: the keys are 'a', 'b', 'c'. Choose one with label=")
    path = write(tmp_path / "d.jsonl", '[{"a": "x"}]')
    stops(path, ": found a JSON list, expected JSON lines")
    path = write(tmp_path / "e.csv", "one\ntwo\n")
    stops(path, ": found no label column: the columns have no names")


def test_rows_that_never_end(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "BLOCK", 100)
    monkeypatch.setattr(streams, "MAX_ROW", 1000)
    path = write(tmp_path / "a.csv", 'label,text\nq,"open\n' + "a,x\n" * 1000)
    stops(path, ", line 2: found a quote that is never closed")
    data = read(path, on_error="skip")
    assert (len(data), data.report.skipped) == (1000, 1)
    path = write(tmp_path / "b.csv", "label,text\na,x\nb," + "x" * 5000)
    stops(path, ", line 3: found a line of more than 1,000 bytes")


def test_options_that_make_no_sense(tmp_path):
    path = write(tmp_path / "a.csv", "a,x\n")
    for options in (
        {"format": "xls"},
        {"format": "lines"},
        {"on_error": "ignore"},
        {"delimiter": ",,"},
        {"delimiter": '"'},
        {"delimiter": "é"},
        {"text": []},
    ):
        with pytest.raises(ValueError, match=r"must"):
            read(path, **options)
    with pytest.raises(ValueError, match="rows must be"):
        read_batches(path, rows=0)
    with pytest.raises(TypeError, match="label must be a column's name or number"):
        read(path, label=1.5)


@pytest.mark.parametrize("block", [4, 1 << 20])
def test_stopped_batches_give_what_came_before(tmp_path, monkeypatch, block):
    monkeypatch.setattr(streams, "BLOCK", block)
    path = write(tmp_path / "a.csv", "label,text\na,x\nb,y\nc,z\nd\n")
    batches = read_batches(path, rows=2)
    assert pairs(next(batches)) == GOOD[:2]
    assert pairs(next(batches)) == GOOD[2:]
    with pytest.raises(DataError, match="line 5"):
        next(batches)
