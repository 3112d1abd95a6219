"""Triton kernels that update rows whose gradient terms were located in advance (`prepare`).

The distinct row in slot s has the sorted terms from starts[s] to starts[s + 1]. Most rows are
*short*: `update_short` adds up their terms and updates them. A *long* row has more than L terms.
They are added up in tiles of L (`sum_long`), then in groups of tiles (`sum_long_groups`), and one
program finishes the row (`finish_long`). So rows that many tokens read do not delay the others. No
kernel adds gradients atomically, so every run gives the same bits.

The arrays may hold several prepared batches. `cursor` then says which one this step reads; without
it there is one.
"""

import triton
import triton.language as tl

from hashembed.nn.gpu.direct import direct
from hashembed.nn.gpu.kernels.layout import (
    CALL_COUNTS,
    CURSOR_BATCH,
    CURSOR_SHIFT,
    ENTERING,
    FEW_TERMS,
    LEAVING,
    ROWS,
    SEVERAL_TERMS,
    TILE_SUMS,
    RuleTensors,
    TermTensors,
    unpack_extent,
)
from hashembed.nn.gpu.kernels.optimizer_rules import apply_rule, is_disabled, read_rows


@triton.jit
def batch_shift(cursor):
    """Where the terms of the present batch begin."""
    if cursor is None:
        return 0
    else:  # noqa: RET505
        return tl.load(cursor + CURSOR_SHIFT)


@triton.jit
def batch_counts(cursor, counts):
    """The counts of the present batch."""
    if cursor is not None:
        counts += tl.load(cursor + CURSOR_BATCH) * CALL_COUNTS
    return counts


@triton.jit
def extent(slot, live, starts, count, M):
    """Where the terms of the rows in slots begin and end; there are M terms and `count` rows."""
    begin = tl.load(starts + slot, mask=live, other=0).to(tl.int64)
    after = tl.load(starts + slot + 1, mask=live & (slot + 1 < count), other=0).to(tl.int64)
    return begin, tl.where(slot + 1 < count, after, M)


@triton.jit
def load_terms(
    x,
    live,
    cols,
    terms,
    N,
    source_width: tl.constexpr,
    component_stride: tl.constexpr,
    d: tl.constexpr,
    ACC: tl.constexpr,
):
    """Terms x (T,) of the gradients of rows (T, D), in sorted order.

    The number of a term, term_ids[x], is i N + t for component i and token t. The term is

        factors[i, t] * source[term_bags[x], i * component_stride :][:d]

    Without `factors` the factor is 1; without `term_bags` token t reads source[t].
    """
    term = tl.load(terms.term_ids + x, mask=live, other=0).to(tl.int64)
    place = term
    if terms.term_bags is not None:
        place = tl.load(terms.term_bags + x, mask=live, other=0).to(tl.int64)
    place *= source_width
    if component_stride > 0:
        place += term // N * component_stride
    mask = live[:, None] & (cols < d)[None, :]
    g = tl.load(terms.source + place[:, None] + cols[None, :], mask=mask, other=0).to(ACC)
    if terms.factors is not None:
        g *= tl.load(terms.factors + term, mask=live, other=0)[:, None]
    return g


@direct
@triton.jit(do_not_specialize=["N", "M"])
def update_short(
    cursor,
    short_rows,
    short_extents,
    counts,
    term_ids,
    term_bags,
    factors,
    source,
    table,
    state,
    stamps,
    numbers,
    history,
    step,
    N,
    M,
    source_width: tl.constexpr,
    component_stride: tl.constexpr,
    d: tl.constexpr,
    record: tl.constexpr,
    RULE: tl.constexpr,
    BEHIND: tl.constexpr,
    J: tl.constexpr,
    T: tl.constexpr,
    D: tl.constexpr,
    ACC: tl.constexpr,
):
    """Update the short rows, T at a time: first those with several terms, which take longest, then
    those with few. Only the GPU knows how many there are, so the grid has as many programs as it
    can run, and each continues until all rows are done.
    """
    if is_disabled(numbers, RULE):
        return
    shift = batch_shift(cursor)
    counts = batch_counts(cursor, counts)
    few = tl.load(counts + FEW_TERMS)
    several = tl.load(counts + SEVERAL_TERMS)
    tiles_before = tl.cdiv(several, T)
    tiles = tiles_before + tl.cdiv(few, T)
    cols = tl.arange(0, D)
    rule = RuleTensors(table, state, stamps, numbers, history, step)
    if term_bags is not None:
        term_bags += shift
    terms = TermTensors(term_ids + shift, term_bags, factors, source)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        first = tile < tiles_before
        j = tl.where(first, tile, tile - tiles_before) * T + tl.arange(0, T)
        live = j < tl.where(first, several, few)
        j = tl.where(first, M - 1 - j, j)
        row = tl.load(short_rows + shift + j, mask=live, other=0)
        place = tl.load(short_extents + shift + j, mask=live, other=0)
        loaded = read_rows(row, live, cols, rule, d, record, RULE, BEHIND, ACC)
        x, length = unpack_extent(place)
        g = tl.zeros([T, D], ACC)
        for at in range(0, tl.max(length, axis=0), J):  # J loads are in flight
            for i in tl.static_range(J):
                more = at + i < length
                g += load_terms(
                    x + at + i, more, cols, terms, N, source_width, component_stride, d, ACC
                )
        apply_rule(row, live, cols, g, loaded, rule, d, record, RULE, BEHIND, ACC)


