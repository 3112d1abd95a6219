"""Triton kernels that update rows by their gradients.

The formulas are those of `nn/cpu/row_kernels.py`, and so are records and histories. `numbers`
holds, in float64, what changes from step to step. `rule` is all that a rule has in memory, in the
order of `cuda_rows.Rule.tensors`.
"""

import triton
import triton.language as tl

from hashembed.nn.gpu.kernels.hash import fmix32

# Under ADAM and those behind it a row that has no gradient moves all the same.
STORE, SGD, ADAGRAD, ADAGRAD_ROWWISE, ADAM, ADAMW, MOMENTUM = (
    tl.constexpr(rule) for rule in range(7)
)
# Places in `numbers`; the logarithms have base 2. KEPT is what weight decay leaves of a weight;
# momentum takes SIZE times itself, and DIRECT times the gradient.
LR, EPS, SIZE, ROOT, REST1, REST2, FINE, LOG_BETA1, LOG_BETA2, KEPT, DIRECT, LENGTH = (
    tl.constexpr(place) for place in range(12)
)
RING = tl.constexpr(2**18)  # steps that a history holds; beyond, a step 2^18 later stands in
# Where the rows of a history begin, behind TAIL.
EPS_AT, LOG_M, LOG_V, LOG_KEPT = (tl.constexpr(row * 2**18) for row in range(1, 5))


@triton.jit
def product(a, b):
    """a b, rounded. A sum of products that threads add up together must be the same for all of
    them; fused with the addition that follows, each would round another one of the products.
    """
    return tl.fma(a, b, tl.zeros_like(a))  # of a * b + 0.0 the compiler knows better, where a is b


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
def shrunk(then, now, history, row: tl.constexpr, ACC: tl.constexpr):
    """By which factor the steps behind `then`, up to `now`, have shrunk something (R,)."""
    before = tl.load(history + row + then % RING, mask=then > 0, other=0)
    return tl.exp2((tl.load(history + row + now % RING) - before).to(ACC))


@triton.jit
def caught_up(p, m, v, then, now, history, RULE: tl.constexpr, ACC: tl.constexpr):
    """What happens to rows (R, D) while their gradients are zero, from step then to now (R,)."""
    # A row that is up to date has a tail of 0; one that was never touched has no momentum.
    tail = tl.load(history + then % RING, mask=then > 0, other=0).to(ACC)
    change = tail[:, None] * m
    if RULE != MOMENTUM:
        eps = tl.load(history + EPS_AT + then % RING, mask=then > 0, other=1).to(ACC)
        change = change / (tl.sqrt(v) + eps[:, None])
        v = shrunk(then, now, history, LOG_V, ACC)[:, None] * v
    p = tl.where((then > 0)[:, None], p - change, p)
    if RULE == ADAMW:
        p = shrunk(then, now, history, LOG_KEPT, ACC)[:, None] * p
    return p, shrunk(then, now, history, LOG_M, ACC)[:, None] * m, v


@triton.jit
def stamps_at(RULE: tl.constexpr, d: tl.constexpr):
    """Where a record has its stamp: behind the moments."""
    return d if RULE == MOMENTUM else 2 * d


@triton.jit
def read(
    row,
    live,
    cols,
    rule,
    d: tl.constexpr,
    record: tl.constexpr,
    RULE: tl.constexpr,
    BEHIND: tl.constexpr,
    ACC: tl.constexpr,
):
    """What the rule needs of rows (R,): (R, D) of the table, of their state once or twice, stamps.

    By rows the state of Adagrad is (R, 1).

    Apart from `finish`, so that memory can be asked for before the gradients are known.
    """
    table, state, stamps, _, _, _ = rule
    mask = live[:, None] & (cols < d)[None, :]
    p = tl.zeros([row.shape[0], cols.shape[0]], ACC)
    one, other = p, p
    if RULE != STORE:
        place = table + row[:, None] * d + cols[None, :]
        p = tl.load(place, mask=mask, other=0).to(ACC)
    if RULE == ADAGRAD_ROWWISE:
        one = tl.load(state + row, mask=live, other=0)[:, None]
    if (RULE == ADAGRAD) | (RULE >= ADAM):
        place = state + row[:, None] * record + cols[None, :]
        one = tl.load(place, mask=mask, other=0)
        if (RULE == ADAM) | (RULE == ADAMW):
            other = tl.load(place + d, mask=mask, other=0)
    then = tl.zeros_like(row)
    if (RULE >= ADAM) & BEHIND:
        stamp = stamps + row * record + stamps_at(RULE, d)
        then = tl.load(stamp, mask=live, other=0).to(tl.int64)
    return p, one, other, then


