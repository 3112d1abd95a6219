"""Triton kernels of the layers: forward, and what the backward pass starts from.

The paper's letters: E (B, d), P (K, k); N tokens, T of them in a tile, D columns at a time. ACC is
the type of sums. An absent option is None, and the compiler leaves out the code for it.

`locate_tokens` and `token_gradients` prepare the gradients of rows. `nn/gpu/kernels/sums.py` adds
them up, or `nn/gpu/kernels/terms.py` if `count_new`, `distinct_rows` and `list_short_rows` have
located the terms of each row in advance.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from hashembed.nn.gpu.direct import direct
from hashembed.nn.gpu.kernels.hash import IDENTITY, bucket_of, lanes, mixed, row_of
from hashembed.nn.gpu.kernels.layout import (
    FEW_TERMS,
    ROWS,
    SEVERAL_TERMS,
    pack_extent,
    table_counts,
)
from hashembed.nn.gpu.kernels.optimizer_rules import product


class LayerTensors(NamedTuple):
    """What a layer reads, and `factors` (k, N), which it may write."""

    keep: Tensor | None  # (N,)
    weights: Tensor | None  # (N,)
    E: Tensor
    P: Tensor | None
    seeds: Tensor  # (k + 1,)
    factors: Tensor | None  # what each component of a token is multiplied by


@direct
@triton.jit(do_not_specialize=["n"])
def id_keys(ids, columns, keys, n, COUNT: tl.constexpr, T: tl.constexpr):
    """Integer ids (n,) -> keys (n,). Their columns (n,), or if None, COUNT columns in turn."""
    t = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    column = t % COUNT
    if columns is not None:
        column = tl.load(columns + t, mask=t < n, other=0)
    a, b = mixed(tl.load(ids + t, mask=t < n, other=0), column)
    tl.store(keys + t, (b.to(tl.int64) << 32) | a.to(tl.int64), mask=t < n)


@triton.jit
def token_sum(
    t,
    live,
    key,
    cols,
    first,
    layer,
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

    Also returns which tokens are kept, their rows and their weights.
    """
    keep, weights, E, P, seeds, factors = layer
    if keep is not None:
        live &= tl.load(keep + t, mask=live, other=0) != 0
    a, b = lanes(key, t, MIX)
    row = row_of(key, a, seeds, K, INDEXING)
    if INDEXING >= IDENTITY:  # layers refuse other ids; here they must do no harm
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


