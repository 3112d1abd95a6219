"""Model files that JavaScript cannot read: one clear sentence each, and never a wrong answer."""

import base64
import random
import struct
import zlib

import numpy as np
import pytest
from safetensors.numpy import save as save_plainly
from tests import golden
from tests.cases.hostile_files import changed
from tests.cases.web_models import KIND, merged

from hashembed import TextClassifier
from hashembed.engine.tensor_file import (
    FORMAT_VERSION,
    PACKED_VERSION,
    ModelFileError,
    load_tensors,
    save_tensors,
)

TEXT = "w1 w2 w5 😀"
HEADERS = 600
STREAMS = 400
SMALL = golden.FOLDER / "small_4bit.safetensors"
MEMBERS = golden.FOLDER / "members.safetensors"


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Compressed models: one table of listed rows, and two tables of each of some members."""
    folder = tmp_path_factory.mktemp("packed")
    TextClassifier.load(SMALL).compress(golden.texts(200), bits=8).save(folder / "listed")
    TextClassifier.load(MEMBERS).compress(bits=8).save(folder / "tables")
    return {"listed": folder / "listed", "tables": folder / "tables"}


def outcomes(server, files: list[bytes]):
    """For each file its logits of TEXT, or the error."""
    encoded = [base64.b64encode(file).decode() for file in files]
    return server.ask(files=encoded, text=TEXT)


def check_refused(server, files: list[bytes], words: str = "") -> list[str]:
    found = outcomes(server, files)
    assert {each.get("error") for each in found} == {"ModelFileError"}, found
    messages = [each["message"] for each in found]
    assert all(words in message and "\n" not in message for message in messages), messages
    return messages


def check_refused_or_the_same(server, path, files: list[bytes]) -> int:
    """How many of them were refused."""
    expected = TextClassifier.load(path)._logits([TEXT])[0].tolist()
    found = outcomes(server, files)
    refused = [each for each in found if "error" in each]
    assert {each["error"] for each in refused} <= {"ModelFileError"}, refused
    assert all(each["logits"] == expected for each in found if "logits" in each)
    return len(refused)


def header_size(data: bytes) -> int:
    return 8 + struct.unpack("<Q", data[:8])[0]


def test_truncated(server):
    data = SMALL.read_bytes()
    lengths = [*range(40), *range(40, len(data), 97), *range(len(data) - 40, len(data))]
    check_refused(server, [data[:length] for length in lengths])
    check_refused(server, [data + b"\0", data + data])


@pytest.mark.parametrize(
    ("path", "step"),
    [(SMALL, 1), (MEMBERS, 7), ("listed", 1), ("tables", 7)],
    ids=["single", "members", "listed", "tables"],
)
def test_changed_bytes(server, packed, path, step):
    """Every byte of the header, or some of them, and some of the tensors."""
    path = packed.get(path, path)
    data, rng = path.read_bytes(), random.Random(0)
    size = header_size(data)
    places = [*range(0, size, step), *rng.sample(range(size, len(data)), 200)]
    files = []
    for place in places:
        file = bytearray(data)
        file[place] ^= 1 << rng.randrange(8)
        files.append(bytes(file))
    refused = check_refused_or_the_same(server, path, files)
    assert refused > 0.99 * len(files)


def test_what_is_not_a_model(server):
    tensors = {"E": np.zeros((2, 2), np.float32)}
    others = [b"", b"<html>not found</html>", b"{}", bytes(1000), b"\xff" * 1000]
    others += [struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 4) + b'"\xff\xff"']
    check_refused(server, others, "damaged or not a safetensors file")
    check_refused(server, [save_plainly(tensors)], "not one of hashembed's")


def with_header(tmp_path, change, tensors=None, kind=KIND, path=SMALL) -> bytes:
    """The file with other metadata, and the right checksum."""
    own, meta = load_tensors(path, KIND)
    save(tmp_path / "model", {**own, **(tensors or {})}, merged(meta, change), kind)
    return (tmp_path / "model").read_bytes()


def save(path, tensors, meta, kind=KIND):
    """Write a file; a tensor that is None is left out."""
    version = PACKED_VERSION if isinstance(meta, dict) and meta.get("packed") else FORMAT_VERSION
    own = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_tensors(path, kind, own, meta, version)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"text": {"unicode": "15.1.0"}}, 'made for Unicode "15.1.0"'),
        ({"text": {"stems": True}}, 'unknown field "stems" in text'),
        ({"text": {"ngrams": [0, 2]}}, "[0,2] as ngrams"),
        ({"text": {"subwords": [3, 99]}}, "[3,99] as subwords"),
        ({"text": {"punctuation": "some"}}, '"some" as punctuation'),
        ({"engine": {"votes": "hands"}}, '"hands" as votes'),
        ({"engine": {"hidden_layers": [8]}}, "hidden layers"),
        ({"engine": {"other": 1}}, 'unknown field "other" in engine'),
        ({"engine": {"members": 2}}, "unknown tensor"),
        ({"engine": {"spec": {"num_buckets": 301}}}, "of shape [300,8], expected [301,8]"),
        ({"engine": {"spec": {"num_hashes": 3}}}, "of shape [1000,1], expected [1000,2]"),
        ({"engine": {"embedding_dim": 18}}, "of shape [300,8], expected [300,9]"),
        ({"coded": {"bits": 2}}, "tables of 2 bits, expected 8 or 4"),
        ({"coded": {"largest": {"E": 1e300}}}, "as the largest of"),
        ({"coded": None}, "of shape [300,8], expected [300,16]"),
        ({"classes": ["a", 1]}, "not all strings or all numbers"),
        ({"classes": list("aabcd")}, "the same label twice"),
        ({"class_counts": [1]}, "as class_counts"),
        ({"label_form": "lists"}, '"lists" as label_form'),
    ],
)
def test_fields_that_do_not_fit(server, tmp_path, change, words):
    file = with_header(tmp_path, change)
    check_refused(server, [file], words)
    with pytest.raises(ModelFileError):
        TextClassifier.load(tmp_path / "model")


def test_fields_that_python_does_not_look_at(server, tmp_path):
    """A later version may code tables otherwise; text has no ids that could index tables."""
    coded = with_header(tmp_path, {"coded": {"bitmap": True}})
    check_refused(server, [coded], 'unknown field "bitmap" in coded: upgrade')
    identity = with_header(tmp_path, {"engine": {"spec": {"indexing": "identity"}}})
    check_refused(server, [identity], '"identity" as indexing of text')


def test_other_kinds_and_versions(server, tmp_path):
    check_refused(server, [with_header(tmp_path, {}, kind="HashEmbedding")], "not a TextClassifier")
    data = SMALL.read_bytes()
    newer = [(b'format\\": 1', b'format\\": 3', "has format 3"), (b'hash\\": 1', b'hash\\": 2', "")]
    for old, new, words in newer:
        assert data.count(old) == 1
        check_refused(server, [data.replace(old, new)], words or "hash version 2")


def test_tensors_that_do_not_fit(server, tmp_path):
    bias = np.zeros(5, np.float32)
    cases = {
        "NaN or infinity": {"bias": np.full(5, np.nan, np.float32)},
        "of shape [6], expected [5]": {"bias": np.zeros(6, np.float32)},
        "of type U8, expected floats": {"bias": bias.astype(np.uint8)},
        'of type "I64"': {"bias": bias.astype(np.int64)},
        'unknown tensor "more"': {"more": bias},
        "expected codes": {"E": np.zeros((300, 8), np.float32)},
    }
    for words, tensors in cases.items():
        check_refused(server, [with_header(tmp_path, {}, tensors)], words)
    half = {"E": np.full((300, 16), np.inf, np.float16)}
    check_refused(
        server, [with_header(tmp_path, {}, half, path=golden.FOLDER / "small.safetensors")]
    )


def test_any_type_of_floats_at_any_place(server, tmp_path):
    """Other programs may write another order, and a header of another length."""
    own, meta = load_tensors(golden.FOLDER / "small_for_training.safetensors", KIND)
    wide = {name: array.astype(np.float64) for name, array in own.items()}
    save_tensors(tmp_path / "model", KIND, wide, meta)
    data = (tmp_path / "model").read_bytes()
    size = header_size(data)
    longer = struct.pack("<Q", size - 8 + 3) + data[8:size] + b"   " + data[size:]
    expected = TextClassifier.load(tmp_path / "model")._logits([TEXT])[0].tolist()
    assert [each["logits"] for each in outcomes(server, [data, longer])] == [expected] * 2


def test_headers_with_any_fields(server, packed, tmp_path):
    """What both read, they read alike; all else has a sentence."""
    rng, files, expected = random.Random(1), [], []
    originals = [load_tensors(path, KIND) for path in (SMALL, MEMBERS, *packed.values())]
    for _ in range(HEADERS):
        tensors, meta = rng.choice(originals)
        save(tmp_path / "mutant", tensors, changed(meta, rng))
        files.append((tmp_path / "mutant").read_bytes())
        try:
            expected.append(TextClassifier.load(tmp_path / "mutant", threads=1)._logits([TEXT])[0])
        except (ModelFileError, ValueError):  # the second: text that identity cannot index
            expected.append(None)
    both, stricter = 0, 0  # JavaScript alone refuses `"text": ""`, and such
    for found, wanted in zip(outcomes(server, files), expected, strict=True):
        assert found.get("error", "ModelFileError") == "ModelFileError", found
        if wanted is not None and "logits" in found:
            both += 1
            np.testing.assert_allclose(found["logits"], wanted, rtol=1e-5, atol=1e-6)
        elif wanted is not None:
            stricter += 1
    assert both > 50
    assert stricter < both / 20


def test_python_writes_what_json_cannot_hold(server, tmp_path):
    history = {"epochs": [], "stopped": None, "monitor": "loss"}
    epoch = {"number": 0, "loss": float("nan"), "learning_rate": 0.1, "seconds": 1.0}
    epoch |= {"validation_loss": None, "validation_accuracy": None}
    file = with_header(tmp_path, {"history": {**history, "epochs": [epoch]}})
    assert b"NaN" in file
    expected = TextClassifier.load(SMALL)._logits([TEXT])[0].tolist()
    assert outcomes(server, [file])[0]["logits"] == expected


def test_labels_that_look_like_json(server, tmp_path):
    labels = [
        'a "1.50", NaN',
        "-7",
        '\\"2',
        "\u2028\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
        "",
    ]
    file = with_header(tmp_path, {"classes": labels})
    assert server.ask(answer=str(tmp_path / "model"), texts=[])["labels"] == labels
    assert "logits" in outcomes(server, [file])[0]


# --- packed tables --------------------------------------------------------------------------------


def stream(content: bytes):
    return np.frombuffer(zlib.compress(content), np.uint8)


def numbers(values, dtype=np.float32):
    return np.array(values, dtype)


BOMB = stream(bytes(10**8))
ROWS = stream(bytes([0, 3, 255, 10]))  # rows 0, 4 and 270
TWO = numbers([0.5, -2])


def tiny(tmp_path, change=None, rows=300, columns=2, count=3, path=SMALL, **tensors) -> bytes:
    """A file with one packed table of two columns, and some fields or tensors replaced."""
    rng = np.random.default_rng(0)
    own = {
        "E.rows": ROWS,
        "E.codes": stream(bytes([3, 0, 2, 0, 2, 3])),  # b 0 a, 0 a b
        "E.values": TWO,
        "W": rng.normal(size=(5, columns)).astype(np.float16),
        "bias": rng.normal(size=5).astype(np.float32),
    }
    _, meta = load_tensors(path, KIND)
    spec = {"num_buckets": rows, "num_embeddings": rows, "num_hashes": 1}
    engine = {"spec": spec, "embedding_dim": columns, "importance": False}
    meta = merged(
        meta, {"engine": engine, "coded": None, "mean_squares": None, "packed": {"E": count}}
    )
    save(tmp_path / "model", {**own, **tensors}, merged(meta, change or {}))
    return (tmp_path / "model").read_bytes()


def test_a_tiny_packed_table(server, tmp_path):
    """The file that the next tests break is read, and all its rows count."""
    file, texts = tiny(tmp_path), [f"w{i}" for i in range(2000)]
    found = server.ask(answer=str(tmp_path / "model"), texts=texts)["logits"]
    expected = TextClassifier.load(tmp_path / "model")._logits(texts)
    np.testing.assert_array_equal(numbers(found), expected)
    assert len(np.unique(expected, axis=0)) == 4
    assert "logits" in outcomes(server, [file])[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"E.rows": stream(bytes([0, 3]))}, 'has 2 rows of "E", expected 3'),
        ({"E.rows": stream(bytes([0, 3, 9, 9]))}, 'has 4 rows of "E", expected 3'),
        ({"E.rows": stream(bytes([0, 3, 9, 255]))}, 'has 3 rows of "E", expected 3'),
        ({"E.rows": stream(bytes([0, 3, 255, 40]))}, 'has row 300 in "E", which has 300 rows'),
        ({"E.rows": stream(bytes(5))}, '"E.rows" that inflates to more than 4 bytes'),
        ({"E.rows": stream(b"")}, 'has 0 rows of "E", expected 3'),
        ({"E.codes": stream(bytes([3, 0, 2, 0, 2]))}, "that are not 6 numbers"),
        ({"E.codes": stream(bytes([3, 0, 2, 1, 2, 3]))}, "that are not 6 numbers"),
        ({"E.codes": stream(bytes([1] * 6))}, "that are not 6 numbers"),
        ({"E.codes": stream(bytes([3, 0, 2, 0, 2, 4]))}, 'the code 4 of "E", which has no value'),
        ({"E.codes": stream(bytes([2] * 7))}, '"E.codes" that inflates to more than 6 bytes'),
        ({"E.codes": stream(b"")}, "that are not 6 numbers"),
        ({"E.rows": BOMB}, "inflates to more than 4 bytes"),
        ({"E.codes": BOMB}, "inflates to more than 6 bytes"),
        ({"E.rows": ROWS[:-1]}, '"E.rows" that does not inflate'),
        ({"E.rows": ROWS[:3]}, '"E.rows" that does not inflate'),
        ({"E.rows": ROWS[:0]}, '"E.rows" that does not inflate'),
        ({"E.codes": np.zeros(20, np.uint8)}, '"E.codes" that does not inflate'),
        ({"E.codes": ROWS[2:-4]}, '"E.codes" that does not inflate'),
        ({"E.rows": ROWS.reshape(1, -1)}, 'tensor "E.rows" of shape'),
        ({"E.rows": ROWS.astype(np.float32)}, '"E.rows" of type F32, expected U8'),
        ({"E.values": numbers([0.5, -2], np.float16)}, '"E.values" of type F16, expected F32'),
        ({"E.values": numbers([0.5, np.inf])}, "NaN or infinity"),
        ({"E.values": np.ones(255, np.float32)}, "has 255 values"),
        ({"E.values": TWO[:1]}, "which has no value"),
        ({"E.values": None}, 'no tensor "E.values"'),
        ({"E": np.zeros((300, 2), np.float32)}, "that is packed, and one that is not"),
        ({"P": np.ones((300, 1), np.float32)}, 'unknown tensor "P"'),
        ({"change": {"packed": {"E": 4}}}, 'has 3 rows of "E", expected 4'),
        ({"change": {"packed": {"E": 301}}}, '301 as rows of "E"'),
        ({"change": {"packed": {"E": -1}}}, '-1 as rows of "E"'),
        ({"change": {"packed": {"E": True}}}, 'true as rows of "E"'),
        ({"change": {"packed": {"W": 2}}}, 'unknown field "W" in packed'),
        ({"change": {"packed": {"__proto__": 2}}}, 'unknown field "__proto__" in packed'),
        ({"change": {"packed": ["E"]}}, '["E"] as packed'),
        ({"change": {"packed": None}}, 'unknown tensor "E.'),
        ({"change": {"for_training": True}}, "which exclude each other"),
        ({"change": {"engine": {"importance": 1}}}, "1 as importance"),
        ({"change": {"engine": {"importance": True}}}, 'no tensor "P"'),
        ({"rows": 2**24 + 1}, "packed tables of 16777217 rows, expected at most 16777216"),
        (
            {"rows": 2**14, "columns": 2**14, "count": 2**12 + 1},
            "packed tables of 67125248 numbers, expected at most 67108864",
        ),
    ],
)
def test_packed_tables_that_do_not_fit(server, tmp_path, change, words):
    check_refused(server, [tiny(tmp_path, **change)], words)
    if change.keys() != {"E"}:  # of two tables of a name, Python takes the packed one
        with pytest.raises(ModelFileError):
            TextClassifier.load(tmp_path / "model")


def test_the_tables_of_a_file_have_a_limit_together(server, tmp_path):
    """Of 16 members each may be large, but not all; of whole tables, zeros count, too."""
    _, meta = load_tensors(SMALL, KIND)
    columns, most = 2**10, 2**26

    def made(members, rows, count, importance):
        spec = {"num_buckets": rows, "num_embeddings": 1, "num_hashes": 1}
        engine = {"spec": spec, "embedding_dim": columns, "importance": importance}
        names = [f"{i}." if members > 1 else "" for i in range(members)]
        own, packed = {}, {}
        for name in names:
            own |= {f"{name}W": np.zeros((5, columns), np.float16)}
            own |= {f"{name}bias": np.zeros(5, np.float32)}
            tables = {"E": (count, rows), "P": (0, 1)} if importance else {"E": (count, rows)}
            for table, (kept, _) in tables.items():
                packed[f"{name}{table}"] = kept
                own[f"{name}{table}.rows"] = stream(bytes(kept))
                own[f"{name}{table}.codes"] = stream(zeros(kept * columns))
                own[f"{name}{table}.values"] = TWO[:0]
        fields = {"coded": None, "mean_squares": None, "packed": packed}
        engine |= {"members": members, "votes": "logits"}
        save(tmp_path / "model", own, merged(meta, {"engine": engine, **fields}))
        return (tmp_path / "model").read_bytes()

    def zeros(count):
        """A run of so many."""
        return bytes(int(bit) for bit in reversed(f"{count + 1:b}"[1:]))

    for members, rows, count, importance, numbers in (
        (16, 2**13, 2**13, False, 2**27),
        (1, 2**20, 2, True, 2**30 + 1),
        (4, 2**15, 0, True, 2**27 + 4),
    ):
        file = made(members, rows, count, importance)
        assert len(file) < 400_000
        check_refused(server, [file], f"of {numbers} numbers, expected at most {most}")
        message = rf"has {numbers:,} numbers in packed tables, expected at most {most:,}$"
        with pytest.raises(ModelFileError, match=message):
            TextClassifier.load(tmp_path / "model")
    for members, rows, count, importance in ((2, 2**20, 2**4, False), (2, 2**10, 2, True)):
        file = made(members, rows, count, importance)
        expected = TextClassifier.load(tmp_path / "model")._logits([TEXT])[0].tolist()
        assert outcomes(server, [file])[0] == {"logits": expected}


def test_packed_tables_of_extreme_shapes(server, tmp_path):
    """Nothing but zeros; a long run of zeros; 2^24 rows of which the last one is kept."""
    nothing = {"E.rows": stream(b""), "E.codes": stream(b""), "E.values": TWO[:0]}
    run = bytes([1, 1, 1, 0, 0, 0, 1])  # 198 zeros: 2 + 4 + 8 + 8 + 16 + 32 + 128
    gap = stream(b"\xff" * ((2**24 - 1) // 255) + bytes([(2**24 - 1) % 255]))
    cases = [
        (0, 300, nothing),
        (100, 100, {"E.rows": stream(bytes(100)), "E.codes": stream(b"\3" + run + b"\2")}),
        (1, 2**24, {"E.rows": gap, "E.codes": stream(b"\3\2")}),
    ]
    for count, rows, tensors in cases:
        file = tiny(tmp_path, count=count, rows=rows, **tensors)
        expected = TextClassifier.load(tmp_path / "model")._logits([TEXT])[0].tolist()
        assert outcomes(server, [file])[0] == {"logits": expected}


def spoiled(stream_bytes, rng: random.Random):
    """A stream with other bytes inside, or with damage to itself."""
    content = bytearray(zlib.decompress(stream_bytes.tobytes()))
    for _ in range(rng.randrange(3)):
        content[rng.randrange(len(content))] = rng.choice([0, 1, 2, 3, 254, 255])
    if rng.random() < 0.2:
        del content[rng.randrange(len(content)) :]
    packed = bytearray(zlib.compress(bytes(content)))
    if rng.random() < 0.3:
        packed[rng.randrange(len(packed))] ^= 1 << rng.randrange(8)
    return np.frombuffer(bytes(packed), np.uint8)


def test_streams_of_any_bytes(server, packed, tmp_path):
    """What Python refuses, JavaScript refuses; what both read, they read alike."""
    rng, files, expected = random.Random(3), [], []
    originals = [load_tensors(path, KIND) for path in packed.values()]
    for _ in range(STREAMS):
        tensors, meta = rng.choice(originals)
        names = [name for name in tensors if name.endswith((".rows", ".codes"))]
        name = rng.choice(names)
        save(tmp_path / "mutant", {**tensors, name: spoiled(tensors[name], rng)}, meta)
        files.append((tmp_path / "mutant").read_bytes())
        try:
            logits = TextClassifier.load(tmp_path / "mutant", threads=1)._logits([TEXT])[0]
            expected.append({"logits": logits.tolist()})
        except ModelFileError:
            expected.append({"error": "ModelFileError"})
    found = outcomes(server, files)
    for own in found:
        own.pop("message", None)
    assert found == expected
    refused = sum("error" in own for own in found)
    assert STREAMS / 5 < refused < STREAMS * 0.9
