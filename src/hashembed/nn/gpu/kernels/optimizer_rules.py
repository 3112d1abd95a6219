"""Triton kernels that update rows by their gradients.

The formulas, records and histories are those of `nn/cpu/row_kernels.py`; `layout.py` has the layout
of all buffers. A rule has two halves: `read_rows` loads what it needs, `apply_rule` updates.
docs/how-it-works/add-an-optimizer.md shows how to add a rule.
"""

import triton
import triton.language as tl

from hashembed.nn.gpu.direct import direct
from hashembed.nn.gpu.kernels.hash import fmix32
from hashembed.nn.gpu.kernels.layout import (
    ADAGRAD,
    ADAGRAD_ROWWISE,
    ADAM,
    ADAMW,
    DECAY_FACTOR,
    ENABLED,
    EPS,
    FIRST_LAZY,
    GRADIENT_SIZE,
    HISTORY_EPS,
    HISTORY_LOG_KEPT,
    HISTORY_LOG_M,
    HISTORY_LOG_V,
    HISTORY_TAIL,
    LOG_BETA1,
    LOG_BETA2,
    LR,
    MOMENTUM,
    ONE_MINUS_BETA1,
    ONE_MINUS_BETA2,
    RING,
    ROOT_FACTOR,
    SGD,
    STEP_SIZE,
    STORE,
    RuleTensors,
    stamp_offset,
)


@triton.jit
def product(a, b):
    """a b, rounded before it is added to anything.

    Threads that add up the same products must get the same sum. If the compiler fused a product
    with the addition that follows, each thread would leave another product unrounded.
    """
    return tl.fma(a, b, tl.zeros_like(a))  # the compiler would simplify a * b + 0.0


