"""Text to bags of 64-bit n-gram keys: Arrow strings in, `Bags` out, on all cores.

A word is a run of characters other than white space and punctuation (Unicode's categories P and
ASCII's `string.punctuation`); everything else, emoji and other symbols too, is part of a word, and
nothing else is done to the text. Where punctuation is kept, a run of it is a word, too. Bytes that
are not UTF-8 count as U+FFFD, the way `bytes.decode("utf8", "replace")` reads them.
`unicode_tables.py` holds the classes of characters.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hashembed.bags import Bags
from hashembed.text_kernels import count_words, cut_documents, fill_keys, keys_of, lay_out
from hashembed.threads import cpu_count, run_workers
from hashembed.unicode_tables import U8, U32, UNICODE_VERSION, character_table, punctuation_table
from hashembed.validation import one_of, whole_number

MAX_NGRAM = 9
MAX_SUBWORD = 32

_TASK = 1 << 20  # bytes: the share of a thread at a time, and the length of a cut in a document
_DOCUMENT = 16  # bytes: what the handling of a document costs
_TASKS_AT_ONCE = 32  # of a thread: a fraction of a second
_FEW = 64  # texts that do not go through Arrow
_BATCH = 4096  # Python objects turned into Arrow at a time

_PLAIN = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
_CONVERTIBLE = (pa.null(), pa.string_view(), pa.binary_view())

I64 = npt.NDArray[np.int64]
Punctuation = Literal["drop", "keep"]


# --- configuration ---------------------------------------------------------------------------


def _orders(name: str, value: object, most: int) -> tuple[int, int]:
    """`value` as (lowest, highest), or an error that says what is wrong."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise TypeError(f"{name} must be (lowest, highest), for example (1, 2), found {value!r}")
    lowest = whole_number(f"{name}[0]", value[0], 1, most)
    return lowest, whole_number(f"{name}[1]", value[1], lowest, most)


@dataclass(frozen=True)
class TextConfig:
    """How text becomes keys.

    ngrams: the orders of word n-grams, lowest and highest.
    lowercase: Unicode's full case folding, `str.casefold()`, of each character. It makes 'ΟΔΟΣ'
        and 'οδος', 'STRASSE' and 'straße' the same word; `str.lower()` of each character does not.
    subwords: lowest and highest length of the character n-grams of '<word>', fastText's minn and
        maxn, or None for none. '<' and '>' alone are left out.
    punctuation: "drop" it, or "keep" every run of it as a word of its own: 'C++ :-)' is then the
        words 'c', '++' and ':-)'. `docs/guides/text.md` has the exact rule.

    Keys come by the position of the first word, then by the order of the n-gram; after all n-grams
    that begin at a word come its character n-grams, by position, then by length.
    """

    ngrams: tuple[int, int] = (1, 2)
    lowercase: bool = True
    subwords: tuple[int, int] | None = None
    punctuation: Punctuation = "drop"

    def __post_init__(self) -> None:
        object.__setattr__(self, "ngrams", _orders("ngrams", self.ngrams, MAX_NGRAM))
        if not isinstance(self.lowercase, bool):
            raise TypeError(f"lowercase must be True or False, found {self.lowercase!r}")
        if self.subwords is not None:
            object.__setattr__(self, "subwords", _orders("subwords", self.subwords, MAX_SUBWORD))
        one_of("punctuation", self.punctuation, get_args(Punctuation))

    def to_dict(self) -> dict[str, Any]:
        """What `from_dict` needs, as JSON can hold it."""
        saved = {
            "ngrams": list(self.ngrams),
            "lowercase": self.lowercase,
            "subwords": list(self.subwords) if self.subwords else None,
            "unicode": UNICODE_VERSION,
        }
        if self.punctuation != "drop":  # versions that only drop it refuse what they do not know
            saved["punctuation"] = self.punctuation
        return saved

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> "TextConfig":
        """The configuration that `to_dict` described."""
        settings = dict(saved)
        version = settings.pop("unicode", UNICODE_VERSION)
        if version != UNICODE_VERSION:
            raise ValueError(
                f"the text configuration was saved for Unicode {version}, "
                f"but this version of hashembed has Unicode {UNICODE_VERSION}"
            )
        unknown = settings.keys() - cls.__dataclass_fields__.keys()
        if unknown:
            raise ValueError(f"unknown setting of the text configuration: {sorted(unknown)[0]!r}")
        return cls(**settings)


