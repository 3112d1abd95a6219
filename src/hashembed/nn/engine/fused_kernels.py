"""A Triton kernel for a whole step of the shallow model, except the updates of rows.

One program handles one document: bag, output layer, cross entropy and all gradients. It reads each
row once. If a row has pending updates under Adam, the program computes its current value (`RowAdam`
has the formula) but does not store it: the update of the row applies them later.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from hashembed.nn.gpu.kernels.layout import (
    ADAM,
    CURSOR_BATCH,
    CURSOR_CALL,
    HISTORY_EPS,
    HISTORY_TAIL,
    RING,
    RuleTensors,
    stamp_offset,
)
from hashembed.nn.gpu.kernels.optimizer_rules import product
from hashembed.nn.gpu.kernels.terms import batch_shift


class TokenRows(NamedTuple):
    """Which rows the tokens of a batch read, and what is added to the numbers of these rows."""

    of_E: Tensor  # (k, N)
    of_P: Tensor | None  # (N,)
    E_base: Tensor
    P_base: Tensor
    N: int
    B: int


@triton.jit
def stamps_of(row, live, rule, d: tl.constexpr, record: tl.constexpr):
    """The step of the last update of rows (R,), and which of them are behind; see `RowAdam`."""
    then = tl.load(rule.stamps + row * record + stamp_offset(ADAM, d), mask=live, other=0)
    # A row that was never touched does not move.
    return then, live & (then > 0) & (then < tl.load(rule.step))


@triton.jit
def tails_of(then, behind, rule, ACC: tl.constexpr):
    """How far momentum has carried rows that are behind, and the epsilon that goes with it."""
    place = rule.history + then % RING
    tail = tl.load(place + HISTORY_TAIL, mask=behind, other=0).to(ACC)
    return tail, tl.load(place + HISTORY_EPS, mask=behind, other=1).to(ACC)


@triton.jit
def read_tokens(
    t,
    i,
    end,
    cols,
    rows,
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

    Loads that depend on the same value are issued together, as early as possible.
    """
    live = (t < end) & (i < k)
    bucket = tl.load(rows.of_E + tl.cast(rows.N, tl.int64) * i + t, mask=live, other=0).to(tl.int64)
    row = bucket
    if rows.of_P is not None:
        row = tl.load(rows.of_P + t, mask=live, other=0).to(tl.int64) - rows.P_base
    bucket -= rows.E_base
    live &= bucket < rows.B
    mask = live[:, None] & (cols < d)[None, :]
    if RULE == ADAM:
        E_then, E_behind = stamps_of(bucket, live, E, d, E_record)
        if rows.of_P is not None:
            P_then, P_behind = stamps_of(row, live, P, k, P_record)
    e = tl.load(E.table + bucket[:, None] * d + cols[None, :], mask=mask, other=0).to(ACC)
    p = live.to(ACC)
    if rows.of_P is not None:
        p = tl.load(P.table + row * k + i, mask=live, other=0).to(ACC)
    if RULE == ADAM:
        if rows.of_P is not None:
            P_tail, P_eps = tails_of(P_then, P_behind, P, ACC)
            P_place = P.state + row * P_record + i
            P_m = tl.load(P_place, mask=P_behind, other=0)
            P_v = tl.load(P_place + k, mask=P_behind, other=0)
        E_tail, E_eps = tails_of(E_then, E_behind, E, ACC)
        E_place = E.state + bucket[:, None] * E_record + cols[None, :]
        E_mask = E_behind[:, None] & (cols < d)[None, :]
        E_m = tl.load(E_place, mask=E_mask, other=0)
        E_v = tl.load(E_place + d, mask=E_mask, other=0)
        if rows.of_P is not None:
            p -= P_tail * P_m / (tl.sqrt(P_v) + P_eps)
        e -= E_tail[:, None] * E_m / (tl.sqrt(E_v) + E_eps[:, None])
    return live, e, p


