"""Triton kernels that update rows of which is known ahead which terms their gradients have.

Row number `slot` of the distinct rows has the sorted terms from starts[slot] to the next start.
Most rows have few: `update_short` adds them up and updates the row. Those of rows with more than L
are added up in tiles of L first (`sum_long`), then in groups of tiles (`sum_long_groups`), and one
program does the rest (`finish_long`): rows that many tokens read do not hold up the others. Nothing
is added atomically, and all sums are the same to the bit, run after run.

What is known may lie there for several steps: then `turn` holds the number of this one (`AT`), how
far its part lies from the beginning (`SHIFT`), and which it is of those sorted at once (`CALL`).
"""

import triton
import triton.language as tl

from hashembed.nn.gpu.kernels.rules import finish, is_off, read

AT, SHIFT, CALL = (tl.constexpr(place) for place in range(3))


@triton.jit
def shift_of(turn):
    """Where the numbers of this turn begin."""
    if turn is None:
        return 0
    else:  # noqa: RET505
        return tl.load(turn + SHIFT)


@triton.jit
def found_of(turn, found):
    """Where it says how many rows there are on this turn: all, those with few terms, with more."""
    if turn is not None:
        found += tl.load(turn + AT) * 6  # E's and P's
    return found


@triton.jit
def extent(slot, live, starts, count, M):
    """Where the terms of rows begin, and where they end; M is the end of all."""
    begin = tl.load(starts + slot, mask=live, other=0).to(tl.int64)
    after = tl.load(starts + slot + 1, mask=live & (slot + 1 < count), other=0).to(tl.int64)
    return begin, tl.where(slot + 1 < count, after, M)


@triton.jit
def known_terms(
    x,
    live,
    cols,
    given,
    N,
    source_width: tl.constexpr,
    component: tl.constexpr,
    d: tl.constexpr,
    ACC: tl.constexpr,
):
    """Terms x (T,) of the gradients of rows, in their order (T, D).

    Number items[x] = i N + t is of component i and token t; it is

        factors[i, t] * source[owners[x], i * component :][:d]

    without `factors` times 1, and without `owners` source[t].
    """
    items, owners, factors, source = given
    item = tl.load(items + x, mask=live, other=0).to(tl.int64)
    place = item
    if owners is not None:
        place = tl.load(owners + x, mask=live, other=0).to(tl.int64)
    place *= source_width
    if component > 0:
        place += item // N * component
    g = tl.load(
        source + place[:, None] + cols[None, :], mask=live[:, None] & (cols < d)[None, :], other=0
    ).to(ACC)
    if factors is not None:
        g *= tl.load(factors + item, mask=live, other=0)[:, None]
    return g


@triton.jit(do_not_specialize=["N", "M"])
def update_short(
    turn,
    listed,
    extents,
    found,
    items,
    owners,
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
    component: tl.constexpr,
    d: tl.constexpr,
    record: tl.constexpr,
    RULE: tl.constexpr,
    BEHIND: tl.constexpr,
    J: tl.constexpr,
    T: tl.constexpr,
    D: tl.constexpr,
    ACC: tl.constexpr,
):
    """Update the rows that `by_length` has listed, T at a time: those with several terms first,
    which take longest, then those with few. How many there are is known here only; so there are as
    many programs as the GPU can run, each of which goes on until all is done.
    """
    if is_off(numbers, RULE):
        return
    shift = shift_of(turn)
    found = found_of(turn, found)
    few = tl.load(found + 1)
    several = tl.load(found + 2)
    tiles_before = tl.cdiv(several, T)
    tiles = tiles_before + tl.cdiv(few, T)
    cols = tl.arange(0, D)
    rule = (table, state, stamps, numbers, history, step)
    if owners is not None:
        owners += shift
    given = (items + shift, owners, factors, source)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        first = tile < tiles_before
        j = tl.where(first, tile, tile - tiles_before) * T + tl.arange(0, T)
        live = j < tl.where(first, several, few)
        j = tl.where(first, M - 1 - j, j)
        row = tl.load(listed + shift + j, mask=live, other=0)
        place = tl.load(extents + shift + j, mask=live, other=0)
        had = read(row, live, cols, rule, d, record, RULE, BEHIND, ACC)
        x = place // 256
        length = place % 256
        g = tl.zeros([T, D], ACC)
        for at in range(0, tl.max(length, axis=0), J):  # J at a time: all wait for memory at once
            for i in tl.static_range(J):
                more = at + i < length
                g += known_terms(x + at + i, more, cols, given, N, source_width, component, d, ACC)
        finish(row, live, cols, g, had, rule, d, record, RULE, BEHIND, ACC)


