"""A step from the vectors of a batch on: layers, loss, backward pass, updates. Never waits."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from hashembed.nn.engine import batch_kernels as triton_batches
from hashembed.nn.engine.member import Member
from hashembed.nn.gpu.tiles import device_of

MAX_WIDTH = 255  # of vectors that the kernel `softmax_head` takes
MAX_LAYER_GRADS = 1 << 14  # numbers of an output layer's gradient that each program adds up
MAX_BATCH_GRADS = 1 << 26  # for all programs


class Targets(NamedTuple):
    """What the documents of a batch are trained on."""

    truth: Tensor  # classes (n,), or which document has which (n, classes)
    weights: Tensor  # (n,)
    scale: float  # factor of all gradients
    finite: Tensor  # (): 0 when a loss was not finite; then nothing may be updated


def learn(
    model: Member,
    vectors: Tensor,
    targets: Targets,
    record: Callable[[Tensor], None],
    layer_stream: torch.cuda.Stream | None = None,
) -> None:
    """Vectors (n, D) of a batch -> the backward pass and all updates.

    `record` gets the losses (n,) before anything is changed. The layers above the vectors may be
    updated on `layer_stream`; the caller waits for it.
    """
    network = model.network
    if model.multilabel or network.hidden or vectors.shape[1] > MAX_WIDTH:
        _learn_by_autograd(model, vectors, targets, record)
        return
    W, bias, x = network.output.weight, network.output.bias, vectors.detach()
    losses, x_grad, finish = softmax_head(
        x, W.detach(), bias.detach(), targets.truth, targets.weights, targets.scale
    )
    if layer_stream is None:
        record(losses)
        W.grad, bias.grad = finish()
        vectors.backward(x_grad)  # type: ignore[no-untyped-call]
        model.update(targets.finite)
        return
    layer_stream.wait_stream(torch.cuda.current_stream(x.device))
    with torch.cuda.stream(layer_stream):
        record(losses)
        W.grad, bias.grad = finish(layer_stream)
        model.update(targets.finite)  # the layers; the backward pass updates the tables
    vectors.backward(x_grad)  # type: ignore[no-untyped-call]


def _learn_by_autograd(
    model: Member, vectors: Tensor, targets: Targets, record: Callable[[Tensor], None]
) -> None:
    """Any layers above the vectors. Gradients are replaced by 0, since 0 times infinity is not."""
    finite = targets.finite
    logits = model.network.layers(vectors)
    logits.register_hook(lambda grad: torch.where(finite != 0, grad, 0))  # type: ignore[no-untyped-call]
    losses = model.losses(logits, targets.truth) * targets.weights
    record(losses.detach())
    vectors.register_hook(lambda grad: torch.where(finite != 0, grad, 0))  # type: ignore[no-untyped-call]
    (losses.sum() * targets.scale).backward()  # type: ignore[no-untyped-call]
    for name, p in model.network.named_parameters():
        if not name.startswith("bag.") and p.grad is not None:
            p.grad = torch.where(finite != 0, p.grad, 0)
    model.update(finite)


def softmax_head(
    x: Tensor, W: Tensor, bias: Tensor, labels: Tensor, weights: Tensor, scale: float
) -> tuple[Tensor, Tensor, Callable[..., tuple[Tensor, Tensor]]]:
    """Cross entropy of x W' + bias for each document, the gradient of x, and a function.

    The function gives the gradients of W and bias, computed on the stream that is then current.
    """
    (n, d), C = x.shape, len(W)
    losses, x_grad = x.new_empty(n), torch.empty_like(x)
    D = max(16, triton.next_power_of_2(d + 1))
    A = max(16, min(triton.next_power_of_2(C), 4096 // D))
    T = 16
    programs = triton.cdiv(n, T)
    wide = W.numel() > MAX_LAYER_GRADS or programs * W.numel() > MAX_BATCH_GRADS
    logit_grads = x.new_empty(n, C) if wide else None
    layer_grads = None if wide else x.new_empty(programs, W.numel() + C)
    with device_of(x):
        triton_batches.softmax_head[(programs,)](
            *(x, W, bias, labels, weights),
            *(losses, logit_grads, layer_grads, x_grad),
            *(n, C, scale),
            d=d,
            T=T,
            D=D,
            A=A,
        )

    def finish(stream: torch.cuda.Stream | None = None) -> tuple[Tensor, Tensor]:
        for tensor in (x, losses, logit_grads, layer_grads):
            if stream is not None and tensor is not None:
                tensor.record_stream(stream)
        if logit_grads is not None:
            finite_x = torch.where(losses.isfinite()[:, None], x, 0)
            return logit_grads.t() @ finite_x, logit_grads.sum(0)
        W_grad, bias_grad = layer_grads.sum(0).split([W.numel(), C])  # type: ignore[union-attr]
        return W_grad.view_as(W), bias_grad

    return losses, x_grad, finish
