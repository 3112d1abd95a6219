"""How often tokens collide, and what a table costs: section 4 of the paper as functions.

All formulas assume ideal hash functions and a vocabulary T of distinct tokens; tests compare them
with the real hash. A probability is the chance that *one given* token collides with at least one
other. Multiplied by |T|, it is the expected number of tokens that collide. Vocabularies may be
scalars or arrays. Sizes may be very large (B^k = 1e36): no step subtracts nearly equal numbers.

Not counted: two words whose 64-bit keys agree, a chance of |T| / 2^64.
"""

from itertools import pairwise
from math import factorial

import numpy as np
import numpy.typing as npt

from hashembed.core.arrays import F64
from hashembed.hashing.spec import HashSpec

Numbers = float | F64


def collision_probability(vocabulary: npt.ArrayLike, cells: npt.ArrayLike) -> Numbers:
    """1 - (1 - 1/n)^(|T| - 1): a token shares its cell, one of n, with another token.

    k functions into B buckets together are one function into n = B^k cells.
    """
    return _any(_log_none(_others(vocabulary), 1 / _cells(cells)))


def collision_probability_approx(vocabulary: npt.ArrayLike, cells: npt.ArrayLike) -> Numbers:
    """1 - exp(-|T| / n): the same for many tokens in many cells."""
    return _any(-np.asarray(vocabulary, np.float64) / _cells(cells))


def expected_collisions(vocabulary: npt.ArrayLike, cells: npt.ArrayLike) -> Numbers:
    """C_tot = |T| p_col: the expected number of tokens that share a cell."""
    return np.asarray(vocabulary, np.float64) * collision_probability(vocabulary, cells)


def expected_cells_used(tokens: npt.ArrayLike, cells: npt.ArrayLike) -> Numbers:
    """n (1 - (1 - 1/n)^|T|): the expected number of cells that hold at least one token."""
    n = _cells(cells)
    return n * _any(_log_none(np.asarray(tokens, np.float64), 1 / n))


def expected_pruned_collisions(important: npt.ArrayLike, num_buckets: npt.ArrayLike) -> Numbers:
    """|T_imp| (1 - exp(-|T_imp| / B)): tokens in collision when only T_imp keeps its weight.

    The paper prints |T_imp| exp(-|T_imp| / B), which counts the tokens that do *not* collide.
    """
    size = np.asarray(important, np.float64)
    return size * collision_probability_approx(size, num_buckets)


def same_row_probability(vocabulary: npt.ArrayLike, spec: HashSpec) -> Numbers:
    """A token shares its importance row, one of K, with another. Never with a dictionary."""
    return _any(_log_own_row(_others(vocabulary, spec), spec))


def same_buckets_probability(
    vocabulary: npt.ArrayLike, spec: HashSpec, *, ordered: bool = True
) -> Numbers:
    """Another token has the same k buckets, in the same order unless `ordered` is false.

    With `shared` indexing, tokens with one id have one set of buckets; the other ids in use then
    count, not the other tokens, and their number is replaced by its mean. Unordered agreement is
    counted as if a token's own k buckets were distinct, which overstates it where B is near k.
    """
    others = _others(vocabulary, spec)
    agreement = _bucket_agreement(spec, ordered)
    if spec.indexing != "shared":
        return _any(_log_none(others, agreement))
    return _any(_log_own_row(others, spec) + _log_none(_other_ids(others, spec), agreement))


def indistinguishable_probability(
    vocabulary: npt.ArrayLike, spec: HashSpec, *, importance: bool = True
) -> Numbers:
    """A total collision: another token has exactly the same vector, whatever is learned.

    `independent`: the row and all k buckets agree, n = K B^k. `shared`: the ids agree, n = K;
    different ids may meet in all k buckets but keep weights of their own. `identity`: never.
    Without importance weights only the k buckets decide, and their order does not matter, since
    their vectors are added.
    """
    if not importance:
        return same_buckets_probability(vocabulary, spec, ordered=False)
    others = _others(vocabulary, spec)
    if spec.indexing != "independent":
        return _any(_log_own_row(others, spec))
    return _any(_log_none(others, _bucket_agreement(spec, ordered=True) / spec.num_embeddings))


def shared_bucket_probability(vocabulary: npt.ArrayLike, spec: HashSpec) -> Numbers:
    """A partial collision: another token uses at least one of a token's k component vectors.

    All k functions share one pool of B vectors, so any function of the other token counts. The k
    buckets are treated as independent, which is right up to terms of order k^2 / B.
    """
    others = _others(vocabulary, spec)
    return _any(_log_own_id(others, spec) + sum(_log_unshared(others, spec)))


