"""Triton kernels around the layers of a training step: its batch, its loss, what is noted of it.

The host has no part in them: which step it is stands in `step`, on the GPU, so that a CUDA graph of
one step is all that training needs.
"""

import triton
import triton.language as tl

from hashembed.nn.gpu.kernels.terms import AT, CALL, SHIFT


@triton.jit(do_not_specialize=["number", "n"])
def assemble(
    starts,
    lengths,
    labels,
    weights,
    offsets,
    shifts,
    batch_labels,
    batch_weights,
    number,
    n,
    T: tl.constexpr,
):
    """The n documents of each of the steps from `number` on, of which every step has n.

    -> offsets (n + 1,) of their keys, shifts (n,) from there to their places among all keys, their
    labels and weights.
    """
    step = tl.program_id(0).to(tl.int64)
    first = (number + step) * n
    offsets += step * (n + 1)
    shifts += step * n
    batch_labels += step * n
    batch_weights += step * n
    total = tl.zeros([], tl.int64)
    tl.store(offsets, total)
    for begin in range(0, n, T):
        j = begin + tl.arange(0, T)
        inside = j < n
        length = tl.load(lengths + first + j, mask=inside, other=0)
        end = total + tl.cumsum(length, axis=0)
        tl.store(offsets + 1 + j, end, mask=inside)
        start = tl.load(starts + first + j, mask=inside, other=0)
        tl.store(shifts + j, start - (end - length), mask=inside)
        if labels is not None:
            tl.store(batch_labels + j, tl.load(labels + first + j, mask=inside), mask=inside)
        tl.store(batch_weights + j, tl.load(weights + first + j, mask=inside), mask=inside)
        total += tl.sum(length, axis=0)


@triton.jit
def begin(rates, step, fine, rate, MEMBERS: tl.constexpr):
    """The first step."""
    tl.store(step, tl.zeros([], tl.int64))
    for member in tl.static_range(MEMBERS):
        tl.store(fine + member, 1)
        tl.store(rate + member, tl.load(rates))


@triton.jit(do_not_specialize=["N", "n", "parts"])
def gather_keys(keys, offsets, shifts, out, owners, N, n, parts, T: tl.constexpr):
    """The keys of each batch (N,), and whose they are (N,); `parts` programs for each document."""
    document, part = tl.program_id(0), tl.program_id(1)
    step = tl.program_id(2).to(tl.int64)
    offsets += step * (n + 1)
    out += step * N
    owners += step * N
    begin = tl.load(offsets + document)
    end = tl.minimum(tl.load(offsets + document + 1), N)
    shift = tl.load(shifts + step * n + document)
    for at in range(begin + part * T, end, parts * T):
        t = at + tl.arange(0, T)
        live = t < end
        tl.store(out + t, tl.load(keys + t + shift, mask=live, other=0), mask=live)
        tl.store(owners + t, tl.zeros([T], tl.int32) + document, mask=live)


@triton.jit
def columns(W, bias, c, cols, C, d: tl.constexpr):
    """W' of classes c (D, A), and the bias in row d."""
    known = (c < C)[None, :]
    of_W = tl.load(W + c[None, :] * d + cols[:, None], mask=known & (cols < d)[:, None], other=0)
    of_bias = tl.load(
        bias + c[None, :] + cols[:, None] * 0, mask=known & (cols == d)[:, None], other=0
    )
    return of_W + of_bias


