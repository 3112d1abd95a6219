"""The best bag-of-n-grams model in a file of 1, 10 or 100 MB, and which choices made it so.

A walk from the library's own choices: one kind of choice after the other, each time the value with
the best accuracy on a fifth of the training rows (the mean over two such fifths). Every trial is a
run, and the walk is a function of these runs, so it can be resumed and shown. Only the final models
see the test rows.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.data.datasets import Dataset
from hashembed import TextClassifier
from hashembed.engine.defaults import default_rate
from hashembed.engine.labels import split
from hashembed.hashing.sizes import choose_dim
from hashembed.text.config import TextConfig
from hashembed.text.pipeline import text_to_bags

MEGABYTES = (1, 10, 100)
SETS = ("ag_news_partial", "20newsgroups", "imdb", "news_category")
HELD = 0.2
HEADER = 20_000  # bytes for everything but tensors
WORTH_IT = 0.001  # of accuracy: a smaller gain is noise, and the choice stays
SAMPLE = 2_000  # texts whose lengths say how long texts are


@dataclass(frozen=True)
class Sized:
    """A `TextClassifier` whose tables fill a file of that many megabytes (of a million bytes).

    share: the share of bytes for importance weights; component vectors get the rest.
    rate: a multiple of the library's learning rate.
    hidden_layers: of runs from when `TextClassifier` had this option; new runs have none.
    bits: of a number in the tables; 16 is the library's default.
    held: train on four fifths of the training rows and score on the rest, not on the test rows.
    """

    megabytes: int
    embedding_dim: int
    ngrams: tuple[int, int] = (1, 2)
    subwords: tuple[int, int] | None = None
    lowercase: bool = True
    num_hashes: int = 2
    share: float = 0.55
    passes: int | None = None
    rate: float = 1.0
    members: int = 1
    hidden_layers: tuple[int, ...] = ()
    bits: int = 16
    held: bool = True

    def label(self) -> str:
        """Its settings in words: the name of its run."""
        low, high = self.ngrams
        parts = [f"{self.megabytes} MB, {low}-{high}-grams"]
        if self.subwords:
            parts.append(f"characters {self.subwords[0]}-{self.subwords[1]}")
        if not self.lowercase:
            parts.append("case kept")
        parts.append(f"d {self.embedding_dim}, k {self.num_hashes}, P {self.share:.0%}")
        parts.append(f"passes {self.passes or 'auto'}, rate {self.rate:g}")
        if self.members > 1:
            parts.append(f"members {self.members}")
        if self.hidden_layers:
            parts.append(f"hidden {self.hidden_layers[0]}")
        if self.bits != 16:
            parts.append(f"bits {self.bits}")
        return ", ".join(parts)

    def sizes(self, classes: int) -> tuple[int, int]:
        """K and B."""
        d = self.embedding_dim
        above = classes * (d + 1) + 4 * d
        room = (1e6 * self.megabytes - HEADER) / self.members - 4 * above
        each = self.bits / 8
        K = int(room * self.share / (each * self.num_hashes))
        B = int(room * (1 - self.share) / (each * d))
        return max(K, 2), max(B, 2)

    def run(self, data: Dataset, seed: int, threads: int | None = None) -> dict:
        """Train and score -> metrics."""
        if self.hidden_layers:
            raise ValueError("TextClassifier has no hidden layers any more: leave them out")
        train, test = data.train, data.test
        if self.held:
            kept, rest = split(len(train), HELD, seed)
            train, test = train.take(kept), train.take(rest)
        model = self._classifier(train, data.classes, seed, threads)
        model.fit(train.texts, train.labels)
        metrics: dict[str, Any] = {
            "parameters": model.report_.parameters,
            "num_embeddings": model.report_.num_embeddings,
            "num_buckets": model.report_.num_buckets,
            "passes": len(model.history_.epochs),
            "train_seconds": sum(epoch.seconds for epoch in model.history_.epochs),
        }
        if not self.held:
            model, metrics["file_bytes"] = through_a_file(model, self.bits, threads)
        elif self.bits != 16:
            model, _ = through_a_file(model, self.bits, threads)
        where = "validation_accuracy" if self.held else "test_accuracy"
        return {**metrics, where: model.score(test.texts, test.labels)}

    def _classifier(
        self, train: Any, classes: int, seed: int, threads: int | None
    ) -> TextClassifier:
        K, B = self.sizes(classes)
        rate = None
        if self.rate != 1:
            some = train.take(np.arange(0, len(train), max(1, len(train) // SAMPLE)))
            config = TextConfig(self.ngrams, self.lowercase, self.subwords)
            bags = text_to_bags(some.texts, config)
            rate = self.rate * default_rate(bags, classes, self.passes or 1)
        return TextClassifier(
            ngrams=self.ngrams,
            subwords=self.subwords,
            lowercase=self.lowercase,
            effort="fast",
            embedding_dim=self.embedding_dim,
            num_hashes=self.num_hashes,
            num_embeddings=K,
            num_buckets=B,
            members=self.members,
            passes=self.passes,
            learning_rate=rate,
            seed=seed,
            threads=threads,
        )


@dataclass(frozen=True)
class AsItIs:
    """`TextClassifier(effort="fast")` with its own sizes, saved with `bits` for each number."""

    bits: int = 16

    def run(self, data: Dataset, seed: int, threads: int | None = None) -> dict:
        """Train and test -> metrics."""
        model = TextClassifier(effort="fast", seed=seed, threads=threads)
        model.fit(data.train.texts, data.train.labels)
        model, size = through_a_file(model, self.bits, threads)
        return {
            "parameters": model.model_.num_parameters,
            "file_bytes": size,
            "train_seconds": sum(epoch.seconds for epoch in model.history_.epochs),
            "test_accuracy": model.score(data.test.texts, data.test.labels),
        }


def through_a_file(
    model: TextClassifier, bits: int, threads: int | None
) -> tuple[TextClassifier, int]:
    """Save and load the model -> the loaded model, the size of the file in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        model.save(path, bits=bits)
        return TextClassifier.load(path, threads=threads), path.stat().st_size