@triton.jit(do_not_specialize=["n", "N", "B", "base", "span", "C", "scale"])
def learn_bags(
    # Which prepared batch.
    cursor,
    # Its documents.
    offsets,
    labels,
    weights,
    # Rows of their tokens.
    E_rows,
    P_rows,
    # Output layer.
    W,
    bias,
    # Record of losses.
    step_number,
    losses,
    finite,
    # Gradients.
    layer_grads,
    x_grad,
    factors,
    P_terms,
    # Rule of E, as `RuleTensors`.
    E_table,
    E_state,
    E_stamps,
    E_numbers,
    E_history,
    E_step,
    # Rule of P.
    P_table,
    P_state,
    P_stamps,
    P_numbers,
    P_history,
    P_step,
    # Sizes: documents, tokens, rows of E.
    n,
    N,
    B,
    base,
    span,
    # Classes, factors of gradients and of bags.
    C,
    scale,
    bag_scale,
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
    """One document: its loss, and the gradients, times `scale`, of all it was computed from.

    Reads: E_rows (k, N), P_rows (N,): the rows of tokens. Rows of P have `base` added, and those of
    call c in a group of batches c * span. x is the sum of the tokens' vectors times `bag_scale`, or
    with MEAN their mean.

    Writes: losses (n,), behind those of the `step_number` steps before; layer_grads (n, C d + C):
    the gradients of W, then of bias; x_grad (n, d): the gradient of x, as the rows get it; factors
    (k, N): the importance of tokens; P_terms (N, k): the gradient of the importance. A loss that is
    not finite has no gradients, and sets `finite` to 0.

    WHOLE: no document has more than T tokens. Otherwise T are taken at a time, twice.
    """
    bag = tl.program_id(0).to(tl.int64)
    shift = batch_shift(cursor)
    call_base = tl.zeros([], tl.int64)
    if cursor is not None:
        call_base += tl.load(cursor + CURSOR_CALL) * span
        at = tl.load(cursor + CURSOR_BATCH)
        offsets += at * (n + 1)
        labels += at * n
        weights += at * n
    cols = tl.arange(0, D)
    r = tl.arange(0, T * KP)
    i = r % KP
    E = RuleTensors(E_table, E_state, E_stamps, E_numbers, E_history, E_step)
    P = RuleTensors(P_table, P_state, P_stamps, P_numbers, P_history, P_step)
    E_rows += shift
    if P_rows is not None:
        P_rows += shift
    rows = TokenRows(E_rows, P_rows, call_base, base + call_base, N, B)
    begin = tl.load(offsets + bag)
    end = tl.minimum(tl.load(offsets + bag + 1), N)
    # Loads that depend on nothing are issued before those of the tokens.
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
        live, e, p = read_tokens(t, i, end, cols, rows, E, P, d, k, E_record, P_record, RULE, ACC)
        if factors is not None:
            tl.store(factors + tl.cast(N, tl.int64) * i + t, p, mask=live)
        x = tl.sum(product(p[:, None], e), axis=0)
        count = tl.sum((live & (i == 0)).to(tl.int32), axis=0)
    else:
        total = tl.zeros([T * KP, D], ACC)
        for first in range(begin, end, T):
            t = first + r // KP
            live, e, p = read_tokens(
                t, i, end, cols, rows, E, P, d, k, E_record, P_record, RULE, ACC
            )
            if factors is not None:
                tl.store(factors + tl.cast(N, tl.int64) * i + t, p, mask=live)
            total += p[:, None] * e
            count += tl.sum((live & (i == 0)).to(tl.int32), axis=0)
        x = tl.sum(total, axis=0)
    if MEAN:
        bag_scale = 1.0 / tl.maximum(count, 1).to(ACC)
    x *= bag_scale

    z = tl.sum(product(w, x[None, :]), axis=1) + b
    z = tl.where(known, z, float("-inf"))
    top = tl.max(z, axis=0)
    powers = tl.exp(z - top)
    total_power = tl.sum(powers, axis=0)
    label_logit = tl.sum(tl.where(c == label, z, 0), axis=0)
    loss = (top + tl.log(total_power) - label_logit) * weight
    tl.store(losses + tl.load(step_number) * n + bag, loss)
    is_finite = tl.abs(loss) < float("inf")
    tl.atomic_min(finite, 0, mask=is_finite == 0, sem="relaxed")
    z_grad = (powers / total_power - (c == label).to(ACC)) * (weight * scale)
    z_grad = tl.where(known, tl.where(is_finite, z_grad, 0), 0)
    x = tl.where(is_finite, x, 0)  # 0 times infinity is not 0
    layer_grads += bag * (C * d + C)
    tl.store(layer_grads + c[:, None] * d + cols[None, :], z_grad[:, None] * x[None, :], mask=wide)
    tl.store(layer_grads + C * d + c, z_grad, mask=known)
    g = tl.sum(product(z_grad[:, None], w), axis=0) * bag_scale
    tl.store(x_grad + bag * d + cols, g, mask=cols < d)

    if P_terms is not None:
        if WHOLE:
            dots = tl.sum(product(e, g[None, :]), axis=1)
            tl.store(P_terms + t * k + i, tl.where(is_finite, dots, 0), mask=live)
        else:
            for first in range(begin, end, T):
                t = first + r // KP
                live, e, p = read_tokens(
                    t, i, end, cols, rows, E, P, d, k, E_record, P_record, RULE, ACC
                )
                dots = tl.sum(product(e, g[None, :]), axis=1)
                tl.store(P_terms + t * k + i, tl.where(is_finite, dots, 0), mask=live)
