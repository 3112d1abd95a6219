"""Which runs answer what the paper says in words only, and our own questions."""

from dataclasses import replace
from typing import Any

from experiments.data import datasets
from experiments.models import sentence, variants
from experiments.models.deep import Deep
from experiments.models.shallow import Shallow
from experiments.plans.paper import HASH, QUIET, SEEDS, TABLE2
from experiments.running.run import Run
from experiments.studies import classes, regularising
from experiments.studies.collisions import Collisions
from experiments.studies.phrases import PRUNING

# Most ablations vary a model of a tenth of the paper's size, which people would use.
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
# Only the length of n-grams varies.
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
# What takes time: the size of the table, the rows read for each n-gram, or the embedding?
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
# Why are hash embeddings behind on one set? Too many n-grams may share a component vector, rare
# n-grams may learn too slowly, or there may be too few dimensions.
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
# From the default protocol to the paper's: one change at a time, then all four.
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


def ablation(name: str, dataset: str) -> list[Run]:
    if name == "collisions":
        return [Run("collisions", dataset, "1- and 2-grams", 0, Collisions())]
    return [
        Run(name, dataset, label, seed, method)
        for label, method in ABLATIONS[name].items()
        for seed in SEEDS
    ]
