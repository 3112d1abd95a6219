"""Which row optimizer a table belongs to, and modules whose tables may belong to one.

A row optimizer may owe a table updates: a row moves when it is next needed. So whoever looks at a
table, or writes to it, past its layer, has to be brought together with the optimizer. `RowModule`
does so for saving, loading and copying.

A table belongs to the row optimizer that was made for it, or stepped on it, last. Once another kind
of optimizer steps on it, it belongs to none: its gradients are dense again. Nothing is hung on
tensors but a mark that the compiler understands: the optimizer holds its tables, and is found by
their identity.
"""

import copy
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

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

        On a GPU some may lie behind the table's end: they are not read. Nor are those behind the
        first `count`, if that is given.
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
_made_sparse: set[int] = set()  # tables whose gradients are sparse for their owner's sake alone
_sources: "weakref.WeakKeyDictionary[nn.Module, weakref.ref[RowModule]]"
_sources = weakref.WeakKeyDictionary()


def owner_of(table: Tensor | None) -> Owner | None:
    """The row optimizer that the table belongs to."""
    owner: Owner | None = None if table is None else _owners.get(id(table))
    return owner if owner is not None and table is not None and owner.owns(table) else None


def may_have_owner(table: Tensor | None) -> bool:
    """A plain attribute, because the compiler understands it."""
    return bool(getattr(table, "_has_row_optimizer", False))


def give_to(owner: Owner, table: Tensor) -> None:
    """From now on the table's gradients are sparse, and `owner` hears which rows are read.

    For as long as the optimizer lives, and nobody else takes the table.
    """
    if owner_of(table) is owner:
        return
    take_away(table)
    _owners[id(table)] = owner
    table._has_row_optimizer = True  # type: ignore[attr-defined]


def take_away(table: Tensor) -> None:
    """The table gets what it is owed, and belongs to nobody."""
    owner = owner_of(table)
    if owner is not None:
        owner.apply_pending(table)
        del _owners[id(table)]


def note_sparse(table: Tensor, for_owner: bool) -> None:
    """Whether the table's gradient will be sparse for its owner's sake alone."""
    (_made_sparse.add if for_owner else _made_sparse.discard)(id(table))


def settle(tables: Iterable[Tensor | None]) -> None:
    """Give tables all updates that they are owed."""
    for table in tables:
        owner = owner_of(table)
        if table is not None and owner is not None:
            owner.apply_pending(table)


def _before_any_step(optimizer: Optimizer, args: Any, kwargs: dict[str, Any]) -> None:
    """An optimizer of another kind steps on tables: they are its own from now on.

    Those that have a gradient, or will have one: a closure may make it.
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

    Its `state_dict`, copies and pickles have all updates. A copy, as `AveragedModel` and target
    networks are, is compared with its source parameter by parameter; so whoever goes through the
    parameters of a copy finds the source's up to date, too.
    """

    def _save_to_state_dict(self, *args: Any) -> None:
        settle(self._parameters.values())
        super()._save_to_state_dict(*args)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        for table in self._parameters.values():
            owner = owner_of(table)
            if table is not None and owner is not None:
                owner.discard_pending(table)

    def __getstate__(self) -> dict[str, Any]:
        settle(self._parameters.values())
        return self.__dict__

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made: Self = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__setstate__(copy.deepcopy(self.__getstate__(), memo))  # type: ignore[no-untyped-call]
        _sources[made] = weakref.ref(self)
        return made

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Module]]:
        """As in every module; `parameters()` of whatever this one is part of comes by here."""
        source = _sources[self]() if self in _sources else None
        if source is not None:
            settle(source._parameters.values())
        found: Iterator[tuple[str, nn.Module]] = super().named_modules(*args, **kwargs)
        return found