@triton.jit
def round_to_table(p, kind: tl.constexpr, row, cols, step):
    """Numbers (R, D) of rows in the precision of their table.

    Rounding to 16 bits is stochastic: up or down at random, correct on average. Rounding to the
    nearest would lose all steps that are much smaller than the numbers. The random draw is a hash
    of step, row and column.
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
def decay_since(then, now, history, log_row: tl.constexpr, ACC: tl.constexpr):
    """The factor by which the steps after `then`, up to `now`, have shrunk something (R,)."""
    before = tl.load(history + log_row + then % RING, mask=then > 0, other=0)
    return tl.exp2((tl.load(history + log_row + now % RING) - before).to(ACC))


@triton.jit
def caught_up(p, m, v, then, now, history, RULE: tl.constexpr, ACC: tl.constexpr):
    """Rows (R, D) and their moments after steps then (R,) to now in which they had no gradient."""
    # The tail of a row that is up to date is 0; a row that was never touched has no momentum.
    tail = tl.load(history + HISTORY_TAIL + then % RING, mask=then > 0, other=0).to(ACC)
    change = tail[:, None] * m
    if RULE != MOMENTUM:
        eps = tl.load(history + HISTORY_EPS + then % RING, mask=then > 0, other=1).to(ACC)
        change = change / (tl.sqrt(v) + eps[:, None])
        v = decay_since(then, now, history, HISTORY_LOG_V, ACC)[:, None] * v
    p = tl.where((then > 0)[:, None], p - change, p)
    if RULE == ADAMW:
        p = decay_since(then, now, history, HISTORY_LOG_KEPT, ACC)[:, None] * p
    return p, decay_since(then, now, history, HISTORY_LOG_M, ACC)[:, None] * m, v


@triton.jit
def read_rows(
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
    """What the rule needs of rows (R,): weights (R, D), one or two numbers of state, stamps (R,).

    The state of row-wise Adagrad is (R, 1), all other state (R, D). What a rule does not need is 0.
    Separate from `apply_rule`, so that these loads start before the gradients are known.
    """
    mask = live[:, None] & (cols < d)[None, :]
    p = tl.zeros([row.shape[0], cols.shape[0]], ACC)
    state1, state2 = p, p
    if RULE != STORE:
        place = rule.table + row[:, None] * d + cols[None, :]
        p = tl.load(place, mask=mask, other=0).to(ACC)
    if RULE == ADAGRAD_ROWWISE:
        state1 = tl.load(rule.state + row, mask=live, other=0)[:, None]
    if (RULE == ADAGRAD) | (RULE >= FIRST_LAZY):
        place = rule.state + row[:, None] * record + cols[None, :]
        state1 = tl.load(place, mask=mask, other=0)
        if (RULE == ADAM) | (RULE == ADAMW):
            state2 = tl.load(place + d, mask=mask, other=0)
    then = tl.zeros_like(row)
    if (RULE >= FIRST_LAZY) & BEHIND:
        stamp = rule.stamps + row * record + stamp_offset(RULE, d)
        then = tl.load(stamp, mask=live, other=0).to(tl.int64)
    return p, state1, state2, then


@triton.jit
def apply_rule(
    row,
    live,
    cols,
    g,
    loaded,
    rule,
    d: tl.constexpr,
    record: tl.constexpr,
    RULE: tl.constexpr,
    BEHIND: tl.constexpr,
    ACC: tl.constexpr,
):
    """Store the gradients g (R, D) of rows (R,), or update by them; loaded: from `read_rows`.

    BEHIND: rows may have missed steps.
    """
    p, state1, state2, then = loaded
    mask = live[:, None] & (cols < d)[None, :]
    if RULE == STORE:
        p = g
    else:
        lr = tl.load(rule.numbers + LR).to(ACC)
        eps = tl.load(rule.numbers + EPS).to(ACC)
    if RULE == SGD:
        p -= lr * g
    if RULE == ADAGRAD:
        state1 += g * g
        tl.store(rule.state + row[:, None] * record + cols[None, :], state1, mask=mask)
        p -= lr * g / (tl.sqrt(state1) + eps)
    if RULE == ADAGRAD_ROWWISE:
        square = tl.reshape(state1, row.shape) + tl.sum(product(g, g), axis=1) / d
        tl.store(rule.state + row, square, mask=live)
        p -= lr * g / (tl.sqrt(square) + eps)[:, None]
    if RULE >= FIRST_LAZY:
        now = tl.load(rule.step)
        if BEHIND:
            # Several threads may hold a row: none may stamp it before all have read the stamp.
            tl.debug_barrier()
            p, state1, state2 = caught_up(p, state1, state2, then, now - 1, rule.history, RULE, ACC)
        size = tl.load(rule.numbers + STEP_SIZE).to(ACC)
        place = rule.state + row[:, None] * record + cols[None, :]
        if RULE == MOMENTUM:
            state1 = tl.exp2(tl.load(rule.numbers + LOG_BETA1)).to(ACC) * state1 + g
            p -= size * state1 + tl.load(rule.numbers + GRADIENT_SIZE).to(ACC) * g
        else:
            state1 += tl.load(rule.numbers + ONE_MINUS_BETA1).to(ACC) * (g - state1)
            state2 += tl.load(rule.numbers + ONE_MINUS_BETA2).to(ACC) * (g * g - state2)
            if RULE == ADAMW:
                p *= tl.load(rule.numbers + DECAY_FACTOR).to(ACC)
            root = tl.load(rule.numbers + ROOT_FACTOR).to(ACC)
            p -= size * state1 / (tl.sqrt(state2) * root + eps)
            tl.store(place + d, state2, mask=mask)
        tl.store(place, state1, mask=mask)
        stamp = rule.stamps + row * record + stamp_offset(RULE, d)
        tl.store(stamp, tl.full(row.shape, 0, rule.stamps.dtype.element_ty) + now, mask=live)
    place = rule.table + row[:, None] * d + cols[None, :]
    kind: tl.constexpr = rule.table.dtype.element_ty
    if RULE == STORE:
        tl.store(place, p.to(kind), mask=mask)
    else:
        tl.store(place, round_to_table(p, kind, row, cols, tl.load(rule.step)), mask=mask)


@direct
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
    rule = RuleTensors(table, state, stamps, numbers, history, step)
    loaded = read_rows(row, live, cols, rule, d, record, RULE, BEHIND, ACC)
    apply_rule(row, live, cols, g, loaded, rule, d, record, RULE, BEHIND, ACC)


@direct
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
    """Bring rows keys - base (M,), with repeats, to the present step; with `count` the first ones.

    Without MOVE the rows were written in the meantime: they stay, only their moments decay.

    The thread that changes a row's stamp owns the row. T must be 32 for each warp: in smaller tiles
    several threads hold the same element, and may read different stamps.
    """
    begin = tl.program_id(0).to(tl.int64) * T
    end = M if count is None else tl.load(count)
    if begin >= end:
        return
    x = begin + tl.arange(0, T)
    row = tl.load(keys + x, mask=x < end, other=0).to(tl.int64) - base
    live = (x < end) & (row < size)
    now = tl.load(step)
    stamp = stamps + row * record + stamp_offset(RULE, d)
    present = tl.full([T], 0, stamps.dtype.element_ty) + now
    live &= tl.load(stamp, mask=live, other=0) < now
    then = tl.atomic_max(stamp, present, mask=live, sem="relaxed").to(tl.int64)
    live &= then < now
    if RULE != ADAMW:  # a row that was never touched does not move
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
            tl.store(place, round_to_table(p, table.dtype.element_ty, row, cols, now), mask=mask)
        tl.store(moments, m, mask=mask)
        if RULE != MOMENTUM:
            tl.store(moments + d, v, mask=mask)


@direct
@triton.jit(
    do_not_specialize=["lr_bits", "eps_bits", "log_beta1_bits", "log_beta2_bits", "decay_bits"]
)
def begin_step(
    step,
    numbers,
    lr,
    finite,
    lr_bits,
    eps_bits,
    log_beta1_bits,
    log_beta2_bits,
    decay_bits,
    RULE: tl.constexpr,
    NESTEROV: tl.constexpr,
):
    """Count step t, and write the `numbers` that the rules read in it.

    Triton passes floats as float32, so these come as the bits of a float64. The learning rate may
    be in memory instead. If `finite` is 0, that rate becomes 0 and the step updates nothing.
    """
    t = tl.load(step) + 1
    tl.store(step, t)
    rate = as_float64(lr_bits) if lr is None else tl.load(lr).to(tl.float64)
    tl.store(numbers + ENABLED, tl.full([], 1, tl.float64))
    if finite is not None:
        enabled = tl.load(finite) != 0
        tl.store(numbers + ENABLED, enabled.to(tl.float64))
        rate = tl.where(enabled, rate, 0.0)
        tl.store(lr, rate.to(lr.dtype.element_ty))
    log_beta1, log_beta2 = as_float64(log_beta1_bits), as_float64(log_beta2_bits)
    tl.store(numbers + LR, rate)
    tl.store(numbers + EPS, as_float64(eps_bits))
    tl.store(numbers + LOG_BETA1, log_beta1)
    tl.store(numbers + LOG_BETA2, log_beta2)
    tl.store(numbers + DECAY_FACTOR, 1 - rate * as_float64(decay_bits))
    if RULE == MOMENTUM:
        tl.store(numbers + STEP_SIZE, rate * tl.exp2(log_beta1) if NESTEROV else rate)
        tl.store(numbers + GRADIENT_SIZE, rate if NESTEROV else 0.0 * rate)
        tl.store(numbers + ROOT_FACTOR, 1 + 0.0 * rate)
    else:
        time = t.to(tl.float64)
        tl.store(numbers + STEP_SIZE, rate / (1 - tl.exp2(time * log_beta1)))
        tl.store(numbers + ROOT_FACTOR, 1 / tl.sqrt(1 - tl.exp2(time * log_beta2)))
        tl.store(numbers + ONE_MINUS_BETA1, 1 - tl.exp2(log_beta1))
        tl.store(numbers + ONE_MINUS_BETA2, 1 - tl.exp2(log_beta2))


@triton.jit
def is_disabled(numbers, RULE: tl.constexpr):
    """Whether this step must change nothing.

    A rate of 0 is not enough: 0 times a number that is not finite is not 0.
    """
    if RULE == STORE:
        return False
    else:  # noqa: RET505
        return tl.load(numbers + ENABLED) == 0


@triton.jit
def as_float64(bits):
    """The float64 that has these bits."""
    return bits.to(tl.int64).to(tl.float64, bitcast=True)


@direct
@triton.jit
def end_step(step, numbers, history, REACH: tl.constexpr, RULE: tl.constexpr):
    """Add this step to a history, and to the tails of the REACH steps before it."""
    t = tl.load(step)
    here, last = history + t % RING, history + (t - 1) % RING
    log_m = tl.load(last + HISTORY_LOG_M) + tl.load(numbers + LOG_BETA1)
    log_v = tl.load(last + HISTORY_LOG_V)
    log_kept = tl.load(last + HISTORY_LOG_KEPT)
    if RULE != MOMENTUM:
        log_v += tl.load(numbers + LOG_BETA2)
    if RULE == ADAMW:
        log_kept += tl.log2(tl.load(numbers + DECAY_FACTOR))
    past = t - 1 - tl.arange(0, REACH)
    place, known = history + past % RING, past >= 1
    level = tl.load(place + HISTORY_LOG_M, mask=known, other=0) - log_m
    level -= (tl.load(place + HISTORY_LOG_V, mask=known, other=0) - log_v) / 2
    level -= tl.load(place + HISTORY_LOG_KEPT, mask=known, other=0) - log_kept
    term = tl.load(numbers + STEP_SIZE) / tl.load(numbers + ROOT_FACTOR)
    tail = tl.load(place + HISTORY_TAIL, mask=known, other=0)
    tl.store(place + HISTORY_TAIL, tail + term * tl.exp2(-level), mask=known)
    tl.store(here + HISTORY_TAIL, 0.0)
    tl.store(here + HISTORY_LOG_M, log_m)
    tl.store(here + HISTORY_LOG_V, log_v)
    tl.store(here + HISTORY_LOG_KEPT, log_kept)
    next_time = (t + 1).to(tl.float64)
    root = tl.sqrt(1 - tl.exp2(next_time * tl.load(numbers + LOG_BETA2)))
    tl.store(here + HISTORY_EPS, tl.load(numbers + EPS) * root)