def kernel_settings(config: TextConfig) -> tuple[int, int, int, int, int]:
    """The configuration as the kernels take it, see `fill_keys`."""
    upper = 0x80808080 if config.lowercase else 0
    return (*config.ngrams, *(config.subwords or (0, 0)), upper)


def kernel_tables(config: TextConfig) -> tuple[U32, U8 | None]:
    """What becomes of characters, and which of them are punctuation, as the kernels take it."""
    keep = config.punctuation == "keep"
    return character_table(config.lowercase, keep), punctuation_table() if keep else None


# --- anything that holds texts -> Arrow ------------------------------------------------------


def to_arrow(texts: Any) -> pa.ChunkedArray:
    """Texts as one Arrow column of (large) strings or binaries; an Arrow column is not copied.

    Takes Arrow arrays, whatever offers them (Polars, pandas), NumPy arrays, lists, Hugging Face
    columns, generators. A missing text is null: None, and in pandas and NumPy also NaN and NA. A
    lone surrogate in a Python string, which no UTF-8 can hold, becomes U+FFFD.
    """
    if isinstance(texts, str | bytes | bytearray | memoryview):
        kind = type(texts).__name__
        raise TypeError(f"texts must be many texts, found one {kind}: put it in a list, [text]")
    if isinstance(texts, pa.ChunkedArray):
        return _plain(texts)
    if isinstance(texts, pa.Array):
        return _plain(pa.chunked_array([texts]))
    if isinstance(texts, np.ndarray):
        return _from_numpy(texts)
    if hasattr(texts, "__arrow_c_stream__"):
        try:
            return _plain(pa.chunked_array(texts))
        except (pa.ArrowException, UnicodeError):
            if not hasattr(texts, "to_numpy"):
                raise
    if hasattr(texts, "__arrow_array__"):
        return _plain(pa.chunked_array([pa.array(texts)]))
    if hasattr(texts, "to_numpy"):
        return _from_numpy(texts.to_numpy())
    if isinstance(texts, Sequence):  # a slice at a time: fast where elements are made on demand
        batches = (texts[i : i + _BATCH] for i in range(0, len(texts), _BATCH))
        return _from_python(batches, False)
    if isinstance(texts, Iterable) and not isinstance(texts, dict):
        return _from_python(_in_batches(iter(texts)), False)
    raise TypeError(f"texts must be a column or an iterable of str, found {type(texts).__name__}")


def _from_numpy(texts: npt.NDArray[Any]) -> pa.ChunkedArray:
    if texts.ndim != 1:
        raise TypeError(f"texts must have one dimension, found an array of shape {texts.shape}")
    batches = (texts[i : i + _BATCH].tolist() for i in range(0, len(texts), _BATCH))
    return _from_python(batches, True)


def _in_batches(texts: Iterator[Any]) -> Iterator[list[Any]]:
    while batch := list(islice(texts, _BATCH)):
        yield batch


def _from_python(batches: Iterable[Sequence[Any]], pandas: bool) -> pa.ChunkedArray:
    chunks: list[pa.Array] = []
    start = 0
    for batch in batches:
        try:
            chunks.append(_encoded(batch))
            start += len(batch)
            continue
        except (AttributeError, UnicodeEncodeError):  # not all strings, or a lone surrogate
            pass
        try:
            chunks.append(pa.array(batch, pa.large_binary(), from_pandas=pandas))
        except (pa.ArrowException, TypeError, UnicodeError):
            single = [_one_text(text, start + i, pandas) for i, text in enumerate(batch)]
            chunks.append(pa.concat_arrays(single))
        start += len(batch)
    return pa.chunked_array(chunks, pa.large_binary())


