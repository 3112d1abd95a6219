"""The CPU kernels as PyTorch operators.

`hashembed::locate`, `hashembed::bag` and `hashembed::bag_backward` have dense gradients, and
PyTorch can trace, compile and differentiate them (once) without looking inside. `CompactBag` is for
eager mode: its gradients hold only the rows that the batch touched.
"""

from typing import Any

import torch
from torch import Tensor

from hashembed.nn.cpu import launch as cpu
from hashembed.nn.cpu.launch import Bags


@torch.library.custom_op("hashembed::locate", mutates_args=())
def locate(
    keys: Tensor, seeds: Tensor, num_embeddings: int, num_buckets: int, indexing: int
) -> tuple[Tensor, Tensor]:
    """keys (N,) -> rows (N,), buckets (N, k)."""
    return cpu.locate(keys, seeds, num_embeddings, num_buckets, indexing)


@locate.register_fake
def _locate_shapes(keys: Tensor, seeds: Tensor, *_: int) -> tuple[Tensor, Tensor]:
    return torch.empty_like(keys), keys.new_empty((keys.shape[0], seeds.shape[0] - 1))


@torch.library.custom_op("hashembed::bag", mutates_args=())
def bag(
    weight: Tensor,
    importance: Tensor | None,
    rows: Tensor,
    buckets: Tensor,
    offsets: Tensor | None,
    keep: Tensor | None,
    weights: Tensor | None,
    mean: bool,
    concat: bool,
    append: bool,
) -> Tensor:
    """The fields of `Bags` -> sums or means of hash vectors (n, D)."""
    return cpu.forward(
        Bags(weight, importance, rows, buckets, offsets, keep, weights, mean, concat, append)
    )


@bag.register_fake
def _bag_shape(*fields: Any) -> Tensor:
    bags = Bags(*fields)
    return bags.weight.new_empty((bags.num_bags, bags.width))


@torch.library.custom_op("hashembed::bag_backward", mutates_args=())
def bag_backward(
    grad: Tensor,
    want_weight: bool,
    want_importance: bool,
    want_weights: bool,
    weight: Tensor,
    importance: Tensor | None,
    rows: Tensor,
    buckets: Tensor,
    offsets: Tensor | None,
    keep: Tensor | None,
    weights: Tensor | None,
    mean: bool,
    concat: bool,
    append: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Dense gradients of weight, importance and weights; nothing (0,) where not wanted."""
    bags = Bags(weight, importance, rows, buckets, offsets, keep, weights, mean, concat, append)
    wanted = (want_weight, want_importance, want_weights)
    of_E, of_P, of_weights = cpu.backward(bags, grad, wanted, (False, False))
    return (
        grad.new_empty(0) if of_E is None else of_E.values,
        grad.new_empty(0) if of_P is None else of_P.values,
        grad.new_empty(0) if of_weights is None else of_weights,
    )


@bag_backward.register_fake
def _bag_backward_shapes(
    grad: Tensor, want_weight: bool, want_importance: bool, want_weights: bool, *fields: Any
) -> tuple[Tensor, Tensor, Tensor]:
    bags = Bags(*fields)
    pairs = (
        (want_weight, bags.weight),
        (want_importance, bags.importance),
        (want_weights, bags.weights),
    )
    of_E, of_P, of_weights = (
        torch.empty_like(like) if want and like is not None else grad.new_empty(0)
        for want, like in pairs
    )
    return of_E, of_P, of_weights


_TENSORS = 7  # of the fields of Bags, those before the flags


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor | None = None) -> None:
    ctx.save_for_backward(*inputs[:_TENSORS])
    ctx.flags = inputs[_TENSORS:]


def _wanted(needs: tuple[bool, ...]) -> tuple[bool, bool, bool]:
    return needs[0], needs[1], needs[_TENSORS - 1]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    wanted = _wanted(ctx.needs_input_grad)
    found = bag_backward(grad, *wanted, *ctx.saved_tensors, *ctx.flags)
    of_E, of_P, of_weights = (g if want else None for g, want in zip(found, wanted, strict=True))
    return of_E, of_P, None, None, None, None, of_weights, None, None, None


def _no_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "hash embeddings on the CPU have no second derivatives; "
        "hashembed.nn.ops.reference computes the same in plain PyTorch and has"
    )


bag.register_autograd(_backward, setup_context=_save)
bag_backward.register_autograd(_no_second_derivative)


class CompactBag(torch.autograd.Function):
    """`bag`, with gradients that may be sparse tensors: touched rows, in order, each once."""

    @staticmethod
    def forward(ctx: Any, compact: tuple[bool, bool], *fields: Any) -> Tensor:
        """Which of E and P have sparse gradients, and the fields of `Bags` -> (n, D)."""
        ctx.compact = compact
        _save(ctx, fields)
        return cpu.forward(Bags(*fields))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Dense for the per-sample weights, and as asked for the tables."""
        bags = Bags(*ctx.saved_tensors, *ctx.flags)
        wanted = _wanted(ctx.needs_input_grad[1:])
        of_E, of_P, of_weights = cpu.backward(bags, grad, wanted, ctx.compact)
        return (
            None,
            _sparse(of_E, bags.weight),
            _sparse(of_P, bags.importance),
            *(None,) * 4,
            of_weights,
            *(None,) * 3,
        )


def _sparse(gradient: cpu.Gradient | None, table: Tensor | None) -> Tensor | None:
    if gradient is None or table is None:
        return None
    if gradient.rows is None:
        return gradient.values
    return torch.sparse_coo_tensor(
        gradient.rows.unsqueeze(0),
        gradient.values,
        table.shape,
        is_coalesced=True,
        check_invariants=False,
    )
