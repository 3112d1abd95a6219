"""Which row optimizer a table belongs to, and modules whose tables may belong to one.

A table may have pending updates, which are applied to a row when it is next needed. So code that
reads or writes a table without its layer must call the optimizer first. `RowModule` does that for
saving, loading and copying.

A table belongs to the row optimizer that was made for it, or stepped on it, last. Once another kind
of optimizer steps on it, it belongs to none, and its gradients are dense again.

Why this module needs a registry by table identity, and a mark on each table:

- An optimizer gets parameters, not layers, and a look-up may be a functional call without a layer.
- Several layers may share a table, and a layer may get another table (FSDP, `to`, assignment), so a
  reference from layer to optimizer goes stale; the tensor is the only thing that both sides hold.
- Hooks of autograd run when the gradient is already dense, and never before a table is read.
- A compiled graph can guard a plain attribute of a tensor, but not a look-up in a registry.
"""

import copy
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from hashembed.nn.gpu.rows import GradientTerms


class Use:
    """A place in a graph from which a backward pass will update a table."""


class Owner(Protocol):
    """An optimizer that updates touched rows only."""

    def owns(self, table: Tensor) -> bool:
        """Whether the table is one of its parameters."""

    def before_read(
        self, table: Tensor, rows: Tensor, base: int = 0, count: Tensor | None = None
    ) -> None:
        """Rows - base (N,) of a table, repeats included, are about to be read.

        On a GPU rows beyond the table's end are ignored, and so are all after the first `count`, if
        that is given.
        """

    def apply_pending(self, table: Tensor) -> None:
        """Apply all pending updates of the table."""

    def discard_pending(self, table: Tensor) -> None:
        """Drop the pending updates of a table that others may have written to."""

    def updates_in_backward(self, table: Tensor) -> bool:
        """Whether `update` wants the table's gradient, instead of `grad` of the table."""

    def has_updated_in_backward(self, table: Tensor) -> bool:
        """Whether a backward pass has updated the table."""

    def use_of(self, table: Tensor) -> Use:
        """For a graph that will update the table: it keeps this, and gives it to `update`."""

    def update(self, table: Tensor, terms: "GradientTerms", use: Use | None) -> None:
        """On a GPU: update the table by the terms of its gradient."""


_owners: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()
_made_sparse: set[int] = set()  # tables whose gradients are sparse only because of their owner
_sources: "weakref.WeakKeyDictionary[nn.Module, weakref.ref[RowModule]]"
_sources = weakref.WeakKeyDictionary()


def owner_of(table: Tensor | None) -> Owner | None:
    """The row optimizer that the table belongs to."""
    owner: Owner | None = None if table is None else _owners.get(id(table))
    return owner if owner is not None and table is not None and owner.owns(table) else None


def may_have_owner(table: Tensor | None) -> bool:
    """Whether the table was ever given to an owner: a plain attribute, for the compiler."""
    return bool(getattr(table, "_has_row_optimizer", False))


def give_to(owner: Owner, table: Tensor) -> None:
    """From now on the table's gradients are sparse, and `owner` is told which rows are read.

    This ends when the optimizer is deleted or another optimizer takes the table.
    """
    if owner_of(table) is owner:
        return
    take_away(table)
    _owners[id(table)] = owner
    table._has_row_optimizer = True  # type: ignore[attr-defined]


def take_away(table: Tensor) -> None:
    """Apply the table's pending updates; from now on it has no owner."""
    owner = owner_of(table)
    if owner is not None:
        owner.apply_pending(table)
        del _owners[id(table)]


def note_sparse(table: Tensor, for_owner: bool) -> None:
    """Note whether the table's gradient will be sparse only because of its owner."""
    (_made_sparse.add if for_owner else _made_sparse.discard)(id(table))


def apply_pending(tables: Iterable[Tensor | None]) -> None:
    """Apply all pending updates of tables."""
    for table in tables:
        owner = owner_of(table)
        if table is not None and owner is not None:
            owner.apply_pending(table)


def apply_pending_before_export() -> None:
    """Apply all pending updates of all tables: an exported program reads them without a layer.

    While a program is traced a layer sees stand-ins for its tables, so it cannot tell which they
    are.
    """
    trace = torch._C._get_tracing_state()  # of torch.jit.trace
    torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
    try:
        # Nor may the program get the changes of the gradient mode that `flush` makes.
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            for owner in {id(owner): owner for owner in _owners.values()}.values():
                owner.flush()
    finally:
        torch._C._set_tracing_state(trace)  # type: ignore[attr-defined]


def _before_any_step(optimizer: Optimizer, args: Any, kwargs: dict[str, Any]) -> None:
    """An optimizer of another kind steps on tables: it takes them over.

    It takes those that have a gradient, or may get one from a closure.
    """
    if torch.compiler.is_compiling() or hasattr(optimizer, "before_read"):
        return
    has_closure = len(args) > 1 or kwargs.get("closure") is not None
    for group in optimizer.param_groups:
        for p in group["params"]:
            owner = owner_of(p)
            if owner is None or (
                p.grad is None and (not has_closure or owner.updates_in_backward(p))
            ):
                continue
            take_away(p)
            if p.grad is not None and p.grad.is_sparse and id(p) in _made_sparse:
                p.grad = p.grad.to_dense()


register_optimizer_step_pre_hook(_before_any_step)


class RowModule(nn.Module):
    """A module whose tables may belong to a row optimizer.

    Its `state_dict`, copies and pickles include all pending updates. `AveragedModel` and target
    networks compare a copy with its source parameter by parameter; so iterating over the parameters
    of a copy applies the pending updates of the source, too.
    """

    def _save_to_state_dict(self, *args: Any) -> None:
        apply_pending(self._parameters.values())
        super()._save_to_state_dict(*args)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        for table in self._parameters.values():
            owner = owner_of(table)
            if table is not None and owner is not None:
                owner.discard_pending(table)

    def __getstate__(self) -> dict[str, Any]:
        apply_pending(self._parameters.values())
        return self.__dict__

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made: Self = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__setstate__(copy.deepcopy(self.__getstate__(), memo))  # type: ignore[no-untyped-call]
        _sources[made] = weakref.ref(self)
        return made

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:
        """As in every module; `parameters()` of any module that contains this one calls it."""
        source = _sources[self]() if self in _sources else None
        if source is not None:
            apply_pending(source._parameters.values())
        found: Iterator[tuple[str, nn.Module]] = super().named_modules(*args, **kwargs)
        return found
