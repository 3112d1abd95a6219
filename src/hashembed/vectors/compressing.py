"""Smaller word vectors: fewer bits, then fewer rows, then fewer words and dimensions.

Rows: a smaller table gets the component vectors with the least error for all words of the
vocabulary (`refit.py`). Its importance weights are fixed signs, which take no space.
Dimensions: the vectors are rotated to their principal axes, and the last ones are dropped.
"""

import re
from dataclasses import dataclass, replace

import numpy as np

from hashembed.core.arrays import F32, F64
from hashembed.hashing.spec import HashSpec
from hashembed.text.config import TextConfig
from hashembed.text.dictionary import Dictionary
from hashembed.vectors.coding import BITS, encode_rows
from hashembed.vectors.corpus import entries_of
from hashembed.vectors.file import bytes_saved
from hashembed.vectors.model import VectorModel
from hashembed.vectors.refit import Bags, fit_rows
from hashembed.vectors.row_table import CodedRows, CodedWeights, RowTable, SignWeights
from hashembed.vectors.settings import VectorSettings
from hashembed.vectors.small_dictionary import rounded_dictionary

UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
POWER = 0.25  # of the counts: how much a word counts in the fit
HASHES = 2
LEAST_ROWS, LEAST_WORDS, LEAST_DIM = 512, 1000, 32
WORDS_PART = 0.4  # of the file, at most, unless there are few words
MASK_PART = 0.1  # the same for the rows of importance weights that are in use
SPARE = 64  # bytes of the header that depend on the numbers in it


