"""A vocabulary in few bytes, for compressed vectors.

Strings are sorted and front-coded, as `Dictionary.tensors` does it, and deflated. Counts are
rounded by up to 5%: one byte each. Words are ordered by their rounded counts, then by their keys,
so no rank is saved.
"""

import zlib
from typing import Any

import numpy as np

from hashembed.core.arrays import I64, U8
from hashembed.core.arrow_columns import number_column
from hashembed.text.config import TextConfig
from hashembed.text.dictionary import Dictionary

_PREFIX = "dictionary."
_STEPS = 8  # rounded counts in an octave
_LONGEST = 1 << 12  # mean bytes of a word; a file that says more is damaged


def count_codes(counts: I64) -> U8:
    """Counts -> one byte each; 0 stays 0."""
    codes = 1 + np.rint(_STEPS * np.log2(np.maximum(counts, 1)))
    return np.where(counts > 0, np.minimum(codes, 255), 0).astype(np.uint8)


def counts_of(codes: U8) -> I64:
    """Rounded counts."""
    counts = np.rint(2.0 ** ((codes.astype(np.float64) - 1) / _STEPS)).astype(np.int64)
    return np.where(codes > 0, counts, 0)


def rounded_dictionary(dictionary: Dictionary, size: int) -> Dictionary:
    """The first words of a dictionary with rounded counts, in their order."""
    return _ordered(dictionary.first(size), count_codes(dictionary.counts[:size]))


def _ordered(dictionary: Dictionary, codes: U8) -> Dictionary:
    counts = counts_of(codes)
    order = np.lexsort((dictionary.keys, -counts))
    strings = dictionary.strings.take(number_column(order))
    return Dictionary(dictionary.config, dictionary.keys[order], counts[order], strings)


def small_tensors(dictionary: Dictionary) -> dict[str, U8]:
    """A rounded dictionary as arrays to save."""
    whole = dictionary.tensors()
    order = whole[f"{_PREFIX}ranks"]
    parts = {name: whole[_PREFIX + name] for name in ("shared", "tails", "rest")}
    parts["codes"] = count_codes(dictionary.counts)[order]
    return {
        f"{_PREFIX}{name}.deflated": np.frombuffer(zlib.compress(part.tobytes(), 9), np.uint8)
        for name, part in parts.items()
    }


def from_small_tensors(
    tensors: dict[str, Any], config: TextConfig, words: int, tail_bytes: int
) -> Dictionary:
    """The dictionary that `small_tensors` described; it has so many words."""

    def inflated(name: str, size: int, kind: str = "u1") -> Any:
        unpacker = zlib.decompressobj()
        try:
            data = unpacker.decompress(tensors[f"{_PREFIX}{name}.deflated"].tobytes(), size + 1)
        except zlib.error as error:
            raise ValueError(f"the {name} of the words cannot be inflated: {error}") from None
        if len(data) != size:
            raise ValueError(f"the {name} of the words have another size than {size:,} bytes")
        return np.frombuffer(data, f"<{kind}")

    tails = inflated("tails", words * tail_bytes, f"u{tail_bytes}")
    length = int(tails.sum(dtype=np.int64))
    if length > words * _LONGEST:
        raise ValueError(f"the words are said to have {length:,} bytes")
    codes = inflated("codes", words)
    sorted_words = Dictionary.from_tensors(
        {
            f"{_PREFIX}shared": inflated("shared", words),
            f"{_PREFIX}tails": tails,
            f"{_PREFIX}rest": inflated("rest", length),
            f"{_PREFIX}ranks": np.arange(words, dtype=np.uint32),
            f"{_PREFIX}counts": codes,
        },
        config,
    )
    return _ordered(sorted_words, codes)


def tail_bytes_of(dictionary: Dictionary) -> int:
    """Bytes of a number of `tails`."""
    return int(dictionary.tensors()[f"{_PREFIX}tails"].itemsize)
