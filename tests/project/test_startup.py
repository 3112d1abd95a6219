"""What a fresh process imports: commands start fast only if they load what they use and no more."""

import os
import subprocess
import sys

import pytest

from hashembed import TextClassifier

ARROW, RICH = "pyarrow", "rich"
COMPUTE = {ARROW, "pyarrow.compute", "pydoc"}  # pydoc: pyarrow.compute's own
TRAINING, METRICS = "hashembed.classify.training", "hashembed.classify.metrics"
EXPLAIN, TEXT_TABLES = "hashembed.classify.explain", "hashembed.readers.formats.delimited"

# Modules that take long to import. Each case below names those that it uses; no other is loaded.
HEAVY = {
    *COMPUTE,
    EXPLAIN,
    METRICS,
    RICH,
    TEXT_TABLES,
    TRAINING,
    "IPython",
    "asyncio",
    "concurrent.futures",
    "datasets",
    "difflib",
    "http",
    "huggingface_hub",
    "llvmlite",
    "matplotlib",
    "multiprocessing",
    "numba",
    "numpy.ma",
    "numpy.testing",
    "pandas",
    "pyarrow.csv",
    "pyarrow.dataset",
    "pyarrow.fs",
    "pyarrow.json",
    "pyarrow.parquet",
    "ray",
    "safetensors",
    "scipy",
    "sklearn",
    "ssl",
    "torch",
    "triton",
    "unittest",
}
# Arguments of a command -> the heavy modules that it uses.
COMMANDS = {
    "--help": set(),
    "train --help": set(),
    "vectors --help": set(),
    "info model": set(),
    "info --runtime": set(),
    "card model": set(),
    "plan --vocabulary 1M --dim 20 --json": set(),
    "predict model": {ARROW},  # answers standard input
    "predict model lines.txt --top 2": {ARROW},
    "predict model lines.txt --json": {ARROW},
    "predict model test.csv": {ARROW, TEXT_TABLES},
    "predict model test.csv --output new.csv": {ARROW, TEXT_TABLES},
    "predict model test.jsonl --output new.jsonl": {ARROW, "pyarrow.json"},
    "page model --output new.html": set(),
    "page model --test test.csv --output new.html": {ARROW, METRICS, TEXT_TABLES},
    "explain model film --json": {ARROW, EXPLAIN},
    "explain model film": {ARROW, EXPLAIN, RICH},
    "words model test.csv --json": {ARROW, EXPLAIN, TEXT_TABLES},
    "test model test.csv --json": {ARROW, METRICS, TEXT_TABLES},
    "test model test.csv": {ARROW, METRICS, RICH, TEXT_TABLES},
    "compare model model test.csv": {ARROW, METRICS, RICH, TEXT_TABLES},
    "compress model --output new --bits 4 --json": {ARROW},
    "train test.csv --output new": {ARROW, TRAINING, TEXT_TABLES},
    "train lines.ft --output new": {ARROW, TRAINING},
}

RUN = "from hashembed.cli import run; run()"
CLASSIFIER = "from hashembed import TextClassifier"
LOAD = f"{CLASSIFIER}; clf = TextClassifier.load('model')"
# Statements -> the heavy modules that they use.
STATEMENTS = {
    "import hashembed": set(),
    CLASSIFIER: set(),
    f"{LOAD}; clf.predict(['a good film'])": set(),
    f"{LOAD}; clf.predict_proba(['a good film', None])": {ARROW},
    f"{LOAD}; clf.explain('a good film').to_dict()": {ARROW, EXPLAIN},
    f"{CLASSIFIER}; TextClassifier().fit(['good', 'bad'], ['+', '-'])": {ARROW, TRAINING},
    f"{CLASSIFIER}; TextClassifier().partial_fit(['good', 'bad'], ['+', '-'])": {ARROW, TRAINING},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("startup")
    texts, labels = ["a good film", "a bad film", "good", "bad"] * 10, ["+", "-"] * 20
    TextClassifier().fit(texts, labels).save(path / "model")
    rows = list(zip(labels, texts, strict=True))
    (path / "lines.txt").write_text("".join(f"{text}\n" for text in texts))
    (path / "lines.ft").write_text("".join(f"__label__{a} {b}\n" for a, b in rows))
    (path / "test.csv").write_text(
        "".join(f"{row}\n" for row in ["label,text", *map(",".join, rows)])
    )
    (path / "test.jsonl").write_text(
        "".join(f'{{"label": "{a}", "text": "{b}"}}\n' for a, b in rows)
    )
    return path


def loaded(code: str, arguments: list[str], folder) -> set[str]:
    """The heavy modules that a new process has loaded when it ends."""
    report = (
        "import atexit, sys\n"
        "atexit.register(lambda: open('modules', 'w').writelines(\n"
        "    f'{name}\\n' for name, module in sys.modules.items() if module is not None))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", report + code, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        input="a good film\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return HEAVY & set((folder / "modules").read_text().split())


@pytest.mark.parametrize("arguments", COMMANDS)
def test_commands_load_only_what_they_use(arguments, folder):
    assert loaded(RUN, [*arguments.split(), *_quiet(arguments)], folder) == COMMANDS[arguments]


def _quiet(arguments: str) -> list[str]:
    return ["--quiet", "--force"] if "--output" in arguments else []


@pytest.mark.parametrize("code", STATEMENTS)
def test_the_library_loads_only_what_it_uses(code, folder):
    assert loaded(code, [], folder) == STATEMENTS[code]


def test_heavy_modules_are_spelled_correctly(folder):
    """A misspelled module would never be found."""
    code = "import importlib\nfor name in sys.argv[1:]: importlib.import_module(name)"
    known = sorted(HEAVY - {"IPython", "triton"})  # which may be missing
    assert loaded(code, known, folder) >= set(known)


def test_a_command_ends_like_any_python(folder):
    """It ends at once, but after everything that was promised to run before."""
    code = f"import atexit; atexit.register(print, 'at exit'); {RUN}"
    order = [sys.executable, "-c", code]
    done = subprocess.run(
        [*order, "predict", "model"], cwd=folder, input=b"good\n", capture_output=True, check=True
    )
    assert done.stdout.split() == [b"+", b"at", b"exit"]
    done = subprocess.run([*order, "info", "no such file"], cwd=folder, capture_output=True)
    assert done.returncode == 1
    assert done.stdout.split() == [b"at", b"exit"]


def test_a_command_waits_for_threads(folder):
    code = "import threading, time\n" + (
        "threading.Thread(target=lambda: (time.sleep(0.5), print('thread'))).start()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code + RUN, "--help"], cwd=folder, capture_output=True, check=True
    )
    assert b"thread\n" in done.stdout
