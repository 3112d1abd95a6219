"""The hash against its vectors, against scikit-learn, and in its other languages."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils.murmurhash import murmurhash3_32, murmurhash3_bytes_u32
from tests.cases.node import node

from hashembed.core.arrays import distinct
from hashembed.hashing import spec as hashing
from hashembed.hashing.spec import (
    HASH_VERSION,
    INDEXINGS,
    MAX_SIZE,
    NGRAM_SEEDS,
    SUBWORD_SEEDS,
    WORD_SEEDS,
    HashSpec,
    bucket_hash,
    bytes_key,
    derive_seeds,
    fmix32,
    id_keys,
    murmur3_32,
    ngram_key,
    pack,
    reduce_range,
    subword_key,
    unpack,
    word_key,
)

ROOT = Path(__file__).parents[2]
PORT = Path(__file__).parent / "vectors.mjs"
VECTORS = json.loads((ROOT / "docs" / "hash_vectors.json").read_text(encoding="utf-8"))

u32 = st.integers(0, 2**32 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
sizes = st.integers(1, MAX_SIZE) | st.sampled_from([1, 2, 1000, 2**31, MAX_SIZE - 1, MAX_SIZE])
# B and k, with k <= B
bucket_sizes = sizes.flatmap(lambda B: st.tuples(st.just(B), st.integers(1, min(4, B))))
# Every string that UTF-8 can hold: no surrogates.
texts = st.text(st.characters(exclude_categories=["Cs"]))


def hex8(lane) -> str:
    return f"{int(lane):08x}"


def hex16(key) -> str:
    return f"{int(key) % 2**64:016x}"


def signed(key: str) -> int:
    """A key's 16 hex digits -> int64."""
    return int.from_bytes(bytes.fromhex(key), "big", signed=True)


# --- the specification's vectors -------------------------------------------------------------


def computed(section: str, v: dict) -> dict:
    """What the code gives for one vector."""
    match section:
        case "murmur3_32":
            data = bytes.fromhex(v["bytes"])
            return {"hashes": {s: hex8(murmur3_32(data, int(s, 16))) for s in v["hashes"]}}
        case "words":
            return {"key": hex16(word_key(v["word"]))}
        case "ngrams":
            return {"key": hex16(ngram_key(v["words"]))}
        case "subwords":
            return {"key": hex16(subword_key(v["subword"]))}
        case "ids":
            return {"key": hex16(id_keys(int(v["id"])))}
        case "columns":
            return {"key": hex16(id_keys(int(v["id"]), v["column"]))}
        case "seeds":
            return {"seeds": [hex8(s) for s in derive_seeds(int(v["seed"]), v["num_hashes"])]}
        case "indices":
            K, B, k = v["num_embeddings"], v["num_buckets"], v["num_hashes"]
            row, buckets = HashSpec(K, B, k, v["indexing"], int(v["seed"]))(signed(v["key"]))
            return {"row": int(row), "buckets": buckets.tolist()}
    raise AssertionError(f"no such section: {section}")


def sections() -> dict[str, list[dict]]:
    return {name: vectors for name, vectors in VECTORS.items() if name != "hash_version"}


@pytest.mark.parametrize("section", sections())
def test_vectors(section):
    for vector in VECTORS[section]:
        assert {**vector, **computed(section, vector)} == vector


def test_vectors_are_of_this_version():
    assert VECTORS["hash_version"] == HASH_VERSION == 1


def markdown_tables() -> dict[str, list[list[str]]]:
    """The tables of hash.md that hold vectors -> their cells, the header first."""
    text = (ROOT / "docs" / "how-it-works" / "hash.md").read_text(encoding="utf-8")
    tables = {}
    for name, table in re.findall(r"<!-- vectors: (\w+) -->\n((?:\|.*\n)+)", text):
        header, _, *rows = table.splitlines()
        tables[name] = [
            [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]
            for line in (header, *rows)
        ]
    return tables


