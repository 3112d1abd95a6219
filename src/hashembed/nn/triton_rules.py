"""Triton kernels that update rows by their gradients.

The formulas are those of `row_kernels.py`, and so are the records of Adam. `numbers` holds, in
float64, what changes from step to step. `rule` is all that a rule has in memory, in the order of
`cuda_rows.Rule.tensors`.
"""

import triton
import triton.language as tl

from hashembed.nn.triton_hash import fmix32

STORE, SGD, ADAGRAD, ADAGRAD_ROWWISE, ADAM = (tl.constexpr(rule) for rule in range(5))
# Places in `numbers`; the logarithms have base 2.
LR, EPS, SIZE, ROOT, REST1, REST2, FINE, LOG_BETA1, LOG_BETA2, LENGTH = (
    tl.constexpr(place) for place in range(10)
)
RING = tl.constexpr(2**18)  # steps that `tails` remembers; beyond, a step 2^18 later stands in


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
    if (RULE == ADAGRAD) | (RULE == ADAM):
        place = state + row[:, None] * record + cols[None, :]
        one = tl.load(place, mask=mask, other=0)
        if RULE == ADAM:
            other = tl.load(place + d, mask=mask, other=0)
    then = tl.zeros_like(row)
    if (RULE == ADAM) & BEHIND:
        then = tl.load(stamps + row * record + 2 * d, mask=live, other=0).to(tl.int64)
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

    BEHIND: rows under Adam may have missed steps.
    """
    p, one, other, then = had
    table, state, stamps, numbers, tails, step = rule
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
    if RULE == ADAM:
        now = tl.load(step)
        stamp = stamps + row * record + 2 * d
        if BEHIND:
            tl.debug_barrier()  # several threads may hold a row: none stamps it before all looked
            p, one, other = caught_up(p, one, other, then, now - 1, numbers, tails, ACC)
        one += tl.load(numbers + REST1).to(ACC) * (g - one)
        other += tl.load(numbers + REST2).to(ACC) * (g * g - other)
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
    mask = live[:, None] & (cols < d)[None, :]
    g = tl.load(values + x[:, None] * d + cols[None, :], mask=mask, other=0).to(ACC)
    rule = (table, state, stamps, numbers, tails, step)
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
    """Rows keys - base (M,) of Adam, with repeats, to the present step; or the first `count`.

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
def begin_step(step, numbers, lr, fine, lr_bits, eps_bits, log_beta1_bits, log_beta2_bits):
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
