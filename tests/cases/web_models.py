"""Small models of every kind that a file can hold, for comparing JavaScript with Python."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cases.many_scripts import mixed, sentences

from hashembed import TextClassifier
from hashembed.engine.tensor_file import load_tensors, save_tensors

ROWS = 1600
SMALL = {"effort": "fast", "num_embeddings": 3000, "num_buckets": 500, "passes": 2}
KIND = "TextClassifier"


def training_texts() -> tuple[list[str], list[str]]:
    """Real sentences and their languages, and some texts of all scripts."""
    texts, languages = sentences()
    step, rng = len(texts) // ROWS, random.Random(5)
    made = [mixed(rng) for _ in range(100)]
    return [*texts[::step], *made], [*languages[::step], *["other"] * len(made)]


def _strings(languages: list[str]) -> list[Any]:
    return languages


def _numbers(languages: list[str]) -> list[Any]:
    return [len(language) * 7 - 20 for language in languages]


def _large_numbers(languages: list[str]) -> list[Any]:
    return [2**62 + ord(language[0]) for language in languages]


def _floats(languages: list[str]) -> list[Any]:
    return [float(ord(language[0]) % 3) - 1 for language in languages]


def _booleans(languages: list[str]) -> list[Any]:
    return [language < "f" for language in languages]


def _many(languages: list[str]) -> list[Any]:
    return [f"{language} {i % 6}" for i, language in enumerate(languages)]


def _several(languages: list[str]) -> list[Any]:
    return [[c for c in "aeist" if c in language] for language in languages]


# name -> arguments, how to save it, labels
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any], Callable[[list[str]], list[Any]]]] = {
    "usual": ({}, {"bits": 8}, _strings),
    "pieces": (
        {"subwords": (2, 4), "punctuation": "keep", "ngrams": (1, 3)},
        {"bits": 16},
        _strings,
    ),
    "members": ({"members": 3, "embedding_dim": 20}, {"bits": 4}, _numbers),
    "cased": (
        {"lowercase": False, "ngrams": (2, 3), "num_hashes": 3, "embedding_dim": 37},
        {"for_training": True},
        _booleans,
    ),
    "one_hash": (
        {"num_hashes": 1, "embedding_dim": 5, "members": 2, "seed": -5_000_000_000_000_000_123},
        {"bits": 8},
        _large_numbers,
    ),
    "short_pieces": (
        {"subwords": (1, 32), "ngrams": (9, 9), "num_hashes": 3, "embedding_dim": 3},
        {"bits": 4},
        _floats,
    ),
    "damped": ({"subwords": (2, 3), "repeats": "damp", "members": 2}, {"bits": 8}, _strings),
    "once": ({"repeats": "once", "punctuation": "keep"}, {"bits": 16}, _strings),
    "several": ({"validation_fraction": 0.3, "embedding_dim": 16}, {"bits": 8}, _several),
    "several_members": ({"members": 2}, {"bits": 16}, _several),
    "many": ({"num_embeddings": 6000, "num_buckets": 900, "embedding_dim": 80}, {}, _many),
}
# name -> the model it is made from, and what is changed in its header
CHANGED = {
    "votes": ("members", {"engine": {"votes": "probabilities"}}),
    "several_votes": ("several_members", {"engine": {"votes": "probabilities"}}),
    "shared": ("usual", {"engine": {"spec": {"indexing": "shared"}}}),
    "unseen": ("usual", {"texts_seen": 0, "class_counts": [0] * 17}),
}

# name -> the model it is made from, what `compress` is asked for, whether it gets the texts
COMPRESSED: dict[str, tuple[str, dict[str, Any], bool]] = {
    "packed": ("usual", {"size": 40_000}, True),
    "packed_small": ("usual", {"size": 6_000}, True),
    "packed_two": ("cased", {"bits": 6}, True),
    "packed_two_small": ("cased", {"size": 3_000}, True),
    "packed_many": ("many", {"bits": 6}, True),
    "packed_pieces": ("pieces", {"bits": 8}, True),
    "packed_damped": ("damped", {"bits": 5}, True),
    "packed_once": ("once", {"size": 25_000}, True),
    "packed_members": ("members", {"bits": 5}, True),
    "packed_coarsely": ("members", {"bits": 2}, True),
    "packed_several": ("several", {"bits": 5}, True),
    "packed_seed": ("one_hash", {"size": 9_000}, True),
    "tables": ("usual", {"bits": 7}, False),
    "tables_two": ("cased", {"size": 4_000}, False),
    "tables_many": ("many", {"bits": 8}, False),
    "tables_members": ("members", {"bits": 5}, False),
    "tables_one_hash": ("one_hash", {"size": 4_000}, False),
    "tables_several": ("several_members", {"bits": 4}, False),
}
NAMES = [*MODELS, *CHANGED, *COMPRESSED]


def make(folder: Path, name: str) -> Path:
    """The file of a model, trained unless it is there."""
    path = folder / f"{name}.safetensors"
    if path.exists():
        return path
    if name in CHANGED:
        base, change = CHANGED[name]
        tensors, meta = load_tensors(make(folder, base), KIND)
        save_tensors(path, KIND, tensors, merged(meta, change))
        return path
    texts, languages = training_texts()
    if name in COMPRESSED:
        base, wish, with_texts = COMPRESSED[name]
        model = TextClassifier.load(make(folder, base))
        model.compress(texts if with_texts else None, **wish).save(path)
        return path
    options, how, labels = MODELS[name]
    model = TextClassifier(**{**SMALL, **options}).fit(texts, labels(languages))
    model.save(path, **how)
    return path


def merged(meta: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The metadata with these fields, at any depth, replaced."""
    out = dict(meta)
    for name, value in change.items():
        nested = isinstance(value, dict) and isinstance(out.get(name), dict)
        out[name] = merged(out[name], value) if nested else value
    return out
