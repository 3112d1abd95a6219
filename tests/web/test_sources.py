"""The sources of pages: modules become one script, and CSV is read as in Python."""

import csv
import io
import json
import random
import subprocess
from pathlib import Path

import pytest
from tests.cases import browser as browsers
from tests.cases.node import node

from hashembed.web import bundle

CELLS = [
    "",
    "a",
    "two words",
    'a "b" c',
    "x,y",
    "1;2",
    "tab\there",
    "line\nend",
    "\r\n",
    '"',
    "é😀",
]


def tables(count: int, seed: int):
    """Tables as CSV in four dialects, cut anywhere."""
    draw = random.Random(seed)
    for _ in range(count):
        delimiter, end = draw.choice(",;\t|"), draw.choice(["\n", "\r\n"])
        width = draw.randint(2, 5)
        rows = [[draw.choice(CELLS) for _ in range(width)] for _ in range(draw.randint(1, 6))]
        out = io.StringIO(newline="")
        quoting = draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
        csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=quoting).writerows(rows)
        text = out.getvalue()
        text = text.removesuffix(end) if draw.random() < 0.3 else text
        yield text, delimiter, [draw.randint(1, 7) for _ in range(5)], rows


def test_csv_is_read_and_written_as_in_python():
    cases = list(tables(400, 0))
    done = subprocess.run(
        [node(), Path(__file__).with_name("csv_rows.mjs")],
        input=json.dumps([case[:3] for case in cases]),
        capture_output=True,
        text=True,
        encoding="utf8",
        check=True,
    )
    found = json.loads(done.stdout)
    right = 0
    for (text, delimiter, _, rows), read in zip(cases, found, strict=True):
        assert read["rows"] == read["again"] == rows, text
        right += read["delimiter"] == delimiter
    assert right > 0.9 * len(cases)  # these cells have other delimiters in them


def test_a_module_becomes_a_function():
    text = 'import { a } from "./b.mjs";\nexport const c = a;\nexport async function d() {}\n'
    made = bundle.as_function("e", text)
    assert made.startswith(
        "const $e = (() => {\nconst { a } = $b;\nconst c = a;\nasync function d()"
    )
    assert made.endswith("return { c, d };\n})();\n")
    for line in ('import x from "fs";', "export default 1;", "export { a };"):
        with pytest.raises(ValueError, match=r"e\.mjs: a page cannot have the line"):
            bundle.as_function("e", line)


def test_nothing_in_the_sources_ends_its_element(monkeypatch):
    assert "</" not in bundle.script()
    monkeypatch.setattr(bundle, "source", lambda name: "a </STYLE> b")
    with pytest.raises(ValueError, match="would end the script or the style"):
        bundle.style("tokens")


@pytest.mark.parametrize(
    ("in_ci", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)]
)
def test_a_missing_browser_is_a_failure_in_ci_only(in_ci, outcome, monkeypatch):
    monkeypatch.setenv("CI", in_ci)
    monkeypatch.setattr(browsers, "NAMES", ("no-such-browser",))
    with pytest.raises(outcome, match="install Debian's package chromium"), browsers.open_browser():
        pass
