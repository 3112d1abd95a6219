"""The hash, as a specification: from a token to its importance row and its k buckets.

Everything here is plain NumPy in 32-bit unsigned arithmetic, written to be read and to be ported.
`docs/how-it-works/hash.md` describes the hash in words and lists test vectors. Other files
implement the same functions for CPU kernels (`scalars.py`, `locate.py`) and torch
(`nn/ops/indexing.py`). Tests compare them with this file.

    word          -> key        two lanes of MurmurHash3_x86_32
    n-gram        -> key        MurmurHash3_x86_32 over its words' lanes
    integer id    -> key        a bijection of the 64-bit integers, another one for each column
    key           -> row, k buckets

A key is two 32-bit lanes (a, b) in one int64, with b in the high half.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from hashembed.core.arrays import I64, U32
from hashembed.core.checks import one_of, whole_number
from hashembed.core.wording import named

HASH_VERSION = 1

Indexing = Literal["independent", "shared", "identity"]
INDEXINGS: tuple[Indexing, ...] = get_args(Indexing)

MAX_SIZE = 2**32
MAX_HASHES = 64
MAX_COLUMNS = 2**16

# Fixed constants that separate the domains: the binary digits of pi after the point, in order.
WORD_SEEDS = (0x243F6A88, 0x85A308D3)
NGRAM_SEEDS = (0x13198A2E, 0x03707344)
SUBWORD_SEEDS = (0xA4093822, 0x299F31D0)
ID_ROUNDS = (0x082EFA98, 0xEC4E6C89, 0x452821E6, 0x38D01377)
GOLDEN = 0x9E3779B9  # 2^32 divided by the golden ratio

_MASK = 0xFFFFFFFF


# Unsigned overflow is intended. (NumPy warns of it for scalars only.)
_wrapping = np.errstate(over="ignore")


# --- 32-bit building blocks ------------------------------------------------------------------


@_wrapping
def fmix32(x: U32) -> U32:
    """MurmurHash3's finalizer: a bijection of the 32-bit integers with good avalanche."""
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x85EBCA6B)
    x = x ^ (x >> np.uint32(13))
    x = x * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def reduce_range(lane: U32, n: int) -> I64:
    """32-bit lanes -> [0, n) by multiply-high: floor(lane * n / 2^32), for 1 <= n <= 2^32."""
    return (lane.astype(np.uint64) * np.uint64(n) >> np.uint64(32)).astype(np.int64)


