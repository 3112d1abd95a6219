"""The hash, tested as a hash: avalanche, uniformity, independence, collisions.

Every check gives p-values under the hypothesis of an ideal hash (each output drawn uniformly and on
its own) and `rejected` compares the smallest with ALPHA after Bonferroni's correction; so an ideal
hash would fail a given test with a probability of at most ALPHA, and any of the file's tests with
one below 1%. Inputs are fixed: a test that passes once passes always. P-values are two-sided,
because a hash that is too even is not random either. No threshold is tuned to the hash.

The last part turns the same checks on bad hashes, and on a true random function.
"""

import itertools
import re
from collections.abc import Iterable
from pydoc_data.topics import topics

import numpy as np
import pytest
from scipy import stats
from sklearn.utils.murmurhash import murmurhash3_bytes_u32

from hashembed.hashing.spec import (
    GOLDEN,
    NGRAM_SEEDS,
    HashSpec,
    bucket_hash,
    derive_seeds,
    fmix32,
    id_keys,
    ngram_key,
    pack,
    reduce_range,
    row_hash,
    unpack,
    word_key,
)

ALPHA = 1e-4
MIN_EXPECTED = 16  # per cell of a table, for the chi-square approximation
MAX_CELLS = 4096
N = 2**17  # tokens, where nothing else is said

# K, B: round decimals, powers of two, primes.
TABLE_SIZES = [
    (1000, 100),
    (99_991, 9973),
    (2**20, 2**16),
    (2**20, 1000),
    (10_000_000, 1_000_000),
    (10_000_019, 2**20),
]


def rejected(p_values: Iterable[float]) -> bool:
    p = np.array(list(p_values))
    assert p.size > 0
    return bool(p.min() * p.size < ALPHA)


# --- checks ----------------------------------------------------------------------------------


def p_chi_square(counts, expected, dof: int) -> float:
    assert expected.min() >= MIN_EXPECTED
    statistic = ((counts - expected) ** 2 / expected).sum()
    return 2 * min(stats.chi2.cdf(statistic, dof), stats.chi2.sf(statistic, dof))


