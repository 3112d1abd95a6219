"""What README and docs show works, and what CI runs is what README says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hashembed.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.M | re.S)


PYTHON = [
    pytest.param(code, id=f"{page.relative_to(ROOT)}-{i}")
    for page in PAGES
    for i, code in enumerate(blocks(page, "python"))
]


# Needs a GPU, or names that the page does not define: `tests/test_gpu.py` runs the longest of them.
GPU = [
    pytest.param(code, id=f"{page.relative_to(ROOT)}-{i}")
    for page in PAGES
    for i, code in enumerate(blocks(page, "py"))
]


@pytest.mark.parametrize("code", PYTHON)
def test_python_in_the_documentation_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the repository would keep the files that they write
    exec(compile(code, "documentation", "exec"), {})


def test_no_model_at_the_root_was_committed():
    order = ["git", "ls-files", "--", ":(glob)*.safetensors"]
    done = subprocess.run(order, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == ""


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


@pytest.mark.parametrize("code", GPU)
def test_python_for_a_gpu_is_python(code):
    compile(code, "documentation", "exec")


def test_links_lead_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"(?:\]\(|src=\"|srcset=\")([^)#\"]+)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_benchmark_table_of_the_readme_is_its_result_file():
    sys.path.insert(0, str(ROOT))
    from benchmarks.report import BEGIN, CHOICE, END, read, table

    text = (ROOT / "README.md").read_text()
    assert text.split(BEGIN)[1].split(END)[0].strip() == table(read(CHOICE)[1])


def test_the_picture_of_the_readme_is_drawn_from_its_result_file():
    sys.path.insert(0, str(ROOT))
    from benchmarks.plot_readme import INK, picture, source

    for shade in INK:
        assert source() in picture(shade).read_text(), "run python -m benchmarks.plot_readme"


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 120


def test_tables_of_the_documentation_are_their_result_files():
    sys.path.insert(0, str(ROOT))
    from benchmarks import report

    for page, mark, table in (
        (report.TRAINING, "punctuation", report.punctuation_table),
        (report.IMBALANCE, "imbalance", report.imbalance_table),
        (report.CPU, "choice", report.choice_table),
    ):
        shown = page.read_text().split(f"<!-- {mark} -->")[1].split(report.END)[0].strip()
        assert shown == table(report.read(report.RESULTS / f"{mark}.csv")[1])
