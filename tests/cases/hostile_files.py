"""Model files that a hostile or careless writer could make: right checksums, wrong fields."""

import copy
import random
from collections import Counter

from click.testing import CliRunner

from hashembed import TextClassifier
from hashembed.cli import main
from hashembed.engine.tensor_file import ModelFileError, load_tensors, save_tensors

KIND = "TextClassifier"
TEXTS = ["good film", "bad film", "what a joke", "great fun"] * 5
LABELS = ["+", "-", "-", "+"] * 5
VALUES = [
    *(None, True, False, 0, 1, -1, 3, 65536, 2**31, 2**63, 2**64, 10**30),
    *(0.5, -0.5, 1e308, float("nan"), float("inf")),
    *("", "x", "lists", "single", "\x1b[31m", "\ud800", "a" * 1000),
    *([], [1], [[]], {}, {"a": 1}),
]


def places(value, path=()):
    """The path to everything in nested dictionaries and lists."""
    inside = value.items() if isinstance(value, dict) else ()
    inside = enumerate(value) if isinstance(value, list) else inside
    for key, part in inside:
        yield (*path, key)
        yield from places(part, (*path, key))


def changed(meta, rng: random.Random):
    """A copy with one to three fields removed, added or replaced."""
    meta = copy.deepcopy(meta)
    for _ in range(rng.choice([1, 1, 2, 3])):
        *path, last = rng.choice(list(places(meta)))
        inner = meta
        for key in path:
            inner = inner[key]
        chance, value = rng.random(), copy.deepcopy(rng.choice(VALUES))
        if chance < 0.15 and isinstance(inner, dict):
            del inner[last]
        elif chance < 0.2 and isinstance(inner, list):
            inner.append(value)
        else:
            inner[last] = value
    return meta


def model_or_sentence(path):
    try:
        return TextClassifier.load(path, threads=1)
    except ModelFileError as error:
        return str(error)


def try_headers(classifier, folder, count, seed) -> Counter:
    """So many mutants by `info`, `load`, prediction and training -> what became of them.

    Anything but a model that works or one sentence is an error of the test.
    """
    rng, found, runner = random.Random(seed), Counter(), CliRunner()
    originals = []
    for options in ({}, {"for_training": True}, {"bits": 8}):
        classifier.save(folder / "model", **options)
        originals.append(load_tensors(folder / "model", KIND))
    mutant = folder / "mutant"
    for _ in range(count):
        tensors, meta = rng.choice(originals)
        save_tensors(mutant, KIND, tensors, changed(meta, rng))
        told = runner.invoke(main, ["info", str(mutant)])
        assert told.exception is None or isinstance(told.exception, SystemExit), told.exception
        assert not {"\x1b", "\ud800"} & set(told.output)
        found["described" if told.exit_code == 0 else "not described"] += 1
        loaded = model_or_sentence(mutant)
        if isinstance(loaded, str):
            assert str(mutant) in loaded
            assert "\n" not in loaded
            found["refused"] += 1
            continue
        found["loaded"] += 1
        assert len(loaded.predict_proba(TEXTS)) == len(TEXTS)
        one = loaded.classes_[0]
        labels = [one] * len(TEXTS) if loaded.label_form_ == "single" else [[one]] * len(TEXTS)
        try:
            loaded.partial_fit(TEXTS, labels)
        except (ArithmeticError, ValueError) as error:
            found[type(error).__name__] += 1
    return found
