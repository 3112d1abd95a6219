"""`HashEmbedding` and `HashEmbeddingBag`: drop-in layers with a fraction of the parameters."""

import weakref
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from hashembed.core.checks import one_of, whole_number
from hashembed.hashing.initial import IMPORTANCE_STD, WEIGHT_STD
from hashembed.hashing.sizes import default_num_buckets
from hashembed.hashing.spec import MAX_HASHES, MAX_SIZE, HashSpec, Indexing
from hashembed.nn.hash_buffers import HashedModule, draw_seed
from hashembed.nn.initial import fill_normal
from hashembed.nn.inputs import check_ids, check_ranks, given_ids, to_bags
from hashembed.nn.ops import dispatch as ops
from hashembed.nn.options import refuse_table_options, warn_if_larger_than_a_table
from hashembed.nn.owners import RowModule

Aggregation = Literal["sum", "concat"]
Mode = Literal["sum", "mean"]


class HashEmbedding(HashedModule, RowModule):
    """Looks up hash vectors, as `nn.Embedding` looks up rows. Any int64 is a valid id.

    Args:
        num_embeddings: K, the number of rows of importance weights: about the number of distinct
            ids. There may be more ids than K; some then share a row.
        embedding_dim: d, the width of a component vector.
        padding_idx: an id whose vector is always zero and is never trained. None (default): no such
            id.
        max_norm: as in `nn.Embedding`, but only None is supported.
        norm_type: as in `nn.Embedding`, but only 2.0 is supported.
        scale_grad_by_freq: as in `nn.Embedding`, but only False is supported.
        sparse: compute sparse gradients, for `torch.optim.SparseAdam` and SGD (default False).
            The row optimizers of `hashembed.optim` do not need it.
        num_buckets: B, the number of component vectors, which all ids share. None (default) takes
            about K / 10.
        num_hashes: k, the number of component vectors that an id combines (default 2).
        aggregation: "sum" (default) adds the weighted component vectors, "concat" concatenates
            them.
        append_importance: append the k importance weights to the vector (default False).
        indexing: "independent" (default) hashes the id once for its row and again for its buckets;
            "shared" derives the buckets from the row, as in the paper; "identity" takes the id
            itself, from 0 to K - 1, as the row.
        importance: False fixes all importance weights at 1 (the hashing trick) and stores none
            (default True).
        seed: chooses the hash functions and the initial values. None (default) draws both from
            torch's global generator, so they follow `torch.manual_seed` and differ between layers.
            The `state_dict` contains the hash functions; loading it restores them.
        device: device of the tables. None (default) is torch's default device.
        dtype: floating point type of the tables. None (default) is torch's default type.
        generator: draws the initial values instead of `seed`.

    Attributes:
        weight: E, the component vectors, (B, d).
        importance: P, the importance weights, (K, k), or None.
        output_dim: width of the vectors that the layer returns.

    Example:
        >>> layer = HashEmbedding(1_000_000, 20)
        >>> layer(torch.tensor([[1, 2**40], [-7, 0]])).shape
        torch.Size([2, 2, 20])
    """

    weight: nn.Parameter
    importance: nn.Parameter | None

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        *,
        num_buckets: int | None = None,
        num_hashes: int = 2,
        aggregation: Aggregation = "sum",
        append_importance: bool = False,
        indexing: Indexing = "independent",
        importance: bool = True,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        refuse_table_options(max_norm, norm_type, scale_grad_by_freq)
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
        chosen = draw_seed() if seed is None else seed
        super().__init__(
            HashSpec(num_embeddings, num_buckets, num_hashes, indexing, chosen), device
        )
        self.embedding_dim = embedding_dim
        self.aggregation = aggregation
        self.append_importance = append_importance
        self.padding_idx = self._checked_padding(padding_idx)
        self.sparse = sparse
        self._seed_gives_values = seed is not None

        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.empty(num_buckets, embedding_dim, **kind))
        P = torch.empty(num_embeddings, num_hashes, **kind) if importance else None
        self.register_parameter("importance", None if P is None else nn.Parameter(P))
        self.reset_parameters(generator)
        if importance:
            warn_if_larger_than_a_table(self.spec, embedding_dim)
        _live_layers.add(self)
        if sparse:
            self.__class__ = _SPARSE_TWINS.get(type(self), type(self))

    @property
    def num_embeddings(self) -> int:
        """K, the number of rows of importance weights."""
        return self.spec.num_embeddings

    @property
    def num_buckets(self) -> int:
        """B, the number of shared component vectors."""
        return self.spec.num_buckets

    @property
    def num_hashes(self) -> int:
        """k, the number of component vectors that an id combines."""
        return self.spec.num_hashes

    @property
    def indexing(self) -> Indexing:
        """How ids become rows and buckets."""
        return self.spec.indexing

    @property
    def seed(self) -> int:
        """The seed of the hash functions."""
        if self._was_written():
            self._reconcile()
        return self.spec.seed

    @property
    def output_dim(self) -> int:
        """Width of the vectors that the layer returns."""
        width = self.embedding_dim * (self.num_hashes if self.aggregation == "concat" else 1)
        return width + (self.num_hashes if self.append_importance else 0)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw new initial values. The hash functions stay.

        E and P are normal with mean 0 and standard deviations 0.1 and 0.0005. The values are the
        same on any device, sharded or not.

        Args:
            generator: draws the values. None (default) uses a generator with the layer's `seed`, if
                one was given, and otherwise torch's global CPU generator.
        """
        if generator is None:
            generator = torch.default_generator
            if self._seed_gives_values:
                generator = torch.Generator().manual_seed(self.seed)
        fill_normal(self.weight, WEIGHT_STD, generator)
        if self.importance is not None:
            fill_normal(self.importance, IMPORTANCE_STD, generator)

    def forward(self, ids: Tensor | None = None, *, input: Tensor | None = None) -> Tensor:
        """Return the vectors of ids.

        Args:
            ids: int tensor of any shape (...). The result has the shape (..., output_dim).
            input: the same under the name that `nn.Embedding` has for it. Give one of the two.
        """
        ids = check_ids("ids", given_ids(ids, input))
        return ops.hash_embedding(
            self._checked(ids),
            self.weight,
            self.importance,
            self._current_seeds(),
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
            ("seed", None),
            ("sparse", False),
        ):
            if getattr(self, name) != default:
                parts.append(f"{name}={getattr(self, name)!r}")
        if self.importance is None:
            parts.append("importance=False")
        return ", ".join(parts)

    def _checked(self, ids: Tensor) -> Tensor:
        if self.indexing == "identity":
            check_ranks(ids, self.num_embeddings)
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

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weight" and isinstance(value, nn.Parameter) and value.dim() == 2:
            expected = (self.num_buckets, self.embedding_dim)
            if value.shape != expected:
                found = tuple(value.shape)
                raise ValueError(
                    f"weight must keep its shape {expected}, found {found}: {_NOT_ROWS}"
                )
        super().__setattr__(name, value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"_seed_gives_values": True, **state})
        _live_layers.add(self)


class HashEmbeddingBag(HashEmbedding):
    """Computes sums or means of hash vectors over bags of ids, as `nn.EmbeddingBag` does.

    Takes the arguments of `HashEmbedding` (`padding_idx` by keyword only), and:

    Args:
        mode: "sum" (default) or "mean".
        include_last_offset: `offsets` has one more entry, the end of the last bag (default False).

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
        max_norm: None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: Mode = "sum",
        sparse: bool = False,
        *,
        include_last_offset: bool = False,
        **options: Any,
    ) -> None:
        one_of("mode", mode, ("sum", "mean"))
        refuse_table_options(max_norm, norm_type, scale_grad_by_freq)
        super().__init__(num_embeddings, embedding_dim, sparse=sparse, **options)
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(
        self,
        ids: Tensor | None = None,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
        *,
        input: Tensor | None = None,
    ) -> Tensor:
        """Return one vector for each bag, (bags, output_dim).

        Args:
            ids: ids of all bags, (N,), with `offsets`; or bags of equal length, (bags, length).
            offsets: where each bag starts in `ids`.
            per_sample_weights: a factor for each id, in the shape of `ids`. Needs `mode="sum"`.
                None (default) is 1 for all.
            input: `ids` under the name that `nn.EmbeddingBag` has for it. Give one of the two.
        """
        if per_sample_weights is not None and self.mode != "sum":
            raise ValueError(f'per_sample_weights need mode="sum", found mode={self.mode!r}')
        ids, offsets, per_sample_weights = to_bags(
            given_ids(ids, input),
            offsets,
            per_sample_weights,
            include_last_offset=self.include_last_offset,
        )
        return ops.hash_embedding_bag(
            self._checked(ids),
            offsets,
            self.weight,
            self.importance,
            self._current_seeds(),
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


class _SparseHashEmbedding(HashEmbedding, nn.Embedding):  # type: ignore[misc,override]
    """`HashEmbedding(sparse=True)`: DDP expects sparse gradients of an `nn.Embedding` only."""

    def _get_name(self) -> str:
        return HashEmbedding.__name__


class _SparseHashEmbeddingBag(HashEmbeddingBag, nn.EmbeddingBag):  # type: ignore[misc,override]
    """`HashEmbeddingBag(sparse=True)`: see `_SparseHashEmbedding`."""

    def _get_name(self) -> str:
        return HashEmbeddingBag.__name__


_SPARSE_TWINS: dict[type[HashEmbedding], type[HashEmbedding]] = {
    HashEmbedding: _SparseHashEmbedding,
    HashEmbeddingBag: _SparseHashEmbeddingBag,
}

_live_layers: weakref.WeakSet[HashEmbedding] = weakref.WeakSet()

_NOT_ROWS = (
    "it holds the component vectors that all ids share, not a row for each id, and cannot be tied "
    "to another layer. Give the other layer a weight of its own (Hugging Face: "
    "config.tie_word_embeddings = False), or score V ids by their vectors: "
    "F.linear(hidden, layer(torch.arange(V)))"
)


def _refuse_tied_weight(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
    """`head.weight = layer.weight` would give a logit for each bucket instead of each id."""
    if name != "weight" or isinstance(module, HashEmbedding):
        return
    if isinstance(module, nn.Linear | nn.Embedding | nn.EmbeddingBag):
        for layer in list(_live_layers):
            if layer._parameters.get("weight") is parameter and not _has_a_row_for_each_id(layer):
                raise ValueError(
                    f"the weight of a HashEmbedding ({layer.num_buckets} x "
                    f"{layer.embedding_dim}) was assigned to a {type(module).__name__}: {_NOT_ROWS}"
                )


def _has_a_row_for_each_id(layer: HashEmbedding) -> bool:
    return layer.spec.direct and layer.num_hashes == 1 and layer.importance is None


register_module_parameter_registration_hook(_refuse_tied_weight)
