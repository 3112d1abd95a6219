"""What README and docs show works, and what CI runs is what README says."""

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hashembed import demo
from hashembed.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.M | re.S)


PYTHON = [
    pytest.param(code, id=f"{page.relative_to(ROOT)}-{i}")
    for page in PAGES
    for i, code in enumerate(blocks(page, "python"))
]


@pytest.mark.parametrize("code", PYTHON)
def test_python_in_the_documentation_runs(code):
    exec(compile(code, "documentation", "exec"), {})


def test_ci_runs_the_commands_of_the_readme():
    commands = [
        line
        for block in blocks(ROOT / "README.md", "sh")
        for line in block.splitlines()
        if "-m venv" in line
    ]
    assert len(commands) == 2
    script = (ROOT / ".ci" / "run").read_text().splitlines()
    for command in commands:
        assert command in script


def test_hashembed_commands_in_the_documentation_are_accepted():
    text = "\n".join(page.read_text() for page in PAGES)
    commands = set(re.findall(r"^\s*hashembed (plan .*)$", text, re.M))
    assert commands
    for command in commands:
        result = CliRunner().invoke(main, command.split("#")[0].split())
        assert result.exit_code == 0, result.output


def test_links_lead_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_table_of_the_readme_is_the_demonstration():
    task = demo.load_task()
    results = {r.name: r for r in demo.compare(task)}
    rows = re.findall(r"^\| (standard|hash\w*)(.*)\|$", (ROOT / "README.md").read_text(), re.M)
    assert len(rows) == 3
    for kind, rest in rows:
        name = next(n for n in results if (kind + rest).startswith(n))
        cells = [cell.strip() for cell in rest.split("|")]
        result = results[name]
        keys = f"{len(task.train_vocabulary):,} keys" if result.dictionary else "none"
        assert cells[1:3] == [keys, f"{result.parameters:,}"]
        # Another processor may sum in another order; 0.5% is 8 of the 1,600 sentences.
        assert abs(float(cells[3].rstrip("%")) / 100 - result.accuracy) <= 0.005


def test_the_benchmark_table_of_the_readme_is_its_result_file():
    sys.path.insert(0, str(ROOT))
    from benchmarks.report import BEGIN, END, read, table

    text = (ROOT / "README.md").read_text()
    assert text.split(BEGIN)[1].split(END)[0].strip() == table(read()[1])


def test_tables_of_the_documentation_are_their_result_files():
    sys.path.insert(0, str(ROOT))
    from benchmarks import report

    for page, mark, table in (
        (report.TRAINING, "punctuation", report.punctuation_table),
        (report.IMBALANCE, "imbalance", report.imbalance_table),
    ):
        shown = page.read_text().split(f"<!-- {mark} -->")[1].split(report.END)[0].strip()
        assert shown == table(report.read(report.RESULTS / f"{mark}.csv")[1])


def test_demo_command():
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 0, result.output
    for words in ("6,400 sentences", "83,918", "hash embedding", "predicted", "hashembed plan"):
        assert words in result.output


def test_collisions_of_the_demonstration_agree_with_the_theory():
    counts = demo.collisions(demo.load_task())
    for c in counts:
        # Five standard deviations of a Poisson count bound those of these sums of rare events.
        assert abs(c.predicted - c.measured) <= 5 * (2 * c.predicted) ** 0.5 + 2
    assert counts[0].measured > counts[1].measured > 100 > counts[2].measured