@triton.jit
def finish(
    row,
    live,
    cols,
    g,
    had,
    rule,
    d: tl.constexpr,
    record: tl.constexpr,
    RULE: tl.constexpr,
    BEHIND: tl.constexpr,
    ACC: tl.constexpr,
):
    """Store, or update by, the gradients g (R, D) of rows (R,); had: what `read` has read of them.

    BEHIND: rows may have missed steps.
    """
    p, one, other, then = had
    table, state, stamps, numbers, history, step = rule
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
        square = tl.reshape(one, row.shape) + tl.sum(product(g, g), axis=1) / d
        tl.store(state + row, square, mask=live)
        p -= lr * g / (tl.sqrt(square) + eps)[:, None]
    if RULE >= ADAM:
        now = tl.load(step)
        if BEHIND:
            tl.debug_barrier()  # several threads may hold a row: none stamps it before all looked
            p, one, other = caught_up(p, one, other, then, now - 1, history, RULE, ACC)
        size = tl.load(numbers + SIZE).to(ACC)
        place = state + row[:, None] * record + cols[None, :]
        if RULE == MOMENTUM:
            one = tl.exp2(tl.load(numbers + LOG_BETA1)).to(ACC) * one + g
            p -= size * one + tl.load(numbers + DIRECT).to(ACC) * g
        else:
            one += tl.load(numbers + REST1).to(ACC) * (g - one)
            other += tl.load(numbers + REST2).to(ACC) * (g * g - other)
            if RULE == ADAMW:
                p *= tl.load(numbers + KEPT).to(ACC)
            root = tl.load(numbers + ROOT).to(ACC)
            p -= size * one / (tl.sqrt(other) * root + eps)
            tl.store(place + d, other, mask=mask)
        tl.store(place, one, mask=mask)
        stamp = stamps + row * record + stamps_at(RULE, d)
        tl.store(stamp, tl.full(row.shape, 0, stamps.dtype.element_ty) + now, mask=live)
    place = table + row[:, None] * d + cols[None, :]
    kind: tl.constexpr = table.dtype.element_ty
    if RULE == STORE:
        tl.store(place, p.to(kind), mask=mask)
    else:
        tl.store(place, shortened(p, kind, row, cols, tl.load(step)), mask=mask)


