"""`HashEmbedding` and `HashEmbeddingBag`: drop-in layers with a fraction of the parameters."""

from collections.abc import Sequence
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from hashembed.core.checks import one_of, whole_number
from hashembed.hashing.sizes import default_num_buckets
from hashembed.hashing.spec import MAX_HASHES, MAX_SIZE, HashSpec, Indexing
from hashembed.nn import data_parallel
from hashembed.nn.columns import make_columns
from hashembed.nn.hash_buffers import draw_seed
from hashembed.nn.inputs import check_ids, check_ranks, given_ids, to_bags
from hashembed.nn.layer_methods import LayerMethods
from hashembed.nn.ops import dispatch as ops
from hashembed.nn.options import refuse_table_options, warn_if_larger_than_a_table
from hashembed.nn.owners import RowModule
from hashembed.nn.starts import Init, fill_tables, start_of
from hashembed.nn.tied import NOT_ROWS, watch

Aggregation = Literal["sum", "concat"]
Mode = Literal["sum", "mean"]


class HashEmbedding(LayerMethods, RowModule):
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
        columns: the number of columns of ids that share the table, such as 26 categorical features.
            Ids have the shape (..., columns), and equal ids of different columns have nothing in
            common. With `indexing="identity"`, a list with the number of ids of each column. None
            (default): all ids are of one kind.
        init: what the initial values should suit: "bag" (default) a linear layer over bags, "dot" a
            dot product or factorisation machine, "transformer" the input of one, also if it is tied
            to the output. Or a number, the standard deviation of a vector's numbers;
            or their mean and standard deviation.
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
    init: Init = "bag"

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
        columns: int | Sequence[int] | None = None,
        init: Init = "bag",
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
        start_of(init)  # refuses what is none
        if num_buckets is None:
            num_buckets = default_num_buckets(
                whole_number("num_embeddings", num_embeddings, 1, MAX_SIZE),
                whole_number("num_hashes", num_hashes, 1, MAX_HASHES),
            )
        chosen = draw_seed() if seed is None else seed
        spec = HashSpec(num_embeddings, num_buckets, num_hashes, indexing, chosen)
        super().__init__(spec, device, make_columns(columns, indexing, num_embeddings))
        self.embedding_dim = embedding_dim
        self.aggregation = aggregation
        self.append_importance = append_importance
        self.padding_idx = self._checked_padding(padding_idx)
        self._sparse = sparse
        self.init = init
        self._seed_gives_values = seed is not None

        kind: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.empty(num_buckets, embedding_dim, **kind))
        P = torch.empty(num_embeddings, num_hashes, **kind) if importance else None
        self.register_parameter("importance", None if P is None else nn.Parameter(P))
        self.reset_parameters(generator)
        if importance:
            warn_if_larger_than_a_table(self.spec, embedding_dim)
        watch(self)
        if sparse:
            data_parallel.expect_sparse_gradients(self)

    @property
    def sparse(self) -> bool:
        """Whether the gradients of the tables are sparse, whichever optimizer updates them."""
        return self._sparse

    @property
    def output_dim(self) -> int:
        """Width of the vectors that the layer returns."""
        width = self.embedding_dim * (self.num_hashes if self.aggregation == "concat" else 1)
        return width + (self.num_hashes if self.append_importance else 0)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw new initial values, as `init` says. The hash functions stay.

        E and P are normal. The values are the same on any device, sharded or not.

        Args:
            generator: draws the values. None (default) uses a generator with the layer's `seed`, if
                one was given, and otherwise torch's global CPU generator.
        """
        if generator is None:
            generator = torch.default_generator
            if self._seed_gives_values:
                generator = torch.Generator().manual_seed(self.seed)
        fill_tables(self, generator)

    def forward(
        self,
        ids: Tensor | None = None,
        *,
        columns: Tensor | int | None = None,
        input: Tensor | None = None,
    ) -> Tensor:
        """Return the vectors of ids.

        Args:
            ids: int tensor of any shape (...). The result has the shape (..., output_dim). If the
                layer has columns, they are the last dimension of the ids.
            columns: the column of each id, where the last dimension does not say it: one number, or
                a tensor that broadcasts to the shape of the ids.
            input: the ids under the name that `nn.Embedding` has for them. Give one of the two.
        """
        data_parallel.check_expected(self)
        return self._vectors(check_ids("ids", given_ids(ids, input)), columns)

    def _vectors(self, ids: Tensor, columns: Tensor | int | None) -> Tensor:
        keys, mix = self._keys(ids, columns)
        return ops.hash_embedding(
            keys,
            self.weight,
            self.importance,
            self._current_seeds(),
            self.spec,
            keep=self._keep(ids),
            aggregation=self.aggregation,
            append_importance=self.append_importance,
            sparse=self._sparse,
            mix=mix,
        )

    def extra_repr(self) -> str:
        """The arguments that differ from their defaults."""
        parts = [f"{self.num_embeddings}, {self.embedding_dim}, num_buckets={self.num_buckets}"]
        parts.append(f"num_hashes={self.num_hashes}")
        for name, default in (
            ("aggregation", "sum"),
            ("append_importance", False),
            ("indexing", "independent"),
            ("columns", None),
            ("init", "bag"),
            ("padding_idx", None),
            ("seed", None),
            ("_sparse", False),
        ):
            if getattr(self, name) != default:
                parts.append(f"{name.lstrip('_')}={getattr(self, name)!r}")
        if self.importance is None:
            parts.append("importance=False")
        return ", ".join(parts)

    @classmethod
    def from_pretrained(cls, table: Any, freeze: bool = True, **options: Any) -> Self:
        """A layer whose vectors approximate the rows of a given table.

        It has fewer numbers than the table, so the vectors are not those of the table. The
        attribute `pretrained` tells how far they are from them. More buckets come closer.

        Args:
            table: one row for each id, (n, d). Or `WordVectors`: then ids are the places of words,
                `vectors.get_index(word)`, and the table is `vectors.vectors`. For vectors of
                any word, without this approximation, use `HashEmbeddingBag.from_pretrained`.
            freeze: do not train the layer (default True, as in torch).
            **options: `ids`, the ids of the rows (n,), None (default): 0 to n - 1; `sweeps`, as in
                `fit_table`; and arguments of the layer. `num_embeddings` is n by default,
                `indexing` "identity" without ids and "independent" with them.
        """
        from hashembed.nn import pretrained

        return super().from_pretrained(pretrained.table_of(table), freeze, **options)

    def _keys(self, ids: Tensor, columns: Tensor | int | None) -> tuple[Tensor, int]:
        """The keys of ids, or the ids and in how many columns they are still to be mixed."""
        if self._columns is None:
            if columns is not None:
                raise TypeError("columns were given, but the layer was built without columns")
            if self.indexing != "identity":
                return ids, 1
            check_ranks(ids, self.num_embeddings)
            return ids, 0
        if self.indexing == "identity":
            return self._columns.ranks(ids, columns), 0
        if columns is not None:
            return ops.id_keys(ids, self._columns.of_ids(ids, columns)), 0
        self._columns.check_shape(ids)
        return ids, self._columns.count

    def _keep(self, ids: Tensor) -> Tensor | None:
        return None if self.padding_idx is None else ids != self.padding_idx

    def _checked_padding(self, padding_idx: int | None) -> int | None:
        if padding_idx is None:
            return None
        if self.indexing != "identity":
            return whole_number("padding_idx", padding_idx, -(2**63), 2**63 - 1)
        count = self.num_embeddings
        if self._columns is not None:  # the same id in every column
            return whole_number("padding_idx", padding_idx, 0, max(self._columns.sizes) - 1)
        padding_idx = whole_number("padding_idx", padding_idx, -count, count - 1)
        return padding_idx % count  # negative counts from the end, as in nn.Embedding

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weight" and isinstance(value, nn.Parameter) and value.dim() == 2:
            expected = (self.num_buckets, self.embedding_dim)
            if value.shape != expected:
                found = tuple(value.shape)
                raise ValueError(
                    f"weight must keep its shape {expected}, found {found}: {NOT_ROWS}"
                )
        super().__setattr__(name, value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        old = {"_seed_gives_values": True, "_sparse": state.get("sparse", False)}
        super().__setstate__({**old, **state})
        watch(self)


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
        columns: Tensor | int | None = None,
        input: Tensor | None = None,
    ) -> Tensor:
        """Return one vector for each bag, (bags, output_dim).

        If the layer has columns, 2-D ids are (bags, columns), and the vectors of all columns are
        added; for 1-D ids, `columns` must say which column each stands in.

        Args:
            ids: ids of all bags, (N,), with `offsets`; or bags of equal length, (bags, length).
            offsets: where each bag starts in `ids`.
            per_sample_weights: a factor for each id, in the shape of `ids`. Needs `mode="sum"`.
                None (default) is 1 for all.
            columns: the column of each id: one number, or a tensor that broadcasts to the shape of
                the ids.
            input: `ids` under the name that `nn.EmbeddingBag` has for it. Give one of the two.
        """
        data_parallel.check_expected(self)
        if per_sample_weights is not None and self.mode != "sum":
            raise ValueError(f'per_sample_weights need mode="sum", found mode={self.mode!r}')
        given = given_ids(ids, input)
        ids, offsets, per_sample_weights = to_bags(
            given,
            offsets,
            per_sample_weights,
            include_last_offset=self.include_last_offset,
        )
        if self._columns is not None and columns is None and given.dim() == 1:
            raise ValueError(
                "1-D ids do not say which column each stands in: give columns, one number for each"
            )
        keys, mix = self._keys(ids.view(given.shape), columns)
        return ops.hash_embedding_bag(
            keys.reshape(-1),
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
            sparse=self._sparse,
            mix=mix,
        )

    @classmethod
    def from_pretrained(cls, table: Any, freeze: bool = True, **options: Any) -> Self:
        """A layer whose vectors approximate the rows of a table, or are those of `WordVectors`.

        With `WordVectors` the layer has the same tables and hash functions, and `mode="mean"`. Its
        bags are words: their keys give exactly the vectors of the words.

        Args:
            table: as for `HashEmbedding`; or `WordVectors`.
            freeze: do not train the layer (default True, as in torch).
            **options: as for `HashEmbedding`. With `WordVectors`, arguments of the layer that the
                vectors do not determine, such as `sparse`, `device` and `dtype`.

        Example:
            >>> layer = HashEmbeddingBag.from_pretrained(vectors, freeze=False)
            >>> keys, offsets = vectors.keys(["cat", "dogs"])
            >>> layer(torch.from_numpy(keys), torch.from_numpy(offsets)).shape
            torch.Size([2, 100])
        """
        from hashembed.nn import pretrained

        if isinstance(table, pretrained.TrainedVectors):
            return pretrained.bag_layer(cls, table, options).requires_grad_(not freeze)
        return super().from_pretrained(table, freeze, **options)

    def extra_repr(self) -> str:
        """The arguments that differ from their defaults."""
        last = ", include_last_offset=True" if self.include_last_offset else ""
        return f"{super().extra_repr()}, mode={self.mode!r}{last}"


class _SparseHashEmbedding(  # type: ignore[misc,override]
    data_parallel.ExpectsSparseGradients, HashEmbedding, nn.Embedding
):
    """A `HashEmbedding` of which DDP expects sparse gradients."""


class _SparseHashEmbeddingBag(  # type: ignore[misc,override]
    data_parallel.ExpectsSparseGradients, HashEmbeddingBag, nn.EmbeddingBag
):
    """A `HashEmbeddingBag` of which DDP expects sparse gradients."""


data_parallel.TWINS.update(
    {HashEmbedding: _SparseHashEmbedding, HashEmbeddingBag: _SparseHashEmbeddingBag}
)
