"""Triton kernels that add up the gradients of rows, and update rows.

Terms come sorted by row. A program adds up a tile of T of them with a segmented scan and finishes
the rows that lie inside it; rows that cross the edges of tiles leave partial sums, which
`sum_edges` adds up. So a row that a hundred thousand tokens read costs no more than as many rows
read once, nothing is added atomically, and the result is the same to the bit, run after run.

A finished row is stored (the gradient) or goes into the rule of an optimizer at once; the formulas
are those of `row_kernels.py`, and so are the records of Adam. `numbers` holds, in float64, what
changes from step to step.
"""

import triton
import triton.language as tl

from hashembed.nn.triton_hash import fmix32

STORE, SGD, ADAGRAD, ADAGRAD_ROWWISE, ADAM = (tl.constexpr(rule) for rule in range(5))
# Places in `numbers`; the logarithms have base 2.
LR, EPS, SIZE, ROOT, LOG_BETA1, LOG_BETA2, LENGTH = (tl.constexpr(place) for place in range(7))
RING = tl.constexpr(2**18)  # steps that `tails` remembers; beyond, a step 2^18 later stands in


@triton.jit
def add_same_row(total, row_begins, value, begins):
    """Two neighbouring sums of a segmented scan -> one."""
    return tl.where(begins != 0, value, total + value), row_begins | begins


@triton.jit
def shortened(p, kind: tl.constexpr, row, cols, step):
    """Numbers (R, D) of rows in a table's precision.

    To 16 bits they are rounded up or down at random, with probabilities that make the mean right:
    rounded to the nearest, steps much smaller than the numbers would all be lost. The draw follows
    from the step, the row and the column.
    """
    if (kind == tl.bfloat16) | (kind == tl.float16):
        dropped: tl.constexpr = 16 if kind == tl.bfloat16 else 13  # bits of the 23 of a float32
        mixed = fmix32(row.to(tl.uint32) ^ fmix32(step.to(tl.uint32) + (row >> 32).to(tl.uint32)))
        draw = fmix32(mixed[:, None] + cols.to(tl.uint32)[None, :] * 0x9E3779B9)
        bits = p.to(tl.uint32, bitcast=True)
        more = ((bits + (draw & ((1 << dropped) - 1))) >> dropped) << dropped
        p = tl.where(tl.abs(p) < float("inf"), more.to(tl.float32, bitcast=True), p)
    return p.to(kind)


@triton.jit
def caught_up(p, m, v, then, now, numbers, tails, ACC: tl.constexpr):
    """What Adam does to rows (R, D) while their gradients are zero, from step then to now (R,)."""
    skipped = tl.where(then > 0, now - then, 0).to(ACC)
    decay1 = tl.exp2(skipped * tl.load(numbers + LOG_BETA1).to(ACC))
    decay2 = tl.exp2(skipped * tl.load(numbers + LOG_BETA2).to(ACC))
    # A row that is up to date has a tail of 0; one that was never touched does not move.
    tail = tl.load(tails + then % RING).to(ACC)
    eps = tl.load(tails + RING + then % RING).to(ACC)
    moved = p - tail[:, None] * m / (tl.sqrt(v) + eps[:, None])
    p = tl.where((then > 0)[:, None], moved, p)
    return p, decay1[:, None] * m, decay2[:, None] * v


@triton.jit
def read(
    row,
    live,
    cols,
    table,
    state,
    d: tl.constexpr,
    record: tl.constexpr,
    RULE: tl.constexpr,
    ACC: tl.constexpr,
):
    """What the rule needs of rows (R,): (R, D) of the table, and of their state once or twice.

    Apart from `finish`, so that memory can be asked for before the gradients are known.
    """
    mask = live[:, None] & (cols < d)[None, :]
    p = tl.zeros([row.shape[0], cols.shape[0]], ACC)
    one, other = p, p
    if RULE != STORE:
        place = table + row[:, None] * d + cols[None, :]
        p = tl.load(place, mask=mask, other=0).to(ACC)
    if RULE == ADAGRAD_ROWWISE:
        place = state + row[:, None] + tl.zeros_like(cols)[None, :]
        one = tl.load(place, mask=mask, other=0)
    if (RULE == ADAGRAD) | (RULE == ADAM):
        place = state + row[:, None] * record + cols[None, :]
        one = tl.load(place, mask=mask, other=0)
        if RULE == ADAM:
            other = tl.load(place + d, mask=mask, other=0)
    return p, one, other


