"""What a race has tried and what it chose."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from hashembed.classify.choose.space import name_of
from hashembed.classify.choose.trial import METRICS, Metric, Trial, count, positive
from hashembed.core import tables
from hashembed.core.checks import one_of, whole_number
from hashembed.core.plotting import new_figure
from hashembed.text.config import TextConfig

LOSS_SHARE = 2.0  # of the log loss in a trial's rank, against 1 for the error: it is less noisy

Cell = tuple[int, int]  # a trial, and a number of passes - 1


@dataclass(frozen=True)
class Chosen:
    """What is trained in the end: options of `TextClassifier`."""

    text: TextConfig
    passes: int | None  # None: as many as `patience` allows
    learning_rate: float
    members: int

    def options(self) -> dict[str, Any]:
        """The arguments of `TextClassifier` that repeat the choice without a race."""
        return {
            "ngrams": self.text.ngrams,
            "subwords": self.text.subwords,
            "punctuation": self.text.punctuation,
            "repeats": self.text.repeats,
            "passes": self.passes,
            "learning_rate": self.learning_rate,
            "members": self.members,
        }

    def command(self) -> str:
        """The options of `hashembed train` that repeat the choice without a race."""
        low, high = self.text.ngrams
        subwords = "none" if self.text.subwords is None else "{}-{}".format(*self.text.subwords)
        passes = "" if self.passes is None else f"--passes {self.passes} "
        return (
            f"--ngrams {low}-{high} --subwords {subwords} --punctuation {self.text.punctuation} "
            f"--repeats {self.text.repeats} {passes}"
            f"--learning-rate {self.learning_rate!r} --members {self.members}"
        )


@dataclass(frozen=True)
class Search:
    """The trials of a race, and the choice. `str()` and HTML show a table of the trials."""

    metric: Metric
    trials: tuple[Trial, ...]
    best: Cell  # the trial that was chosen, and its pass
    chosen: Chosen

    def to_dict(self) -> dict[str, Any]:
        """The search as JSON values."""
        return {
            "metric": self.metric,
            "trials": [trial.to_dict() for trial in self.trials],
            "best": list(self.best),
            "chosen": {**self.chosen.options(), "text": self.chosen.text.to_dict()},
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "Search":
        """The search from `to_dict`."""
        found, metric = saved["chosen"], saved["metric"]
        one_of("metric", metric, METRICS)
        chosen = Chosen(
            TextConfig.from_dict(found["text"]),
            found["passes"] if found["passes"] is None else count("passes", found["passes"], 1),
            positive("learning_rate", found["learning_rate"]),
            count("members", found["members"], 1),
        )
        trials = tuple(map(Trial.from_dict, saved["trials"]))
        trial, last = saved["best"]
        whole_number("the best trial", trial, 0, len(trials) - 1)
        whole_number("the best pass", last, 0, len(trials[trial].scores) - 1)
        return cls(metric, trials, (trial, last), chosen)

    def __str__(self) -> str:
        return f"{tables.plain(tables.terminal_table(*self._table()))}\n{self._outcome()}"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<div>{tables.html_table(*self._table())}<p>{escape(self._outcome())}</p></div>"

    def _outcome(self) -> str:
        chosen = self.chosen
        members = f", {chosen.members} members" if chosen.members > 1 else ""
        passes = f"{chosen.passes} pass{'' if chosen.passes == 1 else 'es'}"
        if chosen.passes is None:
            passes = "passes until validation gets worse"
        return (
            f"Chosen: {name_of(chosen.text)}; {passes}, learning rate "
            f"{chosen.learning_rate:.3g}{members}."
        )

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Heads and rows, the best trial of each way to read text first."""
        heads = ["tried", "rate", "texts", "passes", measure_of(self.metric), "log loss", ""]
        rows = []
        chosen_trial, chosen_pass = self.best
        order = sorted(range(len(self.trials)), key=lambda i: (i != chosen_trial, i))
        for i in order:
            trial = self.trials[i]
            if not trial.scores:
                continue
            at = chosen_pass if i == chosen_trial else _best_pass(trial)
            score = trial.scores[at]
            measured = f"{score.error:.4f}"
            if self.metric != "log_loss":
                measured = f"{1 - score.error:.2%}"
            mark = "chosen" if i == chosen_trial else ""
            rows.append(
                [
                    name_of(trial.text),
                    "usual" if trial.factor is None else f"x {trial.factor:g}",
                    f"{trial.texts:,}",
                    f"{at + 1}",
                    measured,
                    f"{score.loss:.4f}",
                    mark,
                ]
            )
        return heads, rows

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw the scores of the trials: a row for each, a group for each round.

        Small dots are the scores after earlier passes.
        """
        figure = new_figure("a search", 9, 1.2 + 0.3 * len(self.trials))
        axes = figure.subplots()
        chosen, last = self.best
        names, place = [], 0.0
        for i, trial in enumerate(self.trials):
            if i and trial.round != self.trials[i - 1].round:
                place += 0.7
            rate = "" if trial.factor is None else f", rate x {trial.factor:g}"
            names.append((place, f"{name_of(trial.text)}{rate}\n{trial.texts:,} texts"))
            values = [s.error if self.metric == "log_loss" else 1 - s.error for s in trial.scores]
            if values:
                at, color = (last if i == chosen else _best_pass(trial)), f"C{trial.round - 1}"
                axes.plot(values, [place] * len(values), ".", color=color, alpha=0.4)
                mark, size = ("*", 16) if i == chosen else ("o", 8)
                axes.plot(values[at], place, mark, color=color, markersize=size)
            place += 1.0
        axes.set_yticks([at for at, _ in names], [name for _, name in names], fontsize=7)
        axes.invert_yaxis()
        axes.grid(axis="x", alpha=0.3)
        measured = f"{measure_of(self.metric)} on held-out rows; the star was chosen"
        axes.set(xlabel=measured)
        figure.savefig(path, bbox_inches="tight")


def measure_of(metric: Metric) -> str:
    """The metric in words."""
    names = {"f1": "macro F1", "average_precision": "average precision", "log_loss": "log loss"}
    return names.get(metric, metric)


def ranks(trials: Sequence[Trial]) -> dict[Cell, float]:
    """A rank of every pass of the trials of the last round, smaller is better.

    It is the error plus the log loss, each relative to the best one found. Neighbouring passes
    count a little, because a score has noise that its neighbours do not share.
    """
    if not any(trial.scores for trial in trials):
        return {}
    number = max(trial.round for trial in trials if trial.scores)
    last = {i: trial for i, trial in enumerate(trials) if trial.scores and trial.round == number}
    least = 1 / max(max(trial.held_out for trial in last.values()), 1)
    error = max(min(s.error for trial in last.values() for s in trial.scores), least)
    loss = max(min(s.loss for trial in last.values() for s in trial.scores), 1e-6)
    found = {}
    for i, trial in last.items():
        own = np.array([s.error / error + LOSS_SHARE * s.loss / loss for s in trial.scores])
        if trial.factor is None:  # the rate suits the last pass only
            found[i, len(own) - 1] = float(own[-1])
            continue
        wide = np.concatenate([own[:1], own, own[-1:]])
        smooth = (wide[:-2] + 2 * wide[1:-1] + wide[2:]) / 4
        found |= {(i, p): float(rank) for p, rank in enumerate(smooth)}
    return found


def best_cell(trials: Sequence[Trial]) -> Cell:
    """The trial and the pass with the best rank; of equal ones the cheapest."""
    found = ranks(trials)
    return min(found, key=lambda cell: (found[cell], trials[cell[0]].work, cell[1]))


def _best_pass(trial: Trial) -> int:
    return best_cell((trial,))[1]