@triton.jit(do_not_specialize=["N", "M", "tiles", "size"])
def sum_long(
    turn,
    rows,
    slots,
    starts,
    found,
    items,
    owners,
    factors,
    source,
    partial,
    N,
    M,
    tiles,
    size,
    source_width: tl.constexpr,
    component: tl.constexpr,
    d: tl.constexpr,
    L: tl.constexpr,
    D: tl.constexpr,
    ACC: tl.constexpr,
):
    """partial (tiles, 2, D): of L terms, those of a long row that began before, or goes on behind.

    slots (M,): which row a term is of.
    """
    shift = shift_of(turn)
    n = tl.load(found_of(turn, found)).to(tl.int64)
    if owners is not None:
        owners += shift
    given = (items + shift, owners, factors, source)
    slots += shift
    starts += shift
    rows += shift
    cols = tl.arange(0, D)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        begin = tl.cast(tile, tl.int64) * L
        end = tl.minimum(begin + L, M)
        one = tl.load(slots + begin).to(tl.int64)
        other = tl.load(slots + end - 1).to(tl.int64)
        one_begin, one_end = extent(one, True, starts, n, M)
        other_begin, other_end = extent(other, True, starts, n, M)
        enters = (one_begin < begin) & (one_end - one_begin > L) & (tl.load(rows + one) < size)
        leaves = (other_end > end) & (other_end - other_begin > L) & (other_begin >= begin)
        leaves &= tl.load(rows + other) < size
        if enters | leaves:
            x = begin + tl.arange(0, L)
            of_one = x < tl.where(enters, tl.minimum(one_end, end), begin)
            of_other = (x >= tl.where(leaves, other_begin, end)) & (x < end)
            live = of_one | of_other
            g = known_terms(x, live, cols, given, N, source_width, component, d, ACC)
            place = partial + tl.cast(tile, tl.int64) * 2 * D + cols
            if enters:
                tl.store(place, tl.sum(tl.where(of_one[:, None], g, 0), axis=0))
            if leaves:
                tl.store(place + D, tl.sum(tl.where(of_other[:, None], g, 0), axis=0))


@triton.jit(do_not_specialize=["M", "tiles", "size"])
def sum_long_groups(
    turn,
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
    """The partial sums of G tiles that one row began before, and reaches the end of -> one."""
    shift = shift_of(turn)
    group = tl.program_id(0).to(tl.int64)
    first = group * G
    if (group > 0) & (first + G <= tiles):
        before = tl.load(slots + shift + first * L - 1)
        last = tl.load(slots + shift + tl.minimum((first + G) * L, M) - 1)
        if (before == last) & (tl.load(rows + shift + last) < size):
            cols = tl.arange(0, D)
            tile = first + tl.arange(0, G)
            sums = tl.load(partial + (tile * 2 * D)[:, None] + cols[None, :])
            tl.store(groups + group * D + cols, tl.sum(sums, axis=0))


@triton.jit
def begins_long(tile, starts, slots, rows, n, M, size, L: tl.constexpr):
    """Which long rows begin in tiles and go on behind them: whether, their slot, their end."""
    end = tile * L + L
    inside = end < M
    slot = tl.load(slots + end - 1, mask=inside, other=0).to(tl.int64)
    begin, after = extent(slot, inside, starts, n, M)
    long = inside & (after - begin > L) & (begin >= tile * L) & (after > end)
    return long & (tl.load(rows + slot, mask=inside, other=0) < size), slot, after


@triton.jit(do_not_specialize=["M", "tiles", "size"])
def finish_long(
    turn,
    rows,
    slots,
    starts,
    found,
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
    """Update the long rows that begin in one of A tiles: those that end FEW tiles further, or less,
    at once, the longer ones one after the other.
    """
    if is_off(numbers, RULE):
        return
    shift = shift_of(turn)
    n = tl.load(found_of(turn, found)).to(tl.int64)
    slots += shift
    starts += shift
    rows += shift
    first = tl.program_id(0).to(tl.int64) * A
    tile = first + tl.arange(0, A)
    long, slot, end = begins_long(tile, starts, slots, rows, n, M, size, L)
    if tl.sum(long.to(tl.int32), axis=0) == 0:
        return
    cols = tl.arange(0, D)
    rule = (table, state, stamps, numbers, history, step)
    further = tl.where(long, (end - 1) // L - tile, 0)  # tiles that the row goes on in
    short = long & (further <= FEW)
    further = tl.where(short, further, 0)
    place = partial + (tile * 2 * D)[:, None] + cols[None, :]
    g = tl.load(place + D, mask=short[:, None], other=0)
    for at in range(1, tl.max(further, axis=0) + 1):
        g += tl.load(place + at * 2 * D, mask=(at <= further)[:, None], other=0)
    row = tl.load(rows + slot, mask=short, other=0)
    had = read(row, short, cols, rule, d, record, RULE, BEHIND, ACC)
    finish(row, short, cols, g, had, rule, d, record, RULE, BEHIND, ACC)
    if tl.sum((long & ~short).to(tl.int32), axis=0) == 0:
        return
    for at in range(first, first + A):
        is_long, slot_1, end_1 = begins_long(at, starts, slots, rows, n, M, size, L)
        last = (end_1 - 1) // L
        if is_long & (last - at > FEW):
            # Tiles up to the next group, groups as far as they go, and the tiles that are left.
            group = (at + G) // G
            whole = last // G
            tiles_1 = at + 1 + tl.arange(0, G)
            mine = tiles_1 < tl.minimum(group * G, last + 1)
            places = partial + (tiles_1 * 2 * D)[:, None] + cols[None, :]
            total = tl.load(places, mask=mine[:, None], other=0)
            for begin in range(group, whole, G):
                which = begin + tl.arange(0, G)
                places = groups + (which * D)[:, None] + cols[None, :]
                total += tl.load(places, mask=(which < whole)[:, None], other=0)
            tiles_2 = tl.maximum(whole, group) * G + tl.arange(0, G)
            places = partial + (tiles_2 * 2 * D)[:, None] + cols[None, :]
            total += tl.load(places, mask=(tiles_2 <= last)[:, None], other=0)
            sums = tl.load(partial + at * 2 * D + D + cols) + tl.sum(total, axis=0)
            row_1 = tl.load(rows + slot_1) + tl.zeros([1], tl.int64)
            live_1 = tl.full([1], 1, tl.int1)
            had_1 = read(row_1, live_1, cols, rule, d, record, RULE, BEHIND, ACC)
            finish(row_1, live_1, cols, sums[None, :], had_1, rule, d, record, RULE, BEHIND, ACC)