def shared_buckets_distribution(vocabulary: npt.ArrayLike, spec: HashSpec) -> F64:
    """The chances that other tokens use exactly 0, 1, ..., k of a token's buckets: (k + 1, ...).

    Definition and precision are those of `shared_bucket_probability`.
    """
    others = _others(vocabulary, spec)
    zero, chances = np.zeros_like(others), [np.ones_like(others)]
    for log_unshared in _log_unshared(others, spec):
        shared, unshared = _any(log_unshared), np.exp(log_unshared)
        neighbours = pairwise([zero, *chances, zero])
        chances = [fewer * shared + as_many * unshared for fewer, as_many in neighbours]
    log_own_id = _log_own_id(others, spec)
    distribution = np.stack([chance * np.exp(log_own_id) for chance in chances])
    distribution[-1] += _any(log_own_id)
    return distribution


def hash_parameters(spec: HashSpec, embedding_dim: int, *, importance: bool = True) -> int:
    """B d + K k; without importance weights (the hashing trick) B d."""
    weights = spec.num_embeddings * spec.num_hashes if importance else 0
    return spec.num_buckets * embedding_dim + weights


def standard_parameters(vocabulary: int, embedding_dim: int) -> int:
    """|T| d: every token has its own row."""
    return vocabulary * embedding_dim


def hash_bytes(
    spec: HashSpec, embedding_dim: int, *, dtype_bytes: int = 4, importance: bool = True
) -> int:
    """The size of a hash embedding's parameters."""
    return hash_parameters(spec, embedding_dim, importance=importance) * dtype_bytes


def standard_bytes(vocabulary: int, embedding_dim: int, *, dtype_bytes: int = 4) -> int:
    """The size of a standard table's parameters."""
    return standard_parameters(vocabulary, embedding_dim) * dtype_bytes


def _others(vocabulary: npt.ArrayLike, spec: HashSpec | None = None) -> F64:
    """The number of other tokens; none for an empty vocabulary."""
    tokens = np.asarray(vocabulary, np.float64)
    if spec is not None and spec.indexing == "identity" and np.any(tokens > spec.num_embeddings):
        raise ValueError(
            f"identity indexing needs a row for every token: "
            f"{tokens.max():,.0f} tokens, {spec.num_embeddings:,} rows"
        )
    return np.asarray(np.maximum(tokens - 1, 0))


def _cells(cells: npt.ArrayLike) -> F64:
    n = np.asarray(cells, np.float64)
    if np.any(n < 1):
        raise ValueError(f"there must be at least one cell, found {n.min():g}")
    return n


def _any(log_none: Numbers) -> Numbers:
    """The chance of at least one, from the logarithm of the chance of none."""
    chance: Numbers = -np.expm1(log_none)
    return chance + 0.0  # no minus zero


def _log_none(trials: Numbers, chance: Numbers) -> F64:
    """log (1 - chance)^trials; zero trials never hit, even with a chance of 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.asarray(trials) > 0, trials * np.log1p(-np.asarray(chance)), 0.0)


def _log_own_row(others: F64, spec: HashSpec) -> F64:
    if spec.indexing == "identity":
        return np.zeros_like(others)
    return _log_none(others, 1 / spec.num_embeddings)


def _log_own_id(others: F64, spec: HashSpec) -> F64:
    """The log of the chance that no other token has this one's id, and with it all its buckets."""
    return _log_own_row(others, spec) if spec.indexing == "shared" else np.zeros_like(others)


def _other_ids(others: F64, spec: HashSpec) -> Numbers:
    """The number of other ids that pick buckets, given that a token does not share its id."""
    if spec.indexing != "shared":
        return others
    return expected_cells_used(others, max(spec.num_embeddings - 1, 1))


def _bucket_agreement(spec: HashSpec, ordered: bool) -> float:
    """The chance that two different ids agree in all k buckets."""
    orders = 1 if ordered else factorial(spec.num_hashes)
    if spec.direct:  # the first buckets are the ids themselves and differ
        orders -= 1 if ordered else factorial(spec.num_hashes - 1)
    return min(1.0, orders * float(spec.num_buckets) ** -spec.num_hashes)


def _log_unshared(others: F64, spec: HashSpec) -> list[F64]:
    """For each of a token's k buckets, log of the chance that no other id picks it too."""
    hashed = spec.num_hashes - 1 if spec.direct else spec.num_hashes
    picks = hashed * _other_ids(others, spec)
    by_hash = _log_none(picks, 1 / spec.num_buckets)
    if not spec.direct:
        return [by_hash] * spec.num_hashes
    by_rank = np.log1p(-others / spec.num_embeddings)  # the bucket is some other token's own
    return [by_hash, *[by_hash + by_rank] * hashed]