def folds(indices, n: int, limit: float):
    """Indices below n as (bins, chance of each bin), with no chance below 1 / limit.

    Every index is a bin if it may; else there are two views, the high part of an index and its low
    part. (An index below 10^7 has itself a chance that is off by up to 0.2%, being cut from 32
    bits; this is far below what N tokens can show.)
    """
    if n <= limit:
        yield indices, np.full(n, 1 / n)
        return
    bins = 2 ** int(np.log2(limit))
    while n // bins * limit < n:
        bins //= 2
    edges = -(-np.arange(bins + 1) * n // bins)  # the first index of each bin
    yield indices * bins // n, np.diff(edges) / n
    yield indices % bins, (n // bins + (np.arange(bins) < n % bins)) / n


def uniformity(indices, n: int):
    """Are the indices uniform below n?"""
    limit = min(MAX_CELLS, len(indices) / MIN_EXPECTED)
    for bins, chance in folds(indices, n, limit):
        counts = np.bincount(bins, minlength=len(chance))
        yield p_chi_square(counts, len(indices) * chance, len(chance) - 1)


def independence(x, n_x: int, y, n_y: int):
    """Is y uniform below n_y whatever x is?"""
    limit = np.sqrt(min(MAX_CELLS, len(x) / MIN_EXPECTED / 1.5))
    for (i, chance_i), (j, chance_j) in itertools.product(
        folds(x, n_x, limit), folds(y, n_y, limit)
    ):
        shape = len(chance_i), len(chance_j)
        counts = np.bincount(i * shape[1] + j, minlength=shape[0] * shape[1]).reshape(shape)
        expected = counts.sum(1, keepdims=True) * chance_j  # given x, which may be no sample
        yield p_chi_square(counts, expected, shape[0] * (shape[1] - 1))


def avalanche(function, *inputs):
    """Does each output bit flip with chance 1/2 for each bit of each input?"""
    before = function(*inputs)
    for position, x in enumerate(inputs):
        for bit in range(x.dtype.itemsize * 8):
            changed = list(inputs)
            changed[position] = x ^ (x.dtype.type(1) << x.dtype.type(bit))
            flips = before ^ function(*changed)
            for out in range(flips.dtype.itemsize * 8):
                count = int((flips >> flips.dtype.type(out) & flips.dtype.type(1)).sum())
                yield 2 * stats.binom.cdf(min(count, len(x) - count), len(x), 0.5)


def collisions(cells, n_cells: int) -> float:
    """Are as many tokens in collision as the paper's theorem says, n (1 - (1 - 1/T)^(n-1))?"""
    n = len(cells)
    alone = int((np.unique(cells, return_counts=True)[1] == 1).sum())
    mean = n * (1 - 1 / n_cells) ** (n - 1)
    # two given tokens are both alone
    both = (1 - 1 / n_cells) * (1 - 2 / n_cells) ** (n - 2)
    variance = mean + n * (n - 1) * both - mean**2
    return 2 * stats.norm.sf(abs(alone - mean) / np.sqrt(variance))


# --- tokens ----------------------------------------------------------------------------------


def rng() -> np.random.Generator:
    return np.random.default_rng(1202)


def english() -> list[str]:
    """Running text: Python's own help pages."""
    return re.findall(r"[A-Za-z]+", "\n".join(topics[name] for name in sorted(topics)))


def ngram_keys(n: int):
    """Keys of the distinct n-grams of the text."""
    text = english()
    keys = {word: word_key(word) for word in set(text)}
    grams = sorted(set(zip(*(text[i:] for i in range(n)), strict=False)))
    lanes = unpack([[keys[word] for word in gram] for gram in grams])  # 2 x (ngrams, n)
    if n == 1:
        return pack(lanes[0][:, 0], lanes[1][:, 0])
    return pack(
        *(
            [murmurhash3_bytes_u32(row.tobytes(), seed) for row in lane.astype("<u4")]
            for lane, seed in zip(lanes, NGRAM_SEEDS, strict=True)
        )
    )


def keys_of(source: str):
    match source:
        case "sequential ids":
            return id_keys(np.arange(N))
        case "negative ids":
            return id_keys(-np.arange(1, N + 1))
        case "random ids":
            return id_keys(np.unique(rng().integers(-(2**63), 2**63, N)))
        case "ids that differ in the high bits":
            return id_keys((np.arange(N, dtype=np.uint64) << np.uint64(47)).view(np.int64) | 12345)
        case "ids of two counters":
            i = np.arange(N)
            return id_keys((i // 512) << 32 | i % 512)
        case "words":
            return ngram_keys(1)
        case "bigrams":
            return ngram_keys(2)
        case "trigrams":
            return ngram_keys(3)
    raise AssertionError(source)


SOURCES = [
    "sequential ids",
    "negative ids",
    "random ids",
    "ids that differ in the high bits",
    "ids of two counters",
    "words",
    "bigrams",
    "trigrams",
]


def test_the_keys_of_the_text_are_those_of_the_library():
    text = english()
    assert len(set(text)) > 3000
    for n in (1, 2, 3):
        keys = set(ngram_keys(n).tolist())
        assert {ngram_key(text[i : i + n]) for i in range(0, 2000, 10)} <= keys


@pytest.mark.parametrize("source", SOURCES)
def test_no_two_tokens_have_one_key(source):
    """Ids never; of T words, with chance T^2 / 2^65 < ALPHA."""
    keys = keys_of(source)
    assert len(keys) > 3000
    assert np.unique(keys).size == len(keys)


# --- avalanche -------------------------------------------------------------------------------
#
# 2^16 inputs show a deviation of 1% in any pair of bits. fmix32 is a little off by itself, by 0.1%
# in its worst pairs of bits, which takes millions of inputs to see.


def random_lanes(count: int):
    return [rng.integers(0, 2**32, 2**16, dtype=np.uint32) for rng in rng().spawn(count)]


def test_avalanche_of_the_finalizer():
    assert not rejected(avalanche(fmix32, *random_lanes(1)))


def test_avalanche_of_ids():
    def unsigned_keys(ids):
        return id_keys(ids.view(np.int64)).view(np.uint64)

    ids = rng().integers(0, 2**64, 2**16, dtype=np.uint64)
    assert not rejected(avalanche(unsigned_keys, ids))


def test_avalanche_of_rows_in_lane_and_seed():
    assert not rejected(avalanche(row_hash, *random_lanes(2)))


def test_avalanche_of_buckets_in_both_lanes_and_seed():
    assert not rejected(avalanche(bucket_hash, *random_lanes(3)))


def test_avalanche_of_derived_seeds_in_the_seed():
    def first_seeds(seeds):
        out = [derive_seeds(int(seed), 1) for seed in seeds.view(np.int64)]
        return np.array(out, np.uint32).view(np.uint64)[:, 0]

    seeds = rng().integers(0, 2**64, 2**8, dtype=np.uint64)
    assert not rejected(avalanche(first_seeds, seeds))


# --- uniformity ------------------------------------------------------------------------------


def uniform_indices(spec: HashSpec, keys):
    """p-values for the row and each bucket function."""
    rows, buckets = spec(keys)
    if spec.indexing != "identity":  # there, the row is given
        yield from uniformity(rows, spec.num_embeddings)
    if spec.indexing == "shared":  # tokens with one row have one set of buckets: count it once
        buckets = buckets[np.unique(rows, return_index=True)[1]]
    for i in range(spec.num_hashes):
        yield from uniformity(buckets[:, i], spec.num_buckets)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("indexing", ["independent", "shared"])
def test_rows_and_buckets_are_uniform(source, indexing):
    keys = keys_of(source)
    assert not rejected(
        p
        for seed in (0, 1)
        for K, B in TABLE_SIZES
        for p in uniform_indices(HashSpec(K, B, 3, indexing, seed), keys)
    )


@pytest.mark.parametrize("indexing", ["independent", "shared"])
def test_strided_ids(indexing):
    """Multiples of 2^1 .. 2^48: pointers, aligned offsets, ids with a field in the high bits."""
    assert not rejected(
        p
        for stride in range(1, 49)
        for K, B in TABLE_SIZES
        for p in uniform_indices(
            HashSpec(K, B, 2, indexing), id_keys(np.arange(2**15, dtype=np.int64) << stride)
        )
    )


def test_every_single_row_and_bucket():
    """2^20 rows, not folded, 16 ids for each of them."""
    K, B = 2**20, 1_000_003
    spec = HashSpec(K, B, 1)
    rows, buckets = np.zeros(K), np.zeros(B)
    for ids in np.arange(18 * K).reshape(18, K):
        r, b = spec(id_keys(ids))
        rows += np.bincount(r, minlength=K)
        buckets += np.bincount(b[:, 0], minlength=B)
    tables = [(rows, K), (buckets, B)]
    assert not rejected(p_chi_square(c, np.full(n, 18 * K / n), n - 1) for c, n in tables)


@pytest.mark.parametrize("B", [1000, 2**10, 9973, 10_000])
@pytest.mark.parametrize("K", [100_000, 2**17, 99_991])
def test_buckets_of_a_whole_dictionary(K, B):
    """Ranks 0 .. K-1, each once: `identity`, and what `shared` does after its first layer."""
    spec = HashSpec(K, B, 3, "identity")
    rows, buckets = spec(np.arange(K))
    functions = [(rows, K), *((buckets[:, i], B) for i in range(3))]
    pairs = itertools.combinations(functions, 2)
    assert not rejected(
        [
            *uniform_indices(spec, np.arange(K)),
            *(p for (x, n_x), (y, n_y) in pairs for p in independence(x, n_x, y, n_y)),
        ]
    )


def test_strided_ranks():
    spec = HashSpec(2**32, 1_000_000, 2, "identity")
    assert not rejected(
        p for stride in range(16) for p in uniform_indices(spec, np.arange(2**16) << stride)
    )


# --- independence ----------------------------------------------------------------------------


def independent_functions(functions):
    """p-values for each pair of [(indices, n), ...]."""
    for (x, n_x), (y, n_y) in itertools.combinations(functions, 2):
        yield from independence(x, n_x, y, n_y)


def functions_of(spec: HashSpec, keys):
    """[(rows, K), (first buckets, B), ...]"""
    rows, buckets = spec(keys)
    return [(rows, spec.num_embeddings), *((b, spec.num_buckets) for b in buckets.T)]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("indexing", ["independent", "shared"])
def test_row_and_buckets_are_independent(source, indexing):
    # With 2^32 rows, shared rows are rare enough not to count.
    K = 10_000_000 if indexing == "independent" else 2**32
    keys = keys_of(source)
    assert not rejected(
        p
        for B in (1_000_000, 2**16, 9973)
        for p in independent_functions(functions_of(HashSpec(K, B, 4, indexing), keys))
    )


@pytest.mark.parametrize("seed", [0, -1, 2**32 - 1, 2**62])
@pytest.mark.parametrize("indexing", ["independent", "shared"])
def test_layers_with_neighbouring_seeds_are_independent(seed, indexing):
    keys = id_keys(np.arange(N))
    assert not rejected(
        independent_functions(
            [
                pair
                for s in (seed, seed + 1)
                for pair in functions_of(HashSpec(2**32, 1_000_000, 2, indexing, s), keys)
            ]
        )
    )


def test_neighbouring_ids_are_independent():
    """What id i gets says nothing of what id i + 2^j gets."""

    def p_values():
        for j in range(18):
            i = np.arange(2**18)
            i = i[i >> j & 1 == 0]
            for spec in (HashSpec(10_000_000, 1_000_000), HashSpec(2**20, 1000, 2, "identity")):
                hashed = spec.indexing == "independent"
                one = functions_of(spec, id_keys(i) if hashed else i)
                other = functions_of(spec, id_keys(i + 2**j) if hashed else i + 2**j)
                # A given row is no hash.
                for (x, n_x), (y, n_y) in itertools.product(one[not hashed :], other[not hashed :]):
                    yield from independence(x, n_x, y, n_y)

    assert not rejected(p_values())


def swapped(function) -> bool:
    """Does some token pick another's two buckets in swapped order, for a reason?

    Where the seed enters lane a alone, token (a ^ s1 ^ s2, b) does; with `shared`, where b is 0 for
    every token, that is a row as good as any. (Where it enters both lanes, b must move with a: one
    key in 2^64, and never a row.) By chance: 2^17 tokens in 2^32, below ALPHA.
    """
    a, b = random_lanes(2)
    _, s1, s2 = derive_seeds(0, 2)
    return any(
        (function(a ^ s1 ^ s2, lane, s1) == function(a, lane, s2)).any()
        for lane in (b, np.zeros_like(b))
    )


def test_no_swapped_buckets():
    assert not swapped(bucket_hash)


# --- collisions ------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [10_000, 2**16, 99_991])
def test_total_collisions_of_shared_are_those_of_rows(K):
    """n = K tokens, of which 63% share their row with another, and with it everything."""

    def p_values():
        sequential, random = np.arange(K), rng().integers(-(2**63), 2**63, K)
        strided = np.arange(K, dtype=np.int64) << 40
        for ids in (sequential, random, strided):
            for seed in range(8):
                rows, buckets = HashSpec(K, K, 2, "shared", seed)(id_keys(ids))
                yield collisions(rows, K)
                in_order = np.argsort(rows)
                same_row = np.diff(rows[in_order]) == 0
                assert (np.diff(buckets[in_order], axis=0)[same_row] == 0).all()

    assert not rejected(p_values())


def total_cells(spec: HashSpec, keys):
    """Row and all buckets in one number, below K * B^k."""
    rows, buckets = spec(keys)
    cells = rows
    for column in buckets.T:
        cells = cells * spec.num_buckets + column
    return cells


def test_total_collisions_of_independent_need_the_row_and_all_buckets():
    def p_values():
        for K, B, k in ((256, 16, 2), (64, 8, 3), (1000, 7, 2)):
            T = K * B**k
            for ids in (np.arange(T), np.arange(T, dtype=np.int64) << 40):
                for seed in range(4):
                    yield collisions(total_cells(HashSpec(K, B, k, seed=seed), id_keys(ids)), T)

    assert not rejected(p_values())


def test_no_total_collision_at_the_size_of_the_paper():
    """K = 10M, B = 1M, k = 2 and a million tokens: 5e-8 colliding pairs expected."""
    rows, buckets = HashSpec(10_000_000, 1_000_000)(id_keys(np.arange(10**6)))
    cells = (rows * 10**6 + buckets[:, 0]).astype(np.uint64) * np.uint64(10**6)
    cells += buckets[:, 1].astype(np.uint64)  # below 10^19, which 64 bits hold
    assert np.unique(cells).size == 10**6


# --- these tests can fail --------------------------------------------------------------------


def no_finalizer(a, b, seed):
    return a ^ b ^ seed


def only_multiplied(a, b, seed):
    return (a ^ seed) * np.uint32(GOLDEN) + b


@pytest.mark.parametrize("stride", [0, 1, 10, 20])
def test_modulo_is_rejected(stride):
    """Too uneven on strided ids and too even on sequential ones."""
    ids = np.arange(N) << stride
    for n in (1000, 2**20, 10_000_000):
        assert rejected(uniformity(ids % n, n))
        assert not rejected(uniformity(HashSpec(n, n)(id_keys(ids))[0], n))


@pytest.mark.parametrize("function", [no_finalizer, only_multiplied])
def test_weak_mixing_is_rejected(function):
    assert rejected(avalanche(function, *random_lanes(3)))
    a, b = unpack(np.arange(N))
    for n in (1000, 10_000_000):
        assert rejected(uniformity(reduce_range(function(a, b, np.uint32(1)), n), n))


def test_dependent_functions_are_rejected():
    a, b = unpack(id_keys(np.arange(N)))
    n = 1_000_000
    h = reduce_range(bucket_hash(a, b, np.uint32(1)), n)
    for other in (
        h,  # the same function twice
        (h + 12_345) % n,  # one function and a step
        n - 1 - h,
        np.where(np.arange(N) % 20 == 0, h, reduce_range(a, n)),  # the same for one token in 20
    ):
        assert not rejected(uniformity(other, n))
        assert rejected(independence(h, n, other, n))


def test_swapped_buckets_are_seen():
    assert swapped(lambda a, b, seed: fmix32(fmix32(a ^ seed) + b))
    assert swapped(lambda a, b, seed: fmix32(a ^ seed))


def test_too_many_and_too_few_collisions_are_rejected():
    K, B, k = 256, 16, 2
    T = K * B**k
    keys = id_keys(np.arange(T))
    shared = total_cells(HashSpec(K, B, k, "shared"), keys)
    assert rejected([collisions(shared, T)])
    assert rejected([collisions(np.arange(T), T)])
    rows, buckets = HashSpec(K, B, k)(keys)
    one_function_twice = (rows * B + buckets[:, 0]) * B + buckets[:, 0]
    assert rejected([collisions(one_function_twice, T)])


def test_a_single_full_bucket_is_rejected():
    """One token in 200 sent to bucket 7."""
    _, buckets = HashSpec(10_000_000, 1000)(id_keys(np.arange(N)))
    first = np.where(np.arange(N) % 200 == 0, 7, buckets[:, 0])
    assert rejected(uniformity(first, 1000))


def test_a_true_random_function_is_not_rejected():
    random = rng()
    for n in (1000, 2**20, 10_000_000):
        x, y = random.integers(0, n, (2, N))
        assert not rejected([*uniformity(x, n), *uniformity(y, n), *independence(x, n, y, n)])
    lanes = random_lanes(2)
    table = iter(random.integers(0, 2**32, (65, 2**16), dtype=np.uint32))
    assert not rejected(avalanche(lambda *_: next(table), *lanes))
    assert not rejected([collisions(random.integers(0, N, N), N)])
