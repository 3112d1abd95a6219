"""One call of a layer, independent of the device whose kernels run it."""

from typing import NamedTuple

from torch import Tensor

from hashembed.hashing.locate import indexing_code
from hashembed.hashing.spec import HashSpec


class Lookup(NamedTuple):
    """Tables, keys of tokens, hash and options."""

    weight: Tensor  # E (B, d)
    importance: Tensor | None  # P (K, k)
    keys: Tensor  # (N,)
    seeds: Tensor  # (k + 1,)
    spec: HashSpec
    offsets: Tensor | None = None  # (n + 1,); without them each token is a bag
    keep: Tensor | None = None  # (N,): tokens that count
    weights: Tensor | None = None  # (N,), in the precision of accumulation
    mean: bool = False
    concat: bool = False
    append: bool = False
    sparse: bool = False  # sparse gradients of the tables
    mix: int = 0  # the keys are ids, still to be mixed, in this many columns in turn

    @property
    def indexing(self) -> int:
        """What kernels call the indexing."""
        return indexing_code(self.spec)

    def check(self) -> None:
        """Refuse tables that do not fit the hash: kernels do not check where they read."""
        spec, expected = self.spec, (self.spec.num_embeddings, self.spec.num_hashes)
        if self.weight.shape[0] != spec.num_buckets:
            raise ValueError(
                f"weight must have {spec.num_buckets} rows, found {self.weight.shape[0]}"
            )
        if self.importance is not None and self.importance.shape != expected:
            found = tuple(self.importance.shape)
            raise ValueError(f"importance must be {expected}, found {found}")
