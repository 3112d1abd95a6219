"""Triton kernels that add up the gradients of rows.

Terms come sorted by row. A program adds up a tile of T terms with a segmented scan and finishes the
rows that lie inside the tile. Rows that cross an edge leave partial sums, which `sum_edges` adds
up. So one row that 100,000 tokens read costs no more than 100,000 rows that one token reads each.
No kernel adds gradients atomically, so every run gives the same bits.

The sum of a row goes to its rule at once (`nn/gpu/kernels/optimizer_rules.py`): it is stored
as a gradient, or it updates the row.
"""

import triton
import triton.language as tl

from hashembed.nn.gpu.direct import direct
from hashembed.nn.gpu.kernels.layout import ENTERING, LEAVING, TILE_SUMS, RuleTensors
from hashembed.nn.gpu.kernels.optimizer_rules import apply_rule, read_rows


@triton.jit
def add_same_row(total, row_begins, value, begins):
    """Two neighbouring sums of a segmented scan -> one."""
    return tl.where(begins != 0, value, total + value), row_begins | begins


@direct
@triton.jit(do_not_specialize=["M", "N", "base", "rows", "first_term"])
def sum_tiles(
    keys,
    order,
    slots,
    token_bags,
    factors,
    source,
    partial,
    table,
    state,
    stamps,
    numbers,
    history,
    step,
    M,
    N,
    base,
    rows,
    first_term,
    components: tl.constexpr,
    source_width: tl.constexpr,
    component_stride: tl.constexpr,
    d: tl.constexpr,
    record: tl.constexpr,
    RULE: tl.constexpr,
    BEHIND: tl.constexpr,
    T: tl.constexpr,
    D: tl.constexpr,
    ACC: tl.constexpr,
):
    """Add up the terms x that have the same row, keys[x] - base; rows from `rows` on do not count.

    The number of a term, order[x] - first_term, is i N + t for component i and token t. The term is

        factors[i, t] * source[token_bags[t], i * component_stride :][:d]

    Without `factors` the factor is 1; without `token_bags` token t reads source[t]. With `slots`
    the sum goes to table[slots[x]] instead of table[row].
    """
    tile = tl.program_id(0).to(tl.int64)
    x = tile * T + tl.arange(0, T)
    cols = tl.arange(0, D)
    inside = x < M
    key = tl.load(keys + x, mask=inside, other=-1)
    before = tl.load(keys + x - 1, mask=inside & (x > 0), other=-1)
    after = tl.load(keys + x + 1, mask=x + 1 < M, other=-1)
    row = key.to(tl.int64) - base
    live = inside & (row < rows)

    first_key = tl.load(keys + tile * T)
    last_key = tl.load(keys + tl.minimum(tile * T + T, M) - 1)
    enters = tl.load(keys + tile * T - 1, mask=tile > 0, other=-1) == first_key
    leaves = tl.load(keys + tile * T + T, mask=tile * T + T < M, other=-1) == last_key
    complete = live & (key != after) & ((key != first_key) | (not enters))
    rule = RuleTensors(table, state, stamps, numbers, history, step)
    loaded = read_rows(row, complete, cols, rule, d, record, RULE, BEHIND, ACC)

    term = tl.load(order + x, mask=live, other=0) - first_term
    i = tl.zeros_like(term)
    for part in tl.static_range(1, components):
        i += (term >= tl.cast(N, tl.int64) * part).to(tl.int64)
    t = term - i * N
    if token_bags is not None:
        t = tl.load(token_bags + t, mask=live, other=0).to(tl.int64)
    place = source + (t * source_width + i * component_stride)[:, None] + cols[None, :]
    g = tl.load(place, mask=live[:, None] & (cols < d)[None, :], other=0).to(ACC)
    if factors is not None:
        g *= tl.load(factors + term, mask=live, other=0)[:, None]

    partial += tile * TILE_SUMS * D + cols
    if enters:  # a row that began before this tile
        mine = inside & (key == first_key)
        tl.store(partial + ENTERING * D, tl.sum(tl.where(mine[:, None], g, 0), axis=0))
    if leaves & ((first_key != last_key) | (not enters)):  # one that begins here and continues
        mine = inside & (key == last_key)
        tl.store(partial + LEAVING * D, tl.sum(tl.where(mine[:, None], g, 0), axis=0))

    begins = tl.broadcast_to((key != before).to(tl.int32)[:, None], [T, D])
    g, _ = tl.associative_scan((g, begins), 0, add_same_row)
    if slots is not None:
        row = tl.load(slots + x, mask=complete, other=0).to(tl.int64)
    apply_rule(row, complete, cols, g, loaded, rule, d, record, RULE, BEHIND, ACC)


