"""A shallow model that keeps only some rows of E in memory: those of a compressed model.

The table E of a compressed model has millions of rows, and nearly all are zero. This model knows
the numbers of the others. Before anything else it replaces each n-gram by the place of its bucket
among them, and leaves n-grams out whose bucket is zero.
"""

from typing import NamedTuple

import numpy as np

from hashembed.core.arrays import F32, F64, I64, U32
from hashembed.core.threads import cpu_count
from hashembed.engine.coded import Stored
from hashembed.engine.labels import Labels
from hashembed.engine.packed import PackedTable
from hashembed.engine.protocol import State
from hashembed.engine.shallow.listed_kernels import BLOCK_BITS, keep_listed
from hashembed.engine.shallow.model import ShallowModel
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec


class Listed(NamedTuple):
    """The numbers of the rows that are kept, rising, and where those of each block begin."""

    rows: U32  # (n,)
    blocks: U32  # (blocks + 1,)

    @classmethod
    def of(cls, rows: I64, num_buckets: int) -> "Listed":
        """An index of these rows."""
        ends = np.arange(-(-num_buckets >> BLOCK_BITS) + 1, dtype=np.int64) << BLOCK_BITS
        ends = np.append(ends, ends[-1] + (1 << BLOCK_BITS))
        blocks = np.searchsorted(rows, ends).astype(np.uint32)
        return cls(np.ascontiguousarray(rows, np.uint32), blocks)


class ListedModel(ShallowModel):
    """Without importance weights, with one hash function, and with the rows of E that are listed.

    `spec` says which bucket an n-gram has; the rows of `memory.E` are those of `listed.rows`.
    Training updates these rows only.
    """

    listed: Listed

    @classmethod
    def from_rows(
        cls,
        spec: HashSpec,
        rows: I64,
        tensors: Stored,
        *,
        multilabel: bool = False,
        threads: int | None = None,
    ) -> "ListedModel":
        """A model with these rows of E, rising. tensors: E (rows, d), W and bias."""
        if spec.num_hashes != 1 or spec.indexing != "independent":
            raise ValueError(f"listed rows need one independent hash function, found {spec}")
        self = cls.__new__(cls)
        self.spec, self.importance, self.multilabel = spec, False, multilabel
        self.threads = threads or cpu_count()
        self.listed = Listed.of(rows, spec.num_buckets)
        self._prepare(max(len(rows), 1), tensors["E"].shape[1], tensors["W"].shape[0])
        self.memory.E[:] = 0
        np.copyto(self.tables.E[: len(rows)], np.asarray(tensors["E"]))
        np.copyto(self.tables.W, np.asarray(tensors["W"]))
        np.copyto(self.memory.bias, np.asarray(tensors["bias"]))
        return self

    @classmethod
    def from_packed(
        cls, spec: HashSpec, tensors: Stored, *, multilabel: bool, threads: int | None
    ) -> "ListedModel":
        """The model of a file. tensors: E, packed, W and bias."""
        packed = tensors["E"]
        assert isinstance(packed, PackedTable)
        rows, numbers = packed.kept()
        return cls.from_rows(
            spec, rows, {**tensors, "E": numbers}, multilabel=multilabel, threads=threads
        )

    @property
    def table_spec(self) -> HashSpec:
        """What the kernels get is the place of a row."""
        rows = len(self.memory.E)
        return HashSpec(rows, rows, 1, "identity", self.spec.seed)

    def known(self, bags: Bags) -> Bags:
        """The places of the n-grams whose row is kept."""
        keys, offsets = np.empty(len(bags.keys), np.int64), np.empty_like(bags.offsets)
        listed, blocks = self.listed
        count = keep_listed(
            np.ascontiguousarray(bags.keys), np.ascontiguousarray(bags.offsets),
            self.memory.seeds[1], self.spec.num_buckets, listed, blocks, keys, offsets,
        )  # fmt: skip
        return Bags.trusted(keys[:count], offsets)

    def components(self, keys: I64) -> F64:
        """The rows of E of each key (n, 1, d): zero where the row is not kept."""
        found = self.known(Bags.trusted(keys, np.arange(len(keys) + 1)))
        out = np.zeros((len(keys), 1, self.embedding_dim))
        out[found.lengths > 0, 0] = self.tables.E[found.keys]
        return out

    def train(
        self,
        bags: Bags,
        labels: Labels,
        order: I64,
        rates: F32,
        *,
        batch_size: int = 256,
        weights: F32 | None = None,
        snippets: tuple[I64, I64] | None = None,
    ) -> F32:
        """Train on whole documents; see `ShallowModel.train`."""
        if snippets is not None:
            raise ValueError("a compressed model trains on whole documents, found snippets")
        return super().train(
            self.known(bags), labels, order, rates, batch_size=batch_size, weights=weights
        )

    def _outputs(self, bags: Bags, W: F32, bias: F32) -> F32:
        return super()._outputs(self.known(bags), W, bias)

    def _check_ids(self, keys: I64) -> None:
        """The kernel found them."""

    def tensors(self) -> State:
        """Copies of the kept rows of E, of W and of the bias."""
        tables = self.tables
        kept = tables.E[: len(self.listed.rows)].copy()
        return {"E": kept, "W": tables.W.copy(), "bias": tables.bias.copy()}