@triton.jit
def finish(
    row,
    live,
    cols,
    g,
    p,
    one,
    other,
    table,
    state,
    stamps,
    numbers,
    tails,
    step,
    d: tl.constexpr,
    record: tl.constexpr,
    RULE: tl.constexpr,
    BEHIND: tl.constexpr,
    ACC: tl.constexpr,
):
    """Store, or update by, the gradients g (R, D) of rows (R,) that `read` has read.

    BEHIND: rows under Adam may have missed steps.
    """
    mask = live[:, None] & (cols < d)[None, :]
    if RULE == STORE:
        p = g
    else:
        lr = tl.load(numbers + LR).to(ACC)
        eps = tl.load(numbers + EPS).to(ACC)
    if RULE == SGD:
        p -= lr * g
    if RULE == ADAGRAD:
        one += g * g
        tl.store(state + row[:, None] * record + cols[None, :], one, mask=mask)
        p -= lr * g / (tl.sqrt(one) + eps)
    if RULE == ADAGRAD_ROWWISE:
        one += (tl.sum(g * g, axis=1) / d)[:, None]
        tl.store(state + row[:, None] + cols[None, :], one, mask=mask & (cols == 0)[None, :])
        p -= lr * g / (tl.sqrt(one) + eps)
    if RULE == ADAM:
        now = tl.load(step)
        stamp = stamps + row * record + 2 * d
        if BEHIND:
            then = tl.load(stamp, mask=live, other=0).to(tl.int64)
            p, one, other = caught_up(p, one, other, then, now - 1, numbers, tails, ACC)
        rest1 = (1 - tl.exp2(tl.load(numbers + LOG_BETA1))).to(ACC)
        rest2 = (1 - tl.exp2(tl.load(numbers + LOG_BETA2))).to(ACC)
        one += rest1 * (g - one)
        other += rest2 * (g * g - other)
        size = tl.load(numbers + SIZE).to(ACC)
        root = tl.load(numbers + ROOT).to(ACC)
        p -= size * one / (tl.sqrt(other) * root + eps)
        place = state + row[:, None] * record + cols[None, :]
        tl.store(place, one, mask=mask)
        tl.store(place + d, other, mask=mask)
        tl.store(stamp, tl.full(row.shape, 0, stamps.dtype.element_ty) + now, mask=live)
    place = table + row[:, None] * d + cols[None, :]
    kind: tl.constexpr = table.dtype.element_ty
    if RULE == STORE:
        tl.store(place, p.to(kind), mask=mask)
    else:
        tl.store(place, shortened(p, kind, row, cols, tl.load(step)), mask=mask)