def vector_of_row(section: str, header: list[str], cells: list[str]) -> dict:
    """One row of a table of hash.md -> the vector in the form of the JSON file."""
    row = dict(zip(header, cells, strict=True))
    match section:
        case "murmur3_32":
            data = row.pop("bytes").replace("(empty)", "")
            hashes = {seed.removeprefix("seed "): value for seed, value in row.items()}
            return {"bytes": data, "hashes": hashes}
        case "words" | "subwords" | "ngrams":
            return {header[0]: json.loads(row[header[0]]), "key": row["key"]}
        case "ids":
            return row
        case "columns":
            return {**row, "column": int(row["column"])}
        case "seeds":
            seed = row.pop("seed")
            assert list(row) == [f"s_{i}" for i in range(len(row))]
            return {"seed": seed, "num_hashes": len(row) - 1, "seeds": list(row.values())}
        case "indices":
            return {
                "num_embeddings": int(row["K"]),
                "num_buckets": int(row["B"]),
                "num_hashes": int(row["k"]),
                "seed": row["seed"],
                "indexing": row["indexing"],
                "key": row["key"],
                "row": int(row["row"]),
                "buckets": [int(bucket) for bucket in row["buckets"].split(",")],
            }
    raise AssertionError(f"no such section: {section}")


def test_the_document_shows_the_same_vectors():
    tables = markdown_tables()
    assert list(tables) == list(sections())
    for section, (header, *rows) in tables.items():
        assert [vector_of_row(section, header, cells) for cells in rows] == VECTORS[section]


def test_the_document_shows_the_constants():
    text = (ROOT / "docs" / "how-it-works" / "hash.md").read_text(encoding="utf-8")
    constants = [*WORD_SEEDS, *NGRAM_SEEDS, *SUBWORD_SEEDS, *hashing.ID_ROUNDS, hashing.GOLDEN]
    for constant in constants:
        assert f"`{hex8(constant)}`" in text


# Written by hand, so that regenerating the files above cannot hide a change. Never edit these: a
# new hash is a new HASH_VERSION, and models of this one must still load.


def test_literal_keys():
    assert word_key("") == 0xEDE1521E1388A0FB - 2**64
    assert word_key("horse") == 0x12FF59879D793C6F
    assert word_key("smørrebrød") == 0xBF5A88517137194F - 2**64
    assert word_key("馬") == 0xF56CBF7D0ECDC919 - 2**64
    assert word_key("🐎") == 0xC8DD85558D2A0CED - 2**64
    assert word_key("a\0b") == 0xC6C2037197422D3B - 2**64
    assert ngram_key(["new", "york"]) == 0x8203E33FA45387C2 - 2**64
    assert ngram_key(["york", "new"]) == 0xC3CC46DC47E5AB5A - 2**64
    assert ngram_key(["not", "very", "good"]) == 0xCA9166CFA2999050 - 2**64
    assert subword_key("her") == 0xEBC2CE250CA60032 - 2**64
    assert [hex16(key) for key in id_keys([0, 1, -1, 2**63 - 1, -(2**63)])] == [
        "49aa5723a4f899c9",
        "92259d12b567931a",
        "cd9e78273e637fa3",
        "8f223b11af3541f0",
        "7ceb0c69d04e3524",
    ]


def test_literal_seeds():
    assert derive_seeds(0, 2).tolist() == [0xE48EB5BE, 0x4A422CAB, 0x120D979A]
    assert derive_seeds(-1, 2).tolist() == [0xB5FDD0A0, 0x603FEFA6, 0xD48A6C6D]


@pytest.mark.parametrize(
    ("indexing", "key", "row", "buckets"),
    [
        ("independent", 0x12FF59879D793C6F, 4929562, [227986, 607234]),
        ("shared", 0x12FF59879D793C6F, 4929562, [811994, 65130]),
        ("identity", 9_999_999, 9_999_999, [475583, 296836]),
    ],
)
def test_literal_indices(indexing, key, row, buckets):
    rows, found = HashSpec(10_000_000, 1_000_000, 2, indexing)(key)
    assert (int(rows), found.tolist()) == (row, buckets)


def test_literal_indices_where_every_id_has_its_bucket():
    rows, buckets = HashSpec(2**32, 2**32, 3, "identity", seed=1)(2**32 - 1)
    assert (int(rows), buckets.tolist()) == (2**32 - 1, [2**32 - 1, 1070832446, 764503703])


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        # Known answers of MurmurHash3_x86_32 from elsewhere.
        (b"", 0, 0x00000000),
        (b"", 1, 0x514E28B7),
        (b"", 0xFFFFFFFF, 0x81F16F39),
        (b"\0\0\0\0", 0, 0x2362F9DE),
        (b"\xff\xff\xff\xff", 0, 0x76293B50),
        (b"\x21\x43\x65\x87", 0, 0xF55B516B),
        (b"\x21\x43\x65", 0, 0x7E4A8634),
        (b"\x21\x43", 0, 0xA0F7B07A),
        (b"\x21", 0, 0x72661CF4),
        (b"Hello, world!", 0x9747B28C, 0x24884CBA),
    ],
)
def test_murmur_known_answers(data, seed, expected):
    assert murmur3_32(data, seed) == expected


