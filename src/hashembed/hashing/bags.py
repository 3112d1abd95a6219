"""Bags of keys: one array of keys and the offset of each bag, as `EmbeddingBag` takes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from hashembed.core.arrays import I64, U32
from hashembed.core.checks import whole_number
from hashembed.hashing.gather import gather
from hashembed.hashing.spec import id_keys, unpack

MAX_COUNT = 2**31


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return type(value).__name__


def _below(lanes: U32, n: I64 | np.int64) -> I64:
    """Lanes -> [0, n) by multiply-high; n may differ for each."""
    return (lanes.astype(np.uint64) * n.astype(np.uint64) >> np.uint64(32)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Bags:
    """Bag i is keys[offsets[i] : offsets[i + 1]]; bags may be empty."""

    keys: I64  # (N,)
    offsets: I64  # (n + 1,), from 0 to N

    def __post_init__(self) -> None:
        for name, array in (("keys", self.keys), ("offsets", self.offsets)):
            if not isinstance(array, np.ndarray) or array.dtype != np.int64 or array.ndim != 1:
                raise TypeError(
                    f"{name} must be an int64 array of one dimension, found {_describe(array)}"
                )
        offsets = self.offsets
        if len(offsets) == 0:
            raise ValueError("offsets must have one entry more than there are bags, found none")
        if offsets[0] != 0 or offsets[-1] != len(self.keys):
            raise ValueError(
                f"offsets must go from 0 to the number of keys, {len(self.keys)}, "
                f"found {offsets[0]} to {offsets[-1]}"
            )
        if (offsets[1:] < offsets[:-1]).any():
            i = int(np.argmax(offsets[1:] < offsets[:-1]))
            raise ValueError(
                f"offsets must not fall, found {offsets[i]} and then {offsets[i + 1]} at bag {i}"
            )

    @classmethod
    def trusted(cls, keys: I64, offsets: I64) -> "Bags":
        """Without checks, for the output of our own kernels: checks cost more than a short text."""
        self = object.__new__(cls)
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "offsets", offsets)
        return self

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> I64:
        """The number of keys in each bag: (n,)."""
        return np.diff(self.offsets)

    @property
    def any_empty(self) -> bool:
        """Whether some bag has no keys."""
        if len(self) == 1:
            return len(self.keys) == 0
        return bool((self.offsets[1:] == self.offsets[:-1]).any())

    @overload
    def __getitem__(self, index: slice) -> "Bags": ...
    @overload
    def __getitem__(self, index: int) -> I64: ...
    def __getitem__(self, index: int | slice) -> "I64 | Bags":
        """The keys of one bag, or a range of bags; keys are not copied unless the slice steps."""
        if not isinstance(index, slice):
            i = range(len(self))[index]
            return self.keys[self.offsets[i] : self.offsets[i + 1]]
        start, stop, step = index.indices(len(self))
        if step != 1:
            return self.take(np.arange(start, stop, step))
        offsets = self.offsets[start : max(start, stop) + 1]
        return Bags(self.keys[offsets[0] : offsets[-1]], offsets - offsets[0])

    def take(self, indices: npt.ArrayLike) -> "Bags":
        """The bags of these indices, in this order; an index may come more than once."""
        chosen = np.asarray(indices)
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise TypeError(
                f"indices must be whole numbers in one dimension, found {_describe(chosen)}"
            )
        outside = (chosen < -len(self)) | (chosen >= len(self))
        if outside.any():
            allowed = f"from {-len(self)} to {len(self) - 1}"
            raise IndexError(f"indices must be {allowed}, found {chosen[outside][0]}")
        chosen = chosen.astype(np.int64) % max(len(self), 1)
        offsets = np.zeros(len(chosen) + 1, np.int64)
        np.cumsum(self.lengths[chosen], out=offsets[1:])
        keys = np.empty(offsets[-1], np.int64)
        gather(np.ascontiguousarray(self.keys), self.offsets[chosen], offsets, keys)
        return Bags(keys, offsets)

    @classmethod
    def concat(cls, parts: Sequence["Bags"]) -> "Bags":
        """All bags of some Bags, in order."""
        if not parts:
            return cls(np.empty(0, np.int64), np.zeros(1, np.int64))
        if len(parts) == 1:
            return parts[0]
        ends = np.cumsum([0, *(len(part.keys) for part in parts)])
        offsets = [part.offsets[1:] + end for part, end in zip(parts, ends, strict=False)]
        return cls(np.concatenate([part.keys for part in parts]), np.concatenate([[0], *offsets]))

    def snippets(
        self, rng_seed: int, epoch: int, minimum: int = 4, maximum: int = 100
    ) -> tuple[I64, I64]:
        """One run of consecutive keys from each bag, drawn anew in each pass: input dropout.

        The length is uniform in [minimum, maximum], limited to the bag's; then the start is uniform
        among those that fit. Returns starts (n,), positions in `keys`, and lengths (n,). Both
        depend only on the seed, the pass and the bag's index, not on other bags.
        """
        whole_number("minimum", minimum, 1, MAX_COUNT)
        whole_number("maximum", maximum, minimum, MAX_COUNT)
        whole_number("rng_seed", rng_seed, -(2**63), 2**63 - 1)
        whole_number("epoch", epoch, 0, 2**63 - 1)
        stream = id_keys(id_keys(rng_seed) ^ np.int64(epoch))
        a, b = unpack(id_keys(np.arange(len(self)) ^ stream))
        lengths = np.minimum(minimum + _below(a, np.int64(maximum - minimum + 1)), self.lengths)
        return self.offsets[:-1] + _below(b, self.lengths - lengths + 1), lengths
