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

from hashembed.core.arrays import F32, F32_2D, I64, I64_2D, U32, U64_2D, Bools
from hashembed.core.intrinsics import AHEAD, prefetch
from hashembed.core.njit import njit
from hashembed.core.threads import wait_for_all
from hashembed.hashing.locate import bucket_of, row_of
from hashembed.hashing.scalars import id_key
from hashembed.nn.cpu.precision import dot, load, prefetch_row, store

DIGIT = 11  # bits that one pass of the radix sort takes

u64 = np.uint64
LOW_HALF = u64(0xFFFFFFFF)


class BagArrays(NamedTuple):
    """One call of a layer. An absent option is an empty array."""

    E: F32_2D  # (B, d)
    P: F32_2D  # (K, k)
    rows: I64  # (N,)
    buckets: I64_2D  # (N, k)
    offsets: I64  # (n + 1,)
    keep: Bools  # (N,)
    weights: F32  # (N,)
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
    factors: F32_2D  # (N, k)
    P_terms: F32_2D  # (N, k)
    weights_grad: F32  # (N,): the gradient of the per-sample weights


class Terms(NamedTuple):
    """Terms of the gradient of a table, for every token t and component i.

        table_grad[targets[t, i]]  +=  factors[t, i] * source[source_rows[t], begin : begin + width]

    where begin = i * step. Tokens with source_rows[t] = -1 have none. Empty `factors` are 1.
    """

    targets: I64_2D  # (N, c): rows of the table
    source: F32_2D  # (n, D)
    source_rows: I64  # (N,)
    factors: F32_2D  # (N, c)
    step: int


class SumScratch(NamedTuple):
    """What the workers of `sum_rows` use on the way, one row for each."""

    items: U64_2D  # (workers, N c)
    spare: U64_2D  # (workers, N c)
    total: F32_2D  # (workers, width)
    found: I64  # (workers,): distinct rows


class TableGradient(NamedTuple):
    """Where `sum_rows` writes: all rows of `values`, or the touched rows and their numbers."""

    size: int  # rows of the table
    dense: bool
    rows: I64  # (most touched rows,)
    values: F32_2D  # (size, width) or (most touched rows, width)


@njit(native=True, nogil=True, error_model="numpy")
def id_keys(
    worker: int, workers: int, barrier: I64, ids: I64, columns: I64, count: int, keys: I64
) -> None:
    """Keys (N,) of integer ids (N,) in columns (N,); if these are empty, in `count` in turn."""
    n = len(ids)
    first, last = n * worker // workers, n * (worker + 1) // workers
    if len(columns):
        for t in range(first, last):
            keys[t] = id_key(ids[t], columns[t])
    elif count == 1:  # without a division, which no processor vectorises
        for t in range(first, last):
            keys[t] = id_key(ids[t], 0)
    else:
        column = first % count
        for t in range(first, last):
            keys[t] = id_key(ids[t], column)
            column = column + 1 if column + 1 < count else 0


@njit(native=True, nogil=True, error_model="numpy")
def locate(
    worker: int,
    workers: int,
    barrier: I64,
    keys: I64,
    seeds: U32,
    K: int,
    B: int,
    indexing: int,
    rows: I64,
    buckets: I64_2D,
) -> bool:
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


@njit
def first_bag(offsets, bags, token):
    """The first bag that does not begin before a token."""
    low, high = 0, bags
    while low < high:
        middle = (low + high) // 2
        if offsets[middle] < token:
            low = middle + 1
        else:
            high = middle
    return low


