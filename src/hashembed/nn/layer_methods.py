"""What the two layers have in common beside the look-up."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from hashembed.hashing.spec import Indexing
from hashembed.nn.hash_buffers import HashedModule
from hashembed.nn.inputs import check_ids

if TYPE_CHECKING:
    from hashembed.hashing.diagnosis import Diagnosis
    from hashembed.nn.pretrained import TableFit


class LayerMethods(HashedModule):
    """Sizes, diagnosis, scores of ids, and vectors from a table that exists already."""

    importance: nn.Parameter | None
    padding_idx: int | None
    pretrained: "TableFit | None" = None  # how well `from_pretrained` or `fit_table` did

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
    def columns(self) -> int | list[int] | None:
        """The number of columns, or with `indexing="identity"` the size of each."""
        return None if self._columns is None else self._columns.argument

    @property
    def seed(self) -> int:
        """The seed of the hash functions."""
        if self._was_written():
            self._reconcile()
        return self.spec.seed

    def freeze(self) -> Self:
        """Train no table of this layer from now on; `requires_grad_()` undoes it."""
        return self.requires_grad_(False)

    def logits(self, hidden: Tensor, ids: Tensor, *, columns: Tensor | int | None = None) -> Tensor:
        """Scores of candidate ids: the dot products of hidden states and the vectors of the ids.

        This is an output layer whose weights are tied to the embedding. It takes whichever way
        needs fewer products: the vectors of all candidates and then their dot products, or the dot
        products of all component vectors first.

        Args:
            hidden: hidden states (..., output_dim).
            ids: candidates, the same for all states (V,), or different ones (..., V).
            columns: if the layer has columns, the column of the candidates.

        Returns:
            Scores (..., V).

        Example:
            >>> layer = HashEmbedding(50_000, 64, init="transformer")
            >>> layer.logits(torch.rand(8, 64), torch.arange(50_000)).shape
            torch.Size([8, 50000])
        """
        from hashembed.nn import tied

        return tied.logits(self, hidden, check_ids("ids", ids), columns)  # type: ignore[arg-type]

    def diagnose(self, ids: Tensor, *, columns: Tensor | int | None = None) -> "Diagnosis":
        """Count the distinct ids of some data, and how many of them collide.

        Diagnoses of several batches can be added: `total = total + layer.diagnose(ids)`.

        Args:
            ids: ids as the layer takes them, of any shape. Ids equal to `padding_idx` do not count.
            columns: as in a call of the layer.

        Returns:
            A `Diagnosis`; printing it shows a table and what to change.
        """
        from hashembed.hashing.diagnosis import Diagnosis

        ids = check_ids("ids", ids)
        keys = self._all_keys(ids, columns)
        if self.padding_idx is not None:
            keys = keys[ids != self.padding_idx]
        if self._was_written():
            self._reconcile()
        found = keys.reshape(-1).cpu().numpy()
        return Diagnosis(self.spec, np.unique(found), len(found), self.importance is not None)

    def fit_table(
        self,
        table: Tensor,
        ids: Tensor | None = None,
        *,
        columns: Tensor | int | None = None,
        sweeps: int = 30,
    ) -> "TableFit":
        """Choose E and P so that the vectors of ids approximate the rows of a table.

        Alternating least squares: the weights of each id given the component vectors, and the
        component vectors given the weights. The same table and layer give the same values.

        Args:
            table: one row for each id, (n, embedding_dim).
            ids: the ids of the rows, (n,). None (default): 0 to n - 1.
            columns: if the layer has columns, the column of each row.
            sweeps: the most times that both steps are done (default 30); it stops earlier when the
                error hardly falls.

        Returns:
            A `TableFit` with the errors, also kept in the attribute `pretrained`.
        """
        from hashembed.nn import pretrained

        fit = pretrained.fit(self, table, ids, columns, sweeps)  # type: ignore[arg-type]
        self.pretrained = fit
        return fit

    @classmethod
    def from_pretrained(
        cls,
        table: Tensor,
        freeze: bool = True,
        *,
        ids: Tensor | None = None,
        sweeps: int = 30,
        **options: Any,
    ) -> Self:
        """A layer whose vectors approximate the rows of a given table.

        It has fewer numbers than the table, so the vectors are not those of the table. The
        attribute `pretrained` tells how far they are from them. More buckets come closer.

        Args:
            table: one row for each id, (n, d).
            freeze: do not train the layer (default True, as in torch).
            ids: the ids of the rows, (n,). None (default): 0 to n - 1.
            sweeps: as in `fit_table`.
            **options: arguments of the layer. `num_embeddings` is n by default, `indexing`
                "identity" without ids and "independent" with them.
        """
        from hashembed.nn import pretrained

        made = pretrained.layer_for(cls, table, ids, options)
        fit = made.fit_table(table, ids, sweeps=sweeps)
        pretrained.warn_if_far(fit, made.num_buckets, made.num_hashes)
        return made.requires_grad_(not freeze)

    def _keys(self, ids: Tensor, columns: Tensor | int | None) -> tuple[Tensor, int]:
        raise NotImplementedError

    def _all_keys(self, ids: Tensor, columns: Tensor | int | None) -> Tensor:
        """The keys of ids, in their shape."""
        from hashembed.nn.ops import dispatch as ops

        keys, mix = self._keys(ids, columns)
        with torch.no_grad():
            return ops.id_keys(keys, count=mix) if mix else keys
