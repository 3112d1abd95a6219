"""Result pages from templates: tables, plots and numbers in prose all come from the runs.

In a template, a line <!-- NAME --> becomes that table with its plot, a line <!-- points: a, b -->
a table of leads, set by set, and {name} a number of `named.py`.
"""

import re
import string
import textwrap
from pathlib import Path
from typing import Any

from experiments.pages.named import numbers
from experiments.pages.numbers import Number, PerSet
from experiments.running.store import RUNS
from experiments.tables.cells import can_plot, gather, markdown, ordered
from experiments.tables.sections import PLOTS, SECTIONS

TEMPLATES = Path(__file__).parent / "templates"
SUMMARY = "RESULTS.md"
ROOT = Path(__file__).parent.parent.parent
NOTE = "<!-- Made by `python -m experiments report`: edit experiments/pages/templates/{}. -->\n\n"


def write(folder: Path = RUNS) -> None:
    """All pages and plots: in their places in the project, or all in a folder of other runs."""
    place = ROOT if folder == RUNS else folder
    for name, text in pages(folder).items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf8")
    if not can_plot():
        print('no plots without matplotlib: pip install "hashembed[plot]"')
        return
    for name, plot in PLOTS.items():
        plot(folder, place / "experiments" / "figures" / f"{name}.png")


def pages(folder: Path) -> dict[str, str]:
    """Path under the project's root -> text."""
    known = numbers(folder)
    found = {}
    for template in sorted(TEMPLATES.glob("*.md")):
        name = template.name
        path = name if name == SUMMARY else f"experiments/results/{name}"
        found[path] = NOTE.format(name) + filled(template.read_text("utf8"), folder, known)
    return found


def filled(template: str, folder: Path, known: dict[str, Any]) -> str:
    """The template with its numbers and tables."""

    def table(mark: re.Match) -> str:
        name = mark[1]
        if name.startswith("points: "):
            return points([known[x] for x in name.removeprefix("points: ").split(", ")], folder)
        made = SECTIONS[name](folder)
        if name in PLOTS and made != "No runs yet.\n":
            made += f"\n![{name}](../figures/{name}.png)\n"
        return made

    text = "\n\n".join(map(wrapped, Quoting().vformat(template, (), known).split("\n\n")))
    return re.sub(r"^<!-- (.+) -->\n", table, text, flags=re.M)


class Quoting(string.Formatter):
    """Placeholders of templates; what needs a run that is missing is a dash."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        try:
            return super().get_field(field_name, args, kwargs)
        except LookupError:
            name = re.split(r"[.[]", field_name)[0]
            if name not in kwargs:
                raise
            return Number("nan"), name


def wrapped(block: str) -> str:
    """Paragraphs and lists in lines of equal length: numbers are not as long as their names."""
    if re.match(r"[|#<!]|    ", block):
        return block
    end = "\n" if block.endswith("\n") else ""
    items = re.split(r"\n(?=- )", block.rstrip("\n"))
    return "\n".join(fill_item(item) for item in items) + end


def fill_item(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(
        " ".join(text.split()),
        width=100,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def points(columns: list[PerSet], folder: Path) -> str:
    """A row for each set, the larger sets first; leads with their signs."""
    sets = {dataset for column in columns for dataset in column}
    sizes = [
        *(dataset for dataset, _ in ordered(gather(folder, "table2"))),
        *sorted(sets),
    ]
    rows = [
        [
            dataset,
            *(
                format(column[dataset], column.spec) if dataset in column else ""
                for column in columns
            ),
        ]
        for dataset in dict.fromkeys(sizes)
        if dataset in sets
    ]
    return markdown(["set", *(column.title for column in columns)], rows)