# --- against scikit-learn --------------------------------------------------------------------


@given(st.binary(max_size=40), u32)
def test_murmur_is_scikit_learns(data, seed):
    assert murmur3_32(data, seed) == murmurhash3_bytes_u32(data, seed)


@given(texts)
def test_word_and_subword_keys_are_scikit_learns(word):
    for key, seeds in ((word_key, WORD_SEEDS), (subword_key, SUBWORD_SEEDS)):
        a, b = unpack(key(word))
        assert a == murmurhash3_32(word, seeds[0], positive=True)
        assert b == murmurhash3_32(word, seeds[1], positive=True)


@given(st.lists(texts, min_size=2, max_size=6))
def test_ngram_keys_are_scikit_learns_over_packed_lanes(words):
    keys = np.array([word_key(word) for word in words]).astype("<i8")
    lanes = keys.view("<u4").reshape(-1, 2)  # (n, 2): on a little-endian key, lane a comes first
    expected = [murmurhash3_bytes_u32(lanes[:, i].tobytes(), NGRAM_SEEDS[i]) for i in (0, 1)]
    assert ngram_key(words) == pack(*expected)


# --- keys ------------------------------------------------------------------------------------


@given(u32, u32)
def test_pack_and_unpack(a, b):
    key = pack(a, b)
    assert key.dtype == np.int64
    assert hex16(key) == hex8(b) + hex8(a)
    assert tuple(map(int, unpack(key))) == (a, b)


@given(i64)
def test_unpack_and_pack(key):
    a, b = unpack(key)
    assert a.dtype == b.dtype == np.uint32
    assert pack(a, b) == key


@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (2, 3), (2, 0, 3), (2, 1, 3, 2)])
@pytest.mark.parametrize("indexing", INDEXINGS)
def test_shapes(shape, indexing):
    ids = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    keys = id_keys(ids)
    assert keys.shape == pack(*unpack(keys)).shape == shape
    assert keys.dtype == np.int64

    spec = HashSpec(1000, 100, 3, indexing)
    rows, buckets = spec(ids if indexing == "identity" else keys)
    assert rows.shape == shape
    assert buckets.shape == (*shape, 3)
    assert rows.dtype == buckets.dtype == np.int64

    # and each element is what it is alone
    for position in np.ndindex(shape):
        row, bucket = spec((ids if indexing == "identity" else keys)[position])
        assert row == rows[position]
        assert bucket.tolist() == buckets[position].tolist()


def test_any_layout_of_the_array():
    ids = np.arange(24).reshape(4, 6)
    assert (id_keys(ids.T[::-1, ::2]) == id_keys(ids).T[::-1, ::2]).all()
    assert (id_keys(ids.astype(np.int32)) == id_keys(ids)).all()
    assert (id_keys(ids.tolist()) == id_keys(ids)).all()
    assert (id_keys(ids.astype(">i8")) == id_keys(ids)).all()


def id_of_key(keys):
    """The inverse of `id_keys`: its four rounds, backwards."""
    a, b = unpack(keys)
    with np.errstate(over="ignore"):
        b = b ^ fmix32(a + np.uint32(hashing.ID_ROUNDS[3]))
        a = a ^ fmix32(b + np.uint32(hashing.ID_ROUNDS[2]))
        b = b ^ fmix32(a + np.uint32(hashing.ID_ROUNDS[1]))
        a = a ^ fmix32(b + np.uint32(hashing.ID_ROUNDS[0]))
    return pack(a, b)


@given(st.lists(i64))
def test_id_keys_is_a_bijection(ids):
    assert id_of_key(id_keys(ids)).tolist() == ids  # no two ids have one key
    assert id_keys(id_of_key(ids)).tolist() == ids  # and every key has an id


