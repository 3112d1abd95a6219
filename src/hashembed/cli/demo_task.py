"""The demonstration: one task, three embeddings, collisions predicted and counted. No torch.

The task is to tell 16 languages apart by words and character n-grams, an open vocabulary.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
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

TEXT = TextConfig(ngrams=(1, 1), subwords=(2, 5))
DIM = 32
HASH = HashSpec(num_embeddings=120_000, num_buckets=12_000)
PASSES, BATCH = 4, 64
# Each embedding has its own rate: the best of these on a held-out fifth of the training sentences.
# It happens to be the same for all (`tests/cli/test_demo.py` repeats the search).
RATES_TRIED = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1)
STANDARD_RATE, TRICK_RATE, HASH_RATE = 0.03, 0.03, 0.03
SEEDS = 5  # trainings of each embedding, with different hashes, initial values and order


@dataclass(frozen=True)
class Task:
    """Texts in 16 languages, as bags of keys."""

    languages: list[str]
    train: Bags
    train_labels: I64
    test: Bags
    test_labels: I64
    train_vocabulary: I64  # distinct keys, sorted


@dataclass(frozen=True)
class Embedding:
    """A table that turns tokens into vectors, and how it is trained."""

    name: str
    spec: HashSpec
    importance: bool  # whether a token has importance weights
    rate: float

    @property
    def dictionary(self) -> bool:
        """Whether it takes the ranks of a dictionary instead of keys."""
        return self.spec.indexing == "identity"

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return theory.hash_parameters(self.spec, DIM, importance=self.importance)


@dataclass(frozen=True)
class Result:
    """One embedding on the task."""

    embedding: Embedding
    accuracies: list[float]  # on the test set, for each seed
    seconds: float  # the median training
    model: ShallowModel  # of the first seed

    @property
    def accuracy(self) -> float:
        """The mean over the seeds."""
        return float(np.mean(self.accuracies))

    @property
    def spread(self) -> float:
        """The standard deviation over the seeds."""
        return float(np.std(self.accuracies, ddof=1))


@dataclass(frozen=True)
class Collision:
    """The number of tokens that share something with another: predicted and counted."""

    what: str
    predicted: float
    measured: int


def read_sentences() -> pa.Table:
    """The sentences that come with the package: split, language, text."""
    with (files("hashembed") / "data" / "sentences.parquet").open("rb") as file:
        return pq.read_table(file)


def load_task(text: TextConfig = TEXT) -> Task:
    """The sentences as bags of keys."""
    table = read_sentences()
    languages, labels = np.unique(table["language"].to_numpy(), return_inverse=True)
    training = (table["split"].to_numpy() == "train").nonzero()[0]
    testing = (table["split"].to_numpy() == "test").nonzero()[0]
    bags = text_to_bags(table["text"], text)
    train = bags.take(training)
    return Task(
        list(languages),
        train,
        labels[training],
        bags.take(testing),
        labels[testing],
        np.unique(train.keys),
    )


def embeddings(vocabulary: int) -> list[Embedding]:
    """The three embeddings to compare, for a vocabulary of this size."""
    same_size = theory.hash_parameters(HASH, DIM) // DIM
    ranks = HashSpec(vocabulary, vocabulary, 1, "identity")
    trick = HashSpec(same_size, same_size, 1, "shared")
    return [
        Embedding("standard embedding", ranks, False, STANDARD_RATE),
        Embedding("hashing trick", trick, False, TRICK_RATE),
        Embedding("hash embedding", HASH, True, HASH_RATE),
    ]


def compare(task: Task, on_done: Callable[[Result], object] = lambda result: None) -> list[Result]:
    """Train the three embeddings, each with several seeds."""
    results = []
    for embedding in embeddings(len(task.train_vocabulary)):
        results.append(evaluate(embedding, task))
        on_done(results[-1])
    return results


def evaluate(embedding: Embedding, task: Task, seeds: int = SEEDS) -> Result:
    """Train and test an embedding with each seed."""
    train, test = task.train, task.test
    if embedding.dictionary:
        train, test = (known_ranks(bags, task.train_vocabulary) for bags in (train, test))
    labels, classes = task.train_labels, len(task.languages)
    fit(embedding, train[:1], labels[:1], classes, 0)  # compile before timing
    models, accuracies, seconds = [], [], []
    for seed in range(seeds):
        start = time.perf_counter()
        models.append(fit(embedding, train, labels, classes, seed))
        seconds.append(time.perf_counter() - start)
        accuracies.append(accuracy(models[-1], test, task.test_labels))
    return Result(embedding, accuracies, float(np.median(seconds)), models[0])


def explain(task: Task, model: ShallowModel, text: str) -> Explanation:
    """Explain the language that the hash embedding gives a text."""
    return explain_text(model, TEXT, task.languages, text)


def fit(embedding: Embedding, bags: Bags, labels: I64, num_classes: int, seed: int) -> ShallowModel:
    """Train with a linearly decreasing rate."""
    spec = replace(embedding.spec, seed=seed)
    model = ShallowModel(spec, DIM, num_classes, importance=embedding.importance, seed=seed)
    truth = Labels.single(labels)
    steps = -(-len(bags) // BATCH)
    rates = np.linspace(embedding.rate, 0, PASSES * steps, endpoint=False, dtype=np.float32)
    rng = np.random.default_rng(seed)
    for part in np.split(rates, PASSES):
        model.train(bags, truth, rng.permutation(len(bags)), part, batch_size=BATCH)
    return model


def accuracy(model: ShallowModel, bags: Bags, labels: I64) -> float:
    """The share of right answers."""
    return float((model.scores(bags).argmax(axis=1) == labels).mean())


def known_ranks(bags: Bags, vocabulary: I64) -> Bags:
    """Replace keys by ranks in the vocabulary, for a standard embedding; drop unknown keys."""
    ranks = np.minimum(np.searchsorted(vocabulary, bags.keys), len(vocabulary) - 1)
    known = vocabulary[ranks] == bags.keys
    return Bags(ranks[known], np.append(0, np.cumsum(known))[bags.offsets])


def collisions(task: Task, spec: HashSpec = HASH) -> list[Collision]:
    """Collisions of the training vocabulary: predicted by the theory, and counted."""
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
    """The number of rows of `cells` that occur more than once."""
    _, counts = np.unique(cells, axis=0, return_counts=True)
    return int(counts[counts > 1].sum())
