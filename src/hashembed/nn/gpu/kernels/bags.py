"""Triton kernels of the layers: forward, and what the backward pass starts from.

The paper's letters: E (B, d), P (K, k); N tokens, T of them in a tile, D columns at a time. Sums
are taken in ACC. An option that is absent is None; the compiler leaves out what hangs on it.

`sort_keys` and `slopes` prepare the gradients; `nn/gpu/kernels/sums.py` adds them up row by row,
and where rows are known ahead `nn/gpu/kernels/terms.py`.
"""

import triton
import triton.language as tl

from hashembed.nn.gpu.kernels.hash import IDENTITY, bucket_of, lanes, row_of
from hashembed.nn.gpu.kernels.rules import product


@triton.jit(do_not_specialize=["n"])
def id_keys(ids, keys, n, T: tl.constexpr):
    """Integer ids (n,) -> keys (n,)."""
    t = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    a, b = lanes(tl.load(ids + t, mask=t < n, other=0), True)
    tl.store(keys + t, (b.to(tl.int64) << 32) | a.to(tl.int64), mask=t < n)


@triton.jit
def token_sum(
    t,
    live,
    key,
    cols,
    first,
    given,
    N,
    K,
    B,
    d: tl.constexpr,
    k: tl.constexpr,
    INDEXING: tl.constexpr,
    MIX: tl.constexpr,
    CONCAT: tl.constexpr,
    ACC: tl.constexpr,
):
    """Columns of the vectors (T, D) of tokens t with these keys; with CONCAT of component `first`.

    Also returns which tokens are kept, their rows and their weights. What a component is multiplied
    with goes to factors (k, N), if there are: the last of what is given.
    """
    keep, weights, E, P, seeds, factors = given
    if keep is not None:
        live &= tl.load(keep + t, mask=live, other=0) != 0
    a, b = lanes(key, MIX)
    row = row_of(key, a, seeds, K, INDEXING)
    if INDEXING >= IDENTITY:  # the layers refuse such ids; here they only must not do harm
        live &= (row >= 0) & (row < K)
    scale = tl.full(t.shape, 1, ACC)
    if weights is not None:
        scale = tl.load(weights + t, mask=live, other=0)
    mask = live[:, None] & (cols < d)[None, :]
    total = tl.zeros([t.shape[0], cols.shape[0]], ACC)
    for j in tl.static_range(1 if CONCAT else k):
        i = first + j
        bucket = bucket_of(i, row, a, b, seeds, B, INDEXING)
        e = tl.load(E + bucket[:, None] * d + cols[None, :], mask=mask, other=0).to(ACC)
        factor = scale
        if P is not None:
            factor *= tl.load(P + row * k + i, mask=live, other=0).to(ACC)
        if factors is not None:
            tl.store(factors + tl.cast(N, tl.int64) * i + t, factor, mask=live)
        total += factor[:, None] * e
    return total, live, row, scale


@triton.jit(do_not_specialize=["N", "K", "B"])
def bag_forward(
    keys,
    offsets,
    keep,
    weights,
    E,
    P,
    seeds,
    out,
    factors,
    N,
    K,
    B,
    d: tl.constexpr,
    k: tl.constexpr,
    width: tl.constexpr,
    INDEXING: tl.constexpr,
    MIX: tl.constexpr,
    MEAN: tl.constexpr,
    CONCAT: tl.constexpr,
    APPEND: tl.constexpr,
    T: tl.constexpr,
    D: tl.constexpr,
    KP: tl.constexpr,
    ACC: tl.constexpr,
):
    """Sums or means over bags -> out (bags, width); a program for D columns of one bag."""
    bag = tl.program_id(0).to(tl.int64)
    blocks: tl.constexpr = (d + D - 1) // D
    part = tl.program_id(1)
    first = part // blocks if CONCAT else 0  # the component
    cols = part % blocks * D + tl.arange(0, D)
    places = tl.arange(0, KP)
    given = (keep, weights, E, P, seeds, factors)
    begin = tl.maximum(tl.load(offsets + bag), 0)
    end = tl.minimum(tl.load(offsets + bag + 1), N)
    total = tl.zeros([T, D], ACC)
    appended = tl.zeros([T, KP], ACC)
    count = tl.zeros([T], tl.int32)
    t = begin + tl.arange(0, T)
    following = tl.load(keys + t, mask=t < end, other=0)
    for at in range(begin, end, T):
        t = at + tl.arange(0, T)
        key = following
        following = tl.load(keys + T + t, mask=t + T < end, other=0)  # while these rows come
        vectors, live, row, scale = token_sum(
            t, t < end, key, cols, first, given, N, K, B, d, k, INDEXING, MIX, CONCAT, ACC
        )
        total += vectors
        if MEAN:
            count += live.to(tl.int32)
        if APPEND:
            mask = live[:, None] & (places < k)[None, :]
            p = tl.load(P + row[:, None] * k + places[None, :], mask=mask, other=0).to(ACC)
            appended += scale[:, None] * p
    result = tl.sum(total, axis=0)
    share = tl.maximum(tl.sum(count, axis=0), 1).to(ACC)
    if MEAN:
        result /= share
    out += bag * width
    tl.store(out + first * d + cols, result.to(out.dtype.element_ty), mask=cols < d)
    if APPEND:
        more = tl.sum(appended, axis=0)
        if MEAN:
            more /= share
        if part == 0:
            tl.store(out + width - k + places, more.to(out.dtype.element_ty), mask=places < k)


