"""`HashEmbedding` and `HashEmbeddingBag`: drop-in layers with a fraction of the parameters."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from hashembed.hashing import (
    HASH_VERSION,
    INDEXINGS,
    MAX_HASHES,
    MAX_SIZE,
    HashSpec,
    Indexing,
    default_num_buckets,
    derive_seeds,
)
from hashembed.initial import IMPORTANCE_STD, WEIGHT_STD
from hashembed.nn import ops
from hashembed.nn.inputs import check_ids, check_ranks, to_bags
from hashembed.nn.owners import RowModule
from hashembed.validation import one_of, whole_number

Aggregation = Literal["sum", "concat"]
Mode = Literal["sum", "mean"]

_DRAW = 2**24  # normals drawn at a time


class HashEmbedding(RowModule):
    """Looks up hash vectors, as `nn.Embedding` looks up rows; any int64 is a valid id.

    Args:
        num_embeddings: K, the rows of importance weights; about the number of distinct ids, but
            more ids than K are fine.
        embedding_dim: d, the width of a component vector.
        num_buckets: B, the component vectors shared by all ids; None takes about K / 10.
        num_hashes: k, how many components an id mixes.
        aggregation: "sum" adds the weighted components, "concat" lays them side by side.
        append_importance: append the k importance weights to the vector.
        indexing: "independent" (default) hashes rows and buckets apart; "shared" derives the
            buckets from the row, as in the paper; "identity" takes ids as rows, from 0 to K - 1.
        importance: False fixes all importance weights at 1 (the hashing trick) and stores none.
        padding_idx: an id whose vector is zeros and which never trains.
        seed: chooses the hash functions and the initial values; saved in the `state_dict`.
        sparse: sparse gradients, for `torch.optim.SparseAdam` and SGD.
        generator: draws the initial values instead of a private one made from `seed`. The global
            random state is never touched.

    Attributes:
        weight: E, (B, d). importance: P, (K, k), or None. output_dim: the vectors' width.

    Example:
        >>> layer = HashEmbedding(1_000_000, 20)
        >>> layer(torch.tensor([[1, 2**40], [-7, 0]])).shape
        torch.Size([2, 2, 20])
    """

    weight: nn.Parameter
    importance: nn.Parameter | None
    hash_seeds: Tensor
    hash_spec: Tensor

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        num_buckets: int | None = None,
        num_hashes: int = 2,
        aggregation: Aggregation = "sum",
        append_importance: bool = False,
        indexing: Indexing = "independent",
        importance: bool = True,
        padding_idx: int | None = None,
        seed: int = 0,
        sparse: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        embedding_dim = whole_number("embedding_dim", embedding_dim, 1, 2**31 - 1)
        one_of("aggregation", aggregation, ("sum", "concat"))
        if append_importance and not importance:
            raise ValueError("append_importance needs importance=True: there is nothing to append")
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"dtype must be a floating point type, found {dtype}")
        if num_buckets is None:
            num_buckets = default_num_buckets(
                whole_number("num_embeddings", num_embeddings, 1, MAX_SIZE),
                whole_number("num_hashes", num_hashes, 1, MAX_HASHES),
            )
        self.spec = HashSpec(num_embeddings, num_buckets, num_hashes, indexing, seed)
        self.embedding_dim = embedding_dim
        self.aggregation = aggregation
        self.append_importance = append_importance
        self.padding_idx = self._checked_padding(padding_idx)
        self.sparse = sparse

        self.weight = nn.Parameter(
            torch.empty(num_buckets, embedding_dim, device=device, dtype=dtype)
        )
        self.register_parameter(
            "importance",
            nn.Parameter(torch.empty(num_embeddings, num_hashes, device=device, dtype=dtype))
            if importance
            else None,
        )
        for name, value in self._hash_buffers().items():
            self.register_buffer(name, value.to(device or torch.get_default_device()))
        self.reset_parameters(generator)

    @property
    def num_embeddings(self) -> int:
        """K, the rows of importance weights."""
        return self.spec.num_embeddings

    @property
    def num_buckets(self) -> int:
        """B, the number of shared component vectors."""
        return self.spec.num_buckets

    @property
    def num_hashes(self) -> int:
        """k, the components an id mixes."""
        return self.spec.num_hashes

    @property
    def indexing(self) -> Indexing:
        """How ids become rows and buckets."""
        return self.spec.indexing

    @property
    def seed(self) -> int:
        """The integer behind the hash functions."""
        return self.spec.seed

    @property
    def output_dim(self) -> int:
        """Width of the vectors that come out."""
        width = self.embedding_dim * (self.num_hashes if self.aggregation == "concat" else 1)
        return width + (self.num_hashes if self.append_importance else 0)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """E ~ N(0, 0.1), P ~ N(0, 0.0005); the same `seed` gives the same values on any device."""
        if generator is None:
            generator = torch.Generator().manual_seed(self.seed)
        _fill_normal(self.weight, WEIGHT_STD, generator)
        if self.importance is not None:
            _fill_normal(self.importance, IMPORTANCE_STD, generator)

    def forward(self, ids: Tensor) -> Tensor:
        """Ids of any shape (...) -> vectors (..., output_dim)."""
        ids = check_ids("ids", ids)
        return ops.hash_embedding(
            self._keys(ids),
            self.weight,
            self.importance,
            self.hash_seeds,
            self.spec,
            keep=self._keep(ids),
            aggregation=self.aggregation,
            append_importance=self.append_importance,
            sparse=self.sparse,
            mix=self.indexing != "identity",
        )

    def extra_repr(self) -> str:
        """The arguments that differ from their defaults."""
        parts = [f"{self.num_embeddings}, {self.embedding_dim}, num_buckets={self.num_buckets}"]
        parts.append(f"num_hashes={self.num_hashes}")
        for name, default in (
            ("aggregation", "sum"),
            ("append_importance", False),
            ("indexing", "independent"),
            ("padding_idx", None),
            ("seed", 0),
            ("sparse", False),
        ):
            if getattr(self, name) != default:
                parts.append(f"{name}={getattr(self, name)!r}")
        if self.importance is None:
            parts.append("importance=False")
        return ", ".join(parts)

    def _keys(self, ids: Tensor) -> Tensor:
        if self.indexing == "identity":
            check_ranks(ids, self.num_embeddings)
            return ids
        return ids

    def _keep(self, ids: Tensor) -> Tensor | None:
        return None if self.padding_idx is None else ids != self.padding_idx

    def _checked_padding(self, padding_idx: int | None) -> int | None:
        if padding_idx is None:
            return None
        if self.indexing != "identity":
            return whole_number("padding_idx", padding_idx, -(2**63), 2**63 - 1)
        count = self.num_embeddings
        padding_idx = whole_number("padding_idx", padding_idx, -count, count - 1)
        return padding_idx % count  # negative counts from the end, as in nn.Embedding

    def _hash_buffers(self) -> dict[str, Tensor]:
        """What the hash functions are, as tensors, so that any checkpoint carries them."""
        spec = self.spec
        identity = [
            HASH_VERSION,
            INDEXINGS.index(spec.indexing),
            spec.num_embeddings,
            spec.num_buckets,
            spec.seed,
        ]
        return {
            "hash_seeds": torch.from_numpy(
                derive_seeds(spec.seed, spec.num_hashes).astype("int64")
            ),
            "hash_spec": torch.tensor(identity, dtype=torch.int64, device="cpu"),
        }

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        was_meta = self.hash_seeds.is_meta
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if was_meta and not self.hash_seeds.is_meta:
            # `to_empty` leaves noise, and nobody thinks of a hash function as uninitialised.
            for name, value in self._hash_buffers().items():
                getattr(self, name).copy_(value)
        return self

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Takes the saved hash functions along, or refuses: never other vectors in silence."""
        found = state_dict.get(prefix + "hash_spec")
        if found is None:
            if prefix + "weight" in state_dict:
                error_msgs.append(
                    f'"{prefix}hash_spec" is missing: without it nobody knows which hash functions '
                    "the weights were trained with"
                )
                return
        elif not found.is_meta:
            version, indexing, num_embeddings, num_buckets, seed = found.tolist()
            ours = (HASH_VERSION, self.indexing, self.num_embeddings, self.num_buckets)
            name = INDEXINGS[indexing] if 0 <= indexing < len(INDEXINGS) else str(indexing)
            theirs = (version, name, num_embeddings, num_buckets)
            what = ("hash version", "indexing", "num_embeddings", "num_buckets")
            differ = [
                f"{label} {saved} (this layer: {own})"
                for label, saved, own in zip(what, theirs, ours, strict=True)
                if saved != own
            ]
            if differ:
                error_msgs.append(
                    f'"{prefix}hash_spec" was saved with {", ".join(differ)}: the ids would get '
                    "other vectors; build the layer with the saved settings"
                )
                return
            self.spec = replace(self.spec, seed=seed)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class HashEmbeddingBag(HashEmbedding):
    """Sums or means of hash vectors over bags of ids, as `nn.EmbeddingBag`.

    Takes the arguments of `HashEmbedding`, and:

    Args:
        mode: "sum" or "mean".
        include_last_offset: `offsets` ends with the end of the last bag.

    Example:
        >>> layer = HashEmbeddingBag(1_000_000, 20)
        >>> ids, offsets = torch.tensor([5, 9, 5, 7]), torch.tensor([0, 3])
        >>> layer(ids, offsets).shape
        torch.Size([2, 20])
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        mode: Mode = "sum",
        include_last_offset: bool = False,
        **options: Any,
    ) -> None:
        one_of("mode", mode, ("sum", "mean"))
        super().__init__(num_embeddings, embedding_dim, **options)
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(
        self,
        ids: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        """Ids (N,) with offsets, or ids (bags, length) -> (bags, output_dim)."""
        if per_sample_weights is not None and self.mode != "sum":
            raise ValueError(f'per_sample_weights need mode="sum", found mode={self.mode!r}')
        ids, offsets, per_sample_weights = to_bags(
            ids, offsets, per_sample_weights, include_last_offset=self.include_last_offset
        )
        return ops.hash_embedding_bag(
            self._keys(ids),
            offsets,
            self.weight,
            self.importance,
            self.hash_seeds,
            self.spec,
            per_sample_weights=per_sample_weights,
            keep=self._keep(ids),
            mode=self.mode,
            aggregation=self.aggregation,
            append_importance=self.append_importance,
            sparse=self.sparse,
            mix=self.indexing != "identity",
        )

    def extra_repr(self) -> str:
        """The arguments that differ from their defaults."""
        last = ", include_last_offset=True" if self.include_last_offset else ""
        return f"{super().extra_repr()}, mode={self.mode!r}{last}"


@torch.no_grad()
def _fill_normal(tensor: Tensor, std: float, generator: torch.Generator) -> None:
    """Normals drawn in float32 where the generator lives, then moved: the same on every device."""
    if tensor.is_meta:
        return
    for part in torch.split(tensor.view(-1), _DRAW):
        draw = torch.empty(part.shape, dtype=torch.float32, device=generator.device)
        part.copy_(draw.normal_(0, std, generator=generator))
