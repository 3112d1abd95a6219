"""The demonstration: one task, three embeddings, collisions predicted and counted. No torch.

The task is to tell 16 languages apart by words and character n-grams, whose vocabulary has no end.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hashembed.classify.explain.result import Explanation
from hashembed.classify.explain.text import explain_text
from hashembed.core.arrays import I64
from hashembed.engine.labels import Labels
from hashembed.engine.shallow.model import ShallowModel
from hashembed.hashing import theory
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec
from hashembed.text.config import TextConfig
from hashembed.text.pipeline import text_to_bags

TEXT = TextConfig(ngrams=(1, 1), subwords=(2, 4))
DIM = 16
HASH = HashSpec(num_embeddings=20_000, num_buckets=2_000)
PASSES, RATE, BATCH = 4, 0.1, 32


@dataclass(frozen=True)
class Task:
    """Texts of 16 languages, as bags of keys."""

    languages: list[str]
    train: Bags
    train_labels: I64
    test: Bags
    test_labels: I64
    train_vocabulary: I64  # distinct keys, sorted


@dataclass(frozen=True)
class Result:
    """One embedding on the task."""

    name: str
    dictionary: bool
    parameters: int
    accuracy: float
    seconds: float
    model: ShallowModel


@dataclass(frozen=True)
class Collision:
    """Tokens that share something with another token: expected by the theory, and counted."""

    what: str
    predicted: float
    measured: int


def read_sentences() -> pa.Table:
    """The sentences that come with the package: split, language, text."""
    with (files("hashembed") / "data" / "sentences.parquet").open("rb") as file:
        return pq.read_table(file)


def load_task() -> Task:
    """The sentences as bags of keys."""
    table = read_sentences()
    languages, labels = np.unique(table["language"].to_numpy(), return_inverse=True)
    training = (table["split"].to_numpy() == "train").nonzero()[0]
    testing = (table["split"].to_numpy() == "test").nonzero()[0]
    bags = text_to_bags(table["text"], TEXT)
    train = bags.take(training)
    return Task(
        list(languages),
        train,
        labels[training],
        bags.take(testing),
        labels[testing],
        np.unique(train.keys),
    )


def compare(task: Task, on_done: Callable[[Result], object] = lambda result: None) -> list[Result]:
    """Train the three embeddings, one after the other."""
    vocabulary = len(task.train_vocabulary)
    same_size = theory.hash_parameters(HASH, DIM) // DIM
    runs = [
        (
            "standard embedding",
            HashSpec(vocabulary + 1, vocabulary + 1, 1, "identity"),
            False,
            dictionary_ranks,
        ),
        ("hashing trick", HashSpec(same_size, same_size, 1, "shared"), False, keys_as_they_are),
        ("hash embedding", HASH, True, keys_as_they_are),
    ]
    results = []
    for name, spec, importance, to_keys in runs:
        train, test = to_keys(task.train, task), to_keys(task.test, task)
        fit(spec, importance, train[:1], task)  # compiles, where that was never done before
        start = time.perf_counter()
        model = fit(spec, importance, train, task)
        seconds = time.perf_counter() - start
        predicted = model.scores(test).argmax(axis=1)
        results.append(
            Result(
                name,
                spec.indexing == "identity",
                theory.hash_parameters(spec, DIM, importance=importance),
                float((predicted == task.test_labels).mean()),
                seconds,
                model,
            )
        )
        on_done(results[-1])
    return results


def explain(task: Task, model: ShallowModel, text: str) -> Explanation:
    """Why the hash embedding's model takes a text for its language."""
    return explain_text(model, TEXT, task.languages, text)


def fit(spec: HashSpec, importance: bool, bags: Bags, task: Task) -> ShallowModel:
    """Some passes over the data at a falling rate."""
    model = ShallowModel(spec, DIM, len(task.languages), importance=importance)
    labels = Labels.single(task.train_labels[: len(bags)])
    steps = -(-len(bags) // BATCH)
    rates = np.linspace(RATE, 0, PASSES * steps, endpoint=False, dtype=np.float32)
    rng = np.random.default_rng(0)
    for part in np.split(rates, PASSES):
        order = rng.permutation(len(bags))
        model.train(bags, labels, order, part, batch_size=BATCH)
    return model


def keys_as_they_are(bags: Bags, task: Task) -> Bags:
    """What a hash embedding takes: any key."""
    return bags


def dictionary_ranks(bags: Bags, task: Task) -> Bags:
    """What a standard embedding takes: known tokens have a rank, all others share the last row."""
    vocabulary = task.train_vocabulary
    ranks = np.minimum(np.searchsorted(vocabulary, bags.keys), len(vocabulary) - 1)
    return Bags(np.where(vocabulary[ranks] == bags.keys, ranks, len(vocabulary)), bags.offsets)


def collisions(task: Task, spec: HashSpec = HASH) -> list[Collision]:
    """What the theory expects of the training vocabulary, and what the hash does to it."""
    keys = task.train_vocabulary
    rows, buckets = spec(keys)
    everything = np.column_stack([rows, buckets])
    expected = [
        ("its row of importance weights", theory.same_row_probability, rows[:, None]),
        ("all of its component vectors", theory.same_buckets_probability, buckets),
        ("both: its whole vector", theory.indistinguishable_probability, everything),
    ]
    return [
        Collision(what, float(len(keys) * probability(len(keys), spec)), _sharing(cells))
        for what, probability, cells in expected
    ]


def _sharing(cells: I64) -> int:
    """How many rows of `cells` occur more than once."""
    _, counts = np.unique(cells, axis=0, return_counts=True)
    return int(counts[counts > 1].sum())