@direct
@triton.jit(do_not_specialize=["N", "M", "tiles", "size"])
def sum_long(
    cursor,
    rows,
    slots,
    starts,
    counts,
    term_ids,
    term_bags,
    factors,
    source,
    partial,
    N,
    M,
    tiles,
    size,
    source_width: tl.constexpr,
    component_stride: tl.constexpr,
    d: tl.constexpr,
    L: tl.constexpr,
    D: tl.constexpr,
    ACC: tl.constexpr,
):
    """Partial sums of tiles of L terms, for long rows that enter or leave the tile.

    slots (M,): the slot of each term's row.
    """
    shift = batch_shift(cursor)
    n = tl.load(batch_counts(cursor, counts) + ROWS).to(tl.int64)
    if term_bags is not None:
        term_bags += shift
    terms = TermTensors(term_ids + shift, term_bags, factors, source)
    slots += shift
    starts += shift
    rows += shift
    cols = tl.arange(0, D)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        begin = tl.cast(tile, tl.int64) * L
        end = tl.minimum(begin + L, M)
        first_slot = tl.load(slots + begin).to(tl.int64)
        last_slot = tl.load(slots + end - 1).to(tl.int64)
        first_begin, first_end = extent(first_slot, True, starts, n, M)
        last_begin, last_end = extent(last_slot, True, starts, n, M)
        enters = (
            (first_begin < begin)
            & (first_end - first_begin > L)
            & (tl.load(rows + first_slot) < size)
        )
        leaves = (last_end > end) & (last_end - last_begin > L) & (last_begin >= begin)
        leaves &= tl.load(rows + last_slot) < size
        if enters | leaves:
            x = begin + tl.arange(0, L)
            of_first = x < tl.where(enters, tl.minimum(first_end, end), begin)
            of_last = (x >= tl.where(leaves, last_begin, end)) & (x < end)
            live = of_first | of_last
            g = load_terms(x, live, cols, terms, N, source_width, component_stride, d, ACC)
            place = partial + tl.cast(tile, tl.int64) * TILE_SUMS * D + cols
            if enters:
                tl.store(place + ENTERING * D, tl.sum(tl.where(of_first[:, None], g, 0), axis=0))
            if leaves:
                tl.store(place + LEAVING * D, tl.sum(tl.where(of_last[:, None], g, 0), axis=0))


@direct
@triton.jit(do_not_specialize=["M", "tiles", "size"])
def sum_long_groups(
    cursor,
    rows,
    slots,
    partial,
    groups,
    M,
    tiles,
    size,
    L: tl.constexpr,
    D: tl.constexpr,
    G: tl.constexpr,
):
    """Add up the partial sums of G tiles that all belong to one row, begun before them."""
    shift = batch_shift(cursor)
    group = tl.program_id(0).to(tl.int64)
    first = group * G
    if (group > 0) & (first + G <= tiles):
        before = tl.load(slots + shift + first * L - 1)
        last = tl.load(slots + shift + tl.minimum((first + G) * L, M) - 1)
        if (before == last) & (tl.load(rows + shift + last) < size):
            cols = tl.arange(0, D)
            tile = first + tl.arange(0, G)
            sums = tl.load(partial + (tile * TILE_SUMS * D + ENTERING * D)[:, None] + cols[None, :])
            tl.store(groups + group * D + cols, tl.sum(sums, axis=0))


