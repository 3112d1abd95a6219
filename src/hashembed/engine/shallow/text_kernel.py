"""From one text to its logits in a single native call."""

from typing import NamedTuple

from hashembed.core.arrays import F32, F32_2D, I64, U8, U32, U32_2D
from hashembed.core.njit import njit
from hashembed.engine.shallow.arrays import LANES
from hashembed.engine.shallow.kernel import score_document
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


class Call(NamedTuple):
    """One text, space for what it becomes, and its logits."""

    numbers: I64  # bytes of the text; out: its n-grams, and the class with the largest logit
    data: U8  # the text, and at least 80 bytes more
    batch: Batch
    keys: I64
    rows: U32  # as long as `keys`
    buckets: U32_2D  # (k, as long as `keys`)
    h: F32_2D  # (1, columns of E)
    z: F32  # out: (C,)


@njit(native=True, nogil=True, error_model="numpy")
def score_text(rules: Rules, weights: Weights, call: Call) -> None:
    """Compute `call.z`; only the number of n-grams, if they do not fit into `call.keys`."""
    E, records, W, bias, seeds, K, B, importance, indexing = weights
    count = text_keys(call.data, call.numbers[SIZE], rules, call.batch, call.keys)
    call.numbers[COUNT] = count
    if count <= len(call.keys):
        columns, k, keys = E.shape[1], len(seeds) - 1, call.keys[:count]
        rows, buckets, h, z = call.rows, call.buckets, call.h, call.z
        score_document(
            keys, E, records, W, bias, seeds, K, B, columns, _WIDTH, _WIDE, k, importance, indexing,
            rows, buckets, h, z,
        )  # fmt: skip
        best = 0
        for c in range(1, len(z)):
            if z[c] > z[best]:
                best = c
        call.numbers[BEST] = best
