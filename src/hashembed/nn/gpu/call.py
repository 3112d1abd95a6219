"""The arguments of the Triton kernels of the layers."""

from typing import Any, NamedTuple

from torch import Tensor

from hashembed.nn.gpu.tiles import acc

MAX_TOKENS = 2**30  # in one call
TENSORS = 7  # fields of a call that are tensors: the first ones


class Call(NamedTuple):
    """One call of a layer: tables, keys of tokens, hash and options."""

    weight: Tensor  # E (B, d)
    importance: Tensor | None  # P (K, k)
    keys: Tensor  # (N,)
    seeds: Tensor  # (k + 1,)
    offsets: Tensor | None  # (n + 1,); without them each token is a bag
    keep: Tensor | None  # (N,)
    weights: Tensor | None  # (N,), in the precision of accumulation
    num_embeddings: int
    indexing: int
    mix: int  # 0; or the keys are ids, still to be mixed, in this many columns in turn
    mean: bool
    concat: bool
    append: bool

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """The fields that are tensors, or None."""
        found: Any = self[:TENSORS]
        return tuple(found)

    @property
    def num_hashes(self) -> int:
        """k."""
        return self.seeds.shape[0] - 1

    @property
    def num_bags(self) -> int:
        """Rows of the output."""
        return self.keys.shape[0] if self.offsets is None else self.offsets.shape[0] - 1

    @property
    def width(self) -> int:
        """Columns of the output."""
        k = self.num_hashes
        return self.weight.shape[1] * (k if self.concat else 1) + (k if self.append else 0)

    @property
    def options(self) -> dict[str, Any]:
        """What all kernels of the layers are compiled for."""
        return {
            "d": self.weight.shape[1],
            "k": self.num_hashes,
            "width": self.width,
            "INDEXING": self.indexing,
            "MIX": self.mix,
            "CONCAT": self.concat,
            "APPEND": self.append,
            "ACC": acc(self.weight),
        }

    def contiguous(self) -> "Call":
        """With contiguous tensors, as the kernels need them."""
        n = self.keys.shape[0]
        if n > MAX_TOKENS:
            raise ValueError(f"a call takes at most {MAX_TOKENS:,} ids, found {n:,}")
        if all(t is None or t.is_contiguous() for t in self.tensors):
            return self
        fields: Any = (f.contiguous() if isinstance(f, Tensor) else f for f in self)
        return Call(*fields)
