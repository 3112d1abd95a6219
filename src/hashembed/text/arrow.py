"""Converts anything that holds texts to Arrow columns, and these to the bytes that kernels read."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hashembed.core.arrays import I64, U8
from hashembed.core.arrow_columns import null_mask, text_column

_BATCH = 4096  # Python objects converted to Arrow at a time

_PLAIN = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
_CONVERTIBLE = (pa.null(), pa.string_view(), pa.binary_view())


def to_arrow(texts: Any) -> pa.ChunkedArray:
    """Texts as one Arrow column of (large) strings or binaries; an Arrow column is not copied.

    Takes Arrow arrays, objects that export them (Polars, pandas), NumPy arrays, lists, Hugging Face
    columns, generators. A missing text is null: None, and in pandas and NumPy also NaN and NA. A
    lone surrogate in a Python string, which UTF-8 cannot encode, becomes U+FFFD.
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
            chunks.append(text_column(batch, pa.large_binary()))
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


def _one_text(text: Any, position: int, pandas: bool) -> pa.Array:
    """One text of a batch that could not be converted as a whole."""
    if isinstance(text, str):
        text = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    try:
        return pa.array([text], pa.large_binary(), from_pandas=pandas)
    except (pa.ArrowException, TypeError):
        found = f"{text!r:.50} of type {type(text).__name__}"
        raise TypeError(f"text {position} must be a str or None, found {found}") from None


def _plain(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in one of the types whose buffers are offsets and bytes."""
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


def documents(chunk: pa.Array) -> tuple[U8, I64, I64]:
    """The bytes of an Arrow array, and where each text begins and ends; nulls are empty."""
    _, offsets_buffer, data_buffer = chunk.buffers()
    data = np.frombuffer(data_buffer or b"", np.uint8)
    data.flags.writeable = False  # so that Numba always sees the same type
    offsets = np.zeros(1, np.int64)
    if len(chunk):
        wide = pa.types.is_large_string(chunk.type) or pa.types.is_large_binary(chunk.type)
        width = np.dtype(np.int64 if wide else np.int32)
        start = chunk.offset * width.itemsize
        offsets = np.frombuffer(offsets_buffer, width, len(chunk) + 1, start).astype(np.int64)
    starts, ends = offsets[:-1], offsets[1:]
    if offsets[0] < 0 or offsets[-1] > len(data) or (starts > ends).any():
        raise ValueError("texts hold a damaged Arrow array: offsets decrease or leave the data")
    if chunk.null_count:
        ends = np.where(null_mask(chunk), starts, ends)
    return data, starts, ends


def take_texts(column: pa.ChunkedArray, rows: I64) -> pa.ChunkedArray:
    """The texts of these rows, which must rise; a null becomes an empty text.

    `column.take` joins all chunks, fails above 2 GB and imports pyarrow.compute.
    """
    taken, start = [], 0
    for chunk in column.chunks:
        here = rows[np.searchsorted(rows, start) : np.searchsorted(rows, start + len(chunk))]
        data, starts, ends = documents(chunk)
        whole, own = data.data, here - start
        spans = zip(starts[own].tolist(), ends[own].tolist(), strict=True)
        offsets = np.zeros(len(own) + 1, np.int64)
        np.cumsum(ends[own] - starts[own], out=offsets[1:])
        joined = b"".join([whole[begin:end] for begin, end in spans])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
        taken.append(pa.Array.from_buffers(pa.large_binary(), len(own), buffers))
        start += len(chunk)
    return pa.chunked_array(taken, pa.large_binary())


def merge_small(chunks: Iterable[pa.Array], size: int) -> Iterator[pa.Array]:
    """The same texts, with small chunks joined into arrays of up to `size` bytes."""
    group: list[pa.Array] = []
    total = 0
    for chunk in chunks:
        if group and total + chunk.nbytes > size:
            yield pa.concat_arrays(group) if len(group) > 1 else group[0]
            group, total = [], 0
        group.append(chunk)
        total += chunk.nbytes
    if group:
        yield pa.concat_arrays(group) if len(group) > 1 else group[0]


def pieces(texts: pa.ChunkedArray, size: int) -> Iterator[pa.Array]:
    """The same texts as arrays of about `size` bytes; one text is never cut."""
    for chunk in merge_small(texts.chunks, size):
        if len(chunk) == 0:
            continue
        _, starts, _ = documents(chunk)
        piece_of = (starts - starts[0]) // size
        cuts = np.flatnonzero(np.diff(piece_of, prepend=-1, append=piece_of[-1] + 1)).tolist()
        for begin, end in pairwise(cuts):
            yield chunk.slice(begin, end - begin)