@dataclass(frozen=True)
class Plan:
    """What a smaller model has."""

    words: int
    K: int
    B: int
    dim: int
    bits: int

    @property
    def row_bytes(self) -> int:
        """Of a row of E, with its scale."""
        return -(-self.dim * self.bits // 8) + 2


def parse_size(size: str | int) -> int:
    """'5MB', '500 kB' or bytes -> bytes."""
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", str(size).lower())
    if isinstance(size, str) and match and match[2] in UNITS and float(match[1]) > 0:
        return int(float(match[1]) * UNITS[match[2]])
    raise ValueError(f"size must be a number of bytes, or such as '5MB' or '500kB', found {size!r}")


def compress_model(model: VectorModel, size: str | int | None, bits: int | None) -> VectorModel:
    """A model whose file has at most `size` bytes, with `bits` for each number."""
    if bits is not None and bits not in BITS:
        raise ValueError(f"bits must be 8, 4, 3 or 2, found {bits!r}")
    if size is None and bits is None:
        raise ValueError("compress needs a size, such as '5MB', or bits")
    if size is None:
        return _coded(model, bits or 8)
    limit = parse_size(size)
    for some in (8, 4) if bits is None else (bits,):
        if bytes_saved(model, some) <= limit:
            return _coded(model, some)
    if not model.hashed:
        return _smaller_table(model, limit, bits)
    return _fitted(model, limit, bits)


def _coded(model: VectorModel, bits: int) -> VectorModel:
    """The same model with other codes of its table."""
    dim = model.settings.embedding_dim
    if isinstance(model.E, CodedRows) and model.E.bits == bits:
        table = model.E
    else:
        table = CodedRows(*encode_rows(model.E.whole[:, :dim], bits), bits, dim)
    P = CodedWeights(*encode_rows(model.P, 8)) if isinstance(model.P, np.ndarray) else model.P
    return replace(model, E=table, P=P, state=None)


# --- fewer rows ---


def _fitted(model: VectorModel, limit: int, bits: int | None) -> VectorModel:
    """A smaller table, fitted to the vectors of the words."""
    plan = _plan(model, limit, bits)
    smaller = _fit(model, plan)
    while (excess := bytes_saved(smaller, plan.bits) - limit) > 0:  # a few bytes of the header
        plan = replace(plan, B=plan.B - 1 - excess // plan.row_bytes)
        smaller = _fit(model, plan)
    return smaller


def _plan(model: VectorModel, limit: int, bits: int | None) -> Plan:
    """Words, rows, dimensions and bits for a file of this size."""
    words, dim = len(model.dictionary), model.settings.embedding_dim
    fewest = min(model.spec.num_embeddings, 8 * LEAST_WORDS)
    least = Plan(min(words, LEAST_WORDS), fewest, LEAST_ROWS, min(dim, LEAST_DIM), bits or 3)
    least_size = _bytes_without_rows(model, least) + least.B * least.row_bytes
    if limit < least_size:
        raise ValueError(
            f"these vectors cannot be compressed to {limit:,} bytes: with {least.words:,} words, "
            f"{least.B} rows, {least.dim} dimensions and {least.bits} bits they take "
            f"{least_size:,} bytes"
        )
    K = min(model.spec.num_embeddings, max(fewest, int(8 * MASK_PART * limit)))
    while True:
        rest = limit - _bytes_without_rows(model, Plan(words, K, 1, dim, 2))
        if words <= least.words or rest >= (1 - WORDS_PART - MASK_PART) * limit:
            break
        words = max(least.words, words * 3 // 4)
    if rest < least.B * least.row_bytes:
        return least
    return _best_shape(model, replace(least, words=words, K=K), rest, bits)


def _best_shape(model: VectorModel, plan: Plan, rest: int, bits: int | None) -> Plan:
    """Dimensions, bits and rows for `rest` bytes of E.

    Fewer dimensions cost less than too few rows, and less than two bits.
    """
    dim = model.settings.embedding_dim
    most, half, least = -(-dim * 16 // 25), -(-dim // 2), min(dim, LEAST_DIM)
    # Dimensions, bits, and the rows for each word that they need.
    choices = [(dim, 4, 1.0), (most, 4, 0.9), (half, 4, 0.9), (half, 3, 0.8), (least, 4, 0.5)]
    choices += [(least, 3, 0.0)]
    if bits is not None:
        choices = [(dim, bits, 0.9), (half, bits, 0.8), (least, bits, 0.0)]
    for wide, some, rows_for_a_word in choices:
        shape = replace(plan, dim=wide, bits=some)
        shape = replace(shape, B=min(rest // shape.row_bytes, model.spec.num_buckets))
        if rows_for_a_word * plan.words <= shape.B:
            break
    return shape


def _bytes_without_rows(model: VectorModel, plan: Plan) -> int:
    dictionary = rounded_dictionary(model.dictionary, plan.words)
    settings, spec = _smaller_settings(model.settings, plan), _spec(model.spec, plan)
    E = CodedRows(
        np.zeros((0, plan.row_bytes - 2), np.uint8), np.zeros(0, np.float16), plan.bits, plan.dim
    )
    P = SignWeights(np.zeros(-(-plan.K // 8), np.uint8), (plan.K, HASHES))
    empty = VectorModel(settings, dictionary, spec, E, P, losses=model.losses)
    return bytes_saved(empty, plan.bits) + SPARE


def _smaller_settings(settings: VectorSettings, plan: Plan) -> VectorSettings:
    return replace(
        settings,
        embedding_dim=plan.dim,
        num_hashes=HASHES,
        num_embeddings=plan.K,
        num_buckets=plan.B if plan.B >= HASHES else HASHES,
    )


def _spec(spec: HashSpec, plan: Plan) -> HashSpec:
    return HashSpec(plan.K, max(plan.B, HASHES), HASHES, seed=spec.seed)


def _fit(model: VectorModel, plan: Plan) -> VectorModel:
    settings, spec = _smaller_settings(model.settings, plan), _spec(model.spec, plan)
    dictionary = rounded_dictionary(model.dictionary, plan.words)
    targets = model.of_ranks(model.dictionary.ranks(dictionary.keys))
    importance = _importance(dictionary, targets)
    targets = _rotated(targets, importance, plan.dim)
    bags, P = _matrix(dictionary, settings, spec)
    E = fit_rows(bags, plan.B, targets, importance, model.threads)
    coded = CodedRows(*encode_rows(E[:, : plan.dim], plan.bits), plan.bits, plan.dim)
    result = VectorModel(settings, dictionary, spec, coded, P, losses=list(model.losses))
    result.threads = model.threads
    return result


def _matrix(
    dictionary: Dictionary, settings: VectorSettings, spec: HashSpec
) -> tuple[Bags, SignWeights]:
    """What the vectors of words are made of."""
    config: TextConfig = settings.words
    keys, offsets = entries_of(dictionary.strings, config, settings.subwords)
    rows, buckets = spec(keys)
    P = SignWeights.of_rows(rows, (spec.num_embeddings, spec.num_hashes))
    lengths = np.diff(offsets)
    shares = (1 / np.repeat(lengths, lengths)).astype(np.float32)
    weights = P[rows] * shares[:, None]
    places = np.ascontiguousarray(buckets.reshape(-1), np.uint32)
    return Bags(places, weights.reshape(-1), offsets * spec.num_hashes), P


def _importance(dictionary: Dictionary, vectors: F32) -> F64:
    """Of the error of each word: relative to the length of its vector."""
    squares = np.maximum((vectors.astype(np.float64) ** 2).sum(axis=1), 1e-30)
    return np.asarray(np.maximum(dictionary.counts, 1) ** POWER / squares)


def _rotated(vectors: F32, importance: F64, dim: int) -> F32:
    """The coordinates of vectors along their `dim` principal axes."""
    if dim == vectors.shape[1]:
        return vectors
    wide = vectors.astype(np.float64)
    _, axes = np.linalg.eigh(wide.T @ (wide * importance[:, None]))
    return np.asarray(wide @ axes[:, ::-1][:, :dim], np.float32)


# --- vectors without a hash ---


def _smaller_table(model: VectorModel, limit: int, bits: int | None) -> VectorModel:
    """Fewer bits and dimensions; each word keeps a row of its own."""
    whole, dim = model.vectors, model.settings.embedding_dim
    importance = 1 / np.maximum((whole.astype(np.float64) ** 2).sum(axis=1), 1e-30)
    size = 0
    for share in (1.0, 0.75, 0.5, 0.25):
        for some in (4, 3, 2) if bits is None else (bits,):
            fewer = max(1, round(dim * share))
            size = bytes_saved(model, some) - len(whole) * (
                -(-dim * some // 8) - -(-fewer * some // 8)
            )
            if size + SPARE <= limit:
                table = _rotated(whole, importance, fewer)
                settings = replace(model.settings, embedding_dim=fewer)
                plain = replace(
                    model, settings=settings, E=RowTable(_padded(table), fewer), state=None
                )
                return _coded(plain, some)
    raise ValueError(
        f"these vectors cannot be compressed to {limit:,} bytes: they take at least "
        f"{size + SPARE:,}; each of the {len(whole):,} words has a row of its own"
    )


def _padded(table: F32) -> F32:
    from hashembed.engine.shallow.arrays import padded_rows

    out = padded_rows(*table.shape)
    out[:, : table.shape[1]] = table
    return out
