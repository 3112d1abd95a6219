"""What starts, scores and fits know of a layer, which they cannot import: it imports them."""

from collections.abc import Iterator
from typing import Any, Protocol

from torch import Tensor, nn

from hashembed.hashing.spec import HashSpec


class HashLayer(Protocol):
    """A `HashEmbedding` or `HashEmbeddingBag`."""

    weight: nn.Parameter  # E (B, d)
    importance: nn.Parameter | None  # P (K, k)
    spec: HashSpec
    init: Any
    embedding_dim: int
    aggregation: Any
    append_importance: bool
    _sparse: bool
    padding_idx: int | None
    _parameters: Any

    @property
    def num_embeddings(self) -> int:
        """K."""

    @property
    def num_buckets(self) -> int:
        """B."""

    @property
    def num_hashes(self) -> int:
        """k."""

    @property
    def output_dim(self) -> int:
        """Width of its vectors."""

    @property
    def seed(self) -> int:
        """The seed of the hash functions."""

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """E and P."""

    def _current_seeds(self) -> Tensor: ...
    def _keep(self, ids: Tensor) -> Tensor | None: ...
    def _keys(self, ids: Tensor, columns: Tensor | int | None) -> tuple[Tensor, int]: ...
    def _all_keys(self, ids: Tensor, columns: Tensor | int | None) -> Tensor: ...
    def _vectors(self, ids: Tensor, columns: Tensor | int | None) -> Tensor: ...