@direct
@triton.jit(do_not_specialize=["M", "tiles"])
def sum_groups(keys, partial, groups, M, tiles, T: tl.constexpr, D: tl.constexpr, G: tl.constexpr):
    """Add up the partial sums of G tiles that all belong to one row, begun before them."""
    group = tl.program_id(0).to(tl.int64)
    first = group * G
    cols = tl.arange(0, D)
    if (group > 0) & (first + G <= tiles):
        before = tl.load(keys + first * T - 1)
        last = tl.load(keys + tl.minimum((first + G) * T, M) - 1)
        if before == last:
            tile = first + tl.arange(0, G)
            sums = tl.load(partial + (tile * TILE_SUMS * D + ENTERING * D)[:, None] + cols[None, :])
            tl.store(groups + group * D + cols, tl.sum(sums, axis=0))


@triton.jit
def continuing_sums(
    at, key, keys, partial, limit, D: tl.constexpr, T: tl.constexpr, Z: tl.constexpr
):
    """The partial sums (Z, D) of tiles at, at + 1, ... that begin with the key."""
    z = at + tl.arange(0, Z)
    mine = (z < limit) & (tl.load(keys + z * T, mask=z < limit, other=-1) == key)
    places = partial + (z * TILE_SUMS * D + ENTERING * D)[:, None] + tl.arange(0, D)[None, :]
    return tl.load(places, mask=mine[:, None], other=0)


@triton.jit
def edge(a, keys, M, base, rows, T: tl.constexpr):
    """Whether a row begins in tile a and reaches a + 1; its key; whether it reaches a + 2."""
    end = a * T + T
    inside = end < M
    key = tl.load(keys + end - 1, mask=inside, other=-1)
    after = tl.load(keys + end, mask=inside, other=-2)
    before = tl.load(keys + a * T - 1, mask=inside & (a > 0), other=-3)
    beyond = tl.load(keys + end + T, mask=end + T < M, other=-4)
    continues = (key == after) & (key != before) & (key.to(tl.int64) - base < rows)
    return continues, key, continues & (beyond == key)


@direct
@triton.jit(do_not_specialize=["M", "tiles", "base", "rows"])
def sum_edges(
    keys,
    slots,
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
    base,
    rows,
    d: tl.constexpr,
    record: tl.constexpr,
    RULE: tl.constexpr,
    BEHIND: tl.constexpr,
    T: tl.constexpr,
    D: tl.constexpr,
    A: tl.constexpr,
    G: tl.constexpr,
    ACC: tl.constexpr,
):
    """Finish the rows that begin in one of A tiles a and reach a + 1.

    Rows that end there are finished together. A longer row is the sum of the tiles up to the next
    group of G tiles, of whole groups, and of the tiles that are left.
    """
    cols = tl.arange(0, D)
    begin = tl.program_id(0).to(tl.int64) * A
    a = begin + tl.arange(0, A)
    continues, key, longer = edge(a, keys, M, base, rows, T)
    live = continues & ~longer
    row = key.to(tl.int64) - base
    place = partial + (a * TILE_SUMS * D + LEAVING * D)[:, None] + cols[None, :]
    to_next_entering: tl.constexpr = (TILE_SUMS - LEAVING + ENTERING) * D
    g = tl.load(place, mask=live[:, None], other=0)
    g += tl.load(place + to_next_entering, mask=live[:, None], other=0)
    if slots is not None:
        row = tl.load(slots + a * T + T - 1, mask=live, other=0).to(tl.int64)
    rule = RuleTensors(table, state, stamps, numbers, history, step)
    loaded = read_rows(row, live, cols, rule, d, record, RULE, BEHIND, ACC)
    apply_rule(row, live, cols, g, loaded, rule, d, record, RULE, BEHIND, ACC)
    if tl.sum(longer.to(tl.int32), axis=0) == 0:
        return
    for b in range(begin, begin + A):
        _, long_key, is_long = edge(b, keys, M, base, rows, T)
        if is_long:
            group = (b + G) // G
            total = continuing_sums(
                b + 1, long_key, keys, partial, tl.minimum(group * G, tiles), D, T, G
            )
            more = True
            while more:
                which = group + tl.arange(0, G)
                end = (which + 1) * G
                inside = end <= tiles
                last = tl.load(keys + tl.minimum(end * T, M) - 1, mask=inside, other=-1)
                mine = inside & (last == long_key)
                places = groups + (which * D)[:, None] + cols[None, :]
                total += tl.load(places, mask=mine[:, None], other=0)
                whole = tl.sum(mine.to(tl.int32), axis=0)
                more = whole == G
                group += whole
            total += continuing_sums(group * G, long_key, keys, partial, tiles, D, T, G)
            long_g = tl.load(partial + b * TILE_SUMS * D + LEAVING * D + cols) + tl.sum(
                total, axis=0
            )
            long_row = long_key.to(tl.int64) - base
            if slots is not None:
                long_row = tl.load(slots + b * T + T - 1).to(tl.int64)
            rows_1 = long_row + tl.zeros([1], tl.int64)
            live_1 = tl.full([1], 1, tl.int1)
            loaded_1 = read_rows(rows_1, live_1, cols, rule, d, record, RULE, BEHIND, ACC)
            g_1 = long_g[None, :]
            apply_rule(rows_1, live_1, cols, g_1, loaded_1, rule, d, record, RULE, BEHIND, ACC)