def _encoded(texts: Sequence[Any]) -> pa.Array:
    """Python's strings as Arrow. `pa.array` would do, but it imports pandas where that is."""
    encoded = [text.encode() for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_binary(), len(encoded), buffers)


def _one_text(text: Any, position: int, pandas: bool) -> pa.Array:
    """One text, where something is wrong with it or with one near it."""
    if isinstance(text, str):
        text = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    try:
        return pa.array([text], pa.large_binary(), from_pandas=pandas)
    except (pa.ArrowException, TypeError):
        found = f"{text!r:.50} of type {type(text).__name__}"
        raise TypeError(f"text {position} must be a str or None, found {found}") from None


def _plain(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same column in one of the types whose buffers are offsets and bytes."""
    if pa.types.is_dictionary(texts.type):
        return _plain(_decode_dictionary(texts))
    if texts.type in _PLAIN:
        return texts
    if texts.type in _CONVERTIBLE:
        try:
            return texts.cast(pa.large_binary())
        except pa.ArrowNotImplementedError:  # views, in older versions of Arrow
            return _from_python((chunk.to_pylist() for chunk in texts.chunks), False)
    hint = ": pass one of its columns" if pa.types.is_struct(texts.type) else ""
    raise TypeError(f"texts must be strings, found Arrow's {texts.type}{hint}")


def _decode_dictionary(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    values = [_plain(pa.chunked_array([chunk.dictionary])) for chunk in texts.chunks]
    chunks = [
        value.combine_chunks().take(chunk.indices)
        for value, chunk in zip(values, texts.chunks, strict=True)
    ]
    return pa.chunked_array(chunks, None if chunks else pa.large_string())


def _few_bytes(texts: list[Any]) -> tuple[npt.NDArray[np.uint8], I64, I64] | None:
    """A few strings as bytes, with their starts and ends; None if they are anything else.

    Without Arrow, which costs more than a short text's keys, and a second when it first finds
    pandas.
    """
    try:
        encoded = [text.encode() for text in texts]
    except (AttributeError, UnicodeEncodeError):  # not strings, or a lone surrogate
        return None
    ends = np.array([len(text) for text in encoded], np.int64).cumsum()
    data = np.frombuffer(b"".join(encoded), np.uint8)
    if len(data) > _TASK:
        return None
    starts = np.zeros(len(encoded), np.int64)
    starts[1:] = ends[:-1]
    return data, starts, ends


# --- Arrow -> keys ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Column:
    """A piece of Arrow as the kernels read it: documents, those that are long in segments."""

    data: npt.NDArray[np.uint8]
    starts: I64  # (segments,)
    ends: I64  # (segments,)
    last: npt.NDArray[np.bool_]  # (segments,): whether the document ends there
    before: int = 0  # segments in the columns before this one

    def tasks(self) -> list[tuple["_Column", int, int]]:
        """Ranges of segments that cost about the same."""
        count = len(self.starts)
        if count == 0:
            return []
        costs = self.starts - self.starts[0] + _DOCUMENT * np.arange(count)
        cuts = np.searchsorted(costs, np.arange(_TASK, costs[-1] + 1, _TASK))
        edges = np.unique(np.concatenate([[0], cuts, [count]])).tolist()
        return [(self, first, stop) for first, stop in pairwise(edges)]


def documents(chunk: pa.Array) -> tuple[npt.NDArray[np.uint8], I64, I64]:
    """The bytes behind a piece of Arrow, and where each text begins and ends; nulls are empty."""
    _, offsets_buffer, data_buffer = chunk.buffers()
    data = np.frombuffer(data_buffer or b"", np.uint8)
    data.flags.writeable = False  # one type for Numba, whatever Arrow's buffer was
    offsets = np.zeros(1, np.int64)
    if len(chunk):
        wide = pa.types.is_large_string(chunk.type) or pa.types.is_large_binary(chunk.type)
        width = np.dtype(np.int64 if wide else np.int32)
        start = chunk.offset * width.itemsize
        offsets = np.frombuffer(offsets_buffer, width, len(chunk) + 1, start).astype(np.int64)
    starts, ends = offsets[:-1], offsets[1:]
    if offsets[0] < 0 or offsets[-1] > len(data) or (starts > ends).any():
        raise ValueError("texts hold a damaged Arrow array: offsets that fall or leave the data")
    if chunk.null_count:
        ends = np.where(chunk.is_null().to_numpy(zero_copy_only=False), starts, ends)
    return data, starts, ends


def _column(chunk: pa.Array, table: npt.NDArray[np.uint32]) -> _Column:
    data, starts, ends = documents(chunk)
    last = np.ones(len(chunk), np.bool_)
    if (ends - starts).max(initial=0) > 2 * _TASK:
        starts, ends, last = cut_documents(data, starts, ends, table, _TASK)
    return _Column(data, starts, ends, last)


def _grouped(chunks: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """The same texts with small chunks put together."""
    group: list[pa.Array] = []
    size = 0
    for chunk in chunks:
        if group and size + chunk.nbytes > _TASK:
            yield pa.concat_arrays(group) if len(group) > 1 else group[0]
            group, size = [], 0
        group.append(chunk)
        size += chunk.nbytes
    if group:
        yield pa.concat_arrays(group) if len(group) > 1 else group[0]


def _run(work: Callable[[tuple[_Column, int, int]], None], tasks: list[Any], threads: int) -> None:
    """Do all tasks, some at a time: Ctrl-C is heard in between."""
    at_once = max(_TASKS_AT_ONCE * threads, 1)
    for first in range(0, len(tasks), at_once):
        group = tasks[first : first + at_once]
        waiting = iter(group)  # each worker takes the next; one step of an iterator is atomic

        def take_tasks(worker: int, workers: int, barrier: Any, waiting: Any = waiting) -> None:
            for task in waiting:
                work(task)

        run_workers(take_tasks, min(threads, len(group)))


def text_to_bags(texts: Any, config: TextConfig | None = None, threads: int | None = None) -> Bags:
    """One bag of keys for each text; a null is an empty bag. `to_arrow` says what texts may be.

    `threads`: None is all cores. First every word is counted, then every key is written to its
    place, so that the result is the same for any number, and nothing but the result is large.
    """
    config = config or TextConfig()
    tables, settings = kernel_tables(config), kernel_settings(config)
    if type(texts) is list and len(texts) <= _FEW:
        few = _few_bytes(texts)
        if few is not None:
            return Bags.trusted(*keys_of(*few, *tables, settings))
    columns: list[_Column] = []
    count = 0
    for chunk in _grouped(to_arrow(texts).chunks):
        columns.append(replace(_column(chunk, tables[0]), before=count))
        count += len(columns[-1].starts)
    tasks = [task for column in columns for task in column.tasks()]
    last = np.concatenate([np.empty(0, np.bool_), *(column.last for column in columns)])
    words, pieces, places = np.zeros((3, count), np.int64)

    def count_task(task: tuple[_Column, int, int]) -> None:
        c, first, stop = task
        own = slice(c.before, c.before + len(c.starts))
        count_words(
            c.data, c.starts, c.ends, first, stop, *tables, settings, words[own], pieces[own]
        )

    def fill_task(task: tuple[_Column, int, int]) -> None:
        c, first, stop = task
        place = places[c.before + first]
        fill_keys(c.data, c.starts, c.ends, c.last, first, stop, *tables, settings, keys, place)

    threads = threads or cpu_count()
    _run(count_task, tasks, threads)
    offsets = np.zeros(1 + np.count_nonzero(last), np.int64)
    lay_out(words, pieces, last, settings, offsets, places)
    keys = np.empty(offsets[-1], np.int64)
    _run(fill_task, tasks, threads)
    return Bags(keys, offsets)