@pytest.mark.parametrize("start", [-(2**63), -(2**32), -5000, 2**31 - 5000, 2**32, 2**63 - 10_000])
@pytest.mark.parametrize("stride", [1, 2**16])
def test_distinct_ids_have_distinct_keys(start, stride):
    room = (2**63 - 1 - start) // stride
    ids = start + np.arange(min(10_000, room), dtype=np.int64) * stride
    assert np.unique(ids).size == ids.size
    assert np.unique(id_keys(ids)).size == ids.size


def test_columns_salt_the_keys():
    ids = np.arange(-20, 20).reshape(-1, 1)
    keys = id_keys(ids, np.arange(26))
    assert keys.shape == (40, 26)
    assert np.unique(keys).size == keys.size
    assert (keys[:, 0] == id_keys(ids[:, 0])).all()  # column 0 has no salt
    for column in (1, 25):
        assert (keys[:, column] == [id_keys(i, column) for i in ids[:, 0].tolist()]).all()


def test_literal_keys_in_columns():
    """Written by hand: see above."""
    assert hex16(id_keys(0, 1)) == "9d37355742e5c5ec"
    assert hex16(id_keys(-1, 25)) == "44c473b648ba797b"


def test_no_two_columns_have_the_same_keys_in_another_order():
    """A salt in one round only would give any two columns of small ids one set of keys."""
    ids = np.arange(2**16).reshape(-1, 1)
    keys = id_keys(ids, np.arange(64))
    assert distinct(keys.ravel()).size == keys.size
    lanes = keys.view(np.uint32).reshape(-1, 64, 2)
    for lane in (0, 1):  # as random 32-bit numbers: n^2 / 2^33 pairs agree, give or take
        n = lanes[..., lane].size
        expected = n * n / 2**33
        found = n - distinct(lanes[..., lane].ravel()).size
        assert abs(found - expected) < 6 * expected**0.5


def test_fmix32_is_a_bijection():
    x = np.arange(2**32, step=2**12 - 1, dtype=np.uint64).astype(np.uint32)
    inverse_1, inverse_2 = (np.uint32(pow(c, -1, 2**32)) for c in (0x85EBCA6B, 0xC2B2AE35))
    y = fmix32(x)
    y = (y ^ (y >> np.uint32(16))) * inverse_2
    y = (y ^ (y >> np.uint32(13)) ^ (y >> np.uint32(26))) * inverse_1
    assert (y ^ (y >> np.uint32(16)) == x).all()


def test_ngrams():
    assert ngram_key(["horse"]) == word_key("horse")
    orders = [["a", "b", "c"], ["a", "c", "b"], ["b", "a", "c"], ["c", "b", "a"]]
    near = [["a", "b"], ["b", "a"], ["ab"], ["a b"], ["a", ""], ["", "a"], ["a"], ["a", "a"]]
    keys = [ngram_key(words) for words in orders + near]
    assert len(set(keys)) == len(keys)
    lanes = np.stack(unpack(keys))
    assert np.unique(lanes).size == lanes.size


def test_domains_are_separate():
    keys = [word_key("her"), subword_key("her"), bytes_key(b"her", NGRAM_SEEDS)]
    lanes = np.stack(unpack(keys))
    assert np.unique(lanes).size == lanes.size
    # A bigram is not a word that happens to have its words' lanes as bytes.
    a, _ = unpack([word_key("new"), word_key("york")])
    assert unpack(ngram_key(["new", "york"]))[0] != murmur3_32(a.tobytes(), WORD_SEEDS[0])


def test_the_string_is_hashed_as_it_is():
    composed, decomposed = "é", "e\u0301"
    assert word_key(composed) != word_key(decomposed)
    assert word_key("horse") != word_key("Horse")
    assert len({word_key("a" + "\0" * n) for n in range(9)}) == 9
    with pytest.raises(UnicodeEncodeError):
        word_key("\ud800")


def test_a_known_limit_is_documented():
    """MurmurHash3 has pairs that collide under every seed. hash.md says so, with this one."""
    one, other = "\x0ev\x1bz_2|4", "f\x17<o_2-p"
    assert word_key(one) == word_key(other)
    assert subword_key(one) == subword_key(other)
    text = (ROOT / "docs" / "how-it-works" / "hash.md").read_text(encoding="utf-8")
    assert f"`{json.dumps(one)}` and `{json.dumps(other)}`" in text