@triton.jit
def begins_long(tile, starts, slots, rows, n, M, size, L: tl.constexpr):
    """Whether a long row begins in a tile and continues in the next; its slot; its end."""
    end = tile * L + L
    inside = end < M
    slot = tl.load(slots + end - 1, mask=inside, other=0).to(tl.int64)
    begin, after = extent(slot, inside, starts, n, M)
    long = inside & (after - begin > L) & (begin >= tile * L) & (after > end)
    return long & (tl.load(rows + slot, mask=inside, other=0) < size), slot, after


@direct
@triton.jit(do_not_specialize=["M", "tiles", "size"])
def finish_long(
    cursor,
    rows,
    slots,
    starts,
    counts,
    partial,
    groups,
    table,
    state,
    stamps,
    numbers,
    history,
    step,
    M,
    tiles,
    size,
    d: tl.constexpr,
    record: tl.constexpr,
    RULE: tl.constexpr,
    BEHIND: tl.constexpr,
    L: tl.constexpr,
    D: tl.constexpr,
    A: tl.constexpr,
    G: tl.constexpr,
    FEW: tl.constexpr,
    ACC: tl.constexpr,
):
    """Update the long rows that begin in one of A tiles.

    Rows that reach at most FEW further tiles are updated together, longer rows one by one.
    """
    if is_disabled(numbers, RULE):
        return
    shift = batch_shift(cursor)
    n = tl.load(batch_counts(cursor, counts) + ROWS).to(tl.int64)
    slots += shift
    starts += shift
    rows += shift
    first = tl.program_id(0).to(tl.int64) * A
    tile = first + tl.arange(0, A)
    long, slot, end = begins_long(tile, starts, slots, rows, n, M, size, L)
    if tl.sum(long.to(tl.int32), axis=0) == 0:
        return
    cols = tl.arange(0, D)
    rule = RuleTensors(table, state, stamps, numbers, history, step)
    further = tl.where(long, (end - 1) // L - tile, 0)  # tiles that the row reaches
    short = long & (further <= FEW)
    further = tl.where(short, further, 0)
    place = partial + (tile * TILE_SUMS * D)[:, None] + cols[None, :]
    g = tl.load(place + LEAVING * D, mask=short[:, None], other=0)
    for at in range(1, tl.max(further, axis=0) + 1):
        entering = place + at * TILE_SUMS * D + ENTERING * D
        g += tl.load(entering, mask=(at <= further)[:, None], other=0)
    row = tl.load(rows + slot, mask=short, other=0)
    loaded = read_rows(row, short, cols, rule, d, record, RULE, BEHIND, ACC)
    apply_rule(row, short, cols, g, loaded, rule, d, record, RULE, BEHIND, ACC)
    if tl.sum((long & ~short).to(tl.int32), axis=0) == 0:
        return
    for at in range(first, first + A):
        is_long, slot_1, end_1 = begins_long(at, starts, slots, rows, n, M, size, L)
        last = (end_1 - 1) // L
        if is_long & (last - at > FEW):
            # Tiles up to the next group, whole groups, and the tiles that are left.
            group = (at + G) // G
            whole = last // G
            tiles_1 = at + 1 + tl.arange(0, G)
            mine = tiles_1 < tl.minimum(group * G, last + 1)
            places = partial + (tiles_1 * TILE_SUMS * D + ENTERING * D)[:, None] + cols[None, :]
            total = tl.load(places, mask=mine[:, None], other=0)
            for begin in range(group, whole, G):
                which = begin + tl.arange(0, G)
                places = groups + (which * D)[:, None] + cols[None, :]
                total += tl.load(places, mask=(which < whole)[:, None], other=0)
            tiles_2 = tl.maximum(whole, group) * G + tl.arange(0, G)
            places = partial + (tiles_2 * TILE_SUMS * D + ENTERING * D)[:, None] + cols[None, :]
            total += tl.load(places, mask=(tiles_2 <= last)[:, None], other=0)
            leaving = partial + at * TILE_SUMS * D + LEAVING * D + cols
            sums = tl.load(leaving) + tl.sum(total, axis=0)
            row_1 = tl.load(rows + slot_1) + tl.zeros([1], tl.int64)
            live_1 = tl.full([1], 1, tl.int1)
            loaded_1 = read_rows(row_1, live_1, cols, rule, d, record, RULE, BEHIND, ACC)
            apply_rule(
                row_1, live_1, cols, sums[None, :], loaded_1, rule, d, record, RULE, BEHIND, ACC
            )
