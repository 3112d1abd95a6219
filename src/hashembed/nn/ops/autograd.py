"""Autograd for the kernels of the layers, the same for every device.

The kernels of a device are a `Pass`: they compute the output of a call, and the gradients of its
tables. Autograd reaches them in two ways.

- `make_operator` registers a pass as operators of PyTorch with dense gradients, which PyTorch can
  trace, compile and differentiate (once) without looking inside.
- `Bag` is for eager mode. Its gradients may be sparse, and a pass may update tables at once.

A call is a NamedTuple: seven tensors (the tables, what the tokens point to, the options), then
numbers. Operators take its fields one by one, because PyTorch traces no other arguments.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar, get_type_hints

import torch
from torch import Tensor

from hashembed.nn.cpu.launch import Gradient, Gradients, Wanted
from hashembed.nn.ops.sparse import sparse_rows

_TENSORS = 7  # fields of a call that are tensors: all before the numbers
_WEIGHTS = _TENSORS - 1  # the place of the per-sample weights; the tables are the first two
_SCHEMA_TYPES = {Tensor: "Tensor", Tensor | None: "Tensor?", int: "SymInt", bool: "bool"}


class Call(Protocol):
    """What autograd needs to know about the call of a device."""

    @property
    def weight(self) -> Tensor:
        """E (B, d)."""

    @property
    def importance(self) -> Tensor | None:
        """P (K, k)."""

    @property
    def weights(self) -> Tensor | None:
        """The per-sample weights (N,)."""

    @property
    def num_bags(self) -> int:
        """Rows of the output."""

    @property
    def width(self) -> int:
        """Columns of the output."""

    def __iter__(self) -> Iterator[Any]:
        """The fields."""


C = TypeVar("C", bound=Call)
C_contra = TypeVar("C_contra", bound=Call, contravariant=True)


class Pass(Protocol[C_contra]):
    """The forward and the backward pass of one kind of call on one device."""

    def forward(self, call: C_contra) -> Tensor:
        """Sums or means of hash vectors (n, D)."""

    def backward(self, call: C_contra, grad: Tensor, wanted: Wanted) -> Gradients:
        """The gradients that are wanted; None for a table that was updated at once."""


class _Context(Protocol):
    """What PyTorch keeps from the forward to the backward pass, and what we add."""

    saved_tensors: tuple[Tensor | None, ...]
    needs_input_grad: tuple[bool, ...]
    numbers: tuple[int, ...]
    kernels: Pass[Any]
    make_call: Callable[..., Any]

    def save_for_backward(self, *tensors: Tensor | None) -> None: ...


def _save(ctx: _Context, inputs: tuple[Any, ...], output: Tensor | None = None) -> None:
    ctx.save_for_backward(*inputs[:_TENSORS])
    ctx.numbers = inputs[_TENSORS:]


def _wanted(needs: tuple[bool, ...]) -> Wanted:
    return Wanted(needs[0], needs[1], needs[_WEIGHTS])


def _by_field(ctx: _Context, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    """Gradients of E, P and the per-sample weights -> one for each field of the call."""
    E_grad, P_grad, weights_grad = gradients
    others = (None,) * (_WEIGHTS - 2)
    return E_grad, P_grad, *others, weights_grad, *(None for _ in ctx.numbers)


def make_operator(
    name: str, make_call: Callable[..., C], dense: Pass[C], device: str
) -> Callable[..., Tensor]:
    """Register `hashembed::NAME` and `hashembed::NAME_backward` -> the first.

    It takes the fields of a call. `dense` must give dense gradients; `device` names the device in
    error messages.
    """
    fields = _schema(make_call)

    def forward(*fields: Any) -> Tensor:
        return dense.forward(make_call(*fields))

    def backward(
        grad: Tensor, want_E: bool, want_P: bool, want_weights: bool, *fields: Any
    ) -> tuple[Tensor, ...]:
        """Gradients of weight, importance and weights; empty (0,) where not wanted."""
        wanted = Wanted(want_E, want_P, want_weights)
        E_grad, P_grad, weights_grad = dense.backward(make_call(*fields), grad, wanted)
        found = (E_grad and E_grad.values, P_grad and P_grad.values, weights_grad)
        return tuple(grad.new_empty(0) if g is None else g for g in found)

    forward_op = torch.library.custom_op(
        f"hashembed::{name}", forward, mutates_args=(), schema=f"({fields}) -> Tensor"
    )
    backward_op = torch.library.custom_op(
        f"hashembed::{name}_backward",
        backward,
        mutates_args=(),
        schema="(Tensor grad, bool want_weight, bool want_importance, bool want_weights, "
        f"{fields}) -> (Tensor, Tensor, Tensor)",
    )

    @forward_op.register_fake
    def _(*fields: Any) -> Tensor:
        call = make_call(*fields)
        return call.weight.new_empty((call.num_bags, call.width))

    @backward_op.register_fake
    def _(
        grad: Tensor, want_E: bool, want_P: bool, want_weights: bool, *fields: Any
    ) -> tuple[Tensor, ...]:
        call = make_call(*fields)
        tensors = ((want_E, call.weight), (want_P, call.importance), (want_weights, call.weights))
        return tuple(
            torch.empty_like(tensor) if want and tensor is not None else grad.new_empty(0)
            for want, tensor in tensors
        )

    def differentiate(ctx: _Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        wanted = _wanted(ctx.needs_input_grad)
        found = backward_op(grad, *wanted, *ctx.saved_tensors, *ctx.numbers)
        return _by_field(ctx, *(g if want else None for g, want in zip(found, wanted, strict=True)))

    def refuse(ctx: _Context, *grads: Tensor) -> None:
        raise RuntimeError(
            f"hash embeddings on the {device} have no second derivatives; "
            "hashembed.nn.ops.reference, the same in plain PyTorch, has them"
        )

    forward_op.register_autograd(differentiate, setup_context=_save)
    backward_op.register_autograd(refuse)
    return forward_op


def _schema(make_call: Callable[..., C]) -> str:
    """The fields of a call as arguments of an operator."""
    hints = get_type_hints(make_call)
    return ", ".join(f"{_SCHEMA_TYPES[kind]} {name}" for name, kind in hints.items())


class Bag(torch.autograd.Function):
    """The function of a pass whose gradients may be of any kind."""

    @staticmethod
    def forward(
        ctx: _Context, kernels: Pass[C], make_call: Callable[..., C], *fields: Any
    ) -> Tensor:
        """The pass, the type of its call, the call's fields -> (n, D)."""
        ctx.kernels, ctx.make_call = kernels, make_call
        _save(ctx, fields)
        return kernels.forward(make_call(*fields))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        """A gradient for each tensor that needs one and was not updated at once."""
        call = ctx.make_call(*_saved_tensors(ctx), *ctx.numbers)
        wanted = _wanted(ctx.needs_input_grad[2:])
        E_grad, P_grad, weights_grad = ctx.kernels.backward(call, grad, wanted)
        tables = _tensor(E_grad, call.weight), _tensor(P_grad, call.importance)
        return None, None, *_by_field(ctx, *tables, weights_grad)


def apply(kernels: Pass[C], call: C) -> Tensor:
    """The output of a call (n, D), with the gradients that the pass gives."""
    out: Tensor = Bag.apply(kernels, type(call), *call)  # type: ignore[no-untyped-call]
    return out


def _saved_tensors(ctx: _Context) -> tuple[Tensor | None, ...]:
    try:
        return ctx.saved_tensors
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        raise RuntimeError(
            "the tables of a hash layer were modified by an inplace operation between its forward "
            "and this backward pass. On a GPU a row optimizer with in_backward=True does that in "
            "every backward pass: add up all losses and call backward() once, or use "
            "in_backward=False"
        ) from error


def _tensor(gradient: Gradient | None, table: Tensor | None) -> Tensor | None:
    if gradient is None or table is None:
        return None
    if gradient.rows is None:
        return gradient.values
    rows, values = gradient.rows, gradient.values
    if not len(rows):  # autograd adds the next gradient in place: it must be able to grow these
        rows, values = torch.empty_like(rows), torch.empty_like(values)
    return sparse_rows(rows, values, table.shape)