@triton.jit(do_not_specialize=["N", "K", "B"])
def token_forward(
    keys,
    keep,
    weights,
    E,
    P,
    seeds,
    out,
    N,
    K,
    B,
    d: tl.constexpr,
    k: tl.constexpr,
    width: tl.constexpr,
    INDEXING: tl.constexpr,
    MIX: tl.constexpr,
    CONCAT: tl.constexpr,
    APPEND: tl.constexpr,
    T: tl.constexpr,
    D: tl.constexpr,
    KP: tl.constexpr,
    ACC: tl.constexpr,
):
    """Each token's vector -> out (N, width); a program for D columns of T tokens."""
    t = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    blocks: tl.constexpr = (d + D - 1) // D
    part = tl.program_id(1)
    first = part // blocks if CONCAT else 0
    cols = part % blocks * D + tl.arange(0, D)
    given = (keep, weights, E, P, seeds, None)
    key = tl.load(keys + t, mask=t < N, other=0)
    vectors, live, row, scale = token_sum(
        t, t < N, key, cols, first, given, N, K, B, d, k, INDEXING, MIX, CONCAT, ACC
    )
    kind = out.dtype.element_ty
    place = out + t[:, None] * width
    mask = (t < N)[:, None] & (cols < d)[None, :]
    tl.store(place + first * d + cols[None, :], vectors.to(kind), mask=mask)
    if APPEND:
        places = tl.arange(0, KP)
        mask = live[:, None] & (places < k)[None, :]
        p = tl.load(P + row[:, None] * k + places[None, :], mask=mask, other=0).to(ACC)
        if part == 0:
            mask = (t < N)[:, None] & (places < k)[None, :]
            more = (scale[:, None] * p).to(kind)
            tl.store(place + width - k + places[None, :], more, mask=mask)


@triton.jit(do_not_specialize=["N", "bags", "steps", "K", "B", "base", "stride", "span"])
def sort_keys(
    keys,
    offsets,
    owners,
    keep,
    seeds,
    bag,
    E_keys,
    P_keys,
    N,
    bags,
    steps,
    K,
    B,
    base,
    stride,
    span,
    k: tl.constexpr,
    INDEXING: tl.constexpr,
    MIX: tl.constexpr,
    T: tl.constexpr,
):
    """Which bag a token lies in (N,), which rows of E (k, N) and of P (N,) it reads.

    A token that does not count has bag `bags`, and row B or K. Rows of P are counted from `base`.
    Bags that are known already are `owners` (N,), as far as the last of them goes. Of several
    calls, each with as many tokens and bags, one's results lie `stride` behind the other's, and its
    rows are counted from `span` further on.
    """
    call = tl.program_id(1).to(tl.int64)
    keys += call * N
    bag += call * stride
    if offsets is not None:
        offsets += call * (bags + 1)
    if owners is not None:
        owners += call * N
    if keep is not None:
        keep += call * N
    t = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    inside = t < N
    live = inside
    if keep is not None:
        live &= tl.load(keep + t, mask=live, other=0) != 0
    owner = t
    if owners is not None:
        live &= t < tl.load(offsets + bags)
        owner = tl.load(owners + t, mask=live, other=0).to(tl.int64)
    elif offsets is not None:  # the number of bags that end at or before a token
        owner = tl.zeros_like(t)
        high = owner + bags
        for _ in range(steps):
            middle = (owner + high) // 2
            searching = owner < high
            edge = tl.load(offsets + 1 + middle, mask=searching, other=0)
            right = searching & (edge <= t)
            owner = tl.where(right, middle + 1, owner)
            high = tl.where(searching & (edge > t), middle, high)
        live &= owner < bags
    key = tl.load(keys + t, mask=live, other=0)
    a, b = lanes(key, MIX)
    row = row_of(key, a, seeds, K, INDEXING)
    if INDEXING >= IDENTITY:
        live &= (row >= 0) & (row < K)
    tl.store(bag + t, tl.where(live, owner, bags).to(bag.dtype.element_ty), mask=inside)
    if P_keys is not None:
        found = call * span + base + tl.where(live, row, K)
        tl.store(P_keys + call * stride + t, found.to(P_keys.dtype.element_ty), mask=inside)
    if E_keys is not None:
        for i in tl.static_range(k):
            bucket = tl.where(live, bucket_of(i, row, a, b, seeds, B, INDEXING), B)
            bucket += call * span
            place = E_keys + call * stride + tl.cast(N, tl.int64) * i + t
            tl.store(place, bucket.to(E_keys.dtype.element_ty), mask=inside)