@triton.jit(do_not_specialize=["M", "N", "base", "rows", "first"])
def sum_tiles(
    keys,
    order,
    slots,
    owner,
    factors,
    source,
    partial,
    table,
    state,
    stamps,
    numbers,
    tails,
    step,
    M,
    N,
    base,
    rows,
    first,
    parts: tl.constexpr,
    source_width: tl.constexpr,
    component: tl.constexpr,
    d: tl.constexpr,
    record: tl.constexpr,
    RULE: tl.constexpr,
    BEHIND: tl.constexpr,
    T: tl.constexpr,
    D: tl.constexpr,
    ACC: tl.constexpr,
):
    """Add up terms x with the same keys[x] - base, the row; rows from `rows` on do not count.

    Term order[x] - first is number i N + t: of component i < parts and token t; it is

        factors[i, t] * source[owner[t], i * component :][:d]

    without `factors` times 1, and without `owner` source[t]. With `slots` a row's sum goes to
    table[slots[x]] instead of table[row].
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
    p, one, other = read(row, complete, cols, table, state, d, record, RULE, ACC)

    item = tl.load(order + x, mask=live, other=0) - first
    i = tl.zeros_like(item)
    for part in tl.static_range(1, parts):
        i += (item >= tl.cast(N, tl.int64) * part).to(tl.int64)
    t = item - i * N
    if owner is not None:
        t = tl.load(owner + t, mask=live, other=0).to(tl.int64)
    place = source + (t * source_width + i * component)[:, None] + cols[None, :]
    g = tl.load(place, mask=live[:, None] & (cols < d)[None, :], other=0).to(ACC)
    if factors is not None:
        g *= tl.load(factors + item, mask=live, other=0)[:, None]

    partial += tile * 2 * D + cols
    if enters:  # a row that began before this tile
        mine = inside & (key == first_key)
        tl.store(partial, tl.sum(tl.where(mine[:, None], g, 0), axis=0))
    if leaves & ((first_key != last_key) | (not enters)):  # one that begins here and goes on
        mine = inside & (key == last_key)
        tl.store(partial + D, tl.sum(tl.where(mine[:, None], g, 0), axis=0))

    begins = tl.broadcast_to((key != before).to(tl.int32)[:, None], [T, D])
    g, _ = tl.associative_scan((g, begins), 0, add_same_row)
    if slots is not None:
        row = tl.load(slots + x, mask=complete, other=0).to(tl.int64)
    finish(
        row,
        complete,
        cols,
        g,
        p,
        one,
        other,
        table,
        state,
        stamps,
        numbers,
        tails,
        step,
        d,
        record,
        RULE,
        BEHIND,
        ACC,
    )


@triton.jit
def edge(a, keys, M, base, rows, T: tl.constexpr):
    """Whether a row begins in tile a and goes on in a + 1, its key, and whether also in a + 2."""
    end = a * T + T
    inside = end < M
    key = tl.load(keys + end - 1, mask=inside, other=-1)
    after = tl.load(keys + end, mask=inside, other=-2)
    before = tl.load(keys + a * T - 1, mask=inside & (a > 0), other=-3)
    beyond = tl.load(keys + end + T, mask=end + T < M, other=-4)
    goes_on = (key == after) & (key != before) & (key.to(tl.int64) - base < rows)
    return goes_on, key, goes_on & (beyond == key)


@triton.jit(do_not_specialize=["M", "tiles", "base", "rows"])
def sum_edges(
    keys,
    slots,
    partial,
    table,
    state,
    stamps,
    numbers,
    tails,
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
    Z: tl.constexpr,
    ACC: tl.constexpr,
):
    """Rows that begin in one of A tiles a and go on in a + 1, and behind it, Z tiles at a time."""
    cols = tl.arange(0, D)
    begin = tl.program_id(0).to(tl.int64) * A
    a = begin + tl.arange(0, A)
    goes_on, key, longer = edge(a, keys, M, base, rows, T)
    live = goes_on & ~longer
    row = key.to(tl.int64) - base
    place = partial + (a * 2 * D + D)[:, None] + cols[None, :]
    g = tl.load(place, mask=live[:, None], other=0)
    g += tl.load(place + D, mask=live[:, None], other=0)
    if slots is not None:
        row = tl.load(slots + a * T + T - 1, mask=live, other=0).to(tl.int64)
    p, one, other = read(row, live, cols, table, state, d, record, RULE, ACC)
    finish(
        row,
        live,
        cols,
        g,
        p,
        one,
        other,
        table,
        state,
        stamps,
        numbers,
        tails,
        step,
        d,
        record,
        RULE,
        BEHIND,
        ACC,
    )
    if tl.sum(longer.to(tl.int32), axis=0) == 0:
        return
    for b in range(begin, begin + A):
        _, long_key, is_long = edge(b, keys, M, base, rows, T)
        if is_long:
            total = tl.zeros([Z, D], ACC)
            at = b + 1
            more = True
            while more:
                z = at + tl.arange(0, Z)
                mine = (z < tiles) & (tl.load(keys + z * T, mask=z < tiles, other=-1) == long_key)
                places = partial + (z * 2 * D)[:, None] + cols[None, :]
                total += tl.load(places, mask=mine[:, None], other=0)
                more = tl.sum(mine.to(tl.int32), axis=0) == Z
                at += Z
            long_g = tl.load(partial + b * 2 * D + D + cols) + tl.sum(total, axis=0)
            long_row = long_key.to(tl.int64) - base
            if slots is not None:
                long_row = tl.load(slots + b * T + T - 1).to(tl.int64)
            rows_1 = long_row + tl.zeros([1], tl.int64)
            live_1 = tl.full([1], 1, tl.int1)
            p_1, one_1, other_1 = read(rows_1, live_1, cols, table, state, d, record, RULE, ACC)
            finish(
                rows_1,
                live_1,
                cols,
                long_g[None, :],
                p_1,
                one_1,
                other_1,
                table,
                state,
                stamps,
                numbers,
                tails,
                step,
                d,
                record,
                RULE,
                BEHIND,
                ACC,
            )


@triton.jit(do_not_specialize=["M", "size"])
def update_rows(
    rows,
    values,
    table,
    state,
    stamps,
    numbers,
    tails,
    step,
    M,
    size,
    d: tl.constexpr,
    record: tl.constexpr,
    RULE: tl.constexpr,
    BEHIND: tl.constexpr,
    T: tl.constexpr,
    D: tl.constexpr,
    ACC: tl.constexpr,
):
    """Update distinct rows (M,) below `size` by their gradients, values (M, d)."""
    x = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    cols = tl.arange(0, D)
    row = tl.load(rows + x, mask=x < M, other=size)
    live = row < size
    if tl.sum(live.to(tl.int32), axis=0) == 0:
        return
    mask = live[:, None] & (cols < d)[None, :]
    g = tl.load(values + x[:, None] * d + cols[None, :], mask=mask, other=0).to(ACC)
    p, one, other = read(row, live, cols, table, state, d, record, RULE, ACC)
    finish(
        row,
        live,
        cols,
        g,
        p,
        one,
        other,
        table,
        state,
        stamps,
        numbers,
        tails,
        step,
        d,
        record,
        RULE,
        BEHIND,
        ACC,
    )


@triton.jit(do_not_specialize=["M", "base", "size"])
def catch_up(
    keys,
    table,
    state,
    stamps,
    numbers,
    tails,
    step,
    M,
    base,
    size,
    d: tl.constexpr,
    record: tl.constexpr,
    T: tl.constexpr,
    D: tl.constexpr,
    ACC: tl.constexpr,
):
    """Rows keys - base (M,) of Adam, with repeats, to the present step.

    Whoever moves a row's stamp owns the row. T must be 32 for each warp: of smaller tiles several
    threads hold the same element, look at its stamp at different times, and disagree.
    """
    x = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    row = tl.load(keys + x, mask=x < M, other=0).to(tl.int64) - base
    live = (x < M) & (row < size)
    if tl.sum(live.to(tl.int32), axis=0) == 0:
        return
    now = tl.load(step)
    stamp = stamps + row * record + 2 * d
    present = tl.full([T], 0, stamps.dtype.element_ty) + now
    live &= tl.load(stamp, mask=live, other=0) < now
    then = tl.atomic_max(stamp, present, mask=live, sem="relaxed").to(tl.int64)
    live &= (then > 0) & (then < now)
    then = tl.where(live, then, now)
    for at in range(0, d, D):
        cols = at + tl.arange(0, D)
        mask = live[:, None] & (cols < d)[None, :]
        place = table + row[:, None] * d + cols[None, :]
        moments = state + row[:, None] * record + cols[None, :]
        p = tl.load(place, mask=mask, other=0).to(ACC)
        m = tl.load(moments, mask=mask, other=0)
        v = tl.load(moments + d, mask=mask, other=0)
        p, m, v = caught_up(p, m, v, then, now, numbers, tails, ACC)
        tl.store(place, shortened(p, table.dtype.element_ty, row, cols, now), mask=mask)
        tl.store(moments, m, mask=mask)
        tl.store(moments + d, v, mask=mask)


@triton.jit(do_not_specialize=["lr_bits", "eps_bits", "log_beta1_bits", "log_beta2_bits"])
def begin_step(step, numbers, lr, lr_bits, eps_bits, log_beta1_bits, log_beta2_bits):
    """The next step t, and what the rules need to know of it.

    Triton takes numbers as float32; so they come as the bits of a float64, or, the rate, in memory.
    """
    t = tl.load(step) + 1
    tl.store(step, t)
    rate = as_float64(lr_bits) if lr is None else tl.load(lr).to(tl.float64)
    log_beta1, log_beta2 = as_float64(log_beta1_bits), as_float64(log_beta2_bits)
    tl.store(numbers + LR, rate)
    tl.store(numbers + EPS, as_float64(eps_bits))
    tl.store(numbers + LOG_BETA1, log_beta1)
    tl.store(numbers + LOG_BETA2, log_beta2)
    time = t.to(tl.float64)
    tl.store(numbers + SIZE, rate / (1 - tl.exp2(time * log_beta1)))
    tl.store(numbers + ROOT, 1 / tl.sqrt(1 - tl.exp2(time * log_beta2)))


@triton.jit
def as_float64(bits):
    """The float64 that has these bits."""
    return bits.to(tl.int64).to(tl.float64, bitcast=True)


@triton.jit
def end_step(step, numbers, tails, REACH: tl.constexpr):
    """Add this step to the tails of the REACH steps before it; see `RowAdam`."""
    t = tl.load(step)
    log_beta1, log_beta2 = tl.load(numbers + LOG_BETA1), tl.load(numbers + LOG_BETA2)
    eps = tl.load(numbers + EPS)
    past = t - 1 - tl.arange(0, REACH)
    log_ratio = log_beta1 - log_beta2 / 2
    term = tl.load(numbers + SIZE) / tl.load(numbers + ROOT)
    place = tails + past % RING
    tail = tl.load(place, mask=past >= 1, other=0)
    tail += term * tl.exp2((t - past).to(tl.float64) * log_ratio)
    tl.store(place, tail, mask=past >= 1)
    tl.store(tails + t % RING, 0.0)
    next_time = (t + 1).to(tl.float64)
    tl.store(tails + RING + t % RING, eps * tl.sqrt(1 - tl.exp2(next_time * log_beta2)))
