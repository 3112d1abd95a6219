"""The programs of docs/guides/javascript.md run, and print what their comments say."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.cases.node import node

from hashembed.web.generate_tables import MODULE

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "javascript.md").read_text()
PROGRAMS = re.findall(r"(<!-- run: no -->\n)?^```(?:js|ts)\n(.*?)^```", GUIDE, re.M | re.S)
RUN = [code for skipped, code in PROGRAMS if not skipped]
NOT_RUN = [code for skipped, code in PROGRAMS if skipped]
HTML = re.findall(r"<script type=\"module\">\n(.*?)</script>", GUIDE, re.S)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A project with the package, and the model of the guide."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "hashembed").symlink_to(MODULE.parent)
    (folder / "hashembed.mjs").symlink_to(MODULE)
    make = re.search(r"^```python\n(.*?)^```", GUIDE, re.M | re.S)[1]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(compile(make, "javascript.md", "exec"), {})
    return folder


def test_the_guide_has_programs():
    assert len(RUN) == 2
    assert len(NOT_RUN) == 3
    assert len(HTML) == 1


@pytest.mark.parametrize("model", ["model.safetensors", "small.safetensors"])
@pytest.mark.parametrize("number", range(len(RUN)))
def test_programs_print_what_they_say(folder, number, model):
    """With both models of the guide."""
    path = folder / f"program{number}.mjs"
    path.write_text(RUN[number].replace("model.safetensors", model))
    done = subprocess.run([node(), path], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == re.findall(r"^console\.log.*; // (.*)$", RUN[number], re.M)


@pytest.mark.parametrize("number", range(len(NOT_RUN) + len(HTML)))
def test_other_programs_are_well_formed(folder, number):
    path = folder / f"other{number}.mjs"
    path.write_text([*NOT_RUN, *HTML][number])
    subprocess.run([node(), "--check", path], check=True)