@triton.jit(do_not_specialize=["n", "C", "scale"])
def softmax_head(
    x,
    W,
    bias,
    labels,
    weights,
    losses,
    slopes,
    sums,
    of_x,
    n,
    C,
    scale,
    d: tl.constexpr,
    T: tl.constexpr,
    D: tl.constexpr,
    A: tl.constexpr,
):
    """Cross entropy of x W' + bias, times each document's weight, and its slopes, times `scale`.

    losses (n,), slopes of x (n, d), and of the logits (n, C); or, instead, for each program the
    sums of slopes of W and bias, C d + C numbers. The bias is column d of W, where x is 1. A
    classes are taken at a time, twice. A loss that is not finite has no slopes.
    """
    j = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    cols = tl.arange(0, D)
    inside = j < n
    mask = inside[:, None] & (cols < d)[None, :]
    vector = tl.load(x + j[:, None] * d + cols[None, :], mask=mask, other=0)
    vector = tl.where((cols == d)[None, :], 1.0, vector)
    label = tl.load(labels + j, mask=inside, other=0)
    weight = tl.load(weights + j, mask=inside, other=0)
    top = tl.full([T], float("-inf"), tl.float32)
    total = tl.zeros([T], tl.float32)
    mine = tl.zeros([T], tl.float32)
    for first in range(0, C, A):
        c = first + tl.arange(0, A)
        z = tl.dot(vector, columns(W, bias, c, cols, C, d), input_precision="ieee")
        z = tl.where((c < C)[None, :], z, float("-inf"))
        higher = tl.maximum(top, tl.max(z, axis=1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(z - higher[:, None]), axis=1)
        top = higher
        mine += tl.sum(tl.where(c[None, :] == label[:, None], z, 0), axis=1)
    loss = (top + tl.log(total) - mine) * weight
    tl.store(losses + j, loss, mask=inside)
    counts = inside & (tl.abs(loss) < float("inf"))
    vector = tl.where(counts[:, None], vector, 0)  # 0 times infinity is not 0
    gradient = tl.zeros([T, D], tl.float32)
    for first in range(0, C, A):
        c = first + tl.arange(0, A)
        column = columns(W, bias, c, cols, C, d)
        z = tl.dot(vector, column, input_precision="ieee")
        slope = tl.exp(z - top[:, None]) / total[:, None]
        slope -= (c[None, :] == label[:, None]).to(tl.float32)
        known = (c < C)[None, :]
        slope = tl.where(counts[:, None] & known, slope * (weight * scale)[:, None], 0)
        if slopes is not None:
            place = slopes + j[:, None] * C + c[None, :]
            tl.store(place, slope, mask=inside[:, None] & known)
        gradient += tl.dot(slope, tl.trans(column), input_precision="ieee")
        if sums is not None:
            total_W = tl.dot(tl.trans(slope), vector, input_precision="ieee")
            place = sums + tl.program_id(0).to(tl.int64) * (C * d + C)
            place += tl.where(cols == d, C * d + c[:, None], c[:, None] * d + cols[None, :])
            tl.store(place, total_W, mask=(c < C)[:, None] & (cols <= d)[None, :])
    gradient = tl.where(counts[:, None], gradient, 0)
    tl.store(of_x + j[:, None] * d + cols[None, :], gradient, mask=mask)


@triton.jit(do_not_specialize=["n", "size"])
def note(losses, step, fine, rate, all_losses, n, size, T: tl.constexpr):
    """The losses of a step (n,) -> their place among all.

    If one is not finite, `fine` and the rate become 0, before they are used.
    """
    first = tl.load(step) * size
    good = tl.load(fine)
    for begin in range(0, n, T):
        j = begin + tl.arange(0, T)
        loss = tl.load(losses + j, mask=j < n, other=0)
        tl.store(all_losses + first + j, loss, mask=j < n)
        good = tl.minimum(good, tl.min((tl.abs(loss) < float("inf")).to(tl.int32), axis=0))
    tl.store(fine, good)
    tl.store(rate, tl.load(rate) * good.to(tl.float32))


@triton.jit(do_not_specialize=["at", "shift"])
def take_turns(turn, at, shift):
    """The batches from the one at this place on have their turn; see `nn/gpu/kernels/terms.py`."""
    tl.store(turn + AT, tl.cast(at, tl.int64))
    tl.store(turn + SHIFT, tl.cast(shift, tl.int64))
    tl.store(turn + CALL, tl.cast(0, tl.int64))


@triton.jit(do_not_specialize=["stride"])
def advance(rates, step, fine, rate, turn, stride, MEMBERS: tl.constexpr):
    """The next step, and the next turn. There is a rate behind the last."""
    number = tl.load(step) + 1
    tl.store(step, number)
    for member in tl.static_range(MEMBERS):
        good = tl.load(fine + member) != 0
        tl.store(rate + member, tl.where(good, tl.load(rates + number), 0.0))
    tl.store(turn + AT, tl.load(turn + AT) + 1)
    tl.store(turn + SHIFT, tl.load(turn + SHIFT) + stride)
    tl.store(turn + CALL, tl.load(turn + CALL) + 1)


@triton.jit(do_not_specialize=["calls", "half", "stride", "count"])
def take(turn, source, out, calls, half, stride, count, T: tl.constexpr):
    """out (count,): what the batch whose turn it is has in `source`.

    There the two halves of `calls` batches lie `half` apart, and the batches `stride`.
    """
    x = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    begin = tl.load(turn + AT) // calls * half + tl.load(turn + CALL) * stride
    tl.store(out + x, tl.load(source + begin + x, mask=x < count), mask=x < count)
