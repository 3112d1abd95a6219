"""Models of an earlier version: what they were trained on, and how to make them again.

    python -m tests.golden

trains every configuration and writes `hashes.json` and the model files beside it. Do that only
when a change of the models is meant, and say so in the changelog. Files that only older versions
could write, and the bits of their answers, stay as they are (`OLDER`, `REFUSED`).
"""

import hashlib
import json
import platform
from pathlib import Path

import numpy as np

from hashembed import TextClassifier

FOLDER = Path(__file__).parent
SMALL = {"num_embeddings": 1000, "num_buckets": 300}
SINGLE, MULTI = "single", "multi"

# name -> options, and which labels to train on
CONFIGURATIONS = {
    "default": ({}, SINGLE),
    "chosen": ({"effort": "normal"}, SINGLE),
    "subwords": ({"subwords": (2, 4), "passes": 3}, SINGLE),
    "multi_label": (SMALL, MULTI),
    "members": ({"members": 3, **SMALL}, SINGLE),
    "validated": ({"validation_fraction": 0.2, "passes": 4, "patience": 2}, SINGLE),
    "class_weight": ({"class_weight": {"1": 2.0}, "punctuation": "keep"}, SINGLE),
    "one_hash": ({"num_hashes": 1, "embedding_dim": 5}, SINGLE),
    "small": (SMALL, SINGLE),
}
FILES = ("small", "members", "multi_label")
OLDER = ("members_older", "small_older")  # averages probabilities; no "search" in its header
REFUSED = "hidden"  # a file with a hidden layer of 8


def texts(count: int = 3000) -> list[str]:
    """Texts of words with Zipf's frequencies: integers only, the same on every machine."""
    random = np.random.default_rng(1)
    words = [f"w{i}" for i in range(3000)]
    lengths = random.integers(1, 60, count)
    ranks = 3000 ** random.random(int(lengths.sum()))  # density 1 / rank
    chosen = iter(ranks.astype(int).tolist())
    return [" ".join(words[next(chosen) - 1] for _ in range(n)) for n in lengths.tolist()]


def labels(kind: str, documents: list[str]) -> list[str] | list[list[str]]:
    """Labels that the words say something about."""
    first = [int(text.split()[0][1:]) for text in documents]
    if kind == SINGLE:
        return [str(rank.bit_length() % 5) for rank in first]
    return [[str(rank % 4), "even"][: 2 - rank % 3 // 2] if rank % 5 else [] for rank in first]


def train(name: str) -> TextClassifier:
    """The classifier of one configuration."""
    options, kind = CONFIGURATIONS[name]
    documents = texts()
    return TextClassifier(**{"effort": "fast", **options}).fit(documents, labels(kind, documents))


def train_online() -> TextClassifier:
    """A classifier that learns from a stream."""
    documents, truth = texts(), labels(SINGLE, texts())
    online = TextClassifier(num_embeddings=5000)
    for i in range(0, len(documents), 500):
        online.partial_fit(documents[i : i + 500], truth[i : i + 500])
    return online


def digest(classifier: TextClassifier) -> str:
    """A hash of all tensors, names and bytes."""
    state = classifier.model_.state()
    whole = hashlib.blake2b(digest_size=16)
    for name in sorted(state):
        whole.update(name.encode())
        whole.update(np.ascontiguousarray(state[name]).tobytes())
    return whole.hexdigest()


def machine() -> str:
    """What the last bits depend on: the compiler, and the instructions that it may use."""
    import llvmlite.binding  # not where the wheel is tested
    import numba

    cpu = llvmlite.binding.get_host_cpu_name()
    return f"{platform.machine()} {cpu}, Numba {numba.__version__}, NumPy {np.__version__}"


def answers(classifier: TextClassifier) -> list[list[float]]:
    """Probabilities of a few texts."""
    return [[round(float(p), 7) for p in row] for row in classifier.predict_proba(texts(5))]


def write() -> None:
    """Train all configurations, keep their hashes, answers and some of their files."""
    trained = {name: train(name) for name in CONFIGURATIONS} | {"online": train_online()}
    for name in FILES:
        trained[name].save(FOLDER / f"{name}.safetensors", bits=16)
    trained["small"].save(FOLDER / "small_4bit.safetensors", bits=4)
    trained["small"].save(FOLDER / "small_for_training.safetensors", for_training=True)
    found = {
        name: {"answers": answers(made), "hash": digest(made)} for name, made in trained.items()
    }
    path = FOLDER / "hashes.json"
    older = json.loads(path.read_text())["older"]
    path.write_text(
        json.dumps({"machine": machine(), "models": found, "older": older}, indent=1) + "\n"
    )
