"""The component vectors of a model: numbers in memory, or codes of a few bits in a file."""

from functools import cached_property
from typing import Any

import numpy as np

from hashembed.core.arrays import F32, I64, U8, distinct
from hashembed.engine.shallow.arrays import padded_rows
from hashembed.hashing.spec import GOLDEN, fmix32
from hashembed.vectors.coding import decode_rows

_FEW = 8  # one in this many rows is decoded by itself; more rows are worth the whole table


class RowTable:
    """E (B, d), whose rows are padded with zeros."""

    def __init__(self, whole: F32, dim: int) -> None:
        self.whole, self.dim = whole, dim

    def __len__(self) -> int:
        return len(self.whole)

    def rows(self, buckets: Any) -> tuple[F32, Any]:
        """A table with at least the rows `buckets`, and the places of these rows in it."""
        return self.whole, buckets


class CodedRows(RowTable):
    """The same from codes, which may stay in a file (`FileRows`)."""

    def __init__(self, codes: Any, scales: Any, bits: int, dim: int) -> None:
        self.codes, self.scales, self.bits, self.dim = codes, scales, bits, dim

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def whole(self) -> F32:  # type: ignore[override]
        """All rows, decoded."""
        return self._decoded(slice(None))

    def rows(self, buckets: Any) -> tuple[F32, Any]:
        """Only the rows `buckets`, if they are few."""
        if "whole" in self.__dict__ or buckets.size * _FEW > len(self):
            return self.whole, buckets
        wanted = distinct(buckets.reshape(-1))
        return self._decoded(wanted), np.searchsorted(wanted, buckets)

    def _decoded(self, rows: Any) -> F32:
        codes, scales = self.codes[rows], self.scales[rows]
        table = padded_rows(len(codes), self.dim)
        table[:, self.dim :] = 0
        decode_rows(np.asarray(codes), np.asarray(scales), self.bits, table[:, : self.dim])
        return table


class CodedWeights:
    """P (K, k) from codes of 8 bits: `weights[rows]` decodes some rows."""

    def __init__(self, codes: Any, scales: Any) -> None:
        self.codes, self.scales = codes, scales
        self.shape = codes.shape

    @cached_property
    def whole(self) -> F32:
        """All rows, decoded."""
        return self._decoded(slice(None))

    def __getitem__(self, rows: Any) -> F32:
        if "whole" in self.__dict__ or rows.size * _FEW > len(self.codes):
            return np.asarray(self.whole[rows])
        wanted = distinct(rows.reshape(-1))
        return np.asarray(self._decoded(wanted)[np.searchsorted(wanted, rows)])

    def _decoded(self, rows: Any) -> F32:
        codes = np.asarray(self.codes[rows])
        out = np.empty(codes.shape, np.float32)
        decode_rows(codes, np.asarray(self.scales[rows]), 8, out)
        return out


class SignWeights:
    """P (K, k) of signs that follow from the row's number; rows that no word has are 0.

    used: (K / 8,), a bit for each row.
    """

    def __init__(self, used: U8, shape: tuple[int, int]) -> None:
        self.used, self.shape = used, shape

    @classmethod
    def of_rows(cls, rows: I64, shape: tuple[int, int]) -> "SignWeights":
        """Weights that are not 0 in these rows."""
        used = np.zeros(shape[0], np.bool_)
        used[rows] = True
        return cls(np.packbits(used, bitorder="little"), shape)

    @property
    def whole(self) -> F32:
        """All rows."""
        return self[np.arange(self.shape[0])]

    def __getitem__(self, rows: Any) -> F32:
        rows = np.asarray(rows)
        used = self.used[rows >> 3] >> (rows & 7).astype(np.uint8) & np.uint8(1)
        bits = fmix32(rows.astype(np.uint32) + np.uint32(GOLDEN))[..., None]
        signs = bits >> np.arange(self.shape[1], dtype=np.uint32) & np.uint32(1)
        return np.asarray((2 * signs.astype(np.float32) - 1) * used[..., None], np.float32)