@triton.jit
def new_keys(block, keys, M, in_E, blocks_E, S: tl.constexpr):
    """Places x (S,) of a block of sorted keys, the keys, and which are the first of their kind.

    The first in_E keys are E's, in so many blocks; the rest P's. Also where the table's keys begin.
    """
    of_P = block >= blocks_E
    first = tl.where(of_P, in_E, 0)
    end = tl.where(of_P, M, in_E)
    x = first + (block - tl.where(of_P, blocks_E, 0)) * S + tl.arange(0, S)
    key = tl.load(keys + x, mask=x < end, other=-1)
    before = tl.load(keys + x - 1, mask=(x < end) & (x > first), other=-1)
    return x, key, (x < end) & (key != before), first


@triton.jit(do_not_specialize=["M", "in_E", "blocks_E", "blocks"])
def count_new(keys, counts, M, in_E, blocks_E, blocks, S: tl.constexpr):
    """How many keys of each block are new; M keys of each call."""
    block = tl.program_id(0).to(tl.int64)
    call = tl.program_id(1).to(tl.int64)
    _, _, new, _ = new_keys(block, keys + call * M, M, in_E, blocks_E, S)
    tl.store(counts + call * blocks + block, tl.sum(new.to(tl.int32), axis=0))


@triton.jit(do_not_specialize=["N", "M", "in_E", "blocks_E", "blocks", "base", "span"])
def distinct_rows(
    keys,
    order,
    counts,
    bag,
    items,
    owners,
    slots,
    rows,
    starts,
    found,
    N,
    M,
    in_E,
    blocks_E,
    blocks,
    base,
    span,
    k: tl.constexpr,
    S: tl.constexpr,
    C: tl.constexpr,
):
    """Of sorted keys: items (M,), where they were among those of their table, owners (M,), the bags
    of their tokens, and slots (M,), which of the distinct rows of their table they are.

    These rows go to `rows`, E's from 0 on, P's from in_E on; and where their keys start, counted
    from the first of the table, to `starts`. How many there are: found (2, 3), of which `by_length`
    fills the rest. All that of each call.
    """
    call = tl.program_id(1).to(tl.int64)
    counts += call * blocks
    before = call * M
    block = tl.program_id(0).to(tl.int64)
    of_P = block >= blocks_E
    x, key, new, first = new_keys(block, keys + before, M, in_E, blocks_E, S)
    inside = key >= 0
    item = tl.load(order + before + x, mask=inside, other=0) - before - first
    t = item
    for _ in tl.static_range(1, k):
        t = tl.where(t >= N, t - N, t)
    owner = tl.load(bag + before + t, mask=inside, other=0)
    tl.store(items + before + x, item.to(tl.int32), mask=inside)
    tl.store(owners + before + x, owner, mask=inside)
    earlier = tl.zeros([C], tl.int32)
    for at in range(tl.where(of_P, blocks_E, 0), block, C):
        j = at + tl.arange(0, C)
        earlier += tl.load(counts + j, mask=j < block, other=0)
    counted = tl.sum(earlier, axis=0) + tl.cumsum(new.to(tl.int32), axis=0)
    slot = counted - 1
    tl.store(slots + before + x, slot, mask=inside)
    row = key.to(tl.int64) - tl.where(of_P, base, 0) - call * span
    tl.store(rows + before + first + slot, row, mask=new)
    tl.store(starts + before + first + slot, (x - first).to(tl.int32), mask=new)
    if (block == blocks_E - 1) | (block == blocks - 1):
        place = found + (call * 2 + of_P.to(tl.int32)) * 3
        tl.store(place, tl.max(counted, axis=0))


