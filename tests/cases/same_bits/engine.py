"""Shallow models of every variant of the kernels: trained, scored, from a text to a class."""

import itertools
import random

import numpy as np

from hashembed import TextClassifier
from hashembed.engine.labels import Labels
from hashembed.engine.shallow.listed import ListedModel
from hashembed.engine.shallow.model import ShallowModel
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec

WIDTHS = (1, 16, 24, 33, 100)
HASHES = ((2, "independent"), (1, "independent"), (3, "shared"), (2, "shared"))
WORDS = ("good", "bad", "film", "what", "is", "it", "the", "house", "tree", "Straße", "ß", "日本")


def bags(rng, documents=60):
    lengths = rng.integers(0, 40, documents)
    keys = rng.zipf(1.3, lengths.sum()).astype(np.int64) * 7919
    return Bags(keys, np.append(0, lengths.cumsum()))


def trained(d, k, indexing, importance, multilabel, classes=5):
    rng = np.random.default_rng(d + k)
    model = ShallowModel(
        HashSpec(500, 60, k, indexing=indexing, seed=3),
        d,
        classes,
        importance=importance,
        multilabel=multilabel,
        seed=1,
        threads=2,
    )
    data = bags(rng)
    counts = rng.integers(0, 3, len(data)) if multilabel else np.ones(len(data), np.int64)
    drawn = [rng.choice(classes, count, replace=False) for count in counts]
    labels = Labels(np.concatenate(drawn).astype(np.int64), np.append(0, counts.cumsum()))
    order = rng.permutation(len(data)).astype(np.int64)
    losses = model.train(data, labels, order, np.full(4, 0.3, np.float32), batch_size=16)
    return losses, model.state(), model.scores(data), model.probabilities(data)


def listed(buckets, kept):
    rng = np.random.default_rng(buckets)
    rows = np.sort(rng.permutation(buckets)[:kept])
    tensors = {
        "E": rng.standard_normal((kept, 3), np.float32),
        "W": rng.standard_normal((4, 3), np.float32),
        "bias": np.zeros(4, np.float32),
    }
    model = ListedModel.from_rows(HashSpec(buckets, buckets, 1), rows, tensors, threads=2)
    own = bags(rng)
    return model.known(own).keys, model.scores(own)


def cases():
    for d, (k, indexing) in itertools.product(WIDTHS, HASHES):
        yield f"{d} {k} {indexing}", trained(d, k, indexing, True, False)
    for importance, multilabel in itertools.product((False, True), repeat=2):
        yield f"{importance} {multilabel}", trained(20, 2, "independent", importance, multilabel)
    for buckets, kept in ((64, 10), (5000, 700)):
        yield f"listed {buckets}", listed(buckets, kept)
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=draw.randrange(12))) for _ in range(200)]
    labels = [draw.choice("abc") for _ in texts]
    for options in ({}, {"subwords": (2, 4), "punctuation": "keep"}, {"members": 3}):
        clf = TextClassifier(threads=2, passes=2, **options).fit(texts, labels)
        answers = [clf.predict_proba([text]) for text in texts[:20]]
        yield f"texts {options}", (clf.model_.tensors(), clf.predict_proba(texts), answers)
        small = clf.compress(texts, size=6_000)
        answers = [small.predict_proba([text]) for text in texts[:20]]
        yield f"small {options}", (small.model_.tensors(), small.predict_proba(texts), answers)
        yield f"explained {options}", [ngram.text for ngram in clf.explain(texts[0]).ngrams]
