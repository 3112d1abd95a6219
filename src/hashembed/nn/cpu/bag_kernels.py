"""Forward and backward of a bag of hash vectors, on raw buffers.

    id_keys          ids -> keys                                    a worker owns tokens
    locate           keys -> rows and buckets                       a worker owns tokens
    forward          rows, buckets -> sums of hash vectors          a worker owns bags
    token_gradients  the factors and terms of each token            a worker owns bags
    sum_rows         terms -> gradient of a table, in token order   a worker owns rows of the table

Workers share nothing that they write, and every sum has one order, so results are bit-identical for
any number of workers. A plain look-up has one token in each bag, and empty `offsets`. Tables may
have any precision (`nn/cpu/precision.py`).

d and k are not compile-time constants: making them so gained nothing in measurements, because the
time goes into waiting for rows.
"""

from typing import NamedTuple

import numpy as np

from hashembed.core.arrays import F32, F64, I16, I64, U16, U64, Bools
from hashembed.core.intrinsics import AHEAD, prefetch
from hashembed.core.njit import FAST, njit
from hashembed.core.threads import wait_for_all
from hashembed.hashing.locate import bucket_of, row_of
from hashembed.hashing.scalars import id_key
from hashembed.nn.cpu.precision import load, store

LINE = 16  # floats in a cache line
DIGIT = 11  # bits that one pass of the radix sort takes

u64 = np.uint64
LOW_HALF = u64(0xFFFFFFFF)

Table = F32 | F64 | I16 | U16  # half precision as its bits
Sums = F32 | F64


class BagArrays(NamedTuple):
    """One call of a layer. An absent option is an empty array."""

    E: Table  # (B, d)
    P: Table  # (K, k)
    rows: I64  # (N,)
    buckets: I64  # (N, k)
    offsets: I64  # (n + 1,)
    keep: Bools  # (N,)
    weights: Sums  # (N,)
    mean: bool
    concat: bool
    append: bool


class TokenGradients(NamedTuple):
    """What the gradients are sums of, for every token t and component i.

        dloss/dE[bucket]  +=  factors[t, i] * grad[bags[t]]
        dloss/dP[row]     +=  P_terms[places[t]]

    A token that does not count has bags[t] = places[t] = -1.
    """

    bags: I64  # (N,)
    places: I64  # (N,)
    factors: Sums  # (N, k)
    P_terms: Sums  # (N, k)
    weights_grad: Sums  # (N,): the gradient of the per-sample weights


class Terms(NamedTuple):
    """Terms of the gradient of a table, for every token t and component i.

        table_grad[targets[t, i]]  +=  factors[t, i] * source[source_rows[t], i * step + (0 .. width)]

    Tokens with source_rows[t] = -1 have none. Empty `factors` are 1.
    """

    targets: I64  # (N, c): rows of the table
    source: Table  # (n, D)
    source_rows: I64  # (N,)
    factors: Sums  # (N, c)
    step: int


class SumScratch(NamedTuple):
    """What the workers of `sum_rows` use on the way, one row for each."""

    items: U64  # (workers, N c)
    spare: U64  # (workers, N c)
    total: Sums  # (workers, width)
    found: I64  # (workers,): distinct rows


class TableGradient(NamedTuple):
    """Where `sum_rows` writes: all rows of `values`, or the touched rows and their numbers."""

    size: int  # rows of the table
    dense: bool
    rows: I64  # (most touched rows,)
    values: Table  # (size, width) or (most touched rows, width)


