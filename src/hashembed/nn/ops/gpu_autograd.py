"""The Triton kernels as PyTorch operators, and as functions of autograd.

`hashembed::key_bag` and `hashembed::key_bag_backward` are for compiled graphs. `KeyBag` is for
eager mode: its gradients may hold only the rows that the batch touched, or update them at once.
"""

from typing import Any

import torch
from torch import Tensor

from hashembed.nn.cpu.launch import Gradient
from hashembed.nn.gpu import launch as cuda
from hashembed.nn.gpu.call import Call
from hashembed.nn.gpu.places import Places


@torch.library.custom_op("hashembed::key_bag", mutates_args=())
def key_bag(
    weight: Tensor,
    importance: Tensor | None,
    keys: Tensor,
    seeds: Tensor,
    offsets: Tensor | None,
    keep: Tensor | None,
    weights: Tensor | None,
    num_embeddings: int,
    indexing: int,
    mix: bool,
    mean: bool,
    concat: bool,
    append: bool,
) -> Tensor:
    """The fields of `Call` -> sums or means of hash vectors (n, D)."""
    tensors = (weight, importance, keys, seeds, offsets, keep, weights)
    return cuda.forward(Call(*tensors, num_embeddings, indexing, mix, mean, concat, append))


@key_bag.register_fake
def _key_bag_shape(*fields: Any) -> Tensor:
    call = Call(*fields)
    return call.weight.new_empty((call.num_bags, call.width))


@torch.library.custom_op("hashembed::key_bag_backward", mutates_args=())
def key_bag_backward(
    grad: Tensor,
    want_weight: bool,
    want_importance: bool,
    want_weights: bool,
    weight: Tensor,
    importance: Tensor | None,
    keys: Tensor,
    seeds: Tensor,
    offsets: Tensor | None,
    keep: Tensor | None,
    weights: Tensor | None,
    num_embeddings: int,
    indexing: int,
    mix: bool,
    mean: bool,
    concat: bool,
    append: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Dense gradients of weight, importance and weights; nothing (0,) where not wanted."""
    tensors = (weight, importance, keys, seeds, offsets, keep, weights)
    call = Call(*tensors, num_embeddings, indexing, mix, mean, concat, append)
    E_sink = cuda.dense(weight) if want_weight else None
    P_sink = cuda.dense(importance) if want_importance and importance is not None else None
    of_E, of_P, of_weights = cuda.backward(call, grad, (E_sink, P_sink), want_weights)
    return (
        grad.new_empty(0) if of_E is None else of_E.values,
        grad.new_empty(0) if of_P is None else of_P.values,
        grad.new_empty(0) if of_weights is None else of_weights,
    )


@key_bag_backward.register_fake
def _key_bag_backward_shapes(
    grad: Tensor, want_weight: bool, want_importance: bool, want_weights: bool, *fields: Any
) -> tuple[Tensor, Tensor, Tensor]:
    call = Call(*fields)
    pairs = (
        (want_weight, call.weight),
        (want_importance, call.importance),
        (want_weights, call.weights),
    )
    of_E, of_P, of_weights = (
        torch.empty_like(like) if want and like is not None else grad.new_empty(0)
        for want, like in pairs
    )
    return of_E, of_P, of_weights


_TENSORS = 7  # of the fields of Call, those before the numbers
_REST = (None,) * 6  # gradients of the numbers


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor | None = None) -> None:
    ctx.save_for_backward(*inputs[:_TENSORS])
    ctx.rest = inputs[_TENSORS:]


def _wanted(needs: tuple[bool, ...]) -> tuple[bool, bool, bool]:
    return needs[0], needs[1], needs[_TENSORS - 1]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    wanted = _wanted(ctx.needs_input_grad)
    found = key_bag_backward(grad, *wanted, *ctx.saved_tensors, *ctx.rest)
    of_E, of_P, of_weights = (g if want else None for g, want in zip(found, wanted, strict=True))
    return of_E, of_P, None, None, None, None, of_weights, *_REST


def _no_second_derivative(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError(
        "hash embeddings on the GPU have no second derivatives; "
        "hashembed.nn.ops.reference computes the same in plain PyTorch and has"
    )


key_bag.register_autograd(_backward, setup_context=_save)
key_bag_backward.register_autograd(_no_second_derivative)


Sinks = tuple[cuda.Sink | None, cuda.Sink | None]


class KeyBag(torch.autograd.Function):
    """`key_bag` with gradients of any kind."""

    @staticmethod
    def forward(ctx: Any, sinks: Sinks, places: Places | None, *fields: Any) -> Tensor:
        """Where E's and P's gradients go, where tokens point if known, the fields of `Call`."""
        ctx.sinks, ctx.places, ctx.factors = sinks, places, None
        _save(ctx, fields)
        call = Call(*fields)
        if places is not None and places.side_stream is not None:
            ctx.factors = cuda.make_factors(call)
        return cuda.forward(call, ctx.factors)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """A gradient for each table that is to have one."""
        call = Call(*_saved(ctx), *ctx.rest)
        *tables, want_weights = _wanted(ctx.needs_input_grad[2:])
        sinks = ctx.sinks[0] if tables[0] else None, ctx.sinks[1] if tables[1] else None
        places = ctx.places if all(tables[: 1 + (call.importance is not None)]) else None
        factors = ctx.factors
        of_E, of_P, of_weights = cuda.backward(call, grad, sinks, want_weights, places, factors)
        gradients = _tensor(of_E, call.weight), _tensor(of_P, call.importance)
        return None, None, *gradients, None, None, None, None, of_weights, *_REST


def _saved(ctx: Any) -> Any:
    try:
        return ctx.saved_tensors
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        raise RuntimeError(
            "the tables of a hash layer were modified by an inplace operation between its forward "
            "and this backward pass. A row optimizer with in_backward=True does that in every "
            "backward pass: add all losses up and call backward() once, or use in_backward=False"
        ) from error


def _tensor(gradient: Gradient | None, table: Tensor | None) -> Tensor | None:
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