@njit
def owned_bags(worker, workers, offsets, bags):
    """The bags that begin in a worker's share of the tokens."""
    if len(offsets) == 0:
        return bags * worker // workers, bags * (worker + 1) // workers
    tokens = offsets[bags]
    first = first_bag(offsets, bags, tokens * worker // workers) if worker > 0 else 0
    if worker + 1 == workers:
        return first, bags
    return first, first_bag(offsets, bags, tokens * (worker + 1) // workers)


@njit(forceinline=True)
def bag_limits(offsets, bag):
    """The tokens of a bag."""
    if len(offsets) == 0:
        return bag, bag + 1
    return offsets[bag], offsets[bag + 1]


@njit(forceinline=True)
def prefetch_token(E, P, rows, buckets, t):
    """Prefetch what token t will read."""
    if len(P) > 0:
        prefetch(P, rows[t])
    for i in range(buckets.shape[1]):
        prefetch_row(E, buckets[t, i])


@njit(forceinline=True)
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


@njit(native=True, nogil=True, error_model="numpy")
def forward(
    worker: int, workers: int, barrier: I64, call: BagArrays, total: F32_2D, out: F32_2D
) -> None:
    """out (n, D) = sums or means of hash vectors; total (workers, D) is scratch."""
    E, P, rows, buckets, offsets = call.E, call.P, call.rows, call.buckets, call.offsets
    keep, weights, append, mean = call.keep, call.weights, call.append, call.mean
    d, k = E.shape[1], buckets.shape[1]
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
            prefetch_token(E, P, rows, buckets, min(t + AHEAD, end - 1))
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
        divisor = h.dtype.type(max(count, 1) if mean else 1)
        for j in range(len(h)):
            store(out, bag, j, h[j] / divisor)


@njit(native=True, nogil=True, error_model="numpy")
def token_gradients(
    worker: int,
    workers: int,
    barrier: I64,
    call: BagArrays,
    grad: F32_2D,
    want_dots: bool,
    found: TokenGradients,
) -> None:
    """Fill `found`; P_terms and weights_grad only with `want_dots`."""
    E, P, rows, buckets, offsets = call.E, call.P, call.rows, call.buckets, call.offsets
    keep, weights, append = call.keep, call.weights, call.append
    bags, places, factors = found.bags, found.places, found.factors
    P_terms, weights_grad, mean = found.P_terms, found.weights_grad, call.mean
    d, k = E.shape[1], buckets.shape[1]
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
        scale = one / factors.dtype.type(max(count, 1) if mean else 1)
        for t in range(t0, t1):
            prefetch_token(E, P, rows, buckets, min(t + AHEAD, end - 1))
            counts = every or keep[t]
            bags[t] = bag if counts else -1
            places[t] = t if counts else -1
            w = scale if equal else scale * weights[t]
            total = zero
            for i in range(k):
                p = load(P, rows[t], i) if importance else one
                factors[t, i] = w * p
                if want_dots:
                    product = dot(grad, bag, i * step, E, buckets[t, i], d)
                    if append:
                        product += load(grad, bag, inner + i)
                    P_terms[t, i] = w * product
                    total += p * product
            if want_dots and not equal:
                weights_grad[t] = scale * total if counts else zero
    if worker + 1 == workers:  # tokens behind the last bag
        for t in range(bag_limits(offsets, len(grad) - 1)[1] if len(grad) else 0, len(rows)):
            bags[t] = -1
            places[t] = -1
            if want_dots and not equal:
                weights_grad[t] = zero


@njit(forceinline=True)
def collect_items(targets, source_rows, low, high, split, items):
    """The terms of the table's rows low..high, in token order -> their number.

    An item is its row (from `low` on), its token and, in the last `split` bits, its component.
    """
    n, c = targets.shape
    count = 0
    for t in range(n):
        if source_rows[t] < 0:
            continue
        for i in range(c):
            row = targets[t, i]
            items[count] = (u64(row - low) << u64(32)) | (u64(t) << split) | u64(i)
            count += (row >= low) & (row < high)
    return count


@njit(native=True, nogil=True, error_model="numpy")
def sum_rows(
    worker: int, workers: int, barrier: I64, terms: Terms, scratch: SumScratch, out: TableGradient
) -> None:
    """Add up the terms of each row of a table, and write the sums to `out`.

    If that is compact, the sums stand in the order of rows in its first sum(found) rows.
    """
    targets, source, source_rows = terms.targets, terms.source, terms.source_rows
    factors, step, found = terms.factors, terms.step, scratch.found
    size, dense, rows, values = out.size, out.dense, out.rows, out.values
    width = values.shape[1]
    low, high = size * worker // workers, size * (worker + 1) // workers
    h = scratch.total[worker]
    one = h.dtype.type(1)
    split = u64(0)
    while (1 << split) < targets.shape[1]:
        split += u64(1)
    component = u64((1 << split) - 1)
    items = scratch.items[worker]
    count = collect_items(targets, source_rows, low, high, split, items)
    bits = 0
    while (np.int64(1) << bits) < high - low:
        bits += 1
    mine = sort_by_row(items, scratch.spare[worker], count, bits)
    unique = 0
    for x in range(count):
        unique += x == 0 or mine[x] >> u64(32) != mine[x - 1] >> u64(32)
    found[worker] = unique
    wait_for_all(barrier, workers)

    slot = np.int64(0)
    for w in range(worker):
        slot += found[w]
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
            s, base = source_rows[t], i * step
            f = factors[t, i] if len(factors) else one
            for j in range(width):
                h[j] += f * load(source, s, base + j)
            x += 1
        target = row if dense else slot
        if not dense:
            rows[slot] = row
        for j in range(width):
            store(values, target, j, h[j])
        slot += 1