def murmur3_32(data: bytes, seed: int) -> int:
    """MurmurHash3_x86_32 of some bytes."""

    def rotl(x: int, r: int) -> int:
        return (x << r | x >> (32 - r)) & _MASK

    def scramble(block: int) -> int:
        return rotl(block * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK

    h = seed
    body = len(data) - len(data) % 4
    for i in range(0, body, 4):
        h ^= scramble(int.from_bytes(data[i : i + 4], "little"))
        h = (rotl(h, 13) * 5 + 0xE6546B64) & _MASK
    if body < len(data):
        h ^= scramble(int.from_bytes(data[body:], "little"))
    h ^= len(data)
    return int(fmix32(np.asarray(h, np.uint32)))


# --- keys ------------------------------------------------------------------------------------


def pack(a: npt.ArrayLike, b: npt.ArrayLike) -> I64:
    """Two lanes -> one int64 key."""
    a, b = np.asarray(a, np.uint32), np.asarray(b, np.uint32)
    return (b.astype(np.uint64) << np.uint64(32) | a.astype(np.uint64)).view(np.int64)


def unpack(keys: npt.ArrayLike) -> tuple[U32, U32]:
    """One int64 key -> its two lanes."""
    k = np.asarray(keys).astype(np.int64).astype(np.uint64)
    return (k & np.uint64(_MASK)).astype(np.uint32), (k >> np.uint64(32)).astype(np.uint32)


def bytes_key(data: bytes, seeds: tuple[int, int]) -> int:
    """Key of some bytes in the domain that `seeds` names."""
    return int(pack(murmur3_32(data, seeds[0]), murmur3_32(data, seeds[1])))


def word_key(word: str) -> int:
    """Key of one word, hashed as UTF-8."""
    return bytes_key(word.encode(), WORD_SEEDS)


def subword_key(piece: str) -> int:
    """Key of a character n-gram, in its own domain: 'her' in 'where' is not the word 'her'."""
    return bytes_key(piece.encode(), SUBWORD_SEEDS)


def ngram_key(words: Sequence[str]) -> int:
    """Key of an n-gram. One word has its word key; several words hash their lanes, in order.

    Lane a is MurmurHash3_x86_32 of the words' a lanes as little-endian blocks of four bytes. Lane b
    is the same of their b lanes. So each further word costs one more block, for any n.
    """
    if not words:
        raise ValueError("an n-gram has at least one word, found none")
    if len(words) == 1:
        return word_key(words[0])
    a, b = unpack([word_key(word) for word in words])
    return int(
        pack(
            murmur3_32(a.astype("<u4").tobytes(), NGRAM_SEEDS[0]),
            murmur3_32(b.astype("<u4").tobytes(), NGRAM_SEEDS[1]),
        )
    )


@_wrapping
def id_keys(ids: npt.ArrayLike, columns: npt.ArrayLike = 0) -> I64:
    """Keys of integer ids: four Feistel rounds, so distinct ids have distinct keys.

    columns: the number of the column that each id stands in, in any shape that broadcasts to that
    of the ids (default 0). It salts all four rounds, so equal ids of different columns have keys
    that have nothing in common.
    """
    ids = np.asarray(ids)
    if ids.size and ids.dtype.kind not in "iu":
        raise TypeError(f"ids must be whole numbers, found an array of {ids.dtype}")
    a, b = unpack(ids)
    salt = np.asarray(columns).astype(np.uint32) * np.uint32(GOLDEN)
    a = a ^ fmix32(b + (np.uint32(ID_ROUNDS[0]) + salt))
    b = b ^ fmix32(a + (np.uint32(ID_ROUNDS[1]) + salt))
    a = a ^ fmix32(b + (np.uint32(ID_ROUNDS[2]) + salt))
    b = b ^ fmix32(a + (np.uint32(ID_ROUNDS[3]) + salt))
    return pack(a, b)


# --- from a key to a row and k buckets -------------------------------------------------------


@_wrapping
def derive_seeds(seed: int, num_hashes: int) -> U32:
    """One int64 seed -> 1 + k distinct 32-bit seeds: the row's, then the bucket functions'."""
    a, b = unpack(id_keys(np.asarray(seed, np.int64)))
    i = np.arange(1 + num_hashes, dtype=np.uint32)
    return fmix32(fmix32(b + i * np.uint32(GOLDEN)) ^ a)


def row_hash(a: U32, seed: np.uint32) -> U32:
    """The 32-bit hash behind an importance row: from lane a alone."""
    return fmix32(a ^ seed)


@_wrapping
def bucket_hash(a: U32, b: U32, seed: np.uint32) -> U32:
    """The 32-bit hash behind a bucket: from both lanes.

    The seed enters twice. With a single xor, ids a and a ^ s1 ^ s2 (b = 0 for both, as in `shared`)
    would pick the same two buckets in swapped order.
    """
    return fmix32(fmix32(a ^ seed) + (b ^ seed))


@dataclass(frozen=True)
class HashSpec:
    """Specifies completely which row and which buckets belong to a key.

    Args:
        num_embeddings: K, the number of rows of importance weights, up to 2^32.
        num_buckets: B, the number of component vectors, from k to 2^32.
        num_hashes: k, the number of buckets of each key, up to 64 (default 2).
        indexing: how a key becomes a row and k buckets (default "independent"):
            "independent": the row comes from lane a, the buckets from both lanes. Two tokens have
            the same vector only if the row and all k buckets agree.
            "shared": the row is the id D1(w) in [0, K), and the buckets follow from that id alone,
            as in the paper's main text.
            "identity": the key *is* the id, such as a rank in a dictionary, below K. If B = K, the
            first bucket of an id is the id itself.
        seed: chooses the hash functions; any int64 (default 0).
    """

    num_embeddings: int  # K
    num_buckets: int  # B
    num_hashes: int = 2  # k
    indexing: Indexing = "independent"
    seed: int = 0

    def __post_init__(self) -> None:
        whole_number("num_embeddings", self.num_embeddings, 1, MAX_SIZE)
        whole_number("num_buckets", self.num_buckets, 1, MAX_SIZE)
        whole_number("num_hashes", self.num_hashes, 1, MAX_HASHES)
        whole_number("seed", self.seed, -(2**63), 2**63 - 1)
        one_of("indexing", self.indexing, INDEXINGS)
        if self.num_hashes > self.num_buckets:
            raise ValueError(
                f"{named('num_hashes')} must not exceed {named('num_buckets')}, found "
                f"{self.num_hashes} hash functions for {self.num_buckets} buckets"
            )

    @property
    def direct(self) -> bool:
        """Whether the first bucket is the id itself."""
        return self.indexing == "identity" and self.num_buckets == self.num_embeddings

    def __call__(self, keys: npt.ArrayLike) -> tuple[I64, I64]:
        """keys (...) -> rows (...), buckets (..., k)."""
        keys = np.asarray(keys, np.int64)
        seeds = derive_seeds(self.seed, self.num_hashes)
        a, b = unpack(keys)
        if self.indexing == "identity":
            rows = keys
            if rows.size and not 0 <= rows.min() <= rows.max() < self.num_embeddings:
                raise ValueError(
                    f"identity indexing takes ids from 0 to {self.num_embeddings - 1}, "
                    f"found ids from {rows.min()} to {rows.max()}"
                )
        else:
            rows = reduce_range(row_hash(a, seeds[0]), self.num_embeddings)
        if self.indexing != "independent":
            a, b = rows.astype(np.uint32), np.zeros_like(b)
        buckets = [reduce_range(bucket_hash(a, b, s), self.num_buckets) for s in seeds[1:]]
        if self.direct:
            buckets[0] = rows
        return rows, np.stack(buckets, axis=-1)
