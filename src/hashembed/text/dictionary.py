"""The paper's D1 as a dictionary: the most frequent n-grams of a corpus, and their ids.

An n-gram is identified by its 64-bit key. In a corpus with T distinct n-grams the chance that any
two share a key is about T^2 / 2^65 (3% for a billion); they then count as one.
`text/counts/exact.py` finds the keys. Another pass over the texts finds the string of each at the
first place where it occurs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hashembed.core.arrays import I64, U8, Bools
from hashembed.core.arrow_columns import number_column, text_column
from hashembed.core.checks import one_of, whole_number
from hashembed.core.threads import cpu_count, run_workers
from hashembed.hashing.bags import Bags
from hashembed.hashing.scalars import SALT
from hashembed.text.arrow import documents
from hashembed.text.config import TextConfig
from hashembed.text.counts.exact import Corpus, Counter, FrequentKeys, Texts
from hashembed.text.counts.kernels import (
    build_index,
    first_places,
    front_code,
    front_decode,
    look_up,
)
from hashembed.text.pipeline import kernel_rules, text_to_bags
from hashembed.text.span_kernels import NO_LIMIT, cut_ngrams

NGRAMS = (1, 9)  # the paper's n < 10
SIZE = 1_000_000
MEMORY = 1 << 29

Unknown = Literal["drop", "share"]
Numbers = npt.NDArray[Any]


class Spelled(NamedTuple):
    """Some n-grams of a dictionary and their strings."""

    ranks: I64
    strings: pa.LargeStringArray


class Dictionary:
    """The most frequent n-grams of a corpus, by decreasing frequency.

    The rank of an n-gram is its id. Equally frequent n-grams are ordered by their keys (as signed
    integers), so that a dictionary does not depend on the order of the texts.

    Example:
        >>> dictionary = Dictionary.count(["a b a", "a b"], TextConfig((1, 2)), size=3)
        >>> dictionary.strings.to_pylist(), dictionary.counts.tolist()
        (['a', 'b', 'a b'], [3, 2, 2])
        >>> dictionary.bags(["b a c"]).keys.tolist()
        [1, 0]
    """

    def __init__(
        self, config: TextConfig, keys: I64, counts: I64, strings: pa.LargeStringArray
    ) -> None:
        self.config, self.keys, self.counts, self.strings = config, keys, counts, strings
        slots = 1 << max(1, 2 * len(keys) - 1).bit_length()
        self._slots = np.zeros(slots, np.int32)
        self._salt = SALT  # a pickled dictionary keeps it: the slots depend on it
        build_index(keys, self._slots, self._salt)

    @classmethod
    def count(
        cls,
        texts: Texts,
        config: TextConfig | None = None,
        size: int = SIZE,
        *,
        min_count: int = 1,
        stop: Sequence[str] = (),
        memory: int = MEMORY,
        threads: int | None = None,
    ) -> "Dictionary":
        """Count a corpus.

        Args:
            texts: a column of texts; or, for a corpus larger than memory, a function that returns
                an iterable of columns. It is called several times. Single texts are held whole.
            config: how text becomes n-grams; None is the paper's 1- to 9-grams.
            size: keep at most this many n-grams.
            min_count: drop n-grams that are less frequent.
            stop: n-grams to leave out. A word leaves out that word, not longer n-grams with it.
            memory: bytes for the sketch and the tables. Selecting from a table may briefly need as
                much again, and the n-grams kept need memory in addition.
            threads: None is all cores.
        """
        config = config or TextConfig(NGRAMS)
        workers = threads or cpu_count()
        corpus = Corpus(texts, replace(config, repeats="all"))
        self = cls.without_strings(
            lambda: Counter(corpus, memory, workers), config, size, min_count, stop, memory
        )
        self.strings = _spell_out(self, corpus, workers)
        return self

    @classmethod
    def without_strings(
        cls,
        counter: Callable[[], FrequentKeys],
        config: TextConfig,
        size: int,
        min_count: int,
        stop: Sequence[str],
        memory: int,
    ) -> "Dictionary":
        """The keys of a dictionary, by a counter that is made once the arguments are checked."""
        if config.subwords:
            raise ValueError(
                "a dictionary holds n-grams of words, but the text configuration has "
                f"subwords={config.subwords}"
            )
        whole_number("size", size, 1, 2**31 - 1)
        whole_number("min_count", min_count, 1, 2**31 - 1)
        whole_number("memory", memory, 1 << 16, 1 << 36)
        stopped = _own_keys(text_column(stop), config)
        keys, counts = counter().most_frequent(size + len(stopped), min_count)
        kept = np.flatnonzero(~np.isin(keys, stopped))[:size]
        return cls(config, keys[kept], counts[kept], text_column([]))

    def spell(self, piece: pa.Array, config: TextConfig, seen: Bools, workers: int) -> Spelled:
        """The n-grams of some texts that were not `seen` before, and their strings.

        config: how text is read; repeated n-grams must count. The n-grams found are marked as seen.
        """
        bags = text_to_bags(piece, config, workers)
        ranks = self.ranks(bags.keys, workers)
        places = np.empty(min(len(ranks), int(np.count_nonzero(~seen))), np.int64)
        places = places[: first_places(ranks, places, seen)]
        cut = cut_ngrams(documents(piece), bags.offsets, places, kernel_rules(config), NO_LIMIT)
        return Spelled(ranks[places], _strings(cut.texts, np.append(0, cut.ends)))

    def __len__(self) -> int:
        return len(self.keys)

    def first(self, size: int) -> "Dictionary":
        """A dictionary of the `size` most frequent n-grams."""
        whole_number("size", size, 0, len(self))
        return Dictionary(
            self.config, self.keys[:size], self.counts[:size], self.strings.slice(0, size)
        )

    def ranks(self, keys: I64, threads: int | None = None) -> I64:
        """The ranks of n-gram keys; -1 for those that are not in the dictionary."""
        ranks = np.empty(len(keys), np.int64)
        workers = (threads or cpu_count()) if len(keys) > 100_000 else 1
        table = self.keys, self._slots, self._salt
        run_workers(look_up, workers, np.ascontiguousarray(keys), *table, ranks)
        return ranks

    def bags(self, texts: Texts, unknown: Unknown = "drop", threads: int | None = None) -> Bags:
        """Bags of ranks, for a model with `identity` indexing; texts as for `count`.

        N-grams that are not in the dictionary are dropped, or all get the id len(dictionary).
        `num_embeddings(unknown)` is the number of ids.
        """
        one_of("unknown", unknown, ("drop", "share"))
        parts = []
        for piece in Corpus(texts, self.config).pieces():
            bags = text_to_bags(piece, self.config)
            ranks, offsets = self.ranks(bags.keys, threads), bags.offsets
            if unknown == "share":
                ranks[ranks < 0] = len(self)
            else:
                known = ranks >= 0
                offsets = np.concatenate([[0], np.cumsum(known)])[offsets]
                ranks = ranks[known]
            parts.append(Bags(ranks, offsets))
        return Bags.concat(parts)

    def num_embeddings(self, unknown: Unknown = "drop") -> int:
        """The number of ids that `bags` may return."""
        return len(self) + (unknown == "share")

    def tensors(self) -> dict[str, Numbers]:
        """The dictionary as arrays to save with a model, together with `config.to_dict()`.

        Strings are sorted by their bytes and front-coded: the number of bytes that each shares with
        the one before, and the bytes that follow. Keys are not saved: the strings determine them.
        """
        data, offsets = _buffers(self.strings)
        import pyarrow.compute as pc

        order = pc.sort_indices(self.strings.cast(pa.large_binary())).to_numpy().astype(np.uint32)
        shared, tails = np.empty(len(self), np.uint8), np.empty(len(self), np.uint32)
        rest = np.empty(len(data), np.uint8)
        used = front_code(data, offsets, order, shared, tails, rest)
        return {
            "dictionary.shared": shared,
            "dictionary.tails": _narrow(tails),
            "dictionary.rest": rest[:used].copy(),
            "dictionary.ranks": order,
            "dictionary.counts": _narrow(self.counts),
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Numbers], config: TextConfig) -> "Dictionary":
        """The dictionary that `tensors` described."""
        strings, counts = saved_strings(tensors)
        folded = replace(config, lowercase=False)  # the strings are folded already
        return cls(config, _own_keys(strings, folded), counts, strings)


def saved_strings(tensors: Mapping[str, Numbers]) -> tuple[pa.LargeStringArray, I64]:
    """The strings and counts of the dictionary that `Dictionary.tensors` described."""
    shared, tails, rest, order, counts = (
        tensors[f"dictionary.{name}"] for name in ("shared", "tails", "rest", "ranks", "counts")
    )
    _check_saved(shared, tails, rest, order, counts)
    sizes = shared.astype(np.int64) + tails
    offsets = np.zeros(len(order) + 1, np.int64)
    in_order = np.empty(len(order), np.int64)
    in_order[order] = sizes
    np.cumsum(in_order, out=offsets[1:])
    data = np.empty(offsets[-1], np.uint8)
    added, places = tails.astype(np.uint32), order.astype(np.uint32)
    front_decode(rest, shared, added, places, offsets, data)
    strings = _strings(data, offsets)
    strings.validate(full=True)  # its bytes came from a file
    return strings, counts.astype(np.int64)


def _check_saved(shared: U8, tails: Numbers, rest: U8, order: Numbers, counts: Numbers) -> None:
    """Refuse arrays that no dictionary produces: decoding them would go out of bounds."""
    arrays = (shared, tails, rest, order, counts)
    typed = all(array.ndim == 1 and array.dtype.kind == "u" for array in arrays)
    if not (
        typed
        and shared.dtype == rest.dtype == np.uint8
        and len(shared) == len(tails) == len(order) == len(counts)
        and int(tails.sum(dtype=np.int64)) == len(rest)
        and np.array_equal(np.sort(order), np.arange(len(order)))
        and (shared[:1] == 0).all()
        and (shared[1:] <= shared[:-1].astype(np.int64) + tails[:-1]).all()
    ):
        raise ValueError("the arrays of a dictionary do not fit each other: they are damaged")


def _spell_out(dictionary: Dictionary, corpus: Corpus, workers: int) -> pa.LargeStringArray:
    """The string of each key, from the first place where it occurs."""
    seen = np.zeros(len(dictionary), np.bool_)
    parts: list[Spelled] = []
    for piece in corpus.pieces():
        if seen.all():
            break
        parts.append(dictionary.spell(piece, corpus.config, seen, workers))
    return in_order_of_ranks(parts, len(dictionary))


def in_order_of_ranks(parts: Sequence[Spelled], size: int) -> pa.LargeStringArray:
    """The strings of all ranks, each of which is in one of the parts."""
    ranks = np.concatenate([np.empty(0, np.int64), *(part.ranks for part in parts)])
    if left := size - len(ranks):
        raise ValueError(f"the texts changed: {left:,} n-grams were not found again")
    if not parts:
        return text_column([])
    order = np.argsort(ranks)
    return pa.concat_arrays([part.strings for part in parts]).take(number_column(order))


def _own_keys(strings: pa.LargeStringArray, config: TextConfig) -> I64:
    """The key of each string as one n-gram of all its words."""
    bags = text_to_bags(strings, replace(config, ngrams=(1, 9), repeats="all"))
    words = (bags.lengths + 36) // 9  # of 9 or more; fewer have m (m + 1) / 2 n-grams
    small = bags.lengths < 45
    words[small] = np.round((np.sqrt(8 * bags.lengths[small] + 1) - 1) / 2).astype(np.int64)
    bad = np.flatnonzero((words < 1) | (words > 9))
    if len(bad):
        found = strings[int(bad[0])].as_py()
        raise ValueError(f"an n-gram has 1 to 9 words, found {found!r}")
    keys: I64 = bags.keys[bags.offsets[:-1] + words - 1]
    return keys


def _buffers(strings: pa.LargeStringArray) -> tuple[U8, I64]:
    """The bytes and the offsets of an Arrow column of large strings."""
    _, offsets, data = strings.buffers()
    first = strings.offset
    found = np.frombuffer(offsets, np.int64)[first : first + len(strings) + 1] if offsets else [0]
    view = np.frombuffer(data or b"", np.uint8)
    view.flags.writeable = False  # one type for Numba, whatever Arrow's buffer was
    return view, np.array(found, np.int64)


def _strings(data: U8, offsets: I64) -> pa.LargeStringArray:
    buffers = pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(data))
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, *buffers)


def _narrow(numbers: Numbers) -> Numbers:
    """The same numbers in the smallest unsigned type that holds them."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))