@direct
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
    layer = LayerTensors(keep, weights, E, P, seeds, factors)
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
        following = tl.load(keys + T + t, mask=t + T < end, other=0)  # prefetched
        vectors, live, row, scale = token_sum(
            t, t < end, key, cols, first, layer, N, K, B, d, k, INDEXING, MIX, CONCAT, ACC
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


@direct
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
    layer = LayerTensors(keep, weights, E, P, seeds, None)
    key = tl.load(keys + t, mask=t < N, other=0)
    vectors, live, row, scale = token_sum(
        t, t < N, key, cols, first, layer, N, K, B, d, k, INDEXING, MIX, CONCAT, ACC
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


@direct
@triton.jit(do_not_specialize=["N", "bags", "steps", "K", "B", "base", "stride", "span"])
def locate_tokens(
    keys,
    offsets,
    known_bags,
    keep,
    seeds,
    token_bags,
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
    """The bag of each token (N,), and the rows of E (k, N) and of P (N,) that it reads.

    A token that does not count gets bag `bags` and row B or K. Row r of P is written as base + r.
    `known_bags` (N,) are the bags if they are known; those of tokens behind the last bag are not
    read. Calls have the same number of tokens and bags. The results of call c begin at c * stride,
    and c * span is added to its rows, so that one sort keeps the calls apart.
    """
    call = tl.program_id(1).to(tl.int64)
    keys += call * N
    token_bags += call * stride
    if offsets is not None:
        offsets += call * (bags + 1)
    if known_bags is not None:
        known_bags += call * N
    if keep is not None:
        keep += call * N
    t = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    inside = t < N
    live = inside
    if keep is not None:
        live &= tl.load(keep + t, mask=live, other=0) != 0
    bag = t
    if known_bags is not None:
        live &= t < tl.load(offsets + bags)
        bag = tl.load(known_bags + t, mask=live, other=0).to(tl.int64)
    elif offsets is not None:  # the number of bags that end at or before a token
        bag = tl.zeros_like(t)
        high = bag + bags
        for _ in range(steps):
            middle = (bag + high) // 2
            searching = bag < high
            edge = tl.load(offsets + 1 + middle, mask=searching, other=0)
            right = searching & (edge <= t)
            bag = tl.where(right, middle + 1, bag)
            high = tl.where(searching & (edge > t), middle, high)
        live &= bag < bags
    key = tl.load(keys + t, mask=live, other=0)
    a, b = lanes(key, t, MIX)
    row = row_of(key, a, seeds, K, INDEXING)
    if INDEXING >= IDENTITY:
        live &= (row >= 0) & (row < K)
    tl.store(token_bags + t, tl.where(live, bag, bags).to(token_bags.dtype.element_ty), mask=inside)
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
    """Positions x (S,) in a block of sorted keys, the keys, whether each is the first of its row,
    and where the keys of the table begin. The first in_E keys, in blocks_E blocks, are those of E.
    """
    of_P = block >= blocks_E
    first = tl.where(of_P, in_E, 0)
    end = tl.where(of_P, M, in_E)
    x = first + (block - tl.where(of_P, blocks_E, 0)) * S + tl.arange(0, S)
    key = tl.load(keys + x, mask=x < end, other=-1)
    before = tl.load(keys + x - 1, mask=(x < end) & (x > first), other=-1)
    return x, key, (x < end) & (key != before), first


@direct
@triton.jit(do_not_specialize=["M", "in_E", "blocks_E", "blocks"])
def count_new(keys, counts, M, in_E, blocks_E, blocks, S: tl.constexpr):
    """Count the keys of each block that are the first of their row; M keys for each call."""
    block = tl.program_id(0).to(tl.int64)
    call = tl.program_id(1).to(tl.int64)
    _, _, new, _ = new_keys(block, keys + call * M, M, in_E, blocks_E, S)
    tl.store(counts + call * blocks + block, tl.sum(new.to(tl.int32), axis=0))


@direct
@triton.jit(do_not_specialize=["N", "M", "in_E", "blocks_E", "blocks", "base", "span"])
def distinct_rows(
    keys,
    order,
    new_counts,
    token_bags,
    term_ids,
    term_bags,
    slots,
    rows,
    starts,
    counts,
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
    """From sorted keys (M,) of each call: for each term its number among the terms of its table
    (`term_ids`), the bag of its token (`term_bags`), and the slot of its row (`slots`).

    For each slot: the row, and where its terms start, counted from the first of the table. Slots of
    E begin at 0, those of P at in_E. The number of rows goes to `counts`.
    """
    call = tl.program_id(1).to(tl.int64)
    new_counts += call * blocks
    before = call * M
    block = tl.program_id(0).to(tl.int64)
    of_P = block >= blocks_E
    x, key, new, first = new_keys(block, keys + before, M, in_E, blocks_E, S)
    inside = key >= 0
    term = tl.load(order + before + x, mask=inside, other=0) - before - first
    t = term
    for _ in tl.static_range(1, k):
        t = tl.where(t >= N, t - N, t)
    bag = tl.load(token_bags + before + t, mask=inside, other=0)
    tl.store(term_ids + before + x, term.to(tl.int32), mask=inside)
    tl.store(term_bags + before + x, bag, mask=inside)
    earlier = tl.zeros([C], tl.int32)
    for at in range(tl.where(of_P, blocks_E, 0), block, C):
        j = at + tl.arange(0, C)
        earlier += tl.load(new_counts + j, mask=j < block, other=0)
    counted = tl.sum(earlier, axis=0) + tl.cumsum(new.to(tl.int32), axis=0)
    slot = counted - 1
    tl.store(slots + before + x, slot, mask=inside)
    row = key.to(tl.int64) - tl.where(of_P, base, 0) - call * span
    tl.store(rows + before + first + slot, row, mask=new)
    tl.store(starts + before + first + slot, (x - first).to(tl.int32), mask=new)
    if (block == blocks_E - 1) | (block == blocks - 1):
        place = table_counts(counts, call, of_P) + ROWS
        tl.store(place, tl.max(counted, axis=0))


@direct
@triton.jit(do_not_specialize=["M", "in_E", "blocks_E", "K", "B", "L_E", "L_P"])
def list_short_rows(
    rows,
    starts,
    short_rows,
    short_extents,
    counts,
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
    """List the short rows of each table, those with at most L terms, with their extents.

    Rows with at most FEW terms fill the table's part of `short_rows` (M,) from its beginning, rows
    with more from its end downwards. Their numbers go to `counts`. Rows that no counting token
    reads are left out. The order is not deterministic; it does not matter, because each row is
    updated on its own.
    """
    call = tl.program_id(1).to(tl.int64)
    block = tl.program_id(0).to(tl.int64)
    of_P = block >= blocks_E
    first = call * M + tl.where(of_P, in_E, 0)
    size = tl.where(of_P, M - in_E, in_E)
    counts = table_counts(counts, call, of_P)
    n = tl.load(counts + ROWS)
    begin = (block - tl.where(of_P, blocks_E, 0)) * S
    if begin >= n:
        return
    slot = begin + tl.arange(0, S)
    inside = slot < n
    start = tl.load(starts + first + slot, mask=inside, other=0).to(tl.int64)
    end = tl.load(starts + first + slot + 1, mask=slot + 1 < n, other=0).to(tl.int64)
    length = tl.where(slot + 1 < n, end, size) - start
    row = tl.load(rows + first + slot, mask=inside, other=0)
    is_short = inside & (row < tl.where(of_P, K, B)) & (length <= tl.where(of_P, L_P, L_E))
    few = is_short & (length <= FEW)
    several = is_short & (length > FEW)
    few_before = tl.atomic_add(counts + FEW_TERMS, tl.sum(few.to(tl.int32), axis=0), sem="relaxed")
    several_before = tl.atomic_add(
        counts + SEVERAL_TERMS, tl.sum(several.to(tl.int32), axis=0), sem="relaxed"
    )
    at = tl.where(few, few_before + tl.cumsum(few.to(tl.int32), axis=0) - 1, 0)
    from_end = size - several_before - tl.cumsum(several.to(tl.int32), axis=0)
    at = tl.where(several, from_end, at)
    tl.store(short_rows + first + at, row, mask=is_short)
    tl.store(short_extents + first + at, pack_extent(start, length), mask=is_short)


@direct
@triton.jit(do_not_specialize=["N", "bags", "K", "B"])
def token_gradients(
    keys,
    token_bags,
    weights,
    E,
    P,
    seeds,
    grad,
    factors,
    P_terms,
    weights_grad,
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
    """Factors and gradients of each token t of bag j, with weight s:

    factors[i, t] = s P[row, i]; P_terms[t, i] = s (E[bucket_i] . grad[j] + grad of what is
    appended); weights_grad[t] = sum_i P[row, i] P_terms[t, i] / s.
    """
    t = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    inside = t < N
    bag = tl.load(token_bags + t, mask=inside, other=0).to(tl.int64)
    live = inside & (bag < bags)
    key = tl.load(keys + t, mask=live, other=0)
    a, b = lanes(key, t, MIX)
    row = row_of(key, a, seeds, K, INDEXING)
    scale = tl.full([T], 1, ACC)
    if weights is not None:
        scale = tl.load(weights + t, mask=live, other=0)
    weight_grad = tl.zeros([T], ACC)
    for i in tl.static_range(k):
        p = tl.full([T], 1, ACC)
        if P is not None:
            p = tl.load(P + row * k + i, mask=live, other=0).to(ACC)
        if factors is not None:
            value = tl.where(live, p * scale, 0)
            tl.store(factors + tl.cast(N, tl.int64) * i + t, value, mask=inside)
        if P_terms is not None:
            bucket = bucket_of(i, row, a, b, seeds, B, INDEXING)
            dot = tl.zeros([T], ACC)
            for at in tl.static_range(0, d, D):
                cols = at + tl.arange(0, D)
                mask = live[:, None] & (cols < d)[None, :]
                e = tl.load(E + bucket[:, None] * d + cols[None, :], mask=mask, other=0)
                place = bag[:, None] * width + (i * d if CONCAT else 0) + cols[None, :]
                g = tl.load(grad + place, mask=mask, other=0)
                dot += tl.sum(product(e.to(ACC), g.to(ACC)), axis=1)
            if APPEND:
                place = bag * width + width - k + i
                dot += tl.load(grad + place, mask=live, other=0).to(ACC)
            tl.store(P_terms + t * k + i, dot * scale, mask=inside)
            weight_grad += p * dot
    if weights_grad is not None:
        tl.store(weights_grad + t, tl.where(live, weight_grad, 0), mask=inside)