@njit(nogil=True, cache=True)
def id_keys(worker, workers, barrier, ids, keys):
    """Keys (N,) of integer ids (N,)."""
    n = len(ids)
    for t in range(n * worker // workers, n * (worker + 1) // workers):
        keys[t] = id_key(ids[t])


@njit(nogil=True, cache=True)
def locate(worker, workers, barrier, keys, seeds, K, B, indexing, rows, buckets):
    """rows (N,) and buckets (N, k) of keys (N,) -> whether every rank is below K."""
    n, k = buckets.shape
    valid = True
    for t in range(n * worker // workers, n * (worker + 1) // workers):
        key = keys[t]
        row = row_of(key, seeds[0], K, indexing)
        if row < 0 or row >= K:
            valid = False
        rows[t] = row
        for i in range(k):
            buckets[t, i] = bucket_of(i, key, row, seeds[i + 1], B, indexing)
    return valid


@njit(inline="always")
def owned_bags(worker, workers, offsets, bags):
    """The bags that begin in a worker's share of the tokens."""
    if len(offsets) == 0:
        return bags * worker // workers, bags * (worker + 1) // workers
    tokens, begins = offsets[bags], offsets[:bags]
    first = np.searchsorted(begins, tokens * worker // workers) if worker > 0 else 0
    if worker + 1 == workers:
        return first, bags
    return first, np.searchsorted(begins, tokens * (worker + 1) // workers)


@njit(inline="always")
def bag_limits(offsets, bag):
    """The tokens of a bag."""
    if len(offsets) == 0:
        return bag, bag + 1
    return offsets[bag], offsets[bag + 1]


@njit(inline="always")
def prefetch_token(flat, d, P, rows, buckets, t):
    """Prefetch what token t will read; `flat` is E as one long array."""
    if len(P) > 0:
        prefetch(P, rows[t])
    for i in range(buckets.shape[1]):
        begin = buckets[t, i] * d
        for j in range(0, d, LINE):
            prefetch(flat, begin + j)
        prefetch(flat, begin + d - 1)


@njit(inline="always")
def sort_by_row(items, spare, count, bits):
    """Stable radix sort of items[:count] by their upper 32 bits -> the array they end in."""
    passes = max(1, (bits + DIGIT - 1) // DIGIT)
    digit = (bits + passes - 1) // passes
    mask = u64((1 << digit) - 1)
    places = np.empty((1 << digit) + 1, np.int64)
    for p in range(passes):
        shift = u64(32 + p * digit)
        places[:] = 0
        for x in range(count):
            places[np.int64((items[x] >> shift) & mask) + 1] += 1
        for x in range(1 << digit):
            places[x + 1] += places[x]
        for x in range(count):
            c = np.int64((items[x] >> shift) & mask)
            spare[places[c]] = items[x]
            places[c] += 1
        items, spare = spare, items
    return items


# No fastmath here: hash vectors are bit-identical to those of the reference.
@njit(nogil=True, cache=True, error_model="numpy")
def forward(worker, workers, barrier, call, total, out):
    """out (n, D) = sums or means of hash vectors; total (workers, D) is scratch."""
    E, P, rows, buckets, offsets = call.E, call.P, call.rows, call.buckets, call.offsets
    keep, weights, append = call.keep, call.weights, call.append
    d, k, flat = E.shape[1], buckets.shape[1], E.reshape(-1)
    importance, every, equal = len(P) > 0, len(keep) == 0, len(weights) == 0
    step = d if call.concat else 0
    inner = d * k if call.concat else d
    h = total[worker]
    one = h.dtype.type(1)
    first, last = owned_bags(worker, workers, offsets, len(out))
    end = bag_limits(offsets, last - 1)[1] if first < last else 0
    for bag in range(first, last):
        t0, t1 = bag_limits(offsets, bag)
        h[:] = 0
        count = 0
        for t in range(t0, t1):
            prefetch_token(flat, d, P, rows, buckets, min(t + AHEAD, end - 1))
            if not (every or keep[t]):
                continue
            count += 1
            w = one if equal else weights[t]
            for i in range(k):
                p = w * load(P, rows[t], i) if importance else w
                bucket, base = buckets[t, i], i * step
                for j in range(d):
                    h[base + j] += p * load(E, bucket, j)
                if append:
                    h[inner + i] += p
        divisor = h.dtype.type(max(count, 1) if call.mean else 1)
        for j in range(len(h)):
            store(out, bag, j, h[j] / divisor)


@njit(nogil=True, fastmath=FAST, cache=True, error_model="numpy")
def token_gradients(worker, workers, barrier, call, grad, want_dots, found):
    """Fill `found`; P_terms and weights_grad only with `want_dots`."""
    E, P, rows, buckets, offsets = call.E, call.P, call.rows, call.buckets, call.offsets
    keep, weights, append = call.keep, call.weights, call.append
    bags, places, factors = found.bags, found.places, found.factors
    d, k, flat = E.shape[1], buckets.shape[1], E.reshape(-1)
    importance, every, equal = len(P) > 0, len(keep) == 0, len(weights) == 0
    step = d if call.concat else 0
    inner = d * k if call.concat else d
    one, zero = factors.dtype.type(1), factors.dtype.type(0)
    first, last = owned_bags(worker, workers, offsets, len(grad))
    end = bag_limits(offsets, last - 1)[1] if first < last else 0
    for bag in range(first, last):
        t0, t1 = bag_limits(offsets, bag)
        count = 0
        for t in range(t0, t1):
            count += every or keep[t]
        scale = one / factors.dtype.type(max(count, 1) if call.mean else 1)
        for t in range(t0, t1):
            prefetch_token(flat, d, P, rows, buckets, min(t + AHEAD, end - 1))
            counts = every or keep[t]
            bags[t] = bag if counts else -1
            places[t] = t if counts else -1
            w = scale if equal else scale * weights[t]
            total = zero
            for i in range(k):
                p = load(P, rows[t], i) if importance else one
                factors[t, i] = w * p
                if want_dots:
                    bucket, base = buckets[t, i], i * step
                    dot = load(grad, bag, inner + i) if append else zero
                    for j in range(d):
                        dot += load(grad, bag, base + j) * load(E, bucket, j)
                    found.P_terms[t, i] = w * dot
                    total += p * dot
            if want_dots and not equal:
                found.weights_grad[t] = scale * total if counts else zero
    if worker + 1 == workers:  # tokens behind the last bag
        for t in range(bag_limits(offsets, len(grad) - 1)[1] if len(grad) else 0, len(rows)):
            bags[t] = -1
            places[t] = -1
            if want_dots and not equal:
                found.weights_grad[t] = zero


@njit(inline="always")
def collect_items(terms, low, high, split, items):
    """The terms of the table's rows low..high, in token order -> their number.

    An item is its row (from `low` on), its token and, in the last `split` bits, its component.
    """
    n, c = terms.targets.shape
    count = 0
    for t in range(n):
        if terms.source_rows[t] < 0:
            continue
        for i in range(c):
            row = terms.targets[t, i]
            items[count] = (u64(row - low) << u64(32)) | (u64(t) << split) | u64(i)
            count += (row >= low) & (row < high)
    return count


@njit(nogil=True, fastmath=FAST, cache=True, error_model="numpy")
def sum_rows(worker, workers, barrier, terms, scratch, out):
    """Add up the terms of each row of a table, and write the sums to `out`.

    If that is compact, the sums stand in the order of rows in its first sum(found) rows.
    """
    source, source_rows, factors = terms.source, terms.source_rows, terms.factors
    size, width = out.size, out.values.shape[1]
    low, high = size * worker // workers, size * (worker + 1) // workers
    h = scratch.total[worker]
    one = h.dtype.type(1)
    split = u64(0)
    while (1 << split) < terms.targets.shape[1]:
        split += u64(1)
    component = u64((1 << split) - 1)
    count = collect_items(terms, low, high, split, scratch.items[worker])
    bits = 0
    while (np.int64(1) << bits) < high - low:
        bits += 1
    mine = sort_by_row(scratch.items[worker], scratch.spare[worker], count, bits)
    unique = 0
    for x in range(count):
        unique += x == 0 or mine[x] >> u64(32) != mine[x - 1] >> u64(32)
    scratch.found[worker] = unique
    wait_for_all(barrier, workers)

    slot = np.int64(0)
    for w in range(worker):
        slot += scratch.found[w]
    x = 0
    while x < count:
        key = mine[x] >> u64(32)
        row = np.int64(key) + low
        h[:] = 0
        while x < count and mine[x] >> u64(32) == key:
            ahead = mine[min(x + AHEAD, count - 1)]
            prefetch(source, source_rows[np.int64((ahead & LOW_HALF) >> split)])
            t = np.int64((mine[x] & LOW_HALF) >> split)
            i = np.int64(mine[x] & component)
            s, base = source_rows[t], i * terms.step
            f = factors[t, i] if len(factors) else one
            for j in range(width):
                h[j] += f * load(source, s, base + j)
            x += 1
        target = row if out.dense else slot
        if not out.dense:
            out.rows[slot] = row
        for j in range(width):
            store(out.values, target, j, h[j])
        slot += 1
