"""A Triton kernel for all of a step of the shallow model but the updates.

Bag, output layer, cross entropy and all slopes are a matter of one document, whose rows are read
once. Rows that are behind under Adam are seen as they would be by now (`RowAdam` has the formula),
and stay as they are: their update lets them catch up.
"""

import triton
import triton.language as tl

from hashembed.nn.gpu.kernels.rules import ADAM, EPS_AT, RING, product
from hashembed.nn.gpu.kernels.terms import AT, CALL, shift_of


@triton.jit
def stamps_of(row, live, rule, d: tl.constexpr, record: tl.constexpr):
    """When rows (R,) were updated last, and which of them are behind; see `RowAdam`."""
    _, _, stamps, _, _, step = rule
    then = tl.load(stamps + row * record + 2 * d, mask=live, other=0)
    return then, live & (then > 0) & (then < tl.load(step))  # one never touched does not move


@triton.jit
def tails_of(then, behind, rule, ACC: tl.constexpr):
    """How far momentum carries rows that are behind, and the epsilon beside it."""
    _, _, _, _, history, _ = rule
    place = history + then % RING
    tail = tl.load(place, mask=behind, other=0).to(ACC)
    return tail, tl.load(place + EPS_AT, mask=behind, other=1).to(ACC)


@triton.jit
def tokens_now(
    t,
    i,
    end,
    cols,
    places,
    sizes,
    E,
    P,
    d: tl.constexpr,
    k: tl.constexpr,
    E_record: tl.constexpr,
    P_record: tl.constexpr,
    RULE: tl.constexpr,
    ACC: tl.constexpr,
):
    """Components i of tokens t (R,): which count, their vectors (R, D) and importance (R,).

    Memory is asked for as early as can be: all that waits for the same is asked for at once.
    """
    E_rows, P_rows = places
    N, B, E_base, P_base = sizes
    live = (t < end) & (i < k)
    bucket = tl.load(E_rows + tl.cast(N, tl.int64) * i + t, mask=live, other=0).to(tl.int64)
    row = bucket
    if P_rows is not None:
        row = tl.load(P_rows + t, mask=live, other=0).to(tl.int64) - P_base
    bucket -= E_base
    live &= bucket < B
    mask = live[:, None] & (cols < d)[None, :]
    if RULE == ADAM:
        E_then, E_behind = stamps_of(bucket, live, E, d, E_record)
        if P_rows is not None:
            P_then, P_behind = stamps_of(row, live, P, k, P_record)
    e = tl.load(E[0] + bucket[:, None] * d + cols[None, :], mask=mask, other=0).to(ACC)
    p = live.to(ACC)
    if P_rows is not None:
        p = tl.load(P[0] + row * k + i, mask=live, other=0).to(ACC)
    if RULE == ADAM:
        if P_rows is not None:
            P_tail, P_eps = tails_of(P_then, P_behind, P, ACC)
            P_place = P[1] + row * P_record + i
            P_m = tl.load(P_place, mask=P_behind, other=0)
            P_v = tl.load(P_place + k, mask=P_behind, other=0)
        E_tail, E_eps = tails_of(E_then, E_behind, E, ACC)
        E_place = E[1] + bucket[:, None] * E_record + cols[None, :]
        late = E_behind[:, None] & (cols < d)[None, :]
        E_m = tl.load(E_place, mask=late, other=0)
        E_v = tl.load(E_place + d, mask=late, other=0)
        if P_rows is not None:
            p -= P_tail * P_m / (tl.sqrt(P_v) + P_eps)
        e -= E_tail[:, None] * E_m / (tl.sqrt(E_v) + E_eps[:, None])
    return live, e, p