@triton.jit(do_not_specialize=["M", "in_E", "blocks_E", "K", "B", "L_E", "L_P"])
def by_length(
    rows,
    starts,
    listed,
    extents,
    found,
    M,
    in_E,
    blocks_E,
    K,
    B,
    L_E,
    L_P,
    FEW: tl.constexpr,
    S: tl.constexpr,
):
    """The distinct rows of each table with at most FEW keys, from the beginning of the table's part
    of `listed` (M,) on, and those with more, but at most L, from its end on downwards.

    How many there are goes to found (2, 3), behind the number of all. In extents (M,): 256 times
    where their keys start, plus how many there are. Rows that no token counts for are left out. In
    which order they come is left to chance: each is updated by itself.
    """
    call = tl.program_id(1).to(tl.int64)
    block = tl.program_id(0).to(tl.int64)
    of_P = block >= blocks_E
    first = call * M + tl.where(of_P, in_E, 0)
    size = tl.where(of_P, M - in_E, in_E)
    found += (call * 2 + of_P.to(tl.int32)) * 3
    n = tl.load(found)
    begin = (block - tl.where(of_P, blocks_E, 0)) * S
    if begin >= n:
        return
    slot = begin + tl.arange(0, S)
    inside = slot < n
    start = tl.load(starts + first + slot, mask=inside, other=0).to(tl.int64)
    end = tl.load(starts + first + slot + 1, mask=slot + 1 < n, other=0).to(tl.int64)
    length = tl.where(slot + 1 < n, end, size) - start
    row = tl.load(rows + first + slot, mask=inside, other=0)
    counts = inside & (row < tl.where(of_P, K, B)) & (length <= tl.where(of_P, L_P, L_E))
    short = counts & (length <= FEW)
    more = counts & (length > FEW)
    shorts = tl.atomic_add(found + 1, tl.sum(short.to(tl.int32), axis=0), sem="relaxed")
    mores = tl.atomic_add(found + 2, tl.sum(more.to(tl.int32), axis=0), sem="relaxed")
    at = tl.where(short, shorts + tl.cumsum(short.to(tl.int32), axis=0) - 1, 0)
    at = tl.where(more, size - mores - tl.cumsum(more.to(tl.int32), axis=0), at)
    tl.store(listed + first + at, row, mask=counts)
    tl.store(extents + first + at, start * 256 + length, mask=counts)


@triton.jit(do_not_specialize=["N", "bags", "K", "B"])
def slopes(
    keys,
    bag,
    weights,
    E,
    P,
    seeds,
    grad,
    factors,
    slope,
    of_weights,
    N,
    bags,
    K,
    B,
    d: tl.constexpr,
    k: tl.constexpr,
    width: tl.constexpr,
    INDEXING: tl.constexpr,
    MIX: tl.constexpr,
    CONCAT: tl.constexpr,
    APPEND: tl.constexpr,
    T: tl.constexpr,
    D: tl.constexpr,
    ACC: tl.constexpr,
):
    """For each token t of bag j, with s its weight:

    factors[i, t] = s P[row, i]; slope[t, i] = s (E[bucket_i] . grad[j] + what is appended);
    of_weights[t] = sum_i P[row, i] slope[t, i] / s.
    """
    t = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    inside = t < N
    owner = tl.load(bag + t, mask=inside, other=0).to(tl.int64)
    live = inside & (owner < bags)
    key = tl.load(keys + t, mask=live, other=0)
    a, b = lanes(key, MIX)
    row = row_of(key, a, seeds, K, INDEXING)
    scale = tl.full([T], 1, ACC)
    if weights is not None:
        scale = tl.load(weights + t, mask=live, other=0)
    of_weight = tl.zeros([T], ACC)
    for i in tl.static_range(k):
        p = tl.full([T], 1, ACC)
        if P is not None:
            p = tl.load(P + row * k + i, mask=live, other=0).to(ACC)
        if factors is not None:
            value = tl.where(live, p * scale, 0)
            tl.store(factors + tl.cast(N, tl.int64) * i + t, value, mask=inside)
        if slope is not None:
            bucket = bucket_of(i, row, a, b, seeds, B, INDEXING)
            dot = tl.zeros([T], ACC)
            for at in tl.static_range(0, d, D):
                cols = at + tl.arange(0, D)
                mask = live[:, None] & (cols < d)[None, :]
                e = tl.load(E + bucket[:, None] * d + cols[None, :], mask=mask, other=0)
                place = owner[:, None] * width + (i * d if CONCAT else 0) + cols[None, :]
                g = tl.load(grad + place, mask=mask, other=0)
                dot += tl.sum(product(e.to(ACC), g.to(ACC)), axis=1)
            if APPEND:
                place = owner * width + width - k + i
                dot += tl.load(grad + place, mask=live, other=0).to(ACC)
            tl.store(slope + t * k + i, dot * scale, mask=inside)
            of_weight += p * dot
    if of_weights is not None:
        tl.store(of_weights + t, tl.where(live, of_weight, 0), mask=inside)
