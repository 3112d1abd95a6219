"""Which of the equal n-grams of a text count: all, only some of them, or only the first.

A topic is mentioned once or ten times; ten mentions do not make it ten times as likely. Damped
counts follow the logarithm: of equal n-grams the first, second, fourth, eighth, ... count.
"""

from collections import Counter
from itertools import pairwise

import numpy as np

from hashembed.core.arrays import I64
from hashembed.core.threads import run_workers
from hashembed.hashing.bags import Bags
from hashembed.text.config import Repeats
from hashembed.text.repeat_kernels import ALL, DAMP, ONCE, drop_repeats

CODES: dict[Repeats, int] = {"all": ALL, "damp": DAMP, "once": ONCE}

_TASK = 1 << 17  # keys of the documents that a worker takes at a time


def counted(keys: I64, repeats: Repeats) -> I64:
    """The positions of the keys of one document that count."""
    seen: Counter[int] = Counter()
    found = []
    for position, key in enumerate(keys.tolist()):
        seen[key] += 1
        count = seen[key]
        if repeats == "all" or count == 1 or (repeats == "damp" and count & (count - 1) == 0):
            found.append(position)
    return np.array(found, np.int64)


def without_repeats(keys: I64, offsets: I64, repeats: int, threads: int) -> Bags:
    """The bags without the keys that do not count. `keys` is overwritten, and made shorter."""
    if repeats == ALL:
        return Bags.trusted(keys, offsets)
    documents = len(offsets) - 1
    cuts = np.searchsorted(offsets, np.arange(_TASK, len(keys), _TASK)).tolist()
    edges = sorted({0, *cuts, documents})
    lengths = np.empty(documents, np.int64)
    waiting = iter(list(pairwise(edges)))  # one step of an iterator is atomic

    def take_ranges(worker: int, workers: int, barrier: I64) -> None:
        for first, stop in waiting:
            drop_repeats(keys, offsets, first, stop, repeats, lengths)

    run_workers(take_ranges, min(threads, max(len(edges) - 1, 1)))
    shorter = np.zeros(documents + 1, np.int64)
    np.cumsum(lengths, out=shorter[1:])
    for first, stop in pairwise(edges):
        size = shorter[stop] - shorter[first]
        keys[shorter[first] : shorter[stop]] = keys[offsets[first] : offsets[first] + size]
    keys.resize(shorter[-1], refcheck=False)  # nobody else has it yet
    return Bags.trusted(keys, shorter)