# --- rows and buckets ------------------------------------------------------------------------


@given(st.lists(u32, min_size=1), sizes)
def test_reduce_range_is_exact(lanes, n):
    lanes = [*lanes, 0, 2**32 - 1]
    found = reduce_range(np.array(lanes, np.uint32), n).tolist()
    assert found == [lane * n >> 32 for lane in lanes]
    assert max(found) == n - 1  # reached by the largest lane
    assert min(found) == 0


@given(i64)
def test_seeds_are_distinct_and_do_not_depend_on_k(seed):
    seeds = derive_seeds(seed, 64)
    assert seeds.dtype == np.uint32
    assert np.unique(seeds).size == 65
    for k in (1, 2, 3, 63):
        assert derive_seeds(seed, k).tolist() == seeds[: 1 + k].tolist()


def test_nearby_seeds_have_nothing_in_common():
    seeds = np.stack([derive_seeds(seed, 4) for seed in range(-500, 500)])
    assert np.unique(seeds).size == seeds.size


@given(st.lists(i64, min_size=1, max_size=5), sizes, bucket_sizes, st.booleans(), i64)
def test_indices_are_in_range_and_follow_the_definition(keys, K, B_k, equal, seed):
    B, k = B_k
    K = B if equal else K
    s = [int(x) for x in derive_seeds(seed, k)]

    def reduce(lane, n: int) -> int:
        return int(lane) * n >> 32

    for key in keys:
        a, b = unpack(key)
        row, buckets = HashSpec(K, B, k, "independent", seed)(key)
        assert row == reduce(fmix32(a ^ np.uint32(s[0])), K) < K
        assert buckets.tolist() == [reduce(bucket_hash(a, b, np.uint32(x)), B) for x in s[1:]]

        shared_row, buckets = HashSpec(K, B, k, "shared", seed)(key)
        assert shared_row == row
        u, zero = np.uint32(row), np.uint32(0)
        expected = [reduce(bucket_hash(u, zero, np.uint32(x)), B) for x in s[1:]]
        assert buckets.tolist() == expected

        row, buckets = HashSpec(K, B, k, "identity", seed)(shared_row)
        assert row == shared_row
        if B == K:
            expected[0] = int(shared_row)
        assert buckets.tolist() == expected


@pytest.mark.parametrize("k", [1, 2, 3])
def test_identity_with_a_bucket_for_every_id(k):
    ids = np.arange(1000)
    spec = HashSpec(1000, 1000, k, "identity")
    rows, buckets = spec(ids)
    assert spec.direct
    assert (rows == ids).all()
    assert (buckets[:, 0] == ids).all()
    # The other functions are the ordinary ones.
    hashed = HashSpec(1000, 1000, k, "shared")
    assert not hashed.direct
    s = derive_seeds(0, k)
    for i in range(1, k):
        u = ids.astype(np.uint32)
        expected = reduce_range(bucket_hash(u, np.zeros_like(u), s[1 + i]), 1000)
        assert (buckets[:, i] == expected).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_embeddings": 0}, "num_embeddings"),
        ({"num_embeddings": 2**32 + 1}, "num_embeddings"),
        ({"num_buckets": 0}, "num_buckets"),
        ({"num_buckets": 2**32 + 1}, "num_buckets"),
        ({"num_hashes": 0}, "num_hashes"),
        ({"num_hashes": 65}, "num_hashes"),
        ({"num_buckets": 1}, "num_hashes must not exceed num_buckets"),
        ({"seed": 2**63}, "seed"),
        ({"seed": -(2**63) - 1}, "seed"),
        ({"indexing": "modulo"}, "indexing"),
    ],
)
def test_what_the_specification_does_not_cover_is_refused(change, message):
    valid = {"num_embeddings": 1000, "num_buckets": 100, "num_hashes": 2}
    HashSpec(**valid)
    with pytest.raises(ValueError, match=message):
        HashSpec(**{**valid, **change})


def test_only_identity_is_direct():
    for indexing in INDEXINGS:
        assert HashSpec(8, 8, 2, indexing).direct == (indexing == "identity")
        assert not HashSpec(8, 7, 2, indexing).direct


