"""`hashembed plan`, with the text pipeline and with a stand-in for it."""

import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from hashembed.cli import main
from hashembed.cli.plan import INDEXING_CHOICES
from hashembed.hashing.spec import INDEXINGS, ngram_key
from hashembed.text.counts import distinct as sketch

EXAMPLE = ["--vocabulary", "100M", "--dim", "20", "--budget", "160MB"]


def run(*arguments: str, **options: Any) -> Result:
    result = CliRunner().invoke(main, ["plan", *arguments], **options)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def run_json(*arguments: str, **options: Any) -> dict[str, Any]:
    result = run(*arguments, "--json", **options)
    assert result.exit_code == 0, result.stderr
    fields: dict[str, Any] = json.loads(result.stdout)
    return fields


@dataclass
class StandInConfig:
    ngrams: tuple[int, int]
    lowercase: bool
    punctuation: str = "drop"


def stand_in_bags(lines: Any, config: StandInConfig) -> SimpleNamespace:
    keys = []
    for line in lines.cast("large_binary").to_pylist():
        text = line.decode(errors="replace")
        words = (text.lower() if config.lowercase else text).split()
        for n in range(config.ngrams[0], config.ngrams[1] + 1):
            keys += [ngram_key(words[i : i + n]) for i in range(len(words) - n + 1)]
    return SimpleNamespace(keys=np.array(keys, np.int64))


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("hashembed.text.pipeline")
    module.text_to_bags = stand_in_bags  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hashembed.text.pipeline", module)
    monkeypatch.setattr("hashembed.text.config.TextConfig", StandInConfig)


def test_table() -> None:
    result = run(*EXAMPLE)
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "a standard table takes 8 GB" in " ".join(result.stdout.split())
    marked = [line.split() for line in result.stdout.splitlines() if line.startswith("* ")]
    assert marked[0][:6] == ["*", "2", "1M", "10M", "40M", "160"]
    assert marked[1][:4] == ["*", "k", "=", "2"]
    assert "\x1b" not in result.stdout  # no colours in a pipe
    assert result.stdout.isascii() or "─" in result.stdout


@pytest.mark.parametrize("columns", ["20", "80", "200"])
def test_numbers_are_never_cut(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    result = run("--vocabulary", "1e18", "--dim", "20", "--indexing", "shared")
    assert "…" not in result.stdout
    assert "1,000,000,000,000,000,000" in result.stdout
    assert " 4.2G " in result.stdout


def test_the_example_fits_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, run(*EXAMPLE).stdout.splitlines())) <= 80


def test_prints_on_a_terminal_without_unicode() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-c", "from hashembed.cli import main; main()", "plan", *EXAMPLE]
    finished = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert finished.stdout.isascii()
    assert finished.stderr == b""


def test_json_holds_the_plan_and_nothing_else() -> None:
    fields = run_json(*EXAMPLE)
    assert fields["recommended"]["num_buckets"] == 10**6
    assert fields["budget_bytes"] == 160 * 10**6
    assert "text" not in fields


def test_options_reach_the_plan() -> None:
    fields = run_json(
        *["--vocabulary", "10k", "--dim", "100", "--dtype", "float16", "--indexing", "shared"],
        *["--num-hashes", "2", "--num-hashes", "3"],
    )
    assert fields["dtype_bytes"] == 2
    assert fields["indexing"] == "shared"
    assert fields["num_hashes"] == [2, 3]
    assert fields["budget_bytes"] is None


def test_choices_are_the_librarys() -> None:
    assert INDEXING_CHOICES == INDEXINGS


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("100M", 10**8),
        ("1e8", 10**8),
        ("1E+8", 10**8),
        ("100_000_000", 10**8),
        ("2.5k", 2500),
        ("2.5e3", 2500),
        ("1b", 10**9),
        ("3 G", 3 * 10**9),
        ("1.2345678T", 1_234_567_800_000),
        ("999999999999999999", 10**18 - 1),
    ],
)
def test_counts(text: str, number: int) -> None:
    assert run_json("--vocabulary", text, "--dim", "20")["vocabulary"] == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("160MB", 160 * 10**6),
        ("160 mb", 160 * 10**6),
        ("160M", 160 * 10**6),
        ("160000000", 160 * 10**6),
        ("160_000_000B", 160 * 10**6),
        ("1GiB", 2**30),
        ("1.5MiB", 3 * 2**19),
        ("0.001TB", 10**9),
    ],
)
def test_sizes(text: str, number: int) -> None:
    fields = run_json("--vocabulary", "100M", "--dim", "20", "--budget", text)
    assert fields["budget_bytes"] == number


