"""Pages that must keep up with the code: the reference of TextClassifier, and printed results."""

import inspect
import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from hashembed import TextClassifier
from hashembed.cli import main

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = (DOCS / "guides" / "classify.md").read_text()
EXPLAIN = (DOCS / "guides" / "explain.md").read_text()


def described() -> set[str]:
    """What stands in backticks in the first column of a table, without brackets and defaults."""
    first = re.findall(r"^\| (`[^|]+`) \|", REFERENCE, re.M)
    names = [name for cell in first for name in re.findall(r"`(?:TextClassifier\.)?(\w+)", cell)]
    return set(names)


def public_methods() -> dict[str, object]:
    return {
        name: member
        for name, member in inspect.getmembers(TextClassifier)
        if not name.startswith("_") and callable(member)
    }


def attributes() -> set[str]:
    """What is learned: declared, or a property."""
    annotated = [name for cls in TextClassifier.__mro__ for name in inspect.get_annotations(cls)]
    declared = {name for name in annotated if name.endswith("_")}
    properties = inspect.getmembers(TextClassifier, lambda member: isinstance(member, property))
    return declared | {name for name, _ in properties if not name.startswith("_")}


def test_the_reference_has_every_argument_with_its_default():
    defaults = dict(re.findall(r"^\| `(\w+[^_`])` \| `(.*?)` \|", REFERENCE, re.M))
    parameters = TextClassifier.__init__.__kwdefaults__
    assert {name: value.replace('"', "'") for name, value in defaults.items()} == {
        name: repr(value) for name, value in parameters.items()
    }


def test_the_reference_has_every_method_and_attribute():
    missing = (public_methods().keys() | attributes()) - described()
    assert not missing, f"docs/guides/classify.md does not describe {sorted(missing)}"


def test_the_reference_describes_nothing_that_is_not_there():
    known = {*public_methods(), *attributes(), *TextClassifier.__init__.__kwdefaults__}
    assert described() <= known


@pytest.mark.parametrize("name", sorted(public_methods()))
def test_the_reference_has_every_argument_of_a_method(name):
    written = re.search(rf"^\|[^|]*`(?:TextClassifier\.)?{name}\((.*?)\)`", REFERENCE, re.M)
    assert written, f"docs/guides/classify.md shows no call of {name}"
    named = set(re.findall(r"\w+", re.sub(r"=[^,]+", "", written[1])))
    parameters = set(inspect.signature(getattr(TextClassifier, name)).parameters) - {"self", "cls"}
    assert named == parameters


# --- docs/guides/explain.md --------------------------------------------------------------------


@pytest.fixture(scope="module")
def printed() -> str:
    code = re.search(r"^```python\n(.*?)^```", EXPLAIN, re.M | re.S)[1]
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(code, "explain.md", "exec"), {})
    return out.getvalue()


def rows(text: str) -> dict[str, float]:
    """n-gram -> the first number with a point in its line of a table."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        numbers = [w for w in words if re.fullmatch(r"[+-]?\d+\.\d+", w)]
        names = [w for w in words if not re.fullmatch(r"[+-]?[\d.,]+%?", w)]
        if numbers and names:
            found[names[0]] = float(numbers[0])
    return found


def test_the_output_that_the_page_shows_is_what_the_code_prints(printed):
    """Processors sum in different orders, so that the last digit, and neighbours, may differ."""
    shown = re.findall(r"^```text\n(.*?)^```", EXPLAIN, re.M | re.S)
    explanation, table, _ = shown
    message = f"docs/guides/explain.md is stale; its code prints\n{printed}"
    likeliest = re.match(r"(\w+) ([\d.]+)%", explanation)
    found = re.match(r"(\w+) ([\d.]+)%", printed)
    assert likeliest[1] == found[1], message
    assert abs(float(likeliest[2]) - float(found[2])) <= 0.5, message
    assert re.findall(r"^[\d,]+ n-grams.*$", table, re.M) == re.findall(
        r"^[\d,]+ n-grams.*$", printed, re.M
    ), message
    here, there = {**rows(explanation), **rows(table)}, rows(printed)
    assert len(here.keys() & there.keys()) >= 0.8 * len(here), message
    for name in here.keys() & there.keys():
        assert here[name] == pytest.approx(there[name], abs=0.02), message


# --- docs/guides/classify.md -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heading", "tolerance"),
    [("Let it choose", 0.3), ("Can you trust the probabilities?", 0.02)],  # the first in percent
)
def test_the_numbers_of_a_section_are_what_its_code_prints(heading, tolerance):
    section = REFERENCE.partition(f"## {heading}\n")[2]
    code = re.search(r"^```python\n(.*?)^```", section, re.M | re.S)[1]
    shown = re.search(r"^```text\n(.*?)^```", section, re.M | re.S)[1]
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(code, "classify.md", "exec"), {})
    message = f"docs/guides/classify.md is stale; its code prints\n{out.getvalue()}"
    number = r"\d+\.\d+"
    words = [re.sub(r"[\d.]+", "#", text) for text in (shown, out.getvalue())]
    assert words[0] == words[1], message
    here, there = ([float(x) for x in re.findall(number, text)] for text in (shown, out.getvalue()))
    assert here == pytest.approx(there, abs=tolerance), message


# --- docs/guides/ids.md --------------------------------------------------------------------------


def test_the_diagnosis_that_the_page_shows_is_what_the_code_prints():
    section = (DOCS / "guides" / "ids.md").read_text().partition("## Do ids collide?\n")[2]
    code = re.search(r"^```python\n(.*?)^```", section, re.M | re.S)[1]
    shown = re.search(r"^```text\n(.*?)^```", section, re.M | re.S)[1]
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(code, "ids.md", "exec"), {})
    assert out.getvalue() == shown


# --- commands -----------------------------------------------------------------------------------


def shown_commands():
    """(place, command, its options) of all lines that show a command, in pages and in the help."""
    pages = {
        str(page): page.read_text() for page in [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
    }
    helps = {f"help of {name}": command.epilog or "" for name, command in main.commands.items()}
    for place, text in {**pages, **helps}.items():
        names = "|".join(main.commands)
        for line in re.findall(rf"hashembed ((?:{names})(?: [^`|#\n]*)?)", text):
            command, *words = line.split()
            options = [w.partition("=")[0] for w in words if re.match(r"--?[a-z]", w)]
            yield place, command, options


def test_every_option_that_pages_show_is_there():
    seen = 0
    for place, name, options in shown_commands():
        command = main.commands[name]
        known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
        for option in options:
            assert option in known, f"{place} shows hashembed {name} {option}"
            seen += 1
    assert seen > 30


def test_the_readme_or_a_page_shows_every_command():
    assert {name for _, name, _ in shown_commands()} >= set(main.commands)
