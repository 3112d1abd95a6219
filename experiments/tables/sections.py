"""All tables and plots by name, made from the runs."""

from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.data import datasets
from experiments.plans.ablations import ABLATIONS
from experiments.tables import (
    ablations,
    best,
    collisions,
    deep,
    follow_ups,
    paper,
    phrases,
    regularising,
)

AT_HAND = (*datasets.SOURCES, *datasets.SENTENCES)

SECTIONS: dict[str, Callable[[Path], str]] = {
    "table1": paper.table1,
    "table2": paper.table2,
    "table2 adam": deep.adam,
    "table2 dictionary": deep.dictionary,
    "table2 lengths": deep.lengths,
    "table2 normalisation": deep.normalisation,
    "table3": paper.table3,
    "table4": phrases.table,
    "collisions": collisions.table,
    **{name: ablations.table(name) for name in ABLATIONS},
    "regularising": regularising.table,
    "pruning": follow_ups.pruning,
    "classes": follow_ups.classes,
    "best": best.table,
}
PLOTS: dict[str, Callable[[Path, Path], None]] = {
    "table4": phrases.plot,
    "collisions": collisions.plot,
    **{name: ablations.plot(name) for name in ABLATIONS},
    "regularising": regularising.plot,
    "pruning": follow_ups.plot_pruning,
    "classes": follow_ups.plot_classes,
    "best": best.plot,
}


# Which table a part of table 2 fills, if it is not the first one.
OF_PARTS = {
    "adam": "table2 adam",
    "dictionary": "table2 dictionary",
    "small-start": "table2 dictionary",
    "ensemble": "table2 dictionary",
    "lengths": "table2 lengths",
    "normalisation": "table2 normalisation",
}


def sections(what: str, parts: Sequence[str]) -> list[str]:
    """The tables that an experiment fills."""
    if what == "table2":
        return list(dict.fromkeys(OF_PARTS.get(part, what) for part in parts))
    return [what] if what in SECTIONS else []


def excerpt(section: str, sets: Sequence[str], folder: Path) -> str:
    """A table without the rows of other sets."""
    lines, by_sets = [], False
    for line in SECTIONS[section](folder).splitlines():
        first = line.split(" | ")[0].removeprefix("| ")
        if line.startswith("|") and lines[-1:] in ([], [""]):  # a header
            by_sets = first == "set"
        elif by_sets and first in AT_HAND and first not in sets:
            continue
        lines.append(line)
    return "\n".join(lines).strip() + "\n"
