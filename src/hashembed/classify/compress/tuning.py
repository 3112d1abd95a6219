"""Tunes a small model to give the answers of the full one, on the texts it was folded from."""

import numpy as np

from hashembed.engine.labels import Labels
from hashembed.engine.linear import LinearModel
from hashembed.engine.protocol import LossNotFiniteError, to_probabilities
from hashembed.engine.shallow.listed import ListedModel
from hashembed.hashing.bags import Bags

RATE, PASSES, BATCH = 0.003, 2, 256
LEAST = 0.02  # less probable answers do not count


def tune(small: ListedModel, full: LinearModel, bags: Bags, seed: int) -> bool:
    """Train the kept rows on the probabilities of the full model -> whether that succeeded.

    A text comes once for each probable class, and that probability is its weight.
    """
    chances = to_probabilities(full.scores(bags), multilabel=False)
    texts, classes = np.nonzero(chances > LEAST)
    labels, weights = Labels.single(classes), chances[texts, classes]
    repeated = bags.take(texts)
    steps = -(-len(texts) // BATCH)
    for number in range(PASSES):
        rng = np.random.default_rng([seed & (2**63 - 1), 0xD157, number])
        order = np.argsort(rng.permutation(len(bags))[texts], kind="stable")
        done = (number + np.arange(steps) / steps) / PASSES
        rates = (RATE * (1 - done)).astype(np.float32)
        try:
            small.train(repeated, labels, order, rates, batch_size=BATCH, weights=weights)
        except LossNotFiniteError:
            return False
    return bool(np.isfinite(small.memory.E).all() and np.isfinite(small.memory.W).all())