def test_more_functions_leave_the_first_ones_alone():
    keys = id_keys(np.arange(100))
    rows_2, buckets_2 = HashSpec(1000, 100, 2)(keys)
    rows_4, buckets_4 = HashSpec(1000, 100, 4)(keys)
    assert (rows_2 == rows_4).all()
    assert (buckets_2 == buckets_4[:, :2]).all()


def test_shared_rows_share_everything_and_independent_rows_do_not():
    keys = id_keys(np.arange(2000))
    for indexing, together in (("shared", True), ("independent", False)):
        rows, buckets = HashSpec(100, 1000, 2, indexing)(keys)
        pairs = np.unique(np.column_stack([rows, buckets]), axis=0)
        assert (len(pairs) == np.unique(rows).size) == together


# --- in another process, in another language -------------------------------------------------

IN_ANOTHER_PROCESS = """
import sys
import numpy as np
from hashembed.hashing.spec import *
np.random.seed(int(sys.argv[1]))
specs = [HashSpec(10_000, 100, 3, indexing, seed) for indexing in INDEXINGS for seed in (0, 1)]
order = np.random.permutation(len(specs))
out = {int(j): [x.tolist() for x in specs[j](np.arange(20))] for j in order}
words = {word: word_key(word) for word in {"horse", "hest", "馬"}}
print(sorted(out.items()), sorted(words.items()), ngram_key(["hash", "embeddings"]))
"""


def test_the_same_in_every_process():
    outputs = []
    for hash_seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", IN_ANOTHER_PROCESS, hash_seed]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        outputs.append(done.stdout)
    assert len(set(outputs)) == 1
    assert str(word_key("horse")) in outputs[0]


def run_port(vectors: Path) -> int:
    """Check a file of vectors with the JavaScript port; how many there were."""
    done = subprocess.run([node(), PORT, vectors], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_javascript_gives_the_vectors():
    expected = sum(len(vectors) for vectors in sections().values())
    assert run_port(ROOT / "docs" / "hash_vectors.json") == expected


def random_inputs() -> dict[str, list[dict]]:
    """The sections of the vectors, with random inputs and the answers left out."""
    rng = np.random.default_rng(20170912)

    def word() -> str:
        code_points = rng.choice([*range(128), *b"\xf8\xe6", 0x99AC, 0x1F40E], rng.integers(12))
        return "".join(map(chr, code_points))

    def key() -> int:
        return int(rng.integers(-(2**63), 2**63))

    def size() -> int:
        return int(rng.choice([rng.integers(1, 2**32, endpoint=True), 2**32, 1, 1000]))

    inputs: dict[str, list[dict]] = {section: [] for section in sections()}
    for _ in range(300):
        seeds = [hex8(seed) for seed in rng.integers(0, 2**32, 2)]
        data = rng.bytes(int(rng.integers(20))).hex()
        inputs["murmur3_32"].append({"bytes": data, "hashes": dict.fromkeys(seeds)})
        inputs["words"].append({"word": word()})
        inputs["ngrams"].append({"words": [word() for _ in range(rng.integers(1, 6))]})
        inputs["subwords"].append({"subword": word()})
        inputs["ids"].append({"id": str(key())})
        inputs["columns"].append({"id": str(key()), "column": int(rng.integers(2**16))})
        inputs["seeds"].append({"seed": str(key()), "num_hashes": int(rng.integers(1, 9))})
        for indexing in INDEXINGS:
            K = size()
            B = K if rng.random() < 0.2 else size()
            inputs["indices"].append(
                {
                    "num_embeddings": K,
                    "num_buckets": B,
                    "num_hashes": int(rng.integers(1, min(B, 4), endpoint=True)),
                    "seed": str(key()),
                    "indexing": indexing,
                    "key": hex16(rng.integers(K) if indexing == "identity" else key()),
                }
            )
    return inputs


def test_javascript_gives_the_same_elsewhere(tmp_path):
    inputs = random_inputs()
    vectors = {name: [{**v, **computed(name, v)} for v in part] for name, part in inputs.items()}
    path = tmp_path / "vectors.json"
    path.write_text(json.dumps({"hash_version": 1, **vectors}))
    assert run_port(path) == 7 * 300 + 3 * 300

    # and the port can fail
    vectors["ids"][-1]["key"] = "0" * 16
    path.write_text(json.dumps({"hash_version": 1, **vectors}))
    with pytest.raises(AssertionError, match="ids"):
        run_port(path)
