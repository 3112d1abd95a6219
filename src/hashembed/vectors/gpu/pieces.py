"""The corpus in chunks: pieces of the CPU's size with its seeds, thinned out on the CPU."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hashembed.core.arrays import F32, I32, I64, U32
from hashembed.vectors.plan_kernels import thin_out
from hashembed.vectors.settings import VectorSettings
from hashembed.vectors.training import PIECE, negatives_seed, seed_of_piece

CHUNK = 1 << 18  # words in a chunk after thinning, at least, unless the pass ends


class PieceRecord(NamedTuple):
    """One piece of a chunk, for reports of progress."""

    epoch: int
    done: int  # words read at its end, in all passes
    batches: int


class Chunk(NamedTuple):
    """Pieces that are planned together."""

    pieces: list[PieceRecord]
    words: I32  # (n,)
    texts: I32  # (n,): ascending; different texts, and texts of different pieces, differ
    windows: I32  # (n,)
    example_starts: I32  # (batches + 1,)
    numbers: I64  # (batches,): of a batch in its piece
    seeds: I64  # (batches,): of the negatives
    rates: F32  # (batches,)


class _Piece(NamedTuple):
    record: PieceRecord
    words: I32
    texts: I32
    windows: I32
    text_count: int
    seed: int
    rates: F32


class Pieces:
    """All passes over the ids of a corpus."""

    def __init__(self, ids: I32, keep: U32, settings: VectorSettings, batch_size: int) -> None:
        self.ids, self.keep, self.settings, self.batch_size = ids, keep, settings, batch_size
        self.total = len(ids) * settings.passes

    def chunks(self) -> Iterator[Chunk]:
        """The chunks of all passes; a chunk belongs to one pass."""
        for epoch in range(self.settings.passes):
            pieces: list[_Piece] = []
            for first in range(0, len(self.ids), PIECE):
                pieces.append(self._thinned(epoch, first))
                if sum(len(piece.words) for piece in pieces) >= CHUNK:
                    yield self._chunk(pieces)
                    pieces = []
            if pieces:
                yield self._chunk(pieces)

    def _thinned(self, epoch: int, first: int) -> _Piece:
        """One piece; the CPU's `Trainer` has the same seeds and rates."""
        settings = self.settings
        ids = np.ascontiguousarray(self.ids[first : first + PIECE])
        done = epoch * len(self.ids) + first
        seed = seed_of_piece(settings.seed, done)
        words, texts, windows = np.empty((3, len(ids)), np.int32)
        kept = thin_out(ids, self.keep, settings.window, seed, words, texts, windows)
        batches = -(-kept // self.batch_size)
        starts = np.arange(batches) * self.batch_size / max(kept, 1) * len(ids) + done
        rates = np.array([settings.rate_at(at / self.total) for at in starts], np.float32)
        record = PieceRecord(epoch, done + len(ids), batches)
        count = int(texts[kept - 1]) + 1 if kept else 0
        negatives = negatives_seed(seed)
        return _Piece(record, words[:kept], texts[:kept], windows[:kept], count, negatives, rates)

    def _chunk(self, pieces: list[_Piece]) -> Chunk:
        starts, first, texts_before, texts = [np.zeros(1, np.int32)], 0, 0, []
        for piece in pieces:
            size = len(piece.words)
            ends = np.arange(1, piece.record.batches + 1) * self.batch_size
            starts.append((first + np.minimum(ends, size)).astype(np.int32))
            texts.append(piece.texts + np.int32(texts_before))
            first, texts_before = first + size, texts_before + piece.text_count
        batches = [piece.record.batches for piece in pieces]
        return Chunk(
            [piece.record for piece in pieces],
            np.concatenate([piece.words for piece in pieces]),
            np.concatenate(texts),
            np.concatenate([piece.windows for piece in pieces]),
            np.concatenate(starts),
            np.concatenate([np.arange(count, dtype=np.int64) for count in batches]),
            np.repeat(np.array([piece.seed for piece in pieces], np.int64), batches),
            np.concatenate([piece.rates for piece in pieces]),
        )
