"""The formulas against exact arithmetic, and against the real hash."""

from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import cache
from itertools import product
from math import comb, exp, sqrt

import numpy as np
import numpy.typing as npt
import pytest

from hashembed.hashing import theory
from hashembed.hashing.spec import HashSpec, id_keys

SIZES = [2, 3, 10, 10**3, 10**6, 10**8, 10**12, 10**15]
CELLS = [2, 3, 10**3, 10**6, 10**12, 10**24, 10**36, 2**128]


def exact_collision_probability(vocabulary: int, cells: int) -> float:
    with localcontext() as context:
        context.prec = 120
        log_none = (vocabulary - 1) * (1 - Decimal(1) / cells).ln()
        return float(1 - log_none.exp())


@pytest.mark.parametrize("vocabulary", SIZES)
@pytest.mark.parametrize("cells", CELLS)
def test_collision_probability_is_exact_at_any_size(vocabulary: int, cells: int) -> None:
    expected = exact_collision_probability(vocabulary, cells)
    assert theory.collision_probability(vocabulary, cells) == pytest.approx(expected, rel=1e-13)
    assert theory.expected_collisions(vocabulary, cells) == pytest.approx(
        vocabulary * expected, rel=1e-13
    )


@pytest.mark.parametrize("vocabulary", SIZES)
@pytest.mark.parametrize("cells", CELLS)
def test_approximation_and_cells_used(vocabulary: int, cells: int) -> None:
    with localcontext() as context:
        context.prec = 120
        approximation = float(1 - (-Decimal(vocabulary) / cells).exp())
        used = float(cells * (1 - (vocabulary * (1 - Decimal(1) / cells).ln()).exp()))
    assert theory.collision_probability_approx(vocabulary, cells) == pytest.approx(
        approximation, rel=1e-13
    )
    assert theory.expected_cells_used(vocabulary, cells) == pytest.approx(used, rel=1e-13)


def test_edge_cases() -> None:
    assert np.array_equal(theory.collision_probability([0, 1, 2, 10**12], 1), [0, 0, 1, 1])
    assert np.array_equal(theory.collision_probability([0, 1], 10), [0, 0])
    assert np.array_equal(theory.expected_cells_used([0, 1, 5], 1), [0, 1, 1])
    assert theory.collision_probability(2, 10) == pytest.approx(0.1, rel=1e-15)
    assert isinstance(theory.collision_probability(2, 10), float)
    assert np.shape(theory.collision_probability([[1], [2]], [3, 4, 5])) == (2, 3)
    with pytest.raises(ValueError, match="at least one cell, found 0"):
        theory.collision_probability(10, [5, 0])


def test_the_papers_example() -> None:
    assert theory.collision_probability(10**8, 10**6) == pytest.approx(1)
    assert theory.collision_probability(10**8, 10**12) == pytest.approx(1e-4, rel=1e-3)
    spec = HashSpec(10**7, 10**6, 2)
    assert theory.same_buckets_probability(10**8, spec) == pytest.approx(1e-4, rel=1e-3)


def test_pruning_counts_the_tokens_that_do_collide() -> None:
    assert theory.expected_pruned_collisions(10**6, 10**6) == pytest.approx(10**6 * (1 - exp(-1)))
    assert theory.expected_pruned_collisions(1000, 10**9) == pytest.approx(0.001, rel=1e-3)


def test_total_collisions_by_indexing() -> None:
    T, K, B, k = 10**8, 10**7, 10**6, 2

    def total(indexing: str, importance: bool = True) -> float:
        rows = T if indexing == "identity" else K
        spec = HashSpec(rows, B, k, indexing)
        return theory.indistinguishable_probability(T, spec, importance=importance)

    assert total("independent") == pytest.approx(exact_collision_probability(T, K * B**k))
    assert total("shared") == pytest.approx(exact_collision_probability(T, K))
    assert total("identity") == 0
    # Added up without weights, buckets (3, 7) and (7, 3) are one vector.
    assert total("independent", False) == pytest.approx(2 * T / B**k, rel=1e-3)
    assert total("identity", False) == pytest.approx(2 * T / B**k, rel=1e-3)
    assert total("shared", False) > total("shared")


def test_standard_embeddings_are_a_special_case_without_collisions() -> None:
    spec = HashSpec(1000, 1000, 1, "identity")
    assert theory.indistinguishable_probability(1000, spec, importance=False) == 0
    assert theory.shared_bucket_probability(1000, spec) == 0
    assert theory.same_row_probability(1000, spec) == 0


