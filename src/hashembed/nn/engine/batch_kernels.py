"""Triton kernels for the parts of a training step outside the layers: batch, loss, counters.

All counters are on the GPU, so that one CUDA graph of a step serves the whole training.
"""

import triton
import triton.language as tl

from hashembed.nn.gpu.kernels.layout import CURSOR_BATCH, CURSOR_CALL, CURSOR_SHIFT


@triton.jit(do_not_specialize=["first_step", "n"])
def assemble(
    starts,
    lengths,
    labels,
    weights,
    offsets,
    shifts,
    batch_labels,
    batch_weights,
    first_step,
    n,
    T: tl.constexpr,
):
    """Collect the n documents of each step from `first_step` on, one program for each step.

    -> offsets (n + 1,) of their keys in the batch, shifts (n,) from there to their positions among
    all keys, labels and weights.
    """
    step = tl.program_id(0).to(tl.int64)
    first = (first_step + step) * n
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
def begin(rates, step, finite, rate, MEMBERS: tl.constexpr):
    """Set the counters to the first step."""
    tl.store(step, tl.zeros([], tl.int64))
    for member in tl.static_range(MEMBERS):
        tl.store(finite + member, 1)
        tl.store(rate + member, tl.load(rates))


@triton.jit(do_not_specialize=["N", "n", "parts"])
def gather_keys(keys, offsets, shifts, out, token_bags, N, n, parts, T: tl.constexpr):
    """The keys of each batch (N,) and the documents they belong to (N,).

    There are `parts` programs for each document.
    """
    document, part = tl.program_id(0), tl.program_id(1)
    step = tl.program_id(2).to(tl.int64)
    offsets += step * (n + 1)
    out += step * N
    token_bags += step * N
    begin = tl.load(offsets + document)
    end = tl.minimum(tl.load(offsets + document + 1), N)
    shift = tl.load(shifts + step * n + document)
    for at in range(begin + part * T, end, parts * T):
        t = at + tl.arange(0, T)
        live = t < end
        tl.store(out + t, tl.load(keys + t + shift, mask=live, other=0), mask=live)
        tl.store(token_bags + t, tl.zeros([T], tl.int32) + document, mask=live)


