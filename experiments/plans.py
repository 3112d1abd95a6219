"""Which runs make which table or plot."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments import classes, datasets, regularising, sentence, variants
from experiments.collisions import Collisions
from experiments.deep import Deep
from experiments.phrases import PRUNING, TABLE4
from experiments.rivals import FastText, LinearModel, NaiveBayesSVM
from experiments.runs import Run
from experiments.shallow import Shallow
from experiments.sizes import Sizes

SEEDS = (0, 1, 2)

HASH = Shallow()  # 40M parameters
STANDARD = Shallow(num_buckets=10_000_000, num_hashes=1, importance=False)  # 200M
QUIET = 0.0005  # of the usual initial vectors: as small as those of a hash embedding

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
# Documents are longer at test time than the snippets before: is that what deep models suffer from?
# Or from the normalisation of vectors?
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
FOLLOW_UPS = ("lengths", "normalisation")  # run where they are asked for

TABLE3 = {
    "BoW": LinearModel(ngrams=(1, 1), size=50_000),
    "n-grams": LinearModel(ngrams=(1, 5), size=500_000),
    "n-grams TFIDF": LinearModel(ngrams=(1, 5), size=500_000, tfidf=True),
    "fastText": FastText(),
    "fastText, 25 passes": FastText(epochs=25, rates=(0.1, 0.25, 0.5, 1.0)),
    "NBSVM": NaiveBayesSVM(),
}

# The ablations vary a model of a size that people would use, a tenth of the paper's.
BASE = Shallow(num_embeddings=1_000_000, num_buckets=100_000)
BASE_ADAM = Deep(num_embeddings=1_000_000, num_buckets=100_000)
BUCKETS = (500, 2_000, 10_000, 50_000, 200_000, 1_000_000)
ABLATIONS: dict[str, dict[str, Any]] = {
    "buckets": {f"B = {B:,}": replace(BASE, num_buckets=B) for B in BUCKETS},
    "hashes": {f"k = {k}": replace(BASE, num_hashes=k) for k in (1, 2, 3, 4)}
    | {f"k = {k}, B = 2,000": replace(BASE, num_hashes=k, num_buckets=2_000) for k in (1, 2, 3, 4)},
    "importance": {
        "hash": BASE,
        "without importance weights": replace(BASE, importance=False),
        "hashing trick, k = 1": replace(BASE, importance=False, num_hashes=1),
        "without importance weights, small start": replace(
            BASE, importance=False, weight_scale=QUIET
        ),
        "hashing trick, k = 1, small start": replace(
            BASE, importance=False, num_hashes=1, weight_scale=QUIET
        ),
        # as many parameters as the hash embedding has
        "hashing trick, k = 1, B = 200,000, small start": replace(
            BASE, importance=False, num_hashes=1, weight_scale=QUIET, num_buckets=200_000
        ),
    },
    "snippets": {
        "whole documents": BASE,
        "snippets of 4 to 100": replace(BASE, snippets=(4, 100)),
        "whole documents, paper's protocol": replace(
            BASE, protocol="paper", snippets=(2**30, 2**30)
        ),
        "snippets, paper's protocol": replace(BASE, protocol="paper"),
        "whole documents, paper's protocol, Adam": replace(BASE_ADAM, snippets=None),
        "snippets, paper's protocol, Adam": BASE_ADAM,
    },
    "rows": {
        "independent": BASE,
        "shared, D-hat = D1": replace(BASE, indexing="shared"),
        "independent, K = 100,000": replace(BASE, num_embeddings=100_000),
        "shared, D-hat = D1, K = 100,000": replace(BASE, indexing="shared", num_embeddings=100_000),
        "dictionary, K = 1,000,000": replace(BASE, indexing="identity", dictionary=1_000_000),
        "dictionary, K = 100,000": replace(
            BASE, indexing="identity", dictionary=100_000, num_embeddings=100_000
        ),
    },
    "start": {
        "P from N(0, 0.0005)": BASE,
        "P from N(0.1, 0.0005)": replace(BASE, importance_start=0.1),
        "P from N(1, 0.0005)": replace(BASE, importance_start=1.0),
    },
}
# The most frequent 1- to 9-grams, as in the right half of table 2, but under the shallow model.
WORDS = Shallow(ngrams=(1, 9), indexing="identity")
ABLATIONS["dictionary"] = {
    f"hash, 1,000,000 n-grams, B = {B:,}": replace(
        WORDS, dictionary=1_000_000, num_embeddings=1_000_000, num_buckets=B
    )
    for B in (500, 10_000, 50_000)
} | {
    f"standard, {size:,} n-grams{start}": replace(
        WORDS,
        dictionary=size,
        num_embeddings=size,
        num_buckets=size,
        num_hashes=1,
        importance=False,
        weight_scale=scale,
    )
    for start, scale in (("", 1.0), (", small start", QUIET))
    for size in (10_000, 50_000, 300_000, 1_000_000)
}
# How long n-grams are, and nothing else.
ABLATIONS["ngrams"] = {
    f"{name}, {ngrams}": replace(TABLE2[name], ngrams=(1, longest))
    for name in ("hash 40M", "standard 200M, small start")
    for longest, ngrams in (
        (1, "words"),
        (2, "1- and 2-grams"),
        (3, "1- to 3-grams"),
        (5, "1- to 5-grams"),
        (9, "1- to 9-grams"),
    )
}
# What takes time: the size of the table, rows that are read for an n-gram, or the embedding?
ABLATIONS["time"] = {
    "standard, 10M vectors": TABLE2["standard 200M, small start"],
    "standard, 1M vectors": replace(TABLE2["standard 200M, small start"], num_buckets=1_000_000),
    "standard, two of 1M vectors": replace(
        TABLE2["standard 200M, small start"], num_buckets=1_000_000, num_hashes=2
    ),
    "hash, k = 1": replace(HASH, num_hashes=1),
    "hash, k = 2": HASH,
}
LARGER_SETS = (
    "langid_commonvoice",
    "emotions",
    "news_category",
    "renttherunway",
    "ag_news_partial",
    "imdb",
    "20newsgroups",
)
ABLATIONS["rates"] = {
    f"{name}, rate x {scale:g}": replace(TABLE2[name], rate_scale=scale)
    for name in ("hash 40M", "standard 200M, small start")
    for scale in (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
}
# Where hash embeddings are behind: are their component vectors shared by too many n-grams, or do
# they learn too little from n-grams that are seen a few times only, or lack dimensions?
ABLATIONS["crowding"] = {
    "hash 40M": HASH,
    "hash 60M, k = 4": replace(HASH, num_hashes=4),
    "hash 80M, B = 3M": replace(HASH, num_buckets=3_000_000),
    "hash 220M, B = 10M": replace(HASH, num_buckets=10_000_000),
    "hash 40M, P from N(0.1, 0.0005)": replace(HASH, importance_start=0.1),
    "hash 40M, P from N(0.3, 0.0005)": replace(HASH, importance_start=0.3),
    "hash 40M, 6 passes": replace(HASH, num_passes=6),
    "hash 52M, d = 32": replace(HASH, embedding_dim=32),
    "hash 84M, d = 64": replace(HASH, embedding_dim=64),
    "standard 200M, small start": TABLE2["standard 200M, small start"],
    "standard 200M, small start, 6 passes": replace(
        TABLE2["standard 200M, small start"], num_passes=6
    ),
}
# What the paper's protocol has and the default has not, one by one and together.
ABLATIONS["protocol"] = {
    f"{name}{change}": replace(method, **settings)
    for change, settings in (
        (", default", {}),
        (", case kept", {"keep_case": True}),
        (", constant rate", {"constant_rate": True}),
        (", snippets of 4 to 100", {"snippets": (4, 100)}),
        (", 20 passes", {"num_passes": 20}),
        (
            ", all four",
            {
                "keep_case": True,
                "constant_rate": True,
                "snippets": (4, 100),
                "num_passes": 20,
            },
        ),
    )
    for name, method in TABLE2.items()
}
ABLATION_SETS = ("imdb", "news_category", "20newsgroups", "ag_news_partial")
ABLATIONS["appended"] = variants.APPENDED
ABLATIONS["concat"] = variants.CONCAT
ABLATIONS["regularising"] = regularising.PLAN
ABLATIONS["sentence"] = sentence.PLAN
ABLATIONS["classes"] = classes.PLAN
ABLATIONS["pruning"] = PRUNING
OTHER_SETS = {
    "ngrams": tuple(datasets.SOURCES),
    "time": LARGER_SETS,
    "rates": tuple(datasets.SOURCES),
    "hashes": (*ABLATION_SETS, "langid_commonvoice"),
    "crowding": ("langid_commonvoice",),
    "protocol": ("langid_commonvoice", "20newsgroups"),
    "appended": variants.SETS,
    "concat": variants.SETS,
    "regularising": regularising.SETS,
    "sentence": sentence.SETS,
    "classes": classes.SETS,
}


def table1(dataset: str) -> list[Run]:
    return [Run("table1", dataset, "sizes", 0, Sizes())]


def table2(
    dataset: str, protocols: tuple[str, ...], parts: tuple[str, ...], folder: Path
) -> Iterator[Run]:
    """Both halves. The further seeds of a size come after the runs that it is chosen by."""
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
    """The method with the best validation accuracy of the first seed, once all have run."""
    reached = {}
    for run in _seeds(dataset, methods, SEEDS[:1]):
        path = run.path(folder)
        if not path.exists():
            return None
        reached[run.name] = json.loads(path.read_text())["metrics"]["validation_accuracy"]
    return max(reached, key=reached.__getitem__)


def table3(dataset: str) -> list[Run]:
    """The rivals have no randomness of their own worth repeating, but for fastText's."""
    return [
        Run("table3", dataset, name, seed, method)
        for name, method in TABLE3.items()
        for seed in (SEEDS if isinstance(method, FastText) else SEEDS[:1])
    ]


def table4(dataset: str) -> list[Run]:
    return [Run("table4", dataset, "important n-grams", 0, TABLE4)]


def ablation(name: str, dataset: str) -> list[Run]:
    if name == "collisions":
        return [Run("collisions", dataset, "1- and 2-grams", 0, Collisions())]
    return [
        Run(name, dataset, label, seed, method)
        for label, method in ABLATIONS[name].items()
        for seed in SEEDS
    ]