def test_identity_needs_a_row_for_every_token() -> None:
    with pytest.raises(ValueError, match="1,001 tokens, 1,000 rows"):
        theory.same_row_probability([10, 1001], HashSpec(1000, 10, 2, "identity"))


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("indexing", ["independent", "shared", "identity", "direct"])
def test_distribution_of_shared_buckets(indexing: str, k: int) -> None:
    buckets = 5000 if indexing == "direct" else 9000
    spec = HashSpec(5000, buckets, k, "identity" if indexing == "direct" else indexing)
    vocabulary = np.array([0, 1, 2, 100, 4999, 5000])
    distribution = theory.shared_buckets_distribution(vocabulary, spec)
    assert distribution.shape == (k + 1, len(vocabulary))
    assert np.all(distribution >= 0)
    np.testing.assert_allclose(distribution.sum(axis=0), 1, rtol=1e-14)
    np.testing.assert_allclose(
        distribution[1:].sum(axis=0),
        theory.shared_bucket_probability(vocabulary, spec),
        rtol=1e-12,
        atol=1e-15,
    )
    if indexing == "independent":
        p = exact_collision_probability(k * 99 + 1, buckets)
        binomial = [comb(k, j) * p**j * (1 - p) ** (k - j) for j in range(k + 1)]
        np.testing.assert_allclose(distribution[:, 3], binomial, rtol=1e-12)


def test_tiny_shared_case_against_enumeration() -> None:
    """All ways to give 3 tokens one of 3 ids, and 3 ids one of 2 buckets."""
    hits = 0
    for ids in product(range(3), repeat=3):
        for bucket in product(range(2), repeat=3):
            hits += any(bucket[ids[0]] == bucket[i] for i in ids[1:])
    expected = hits / (3**3 * 2**3)
    spec = HashSpec(3, 2, 1, "shared")
    # Not exact: the number of other ids in use (1 or 2 here) is replaced by its mean.
    assert theory.same_buckets_probability(3, spec) == pytest.approx(expected, abs=0.01)


def test_parameters_of_the_papers_models() -> None:
    spec = HashSpec(10**7, 10**6, 2)
    assert theory.hash_parameters(spec, 20) == 40 * 10**6
    assert theory.hash_parameters(spec, 20, importance=False) == 20 * 10**6
    assert theory.hash_bytes(spec, 20) == 160 * 10**6
    assert theory.hash_bytes(spec, 20, dtype_bytes=2) == 80 * 10**6
    assert theory.standard_parameters(10**7, 20) == 200 * 10**6
    assert theory.standard_bytes(10**7, 20) == 800 * 10**6


# The real hash. A count of colliding tokens is a sum of dependent indicators, so its variance is
# not the binomial one. It is estimated instead, over independent seeds: the mean over S seeds must
# lie within 5 of its own standard errors of the formula. With S = 20 (Student's t, 19 degrees of
# freedom) a right formula leaves that interval once in 12,000 comparisons, of which there are
# about a hundred; the seeds are fixed. One token is added for counts that do not vary at all.

TOKENS = 50_000
SEEDS = 20

SPECS = [
    HashSpec(60_000, 40_000, 1),
    HashSpec(300, 16, 2),
    HashSpec(40_000, 250_000, 2),
    HashSpec(2, 30, 3),
    HashSpec(60_000, 250, 2, "shared"),
    HashSpec(30_000, 30, 3, "shared"),
    HashSpec(80_000, 200_000, 2, "shared"),
    HashSpec(60_000, 250, 2, "identity"),
    HashSpec(60_000, 200_000, 3, "identity"),
    HashSpec(60_000, 60_000, 2, "identity"),
]


@cache
def tokens(kind: str) -> npt.NDArray[np.int64]:
    if kind == "sequential":
        return np.arange(TOKENS)
    info = np.iinfo(np.int64)
    return np.random.default_rng(1).integers(info.min, info.max, TOKENS)