BAD_NUMBERS = ["", "x", "0", "-5", "1.5", "1,000", "1e99", "1e999999999", "100X", "1MiB", "nan"]


@pytest.mark.parametrize("text", [*BAD_NUMBERS, "10e18", "1e-3k", ".5", "k"])
def test_bad_counts(text: str) -> None:
    result = run("--vocabulary", text, "--dim", "20")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "--vocabulary" in result.stderr
    assert f"found {text!r}, expected a whole number" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--dim", "20"], "Give either --vocabulary or --text, found neither."),
        ([*EXAMPLE, "--text", "x"], "Give either --vocabulary or --text, found both."),
        (["--vocabulary", "1M"], "Missing option '--dim'"),
        (["--vocabulary", "1M", "--dim", "0"], "'--dim': 0 is not in the range"),
        (["--vocabulary", "1M", "--dim", "20", "--budget", "1X"], "'--budget': found '1X'"),
        (["--vocabulary", "1M", "--dim", "20", "--budget", "1kB"], "budget of 1 kB is too small"),
        ([*EXAMPLE, "--ngrams", "2-1"], "'--ngrams': found '2-1', expected a length from 1 to 99"),
        ([*EXAMPLE, "--ngrams", "0"], "'--ngrams': found '0'"),
        ([*EXAMPLE, "--indexing", "both"], "'both' is not one of"),
        ([*EXAMPLE, "--dtype", "int8"], "'int8' is not one of"),
        ([*EXAMPLE, "--num-hashes", "0"], "'--num-hashes': 0 is not in the range"),
        (["--vocabulary", "5G", "--dim", "2", "--indexing", "identity"], "vocabulary must be"),
        ([*EXAMPLE, "--plot", "plan.xyz"], "--plot: Format 'xyz' is not supported"),
        ([*EXAMPLE, "--bugdet", "1"], "No such option"),
    ],
)
def test_usage_errors(arguments: list[str], sentence: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert sentence in result.stderr


def test_plot(tmp_path: Path) -> None:
    path = tmp_path / "plan.svg"
    result = run(*EXAMPLE, "--plot", str(path), "--json")
    assert result.exit_code == 0
    json.loads(result.stdout)
    assert result.stderr == f"Wrote {path}.\n"
    assert path.read_text().startswith("<?xml")


def test_plot_where_it_cannot_be_written(tmp_path: Path) -> None:
    result = run(*EXAMPLE, "--plot", str(tmp_path / "missing" / "plan.png"))
    assert result.exit_code == 2  # before anything is counted, as of every output
    assert f"cannot be written: found no folder {tmp_path / 'missing'}" in result.stderr


def test_plot_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run(*EXAMPLE, "--plot", str(tmp_path / "plan.png"))
    assert result.exit_code == 1
    assert 'pip install "hashembed[plot]"' in result.stderr


@pytest.mark.usefixtures("stand_in")
def test_text(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("the cat sat\nThe dog sat\n\nthe cat")
    text = run_json("--text", str(path), "--dim", "20")["text"]
    # the cat sat dog; the-cat cat-sat the-dog dog-sat
    assert text["distinct_ngrams"] == 8
    assert text["file"] == str(path)
    cased = run_json("--text", str(path), "--dim", "20", "--no-lowercase", "--ngrams", "1")
    assert cased["vocabulary"] == 5
    shown = run("--text", str(path), "--dim", "20")
    assert "8 tokens (+- 0.4%, from" in " ".join(shown.stdout.split())
    assert shown.stderr == ""


@pytest.mark.usefixtures("stand_in")
def test_text_from_stdin() -> None:
    fields = run_json("--text", "-", "--dim", "20", "--ngrams", "2-3", input=b"a b c d\r\na b\r\n")
    assert fields["vocabulary"] == 5


@pytest.mark.usefixtures("stand_in")
def test_binary_garbage_is_text(tmp_path: Path) -> None:
    path = tmp_path / "garbage"
    path.write_bytes(np.random.default_rng(0).bytes(20_000))
    assert run_json("--text", str(path), "--dim", "20")["vocabulary"] > 100


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("content", [b"", b"\n\n  \n"])
def test_text_without_words(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "empty"
    path.write_bytes(content)
    result = run("--text", str(path), "--dim", "20")
    assert result.exit_code == 1
    assert result.stderr == f"Error: {path}: found no n-grams, so there is nothing to plan for.\n"


@pytest.mark.usefixtures("stand_in")
def test_lengths_that_the_pipeline_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: object) -> None:
        raise ValueError("ngrams must end at 9 or before")

    monkeypatch.setattr("hashembed.text.config.TextConfig", refuse)
    result = run("--text", "-", "--dim", "20", "--ngrams", "1-99", input=b"a b")
    assert result.exit_code == 2
    assert "--ngrams: ngrams must end at 9 or before." in result.stderr


@pytest.mark.usefixtures("stand_in")
def test_text_that_cannot_be_read(tmp_path: Path) -> None:
    missing = run("--text", str(tmp_path / "missing"), "--dim", "20")
    assert missing.exit_code == 1
    assert (
        missing.stderr == f"Error: {tmp_path}/missing: cannot be read: No such file or directory.\n"
    )
    directory = run("--text", str(tmp_path), "--dim", "20")
    assert directory.exit_code == 1
    assert directory.stderr == f"Error: {tmp_path}: cannot be read: Is a directory.\n"


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("chunk", [9, 10, 11, 12, 13, 14, 15, 64, 10_000])
def test_chunks_do_not_change_the_count(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{i % 17} {i % 13} {i % 11}" for i in range(50)]
    content = "\n".join(lines).encode()
    assert chunk > max(map(len, lines))
    monkeypatch.setattr(sketch, "CHUNK_BYTES", chunk)
    done: list[int] = []
    counter = sketch.count_distinct_ngrams(
        io.BytesIO(content),
        StandInConfig((1, 2), True),  # type: ignore[arg-type]
        done.append,
    )
    words = {word for line in lines for word in line.split()}
    pairs = {pair for line in lines for pair in pairwise(line.split())}
    assert round(counter.estimate()) == len(words) + len(pairs)
    assert sum(done) == len(content)


@pytest.mark.usefixtures("stand_in")
def test_an_endless_line_stays_within_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketch, "CHUNK_BYTES", 64)
    for content in (b"word " * 1000, b"x" * 5000):
        done: list[int] = []
        config: Any = StandInConfig((1, 1), True)
        sketch.count_distinct_ngrams(io.BytesIO(content), config, done.append)
        assert sum(done) == len(content)
        assert max(done) <= 128


def test_real_text_pipeline(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    words = [f"w{i}" for i in range(500)]
    lines = [f"{a} {b}" for a, b in pairwise(words)]
    path.write_bytes("\n".join([*lines, "W1 w2", ""]).encode() + b"\xff\xfe\x00 w3\n")
    lower = run_json("--text", str(path), "--dim", "20", "--ngrams", "1-2")["vocabulary"]
    cased = run_json("--text", str(path), "--dim", "20", "--no-lowercase")["vocabulary"]
    # 500 words, 499 pairs and whatever the broken bytes make; the sketch adds an error of its own.
    assert lower == pytest.approx(1000, rel=0.01)
    assert cased == pytest.approx(1002, rel=0.01)
    pairs = run_json("--text", str(path), "--dim", "20", "--ngrams", "2")["vocabulary"]
    assert pairs == pytest.approx(500, rel=0.01)


def test_version_and_help() -> None:
    assert version("hashembed") in CliRunner().invoke(main, ["--version"]).stdout
    text = run("--help").stdout
    assert text.rstrip().endswith("hashembed plan --vocabulary 100M --dim 20 --budget 160MB")
    command = main.commands["plan"]  # type: ignore[attr-defined]
    assert all(getattr(option, "help", None) for option in command.params)


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["plan", *EXAMPLE]])
def test_light_commands_import_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from hashembed.cli import main; main(sys.argv[1:], standalone_mode=False);"
        "print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = set(finished.stderr.split())
    assert "click" in loaded
    assert not loaded & {"torch", "numba", "pyarrow", "matplotlib"}
    if "--help" in arguments:
        assert not loaded & {"rich", "numpy"}
