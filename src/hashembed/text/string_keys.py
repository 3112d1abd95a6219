"""`hashembed.keys`: strings as ids, without a dictionary."""

from typing import TYPE_CHECKING, Any

import numpy as np

from hashembed.core.arrays import I64
from hashembed.core.checks import whole_number
from hashembed.core.threads import cpu_count, run_workers
from hashembed.text.few_texts import FEW, few_bytes
from hashembed.text.string_kernels import string_keys

if TYPE_CHECKING:
    import pyarrow as pa

_STRINGS_PER_WORKER = 2**14  # fewer are not worth a thread


def keys(strings: Any, *, null: int | None = None) -> I64:
    """Keys of strings, to be used as ids: one int64 for each, the same in every run.

    A string has the key of a word of text (docs: the hash), but it is taken whole, as it is: no
    words are looked for, and case and white space count. Different strings have the same key with
    a probability of 2^-64.

    Args:
        strings: a list, a NumPy array of any shape, an Arrow array, a column of Polars or pandas.
            Strings are hashed as UTF-8; bytes as they are. Of a dictionary-encoded column, such as
            pandas' categories, each distinct string is hashed once.
        null: the id of missing strings (None, null; in NumPy and pandas also NaN and NA), for
            example the `padding_idx` of a layer. None (default) refuses them.

    Returns:
        An int64 array of the shape of `strings`.

    Example:
        >>> hashembed.keys(["user:42", "user:43"])
        array([ 1951572733064286338, -8235273512112340006])
    """
    if null is not None:
        null = whole_number("null", null, -(2**63), 2**63 - 1)
    if type(strings) is list and len(strings) <= FEW:
        few = few_bytes(strings)
        if few is not None:
            return _hashed(*few)
    if isinstance(strings, np.ndarray) and strings.ndim != 1:
        return keys(strings.reshape(-1), null=null).reshape(strings.shape)
    return _of_arrow(strings, null)


def _of_arrow(strings: Any, null: int | None) -> I64:
    import pyarrow as pa

    from hashembed.text.arrow import to_arrow

    if isinstance(strings, str | bytes | bytearray | memoryview):
        kind = type(strings).__name__
        raise TypeError(f"strings must be many, found one {kind}: put it in a list, [string]")
    chunked = _dictionary_column(strings)
    if chunked is None:
        chunked = to_arrow(strings)
    out, start = np.empty(len(chunked), np.int64), 0
    for chunk in chunked.chunks:
        own = out[start : start + len(chunk)]
        if pa.types.is_dictionary(chunk.type):
            _fill_from_dictionary(chunk, own, start, null)
        else:
            _fill(chunk, own, start, null)
        start += len(chunk)
    return out


def _dictionary_column(strings: Any) -> "pa.ChunkedArray | None":
    """A column whose distinct values are stored once, or None."""
    import pyarrow as pa

    if isinstance(strings, pa.Array):
        strings = pa.chunked_array([strings])
    elif not isinstance(strings, pa.ChunkedArray) and hasattr(strings, "__arrow_c_stream__"):
        try:
            strings = pa.chunked_array(strings)
        except (pa.ArrowException, UnicodeError):
            return None
    if isinstance(strings, pa.ChunkedArray) and pa.types.is_dictionary(strings.type):
        return strings
    return None


def _fill(chunk: "pa.Array", out: I64, start: int, null: int | None) -> None:
    """The keys of a plain column of strings, which begins at row `start`."""
    from hashembed.core.arrow_columns import null_mask
    from hashembed.text.arrow import documents

    out[:] = _hashed(*documents(chunk))
    if chunk.null_count:
        _fill_nulls(null_mask(chunk), out, start, null)


def _fill_from_dictionary(chunk: Any, out: I64, start: int, null: int | None) -> None:
    from hashembed.core.arrow_columns import null_mask
    from hashembed.text.arrow import documents, to_arrow

    if len(chunk) == 0:
        return
    values = to_arrow(chunk.dictionary)
    values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    missing = null_mask(chunk.indices)
    places = np.where(missing, 0, _numbers(chunk.indices))
    if len(values):
        known = _hashed(*documents(values))
        out[:] = known[places]
        missing |= null_mask(values)[places]
    if missing.any():
        _fill_nulls(missing, out, start, null)


def _numbers(indices: "pa.Array") -> I64:
    """Indices of a dictionary; those of nulls may be anything."""
    dtype = np.dtype(str(indices.type))
    begin = indices.offset * dtype.itemsize
    return np.frombuffer(indices.buffers()[1], dtype, len(indices), begin).astype(np.int64)


def _fill_nulls(missing: Any, out: I64, start: int, null: int | None) -> None:
    if null is None:
        where, count = start + int(np.flatnonzero(missing)[0]), int(np.count_nonzero(missing))
        raise ValueError(
            f"string {where} is missing (null), and {count - 1:,} more in its chunk: say which id "
            "missing strings have, for example keys(strings, null=0) with padding_idx=0 in the "
            "layer, or fill them first"
        )
    out[missing] = null


def _hashed(data: Any, starts: I64, ends: I64) -> I64:
    out = np.empty(len(starts), np.int64)
    workers = max(1, min(cpu_count(), len(starts) // _STRINGS_PER_WORKER))
    run_workers(string_keys, workers, data, starts, ends, out)
    return out