@triton.jit
def columns(W, bias, c, cols, C, d: tl.constexpr):
    """The columns of W' for classes c (D, A), with the bias in row d."""
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
    logit_grads,
    layer_grads,
    x_grad,
    n,
    C,
    scale,
    d: tl.constexpr,
    T: tl.constexpr,
    D: tl.constexpr,
    A: tl.constexpr,
):
    """Cross entropy of x W' + bias, times each document's weight; its gradients, times `scale`.

    Writes losses (n,) and x_grad (n, d); logit_grads (n, C), or instead of them layer_grads, for
    each program the sums of the gradients of W and bias, C d + C numbers. The bias is treated as
    column d of W, where x is 1. A classes are taken at a time, twice. A loss that is not finite has
    no gradients.
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
    label_logit = tl.zeros([T], tl.float32)
    for first in range(0, C, A):
        c = first + tl.arange(0, A)
        z = tl.dot(vector, columns(W, bias, c, cols, C, d), input_precision="ieee")
        z = tl.where((c < C)[None, :], z, float("-inf"))
        higher = tl.maximum(top, tl.max(z, axis=1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(z - higher[:, None]), axis=1)
        top = higher
        label_logit += tl.sum(tl.where(c[None, :] == label[:, None], z, 0), axis=1)
    loss = (top + tl.log(total) - label_logit) * weight
    tl.store(losses + j, loss, mask=inside)
    counts = inside & (tl.abs(loss) < float("inf"))
    vector = tl.where(counts[:, None], vector, 0)  # 0 times infinity is not 0
    grad = tl.zeros([T, D], tl.float32)
    for first in range(0, C, A):
        c = first + tl.arange(0, A)
        column = columns(W, bias, c, cols, C, d)
        z = tl.dot(vector, column, input_precision="ieee")
        logit_grad = tl.exp(z - top[:, None]) / total[:, None]
        logit_grad -= (c[None, :] == label[:, None]).to(tl.float32)
        known = (c < C)[None, :]
        logit_grad = tl.where(counts[:, None] & known, logit_grad * (weight * scale)[:, None], 0)
        if logit_grads is not None:
            place = logit_grads + j[:, None] * C + c[None, :]
            tl.store(place, logit_grad, mask=inside[:, None] & known)
        grad += tl.dot(logit_grad, tl.trans(column), input_precision="ieee")
        if layer_grads is not None:
            total_W = tl.dot(tl.trans(logit_grad), vector, input_precision="ieee")
            place = layer_grads + tl.program_id(0).to(tl.int64) * (C * d + C)
            place += tl.where(cols == d, C * d + c[:, None], c[:, None] * d + cols[None, :])
            tl.store(place, total_W, mask=(c < C)[:, None] & (cols <= d)[None, :])
    grad = tl.where(counts[:, None], grad, 0)
    tl.store(x_grad + j[:, None] * d + cols[None, :], grad, mask=mask)


@triton.jit(do_not_specialize=["n", "size"])
def record_losses(losses, step, finite, rate, all_losses, n, size, T: tl.constexpr):
    """Copy the losses of a step (n,) to their place among all.

    If one of them is not finite, `finite` and the rate become 0 before any update reads them.
    """
    first = tl.load(step) * size
    all_finite = tl.load(finite)
    for begin in range(0, n, T):
        j = begin + tl.arange(0, T)
        loss = tl.load(losses + j, mask=j < n, other=0)
        tl.store(all_losses + first + j, loss, mask=j < n)
        all_finite = tl.minimum(
            all_finite, tl.min((tl.abs(loss) < float("inf")).to(tl.int32), axis=0)
        )
    tl.store(finite, all_finite)
    tl.store(rate, tl.load(rate) * all_finite.to(tl.float32))


@triton.jit(do_not_specialize=["batch", "shift"])
def set_cursor(cursor, batch, shift):
    """Point the cursor at the first batch of a group; see `nn/gpu/kernels/layout.py`."""
    tl.store(cursor + CURSOR_BATCH, tl.cast(batch, tl.int64))
    tl.store(cursor + CURSOR_SHIFT, tl.cast(shift, tl.int64))
    tl.store(cursor + CURSOR_CALL, tl.cast(0, tl.int64))


@triton.jit(do_not_specialize=["stride"])
def advance(rates, step, finite, rate, cursor, stride, MEMBERS: tl.constexpr):
    """Advance to the next step and the next batch. There is one rate more than steps."""
    number = tl.load(step) + 1
    tl.store(step, number)
    for member in tl.static_range(MEMBERS):
        is_finite = tl.load(finite + member) != 0
        tl.store(rate + member, tl.where(is_finite, tl.load(rates + number), 0.0))
    tl.store(cursor + CURSOR_BATCH, tl.load(cursor + CURSOR_BATCH) + 1)
    tl.store(cursor + CURSOR_SHIFT, tl.load(cursor + CURSOR_SHIFT) + stride)
    tl.store(cursor + CURSOR_CALL, tl.load(cursor + CURSOR_CALL) + 1)


@triton.jit(do_not_specialize=["calls", "buffer_size", "stride", "count"])
def copy_batch(cursor, source, out, calls, buffer_size, stride, count, T: tl.constexpr):
    """Copy what the present batch has in `source` to out (count,).

    `source` consists of two buffers of `buffer_size` numbers, for `calls` batches each. Batches lie
    `stride` apart.
    """
    x = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    buffer = tl.load(cursor + CURSOR_BATCH) // calls
    begin = buffer * buffer_size + tl.load(cursor + CURSOR_CALL) * stride
    tl.store(out + x, tl.load(source + begin + x, mask=x < count), mask=x < count)
