"""What a kernel takes and returns, as 64-bit words in memory.

| value | annotation | words |
|---|---|---|
| array in C order | `F32`, `F32_2D` and others of `core.arrays` | the address of its object |
| number | `int`, `float`, `bool` or a NumPy scalar type | the number |
| group of these | a NamedTuple class or `tuple[...]` | those of its fields |
| nothing | `None` | none |

A union is a choice: a kernel with `I32 | I64` is compiled for both. The words of the result are
kept apart.
"""

import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Union, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from hashembed.core.arrays import Dimensions

_PLAIN = {int: np.int64, float: np.float64, bool: np.bool_}


@dataclass(frozen=True)
class ArrayKind:
    """An array in C order."""

    dtype: np.dtype[Any]
    ndim: int


@dataclass(frozen=True)
class NumberKind:
    """A number of at most 64 bits."""

    dtype: np.dtype[Any]


@dataclass(frozen=True)
class GroupKind:
    """A tuple. `cls` is its NamedTuple class, if it has one."""

    fields: "tuple[Kind, ...]"
    cls: type | None = None


@dataclass(frozen=True)
class NothingKind:
    """None."""


Kind = ArrayKind | NumberKind | GroupKind | NothingKind


@dataclass(frozen=True)
class Signature:
    """The parameters and the result of one compiled entry."""

    parameters: tuple[Kind, ...]
    result: Kind


def signatures(function: Callable[..., Any]) -> list[Signature]:
    """All signatures that the annotations of a kernel allow."""
    hints = typing.get_type_hints(function, include_extras=True)
    result = hints.pop("return", None)
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    if missing := [name for name in names if name not in hints]:
        raise TypeError(f"{function.__qualname__} has no annotation for {', '.join(missing)}")
    (given,) = choices(result)
    return [Signature(chosen, given) for chosen in product(*(choices(hints[n]) for n in names))]


def choices(annotation: Any) -> Sequence[Kind]:
    """The kinds that an annotation allows, in its order."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is None or annotation is type(None):
        return [NothingKind()]
    if origin in (Union, types.UnionType):
        return [kind for argument in arguments for kind in choices(argument)]
    if origin is Annotated:
        (array,) = choices(arguments[0])
        (ndim,) = (a.axes for a in arguments[1:] if isinstance(a, Dimensions))
        return [ArrayKind(array.dtype, ndim)]  # type: ignore[union-attr]
    if origin is NDArray:  # an alias that NumPy 2.5 keeps
        return [ArrayKind(np.dtype(arguments[0]), 1)]
    if origin is np.ndarray:
        return [ArrayKind(np.dtype(get_args(arguments[1])[0]), 1)]
    if origin is tuple:
        return [GroupKind(fields) for fields in product(*map(choices, arguments))]
    if isinstance(annotation, type) and issubclass(annotation, tuple):
        hints = typing.get_type_hints(annotation, include_extras=True)
        return [GroupKind(fields, annotation) for fields in product(*map(choices, hints.values()))]
    return [NumberKind(np.dtype(_PLAIN.get(annotation, annotation)))]
