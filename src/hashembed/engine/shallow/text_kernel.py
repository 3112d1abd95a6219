"""From one text to its logits in a single native call; in an ensemble, one call for each member."""

from typing import NamedTuple

import numpy as np

from hashembed.core.arrays import F32, F32_2D, F64, I64, U8, U32, U32_2D
from hashembed.core.njit import njit
from hashembed.engine.shallow.arrays import LANES
from hashembed.engine.shallow.kernel import score_document
from hashembed.engine.shallow.listed_kernels import add_places
from hashembed.text.key_kernels import text_keys
from hashembed.text.word_kernels import Batch, Rules

SIZE, COUNT, BEST = 0, 1, 2  # places in `Call.numbers`
_WIDTH, _WIDE = LANES, 4 * LANES


class Weights(NamedTuple):
    """A shallow model."""

    E: F32_2D
    records: F32_2D
    W: F32_2D
    bias: F32
    seeds: U32
    num_rows: int  # K
    num_buckets: int  # B
    importance: bool
    indexing: int
    # Of a model with only some rows of E; empty for others. There K and B are the number of these.
    listed: U32  # which
    blocks: U32
    all_buckets: int


class Call(NamedTuple):
    """One text, space for what it becomes, and its logits."""

    numbers: I64  # bytes of the text; out: its n-grams, and the class with the largest logit
    data: U8  # the text, and at least 80 bytes more
    batch: Batch
    keys: I64
    places: I64  # as long as `keys`: what a model with only some rows has instead
    rows: U32  # as long as `keys`
    buckets: U32_2D  # (k, as long as `keys`)
    h: F32_2D  # (1, columns of E)
    z: F32  # out: (C,)
    sums: F64  # (C,), of the logits of the members so far


@njit(error_model="numpy")
def _score(weights, call):
    """z = the logits of the keys."""
    E, records, W, bias, seeds, K, B, importance, indexing, listed, blocks, all_buckets = weights
    columns, k, keys = E.shape[1], len(seeds) - 1, call.keys[: call.numbers[COUNT]]
    if len(blocks):
        known = add_places(
            keys, 0, len(keys), seeds[1], all_buckets, listed, blocks, call.places, 0
        )
        keys = call.places[:known]
    rows, buckets, h, z = call.rows, call.buckets, call.h, call.z
    score_document(
        keys, E, records, W, bias, seeds, K, B, columns, _WIDTH, _WIDE, k, importance, indexing,
        rows, buckets, h, z,
    )  # fmt: skip


@njit(error_model="numpy")
def _best_class(z):
    best = 0
    for c in range(1, len(z)):
        if z[c] > z[best]:
            best = c
    return best


@njit(native=True, nogil=True, error_model="numpy")
def score_text(rules: Rules, weights: Weights, call: Call) -> None:
    """Compute `call.z`; only the number of n-grams, if they do not fit into `call.keys`."""
    count = text_keys(call.data, call.numbers[SIZE], rules, call.batch, call.keys)
    call.numbers[COUNT] = count
    if count <= len(call.keys):
        _score(weights, call)
        call.numbers[BEST] = _best_class(call.z)


@njit(native=True, nogil=True, error_model="numpy")
def score_keys(weights: Weights, call: Call, number: int, members: int) -> None:
    """Score the keys of `call` with another member; after the last one `call.z` is the mean.

    Members are numbered from 0: `score_text` is the first of them. The sum is that of
    `mean_logits` in `engine/ensemble.py`, bit for bit.
    """
    z, sums = call.z, call.sums
    if number == 1:
        for c in range(len(z)):
            sums[c] = 0.0 + np.float64(z[c])
    _score(weights, call)
    for c in range(len(z)):
        sums[c] += np.float64(z[c])
    if number == members - 1:
        for c in range(len(z)):
            z[c] = np.float32(sums[c] / members)
        call.numbers[BEST] = _best_class(z)
