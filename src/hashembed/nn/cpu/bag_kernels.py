"""Forward and backward of a bag of hash vectors, on raw buffers.

    id_keys     ids -> keys                                       a worker owns tokens
    locate      keys -> rows and buckets                          a worker owns tokens
    forward     rows, buckets -> sums of hash vectors             a worker owns bags
    slopes      what the gradient of each token's rows needs      a worker owns bags
    sum_rows    the gradients of a table, summed in token order   a worker owns rows of the table

Nothing is shared and every sum has one order, so results are the same to the bit for any number of
workers. A plain look-up is the same thing with one token to a bag, and `offsets` empty. Tables may
be of any precision (`nn/cpu/precision.py`); an absent option is an empty array.

d and k are not compile-time constants here: that was measured to gain nothing, since rows are
waited for, not computed on.
"""

import numpy as np

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
    fine = True
    for t in range(n * worker // workers, n * (worker + 1) // workers):
        key = keys[t]
        row = row_of(key, seeds[0], K, indexing)
        if row < 0 or row >= K:
            fine = False
        rows[t] = row
        for i in range(k):
            buckets[t, i] = bucket_of(i, key, row, seeds[i + 1], B, indexing)
    return fine


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
def ask_for(flat, d, P, rows, buckets, t):
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


# No fastmath here: a hash vector is the reference's to the bit.
@njit(nogil=True, cache=True, error_model="numpy")
def forward(
    worker,
    workers,
    barrier,
    E,
    P,
    rows,
    buckets,
    offsets,
    keep,
    weights,
    mean,
    concat,
    append,
    total,
    out,
):
    """out (n, D) = sums or means of hash vectors; total (workers, D) is room to add up in."""
    d, k, flat = E.shape[1], buckets.shape[1], E.reshape(-1)
    importance, every, equal = len(P) > 0, len(keep) == 0, len(weights) == 0
    step = d if concat else 0
    inner = d * k if concat else d
    h = total[worker]
    one = h.dtype.type(1)
    first, last = owned_bags(worker, workers, offsets, len(out))
    end = bag_limits(offsets, last - 1)[1] if first < last else 0
    for bag in range(first, last):
        t0, t1 = bag_limits(offsets, bag)
        h[:] = 0
        count = 0
        for t in range(t0, t1):
            ask_for(flat, d, P, rows, buckets, min(t + AHEAD, end - 1))
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


@njit(nogil=True, fastmath=FAST, cache=True, error_model="numpy")
def slopes(
    worker,
    workers,
    barrier,
    E,
    P,
    rows,
    buckets,
    offsets,
    keep,
    weights,
    mean,
    concat,
    append,
    grad,
    want_slopes,
    bags,
    places,
    factors,
    slope,
    weights_grad,
):
    """What the gradients of E and P are sums of, for every token t and component i.

        dloss/dE[bucket]  +=  factors[t, i] * grad[bags[t]]
        dloss/dP[row]     +=  slope[places[t]]

    A token that does not count has bags[t] = places[t] = -1.
    """
    d, k, flat = E.shape[1], buckets.shape[1], E.reshape(-1)
    importance, every, equal = len(P) > 0, len(keep) == 0, len(weights) == 0
    step = d if concat else 0
    inner = d * k if concat else d
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
            ask_for(flat, d, P, rows, buckets, min(t + AHEAD, end - 1))
            counts = every or keep[t]
            bags[t] = bag if counts else -1
            places[t] = t if counts else -1
            w = scale if equal else scale * weights[t]
            total = zero
            for i in range(k):
                p = load(P, rows[t], i) if importance else one
                factors[t, i] = w * p
                if want_slopes:
                    bucket, base = buckets[t, i], i * step
                    dot = load(grad, bag, inner + i) if append else zero
                    for j in range(d):
                        dot += load(grad, bag, base + j) * load(E, bucket, j)
                    slope[t, i] = w * dot
                    total += p * dot
            if want_slopes and not equal:
                weights_grad[t] = scale * total if counts else zero
    if worker + 1 == workers:  # behind the last bag
        for t in range(bag_limits(offsets, len(grad) - 1)[1] if len(grad) else 0, len(rows)):
            bags[t] = -1
            places[t] = -1
            if want_slopes and not equal:
                weights_grad[t] = zero


@njit(nogil=True, fastmath=FAST, cache=True, error_model="numpy")
def sum_rows(
    worker,
    workers,
    barrier,
    index,
    size,
    source_rows,
    source,
    step,
    factors,
    dense,
    items,
    spare,
    total,
    found,
    out_rows,
    out,
):
    """Sums of rows of `source` by the table's row that they belong to, index (N, c).

        out[index[t, i]] += factors[t, i] * source[source_rows[t], i * step : i * step + width]

    Sums go to their row of `out` when `dense`; else, in the order of rows, to out[:m] with
    their rows in out_rows[:m], where m = sum of found (workers,). Without `factors` they are 1.
    """
    width = out.shape[1]
    n, c = index.shape
    low, high = size * worker // workers, size * (worker + 1) // workers
    mine, h = items[worker], total[worker]
    one = h.dtype.type(1)
    split = u64(0)  # an item is its row, its token and, in the last bits, its component
    while (1 << split) < c:
        split += u64(1)
    component = u64((1 << split) - 1)
    count = 0
    for t in range(n):
        if source_rows[t] < 0:
            continue
        for i in range(c):
            row = index[t, i]
            mine[count] = (u64(row - low) << u64(32)) | (u64(t) << split) | u64(i)
            count += (row >= low) & (row < high)
    bits = 0
    while (np.int64(1) << bits) < high - low:
        bits += 1
    mine = sort_by_row(mine, spare[worker], count, bits)
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
            out_rows[slot] = row
        for j in range(width):
            store(out, target, j, h[j])
        slot += 1
