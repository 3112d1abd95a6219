"""What people wait for: a new installation, from typing a command to its result, next to fastText.

    python -m benchmarks.bench_startup --data FOLDER [--sets imdb ...]     -> results/startup.csv

Installs the package into a new virtual environment, without Numba, with an empty home folder, and
measures the first run of each command there, then later ones. Every measured process belongs to
that environment. The settings of fastText are those that results/classify.csv chose on training
rows. FOLDER is the one of bench_classify.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.bench_classify import SETS, folders, prepare
from benchmarks.machine import RESULTS, read, table

ROOT = Path(__file__).parent.parent
COLUMNS = (
    "measure",
    "set",
    "hashembed",
    "peer",
    "ratio",
    "unit",
    "note",
)  # the peer is fastText, or what the measure names
REPEATS = 5
MB = 1e6


def main() -> None:
    parser = folders(__doc__)
    parser.add_argument("--sets", nargs="*", default=SETS)
    options = parser.parse_args()
    if options.data is None:
        parser.error("name the folder of data sets with --data or in HASHEMBED_DATA")
    files = {name: prepare(Path(options.data) / name, options.work / name) for name in options.sets}
    with tempfile.TemporaryDirectory() as folder, table(RESULTS / "startup.csv", COLUMNS) as add:
        machine = Machine(Path(folder))

        def note(*cells: object) -> None:
            row = dict(zip(COLUMNS, cells, strict=True))
            add({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()})
            print(
                "  ".join(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells)
            )

        note("installed size", "", machine.size / MB, "", "", "MB", "core, without pip")
        first_and_later(machine, files[options.sets[0]]["train"], note)
        cold_prediction(machine, note)
        machine.install("fasttext-wheel")
        for name in options.sets:
            whole_commands(machine, name, files[name], note)
            in_python(machine, name, files[name], note)


class Machine:
    """A new environment with the package, in which nothing has run yet."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir()
        self.model = str(folder / "model.safetensors")
        subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
        self.python = str(folder / "env" / "bin" / "python")
        self.install(str(ROOT))
        packages = next((folder / "env" / "lib").glob("python*")) / "site-packages"
        tools = ("pip", "setuptools", "_distutils_hack", "pkg_resources")
        self.size = sum(
            file.stat().st_size
            for file in packages.rglob("*")
            if file.is_file() and not file.relative_to(packages).parts[0].startswith(tools)
        )

    def install(self, what: str) -> None:
        order = [self.python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", what]
        subprocess.run(order, check=True)

    def run(self, *order: str, given: bytes = b"") -> tuple[float, bytes]:
        """Seconds, and what was printed."""
        hidden = ("PYTHON", "NUMBA", "HASHEMBED", "XDG")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
        environment["HOME"] = str(self.home)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as source:
            source.write(given)
            source.seek(0)
            start = time.perf_counter()
            subprocess.run(order, stdin=source, stdout=out, cwd=ROOT, env=environment, check=True)
            seconds = time.perf_counter() - start
            out.seek(0)
            return seconds, out.read()

    def hashembed(self, *arguments: str, given: bytes = b"") -> tuple[float, bytes]:
        return self.run(str(Path(self.python).parent / "hashembed"), *arguments, given=given)

    def peak(self, *arguments: str) -> float:
        """The peak of the memory of `hashembed`, in MB.

        A small process starts it: the system counts the memory of a parent as its child's.
        """
        code = (
            "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        )
        command = str(Path(self.python).parent / "hashembed")
        printed = self.run(self.python, "-S", "-c", code, command, *arguments)[1]
        return int(printed.split()[-1]) * 1024 / MB


def first_and_later(machine: Machine, train: Path, note) -> None:
    """The first run of each command in a new installation against later ones."""
    line = b"a new film about the war in space wins all prizes\n"
    commands = {
        "train": (("train", str(train), "-o", machine.model, "-q", "--force"), b""),
        "predict": (("predict", machine.model), line),
        "explain": (("explain", machine.model, line.decode().strip()), b""),
        "words": (("words", machine.model, str(train)), b""),
        "demo": (("demo",), b""),
    }
    imports = [machine.run(machine.python, "-c", "import numpy, pyarrow")[0] for _ in range(6)]
    usual = statistics.median(imports[1:])
    note(
        "first import numpy, pyarrow / later ones",
        "",
        imports[0],
        usual,
        imports[0] / usual,
        "s",
        "reads both from disk; the rows below come after it",
    )
    for name, (arguments, given) in commands.items():
        first, _ = machine.hashembed(*arguments, given=given)
        later = [machine.hashembed(*arguments, given=given)[0] for _ in range(REPEATS)]
        usual = statistics.median(later)
        note(f"first {name} / later ones", "", first, usual, first / usual, "s", "")


def cold_prediction(machine: Machine, note) -> None:
    """A process that answers one line against one that only imports what others import."""
    ours, theirs = [], []
    for _ in range(4 * REPEATS):
        ours.append(machine.hashembed("predict", machine.model, given=b"a film\n")[0])
        theirs.append(machine.run(machine.python, "-c", "import numpy, pyarrow")[0])
    ours, theirs = statistics.median(ours), statistics.median(theirs)
    name = "predict of one line / import numpy, pyarrow"
    note(name, "", ours, theirs, ours / theirs, "s", "median of 20")


def setting_of(name: str) -> dict:
    """What fastText was best with."""
    rows = read(RESULTS / "classify.csv")
    found = next(r for r in rows if r["set"] == name and r["tool"] == "fastText")
    return json.loads(found["setting"])


def whole_commands(machine: Machine, name: str, files: dict, note) -> None:
    """From the start of a process to the saved model, in turns; and the peak of memory."""
    train, other = str(files["train"]), str(machine.folder / "fasttext.bin")
    code = (
        "import sys, fasttext; fasttext.train_supervised(sys.argv[1], minCount=1, thread=2, "
        f"verbose=0, epoch=5, dim=20, bucket=2_000_000, wordNgrams=2, lr={setting_of(name)['lr']})"
        ".save_model(sys.argv[2])"
    )
    choosing = ("train", train, "-o", machine.model, "-q", "--force")
    arguments = (*choosing, "--effort", "fast")
    chosen, ours, theirs = [], [], []
    for _ in range(3):
        chosen.append(machine.hashembed(*choosing)[0])
        ours.append(machine.hashembed(*arguments)[0])
        theirs.append(machine.run(machine.python, "-c", code, train, other)[0])
    peer = min(theirs)
    note("whole command, effort fast", name, min(ours), peer, peer / min(ours), "s", "best of 3")
    note("whole command", name, min(chosen), peer, peer / min(chosen), "s", "best of 3; it chooses")
    parts = json.loads(
        machine.run(machine.python, "-c", PARTS, train, machine.model)[1].splitlines()[-1]
    )
    peak = machine.peak(*arguments)
    limit = sum(parts.values()) / MB + 100
    said = ", ".join(f"{part} {size / MB:.0f}" for part, size in parts.items())
    note("peak memory of train", name, peak, limit, peak / limit, "MB", f"{said}, +100")


# Prints the bytes of a training's text, keys and tables.
PARTS = """
import json, os, sys
from hashembed import TextClassifier
from hashembed.readers import read_fasttext
from hashembed.text.pipeline import text_to_bags
clf = TextClassifier.load(sys.argv[2])
bags = text_to_bags(read_fasttext(sys.argv[1])[1], clf.text_config_)
tables = clf.model_.memory
size = sum(getattr(tables, n).nbytes for n in ("E", "E_square", "records", "W", "W_square"))
print(json.dumps({"text": os.path.getsize(sys.argv[1]), "keys": bags.keys.nbytes, "tables": size}))
"""


def in_python(machine: Machine, name: str, files: dict, note) -> None:
    """After the start: training, and single texts."""

    def measure(tool: str, setting: dict) -> dict:
        order = ["-m", "benchmarks.run_one", tool, str(files["train"]), str(files["test"])]
        printed = machine.run(machine.python, *order, json.dumps(setting), "--full")[1]
        return json.loads(printed.splitlines()[-1])

    ours = [measure("hashembed", {"effort": "fast"}) for _ in range(3)]
    theirs = [measure("fastText", setting_of(name)) for _ in range(2)]
    for key, label, best in (
        ("train_seconds", "training after the start, effort fast", min),
        ("single_per_second", "single texts, effort fast", max),
    ):
        one, two = (best(row[key] for row in rows) for rows in (ours, theirs))
        ratio = two / one if best is min else one / two
        note(label, name, one, two, ratio, "s" if best is min else "texts/s", "")


if __name__ == "__main__":
    main()
