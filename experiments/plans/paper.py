"""Which runs make the four tables of the paper."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from experiments.models.deep import Deep
from experiments.models.shallow import Shallow
from experiments.rivals.bags_of_words import FastText, LinearModel, NaiveBayesSVM
from experiments.running import store
from experiments.running.run import Run
from experiments.studies.phrases import TABLE4
from experiments.studies.sizes import Sizes

SEEDS = (0, 1, 2)

HASH = Shallow()  # 40M parameters
STANDARD = Shallow(num_buckets=10_000_000, num_hashes=1, importance=False)  # 200M
QUIET = 0.0005  # scale of initial vectors that makes them as small as a hash embedding's

TABLE2 = {
    "hash 40M": HASH,
    "standard 200M": STANDARD,
    "standard 200M, small start": replace(STANDARD, weight_scale=QUIET),
}
# The same three with Adam, as in the paper.
HASH_ADAM = Deep()
STANDARD_ADAM = Deep(num_buckets=10_000_000, num_hashes=1, importance=False)
ADAM = {
    "hash 40M, Adam": HASH_ADAM,
    "standard 200M, Adam": STANDARD_ADAM,
    "standard 200M, small start, Adam": replace(STANDARD_ADAM, weight_scale=QUIET),
}
# The right half: a dictionary of 1- to 9-grams and a deep model. Sizes are chosen on validation.
DEEP = Deep(dictionary=1_000_000, embedding_dim=200, hidden_layers=(1000, 1000, 1000), passes=100)
DEEP_STANDARD = replace(DEEP, num_buckets=None, num_hashes=1, importance=False)
DEEP_BUCKETS = (500, 10_000, 50_000, 100_000, 150_000)
DEEP_SIZES = (10_000, 25_000, 50_000, 300_000, 500_000, 1_000_000)
DICTIONARY: dict[str, dict[str, Deep]] = {
    "hash": {f"deep hash, B = {B:,}": replace(DEEP, num_buckets=B) for B in DEEP_BUCKETS},
    "standard": {
        f"deep standard, {size:,} n-grams": replace(DEEP_STANDARD, dictionary=size)
        for size in DEEP_SIZES
    },
    "standard, small start": {
        f"deep standard, {size:,} n-grams, small start": replace(
            DEEP_STANDARD, dictionary=size, weight_scale=QUIET
        )
        for size in DEEP_SIZES
    },
}
ENSEMBLE = {"deep hash, ensemble of 10": replace(DEEP, num_buckets=50_000, members=10)}
# Why are deep models worse? Test documents are longer than training snippets; or it is the
# normalisation of vectors.
ONE_SIZE = {
    "deep hash, B = 50,000": replace(DEEP, num_buckets=50_000),
    "deep standard, 50,000 n-grams": replace(DEEP_STANDARD, dictionary=50_000),
}
LENGTHS = {
    name + change: replace(method, **settings)
    for name, method in ONE_SIZE.items()
    for change, settings in (
        ("", {}),
        (", mean of vectors", {"mode": "mean"}),
        (", whole documents", {"snippets": None}),
        (", mean of vectors, whole documents", {"mode": "mean", "snippets": None}),
    )
}
LENGTHS |= {
    f"shallow {name}, whole documents": replace(method, snippets=None)
    for name, method in ADAM.items()
}
NORMALISATION = {
    name + change: replace(method, **settings)
    for name, method in ONE_SIZE.items()
    for change, settings in (
        ("", {}),
        (", whole documents", {"snippets": None}),
        (", no normalisation", {"batch_norm": False}),
        (", no normalisation, whole documents", {"batch_norm": False, "snippets": None}),
    )
}
PARTS = ("shallow", "adam", "dictionary", "small-start", "ensemble")  # of table 2
FOLLOW_UPS = ("lengths", "normalisation")  # run only if --part names them

TABLE3 = {
    "BoW": LinearModel(ngrams=(1, 1), size=50_000),
    "n-grams": LinearModel(ngrams=(1, 5), size=500_000),
    "n-grams TFIDF": LinearModel(ngrams=(1, 5), size=500_000, tfidf=True),
    "fastText": FastText(),
    "fastText, 25 passes": FastText(epochs=25, rates=(0.1, 0.25, 0.5, 1.0)),
    "NBSVM": NaiveBayesSVM(),
}


def table1(dataset: str) -> list[Run]:
    return [Run("table1", dataset, "sizes", 0, Sizes())]


def table2(
    dataset: str, protocols: tuple[str, ...], parts: tuple[str, ...], folder: Path
) -> Iterator[Run]:
    """Both halves. A chosen size gets more seeds after the runs that it was chosen by."""
    if "shallow" in parts:
        for protocol in protocols:
            methods = {
                f"{name}, {protocol} protocol": replace(method, protocol=protocol)
                for name, method in TABLE2.items()
            }
            yield from _seeds(dataset, methods)
    if "adam" in parts:
        methods = {f"{name}, paper protocol": method for name, method in ADAM.items()}
        yield from _seeds(dataset, methods)
    for kind, methods in DICTIONARY.items():
        if ("small-start" if kind.endswith("small start") else "dictionary") in parts:
            yield from _seeds(dataset, methods, SEEDS[:1])
            best = chosen(dataset, methods, folder)
            yield from _seeds(dataset, {best: methods[best]} if best else {}, SEEDS[1:])
    if "ensemble" in parts:
        yield from _seeds(dataset, ENSEMBLE)
    if "lengths" in parts:
        yield from _seeds(dataset, LENGTHS)
    if "normalisation" in parts:
        yield from _seeds(dataset, NORMALISATION)


def _seeds(dataset: str, methods: dict, seeds: tuple[int, ...] = SEEDS) -> Iterator[Run]:
    for name, method in methods.items():
        for seed in seeds:
            yield Run("table2", dataset, name, seed, method)


def chosen(dataset: str, methods: dict, folder: Path) -> str | None:
    """The method with the best validation accuracy of the first seed; None until all have run."""
    reached = {}
    for run in _seeds(dataset, methods, SEEDS[:1]):
        record = store.find(folder, run.place)
        if record is None:
            return None
        reached[run.name] = record["metrics"]["validation_accuracy"]
    return max(reached, key=reached.__getitem__)


def table3(dataset: str) -> list[Run]:
    """Only fastText has more than one seed: the other rivals are not random."""
    return [
        Run("table3", dataset, name, seed, method)
        for name, method in TABLE3.items()
        for seed in (SEEDS if isinstance(method, FastText) else SEEDS[:1])
    ]


def table4(dataset: str) -> list[Run]:
    return [Run("table4", dataset, "important n-grams", 0, TABLE4)]