@triton.jit(do_not_specialize=["n", "N", "B", "base", "span", "C", "scale"])
def learn_bags(
    turn,
    offsets,
    labels,
    weights,
    E_rows,
    P_rows,
    W,
    bias,
    number,
    losses,
    good,
    sums,
    of_x,
    factors,
    slope,
    E_table,
    E_state,
    E_stamps,
    E_numbers,
    E_history,
    E_step,
    P_table,
    P_state,
    P_stamps,
    P_numbers,
    P_history,
    P_step,
    n,
    N,
    B,
    base,
    span,
    C,
    scale,
    share,
    d: tl.constexpr,
    k: tl.constexpr,
    E_record: tl.constexpr,
    P_record: tl.constexpr,
    RULE: tl.constexpr,
    MEAN: tl.constexpr,
    WHOLE: tl.constexpr,
    T: tl.constexpr,
    D: tl.constexpr,
    KP: tl.constexpr,
    CP: tl.constexpr,
    ACC: tl.constexpr,
):
    """A document: its loss, and slopes, times `scale`, of all that it was computed from.

    E_rows (k, N), P_rows (N,): which rows tokens read, from `base` on those of P; those of a call
    behind others that it was sorted with, `span` further each. x is the sum of the tokens' vectors
    times `share`, or their mean. losses (n,) of this step, behind those of the `number` before it;
    sums (n, C d + C): slopes of W and bias; of_x (n, d): the slopes of x, as the rows see them;
    factors (k, N): the importance of tokens, and slope (N, k) its slopes. A loss that is not finite
    has no slopes, and makes `good` 0.

    WHOLE: no document has more than T tokens; otherwise T are taken at a time, twice.
    """
    bag = tl.program_id(0).to(tl.int64)
    shift = shift_of(turn)
    before = tl.zeros([], tl.int64)
    if turn is not None:
        before += tl.load(turn + CALL) * span
        at = tl.load(turn + AT)
        offsets += at * (n + 1)
        labels += at * n
        weights += at * n
    cols = tl.arange(0, D)
    r = tl.arange(0, T * KP)
    i = r % KP
    E = (E_table, E_state, E_stamps, E_numbers, E_history, E_step)
    P = (P_table, P_state, P_stamps, P_numbers, P_history, P_step)
    E_rows += shift
    if P_rows is not None:
        P_rows += shift
    places = (E_rows, P_rows)
    sizes = (N, B, before, base + before)
    begin = tl.load(offsets + bag)
    end = tl.minimum(tl.load(offsets + bag + 1), N)
    # What waits for nothing is asked for before the tokens.
    c = tl.arange(0, CP)
    known = c < C
    wide = known[:, None] & (cols < d)[None, :]
    w = tl.load(W + c[:, None] * d + cols[None, :], mask=wide, other=0)
    b = tl.load(bias + c, mask=known, other=0)
    label = tl.load(labels + bag)
    weight = tl.load(weights + bag)
    count = 0
    if WHOLE:
        t = begin + r // KP
        live, e, p = tokens_now(
            t, i, end, cols, places, sizes, E, P, d, k, E_record, P_record, RULE, ACC
        )
        if factors is not None:
            tl.store(factors + tl.cast(N, tl.int64) * i + t, p, mask=live)
        x = tl.sum(product(p[:, None], e), axis=0)
        count = tl.sum((live & (i == 0)).to(tl.int32), axis=0)
    else:
        total = tl.zeros([T * KP, D], ACC)
        for first in range(begin, end, T):
            t = first + r // KP
            live, e, p = tokens_now(
                t, i, end, cols, places, sizes, E, P, d, k, E_record, P_record, RULE, ACC
            )
            if factors is not None:
                tl.store(factors + tl.cast(N, tl.int64) * i + t, p, mask=live)
            total += p[:, None] * e
            count += tl.sum((live & (i == 0)).to(tl.int32), axis=0)
        x = tl.sum(total, axis=0)
    if MEAN:
        share = 1.0 / tl.maximum(count, 1).to(ACC)
    x *= share

    z = tl.sum(product(w, x[None, :]), axis=1) + b
    z = tl.where(known, z, float("-inf"))
    top = tl.max(z, axis=0)
    powers = tl.exp(z - top)
    total_power = tl.sum(powers, axis=0)
    mine = tl.sum(tl.where(c == label, z, 0), axis=0)
    loss = (top + tl.log(total_power) - mine) * weight
    tl.store(losses + tl.load(number) * n + bag, loss)
    fine = tl.abs(loss) < float("inf")
    tl.atomic_min(good, 0, mask=fine == 0, sem="relaxed")
    of_z = (powers / total_power - (c == label).to(ACC)) * (weight * scale)
    of_z = tl.where(known, tl.where(fine, of_z, 0), 0)
    x = tl.where(fine, x, 0)  # 0 times infinity is not 0
    sums += bag * (C * d + C)
    tl.store(sums + c[:, None] * d + cols[None, :], of_z[:, None] * x[None, :], mask=wide)
    tl.store(sums + C * d + c, of_z, mask=known)
    g = tl.sum(product(of_z[:, None], w), axis=0) * share
    tl.store(of_x + bag * d + cols, g, mask=cols < d)

    if slope is not None:
        if WHOLE:
            dots = tl.sum(product(e, g[None, :]), axis=1)
            tl.store(slope + t * k + i, tl.where(fine, dots, 0), mask=live)
        else:
            for first in range(begin, end, T):
                t = first + r // KP
                live, e, p = tokens_now(
                    t, i, end, cols, places, sizes, E, P, d, k, E_record, P_record, RULE, ACC
                )
                dots = tl.sum(product(e, g[None, :]), axis=1)
                tl.store(slope + t * k + i, tl.where(fine, dots, 0), mask=live)