@dataclass(frozen=True)
class Step:
    """A choice, the model after it, and its accuracy on held-out training rows."""

    what: str
    model: Sized
    accuracy: float


CHOICES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "n-grams": ("ngrams", ((1, 1), (1, 2), (1, 3), (1, 4), (1, 5))),
    "passes": ("passes", (1, 2, 4)),
    "rate": ("rate", (0.25, 0.5, 1.0, 2.0, 4.0)),
    "share of P": ("share", (0.25, 0.4, 0.55, 0.7, 0.85)),
    "d": ("embedding_dim", (8, 16, 32)),
    "k": ("num_hashes", (1, 2, 3)),
    "character n-grams": ("subwords", (None, (3, 5))),
    "case": ("lowercase", (True, False)),
    "members": ("members", (1, 2, 4, 8)),
    "bits": ("bits", (16, 8, 4)),
}
# Some choices come twice, since others may have moved their best value.
FIRST = (
    *("n-grams", "passes", "rate", "share of P", "d", "k", "character n-grams", "case"),
    *("members", "n-grams", "share of P"),
)
SECOND = ("bits", "n-grams", "share of P", "members")

Score = Callable[[Sized], float]


def start(megabytes: int, classes: int) -> Sized:
    """The library's own choices, with tables that fill the file."""
    return Sized(megabytes, choose_dim(classes))


def walk(begin: Sized, choices: tuple[str, ...], score: Score) -> Iterator[Step]:
    """One step for each choice: to its best value, if that gains more than `WORTH_IT`."""
    at = Step("", begin, score(begin))
    for what in choices:
        field, values = CHOICES[what]
        found = []
        for value in values:
            other = replace(at.model, **{field: value})
            if other != at.model:
                found.append(Step(what, other, score(other)))
        best = max(found, key=lambda step: step.accuracy)
        at = best if best.accuracy > at.accuracy + WORTH_IT else replace(at, what=what)
        yield at
