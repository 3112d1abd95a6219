"""What a linear model knows about each n-gram of some texts, and how much that matters.

The logits of a linear model are sums over n-grams: an n-gram adds the same to the logits of every
text that holds it. That vector, its evidence, says all that the model knows about the n-gram. A
softmax does not change if all logits of a text grow alike, so evidence may have the mean 0.
"""

from dataclasses import dataclass

import numpy as np

from hashembed.core.arrays import F32, F64, I64
from hashembed.engine.linear import LinearModel
from hashembed.hashing.bags import Bags

# An n-gram in r texts is expected in about r - SEEN of as many new ones: what a single text has is
# mostly its own.
SEEN = 0.9
_AT_A_TIME = 1 << 16


@dataclass(frozen=True)
class Evidence:
    """N-grams, their evidence, and the weight of errors in it."""

    keys: I64  # (n,)
    logits: F32  # (n, C)
    weights: F64  # (n,), the number of texts that hold the n-gram, less SEEN


def mean_bias(model: LinearModel) -> F32:
    """The bias of the mean of the parts."""
    total = np.zeros(len(model.parts[0].memory.bias))
    for part in model.parts:
        total += part.memory.bias
    return np.asarray(total / len(model.parts), np.float32)


def find_evidence(model: LinearModel, bags: Bags, most: int) -> Evidence:
    """The n-grams of some texts that matter most, at most so many, in the order of their keys."""
    keys, texts = distinct_keys(bags)
    weights = texts.astype(np.float64) - SEEN
    energy = np.empty(len(keys))
    for start in range(0, len(keys), _AT_A_TIME):
        part = slice(start, start + _AT_A_TIME)
        energy[part] = squares(evidence_of(model, keys[part]))
    chosen = np.sort(np.argsort(-energy * weights, kind="stable")[:most])
    return Evidence(keys[chosen], evidence_of(model, keys[chosen]), weights[chosen])


def evidence_of(model: LinearModel, keys: I64) -> F32:
    """What each key adds to the logits (n, C); the mean is 0 unless texts have several labels."""
    z = model.scores(Bags.trusted(keys, np.arange(len(keys) + 1))) - mean_bias(model)
    if model.multilabel:
        return np.asarray(z, np.float32)
    mean = np.zeros(len(z))
    for column in z.T:
        mean += column
    return np.asarray(z - (mean / z.shape[1])[:, None], np.float32)


def squares(vectors: F32) -> F64:
    """The squared lengths of rows, summed column by column: the same bits everywhere."""
    total = np.zeros(len(vectors))
    for column in vectors.T:
        total += np.square(column, dtype=np.float64)
    return total


def distinct_keys(bags: Bags) -> tuple[I64, I64]:
    """The distinct keys, rising, and the number of bags that hold each."""
    order = np.argsort(bags.keys, kind="stable")  # the bags of equal keys stay in order
    keys = bags.keys[order]
    owners = np.repeat(np.arange(len(bags), dtype=np.int32), bags.lengths)[order]
    new_key = np.ones(len(keys), np.bool_)
    new_key[1:] = keys[1:] != keys[:-1]
    new_bag = new_key.copy()
    new_bag[1:] |= owners[1:] != owners[:-1]
    first = np.flatnonzero(new_key)
    counts = np.add.reduceat(new_bag, first, dtype=np.int64) if len(first) else first
    return keys[first], counts
