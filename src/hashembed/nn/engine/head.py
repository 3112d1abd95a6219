"""From a batch's vectors to the backward pass and all updates, without a word from the host."""

from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

from hashembed.nn.engine import batch_kernels as triton_batches
from hashembed.nn.gpu.rows import device_of

Model = Any  # a `DeepModel`; it is made of these steps

WIDEST = 255  # vectors that `softmax_head` takes
MOST_SLOPES = 1 << 14  # of an output layer, that each program of it adds up by itself
MOST_SUMS = 1 << 26  # of all programs


def learn(
    model: Model,
    vectors: Tensor,
    truth: Tensor,
    weights: Tensor,
    fine: Tensor,
    scale: float,
    note: Callable[[Tensor], None],
    small: "torch.cuda.Stream | None" = None,
) -> None:
    """A batch's vectors (n, D) -> the backward pass and all updates.

    `note` is told the losses (n,) before anything is changed. `small`: a stream, for the caller to
    wait for, that may be used for what lies above the vectors.
    """
    network = model.network
    if model.multilabel or network.hidden or vectors.shape[1] > WIDEST:
        logits = network.layers(vectors)
        logits.register_hook(lambda slopes: torch.where(fine != 0, slopes, 0))
        losses = model.losses(logits, truth) * weights
        note(losses.detach())
        vectors.register_hook(lambda slopes: torch.where(fine != 0, slopes, 0))  # type: ignore[no-untyped-call]
        (losses.sum() * scale).backward()
        for name, p in network.named_parameters():
            if not name.startswith("bag.") and p.grad is not None:  # 0 times infinity is not 0
                p.grad = torch.where(fine != 0, p.grad, 0)
        model.update(fine)
        return
    W, bias, x = network.output.weight, network.output.bias, vectors.detach()
    losses, of_x, finish = softmax_head(x, W.detach(), bias.detach(), truth, weights, scale)
    if small is None:
        note(losses)
        W.grad, bias.grad = finish()
        vectors.backward(of_x)  # type: ignore[no-untyped-call]
        model.update(fine)
        return
    small.wait_stream(torch.cuda.current_stream(x.device))
    with torch.cuda.stream(small):
        note(losses)
        W.grad, bias.grad = finish(small)
        model.update(fine)  # but for the tables
    vectors.backward(of_x)  # type: ignore[no-untyped-call]


def softmax_head(
    x: Tensor, W: Tensor, bias: Tensor, labels: Tensor, weights: Tensor, scale: float
) -> tuple[Tensor, Tensor, Callable[..., tuple[Tensor, Tensor]]]:
    """Cross entropy of x W' + bias for each document, its slopes for x, and a function.

    That gives the slopes for W and bias, on the present stream, which may be another one.
    """
    (n, d), C = x.shape, len(W)
    losses, of_x = x.new_empty(n), torch.empty_like(x)
    D = max(16, triton.next_power_of_2(d + 1))
    A = max(16, min(triton.next_power_of_2(C), 4096 // D))
    T = 16
    programs = triton.cdiv(n, T)
    wide = W.numel() > MOST_SLOPES or programs * W.numel() > MOST_SUMS
    slopes = x.new_empty(n, C) if wide else None
    sums = None if wide else x.new_empty(programs, W.numel() + C)
    with device_of(x):
        triton_batches.softmax_head[(programs,)](
            x, W, bias, labels, weights, losses, slopes, sums, of_x, n, C, scale, d=d, T=T, D=D, A=A
        )

    def finish(stream: "torch.cuda.Stream | None" = None) -> tuple[Tensor, Tensor]:
        for tensor in (x, losses, slopes, sums):
            if stream is not None and tensor is not None:
                tensor.record_stream(stream)
        if slopes is not None:
            sound = torch.where(losses.isfinite()[:, None], x, 0)
            return slopes.t() @ sound, slopes.sum(0)
        of_W, of_bias = sums.sum(0).split([W.numel(), C])  # type: ignore[union-attr]
        return of_W.view_as(W), of_bias

    return losses, of_x, finish