def labels(columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """(n, c) -> (n,): equal labels for equal rows."""
    label = columns[:, 0]
    for column in columns.T[1:]:
        _, label = np.unique(label, return_inverse=True)
        label = label * (column.max() + 1) + column
    return label


def colliding(columns: npt.NDArray[np.int64]) -> int:
    _, counts = np.unique(labels(columns), return_counts=True)
    return int(counts[counts > 1].sum())


def buckets_shared(buckets: npt.NDArray[np.int64], num_buckets: int) -> npt.NDArray[np.int64]:
    """(n, k) -> (k + 1,): how many tokens share exactly j of their buckets with another token."""
    in_order = np.sort(buckets, axis=1)
    first = np.diff(in_order, axis=1, prepend=-1) > 0
    users = np.bincount(in_order[first], minlength=num_buckets)  # tokens, not picks
    return np.bincount((users[buckets] > 1).sum(axis=1), minlength=buckets.shape[1] + 1)


@cache
def measured(spec: HashSpec, kind: str) -> dict[str, npt.NDArray[np.int64]]:
    keys = tokens(kind) if spec.indexing == "identity" else id_keys(tokens(kind))
    counts: dict[str, list[object]] = {
        name: [] for name in ("row", "buckets", "unordered", "total", "partial")
    }
    for seed in range(SEEDS):
        seeded = HashSpec(
            spec.num_embeddings, spec.num_buckets, spec.num_hashes, spec.indexing, seed
        )
        rows, buckets = seeded(keys)
        counts["row"].append(colliding(rows[:, None]))
        counts["buckets"].append(colliding(buckets))
        counts["unordered"].append(colliding(np.sort(buckets, axis=1)))
        counts["total"].append(colliding(np.column_stack([rows, buckets])))
        counts["partial"].append(buckets_shared(buckets, spec.num_buckets))
    return {name: np.array(values) for name, values in counts.items()}


def agrees(counts: npt.NDArray[np.int64], probability: object) -> bool:
    error = np.abs(counts.mean(axis=0) - TOKENS * np.asarray(probability))
    bound = 5 * counts.std(axis=0, ddof=1) / sqrt(SEEDS) + 1
    return bool(np.all(error <= bound))


CASES = [
    pytest.param(spec, kind, id=f"{spec.indexing}-{i}-{kind}")
    for i, spec in enumerate(SPECS)
    for kind in ("sequential", "random")
    if (spec.indexing, kind) != ("identity", "random")
]


@pytest.mark.parametrize(("spec", "kind"), CASES)
def test_formulas_agree_with_the_hash(spec: HashSpec, kind: str) -> None:
    counts = measured(spec, kind)
    assert agrees(counts["row"], theory.same_row_probability(TOKENS, spec))
    assert agrees(counts["buckets"], theory.same_buckets_probability(TOKENS, spec))
    assert agrees(counts["total"], theory.indistinguishable_probability(TOKENS, spec))
    if spec.num_buckets > 1000:  # partial collisions are of order k^2 / B
        assert agrees(counts["partial"], theory.shared_buckets_distribution(TOKENS, spec).T)


@pytest.mark.parametrize("spec", [s for s in SPECS if s.num_buckets >= 250], ids=str)
def test_without_weights_the_order_does_not_matter(spec: HashSpec) -> None:
    unordered = theory.indistinguishable_probability(TOKENS, spec, importance=False)
    # A token whose own buckets repeat (k^2 / 2B of them) has fewer orders.
    slack = TOKENS * spec.num_hashes**2 / (2 * spec.num_buckets) * (spec.num_hashes > 1)
    counts = measured(spec, "sequential")["unordered"]
    standard_error = counts.std(ddof=1) / sqrt(SEEDS)
    assert -slack <= counts.mean() - TOKENS * unordered + 5 * standard_error + 1
    assert counts.mean() - TOKENS * unordered <= 5 * standard_error + 1


def naive_shared_buckets(spec: HashSpec) -> float:
    pair = 1 / spec.num_embeddings + (1 - 1 / spec.num_embeddings) / (
        spec.num_buckets**spec.num_hashes
    )
    return 1 - (1 - pair) ** (TOKENS - 1)


@pytest.mark.parametrize(
    ("spec", "name", "wrong"),
    [
        (SPECS[0], "buckets", lambda s: exp(-TOKENS / s.num_buckets)),  # the paper's slip
        (SPECS[0], "row", lambda s: theory.collision_probability(TOKENS, s.num_buckets)),
        (SPECS[1], "total", lambda s: theory.collision_probability(TOKENS, s.num_buckets**2)),
        (SPECS[4], "total", lambda s: theory.same_buckets_probability(TOKENS, s)),
        (SPECS[4], "buckets", naive_shared_buckets),
        (SPECS[7], "unordered", lambda s: theory.same_buckets_probability(TOKENS, s)),
    ],
)
def test_wrong_formulas_are_noticed(
    spec: HashSpec, name: str, wrong: Callable[[HashSpec], float]
) -> None:
    assert not agrees(measured(spec, "sequential")[name], wrong(spec))


def test_one_pool_of_buckets_is_noticed() -> None:
    """Counting only meetings in the same function misses half of the partial collisions."""
    spec = SPECS[2]
    none = measured(spec, "sequential")["partial"][:, 0]
    per_bucket = exact_collision_probability(TOKENS, spec.num_buckets)
    assert agrees(none, 1 - theory.shared_bucket_probability(TOKENS, spec))
    assert not agrees(none, (1 - per_bucket) ** 2)