@triton.jit(do_not_specialize=["M", "size"])
def update_rows(
    rows,
    values,
    table,
    state,
    stamps,
    numbers,
    history,
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
    mask = live[:, None] & (cols < d)[None, :]
    g = tl.load(values + x[:, None] * d + cols[None, :], mask=mask, other=0).to(ACC)
    rule = (table, state, stamps, numbers, history, step)
    had = read(row, live, cols, rule, d, record, RULE, BEHIND, ACC)
    finish(row, live, cols, g, had, rule, d, record, RULE, BEHIND, ACC)


@triton.jit(do_not_specialize=["M", "base", "size"])
def catch_up(
    keys,
    count,
    table,
    state,
    stamps,
    numbers,
    history,
    step,
    M,
    base,
    size,
    d: tl.constexpr,
    record: tl.constexpr,
    RULE: tl.constexpr,
    MOVE: tl.constexpr,
    T: tl.constexpr,
    D: tl.constexpr,
    ACC: tl.constexpr,
):
    """Rows keys - base (M,), with repeats, to the present step; or the first `count`.

    Without MOVE they have been written meanwhile: they stay, and only their moments go on.

    Whoever moves a row's stamp owns the row. T must be 32 for each warp: of smaller tiles several
    threads hold the same element, look at its stamp at different times, and disagree.
    """
    begin = tl.program_id(0).to(tl.int64) * T
    end = M if count is None else tl.load(count)
    if begin >= end:
        return
    x = begin + tl.arange(0, T)
    row = tl.load(keys + x, mask=x < end, other=0).to(tl.int64) - base
    live = (x < end) & (row < size)
    now = tl.load(step)
    stamp = stamps + row * record + stamps_at(RULE, d)
    present = tl.full([T], 0, stamps.dtype.element_ty) + now
    live &= tl.load(stamp, mask=live, other=0) < now
    then = tl.atomic_max(stamp, present, mask=live, sem="relaxed").to(tl.int64)
    live &= then < now
    if RULE != ADAMW:  # one never touched does not move
        live &= then > 0
    then = tl.where(live, then, now)
    for at in range(0, d, D):
        cols = at + tl.arange(0, D)
        mask = live[:, None] & (cols < d)[None, :]
        place = table + row[:, None] * d + cols[None, :]
        moments = state + row[:, None] * record + cols[None, :]
        p = tl.load(place, mask=mask, other=0).to(ACC)
        m = tl.load(moments, mask=mask, other=0)
        v = m
        if RULE != MOMENTUM:
            v = tl.load(moments + d, mask=mask, other=0)
        p, m, v = caught_up(p, m, v, then, now, history, RULE, ACC)
        if MOVE:
            tl.store(place, shortened(p, table.dtype.element_ty, row, cols, now), mask=mask)
        tl.store(moments, m, mask=mask)
        if RULE != MOMENTUM:
            tl.store(moments + d, v, mask=mask)


@triton.jit(
    do_not_specialize=["lr_bits", "eps_bits", "log_beta1_bits", "log_beta2_bits", "decay_bits"]
)
def begin_step(
    step,
    numbers,
    lr,
    fine,
    lr_bits,
    eps_bits,
    log_beta1_bits,
    log_beta2_bits,
    decay_bits,
    RULE: tl.constexpr,
    NESTEROV: tl.constexpr,
):
    """The next step t, and what the rules need to know of it.

    Triton takes numbers as float32; so they come as the bits of a float64, or, the rate, in memory:
    there it becomes 0 if all is not `fine`, and no row is to be updated.
    """
    t = tl.load(step) + 1
    tl.store(step, t)
    rate = as_float64(lr_bits) if lr is None else tl.load(lr).to(tl.float64)
    tl.store(numbers + FINE, tl.full([], 1, tl.float64))
    if fine is not None:
        good = tl.load(fine) != 0
        tl.store(numbers + FINE, good.to(tl.float64))
        rate = tl.where(good, rate, 0.0)
        tl.store(lr, rate.to(lr.dtype.element_ty))
    log_beta1, log_beta2 = as_float64(log_beta1_bits), as_float64(log_beta2_bits)
    tl.store(numbers + LR, rate)
    tl.store(numbers + EPS, as_float64(eps_bits))
    tl.store(numbers + LOG_BETA1, log_beta1)
    tl.store(numbers + LOG_BETA2, log_beta2)
    tl.store(numbers + KEPT, 1 - rate * as_float64(decay_bits))
    if RULE == MOMENTUM:
        tl.store(numbers + SIZE, rate * tl.exp2(log_beta1) if NESTEROV else rate)
        tl.store(numbers + DIRECT, rate if NESTEROV else 0.0 * rate)
        tl.store(numbers + ROOT, 1 + 0.0 * rate)
    else:
        time = t.to(tl.float64)
        tl.store(numbers + SIZE, rate / (1 - tl.exp2(time * log_beta1)))
        tl.store(numbers + ROOT, 1 / tl.sqrt(1 - tl.exp2(time * log_beta2)))
        tl.store(numbers + REST1, 1 - tl.exp2(log_beta1))
        tl.store(numbers + REST2, 1 - tl.exp2(log_beta2))


@triton.jit
def is_off(numbers, RULE: tl.constexpr):
    """Whether no row is to be updated in this step: a rate of 0 would not do, for 0 times a number
    that is not finite is not 0.
    """
    if RULE == STORE:
        return False
    else:  # noqa: RET505
        return tl.load(numbers + FINE) == 0


@triton.jit
def as_float64(bits):
    """The float64 that has these bits."""
    return bits.to(tl.int64).to(tl.float64, bitcast=True)


@triton.jit
def end_step(step, numbers, history, REACH: tl.constexpr, RULE: tl.constexpr):
    """Add this step to a history, and to the tails of the REACH steps before it."""
    t = tl.load(step)
    here, last = history + t % RING, history + (t - 1) % RING
    log_m = tl.load(last + LOG_M) + tl.load(numbers + LOG_BETA1)
    log_v = tl.load(last + LOG_V)
    log_kept = tl.load(last + LOG_KEPT)
    if RULE != MOMENTUM:
        log_v += tl.load(numbers + LOG_BETA2)
    if RULE == ADAMW:
        log_kept += tl.log2(tl.load(numbers + KEPT))
    past = t - 1 - tl.arange(0, REACH)
    place, known = history + past % RING, past >= 1
    level = tl.load(place + LOG_M, mask=known, other=0) - log_m
    level -= (tl.load(place + LOG_V, mask=known, other=0) - log_v) / 2
    level -= tl.load(place + LOG_KEPT, mask=known, other=0) - log_kept
    term = tl.load(numbers + SIZE) / tl.load(numbers + ROOT)
    tail = tl.load(place, mask=known, other=0)
    tl.store(place, tail + term * tl.exp2(-level), mask=known)
    tl.store(here, 0.0)
    tl.store(here + LOG_M, log_m)
    tl.store(here + LOG_V, log_v)
    tl.store(here + LOG_KEPT, log_kept)
    next_time = (t + 1).to(tl.float64)
    root = tl.sqrt(1 - tl.exp2(next_time * tl.load(numbers + LOG_BETA2)))
    tl.store(here + EPS_AT, tl.load(numbers + EPS) * root)
