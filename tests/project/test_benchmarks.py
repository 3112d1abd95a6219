"""The index of the benchmarks, and the columns that say where a result comes from."""

import re
from pathlib import Path

import pytest
from benchmarks import index, machine
from benchmarks.machine import COLUMNS, RESULTS, read, table

FOLDER = Path(machine.__file__).parent
LISTED = [benchmark for part in index.SECTIONS.values() for benchmark in part]


def test_the_index_is_up_to_date():
    assert index.PAGE.read_text("utf8") == index.page(), "run python -m benchmarks.index"


def test_the_index_has_every_benchmark():
    assert {b.command.split()[0] for b in LISTED} == {p.stem for p in FOLDER.glob("bench_*.py")}


def test_the_index_has_every_result():
    listed = {name for benchmark in LISTED for name in benchmark.recorded} | set(index.OTHERS)
    pictures = {path.name for path in RESULTS.glob("*.svg")}  # of the README and the pages
    assert listed == {path.name for path in RESULTS.iterdir()} - pictures


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.csv")), ids=lambda path: path.stem)
def test_results_say_where_they_come_from(path):
    for row in read(path):
        assert set(COLUMNS) <= set(row)
        assert row["gpu"] or row["cpu"]
        assert row["python"] or row["torch"]


def test_this_machine_is_described():
    here = machine.machine()
    assert tuple(here) == COLUMNS
    assert all(here[name] for name in ("date", "cores", "python", "numpy", "numba"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", here["date"])
    assert f"python {here['python']}, " in machine.heading()


def test_rows_get_the_machine_unless_they_have_their_own(tmp_path):
    path = tmp_path / "some.csv"
    with table(path, ["case", "threads", 0.5]) as add:
        add(["first", 3, 1.25])
        assert len(read(path)) == 1  # an interrupted benchmark leaves what it has
        add({"case": "older", "0.5": 2, "cpu": "an abacus", "numba": ""})
    first, older = read(path)
    assert list(first) == ["case", "0.5", *COLUMNS]
    assert (first["0.5"], first["threads"], first["cpu"]) == ("1.25", "3", machine.cpu())
    assert (older["0.5"], older["cpu"], older["numba"]) == ("2", "an abacus", "")
