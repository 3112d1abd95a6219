"""Model files that were damaged, on purpose or not: one clear sentence each, and nothing worse."""

import json
import re
import resource
import struct
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from safetensors import safe_open
from safetensors.numpy import load_file, save
from tests.cases.hostile_files import LABELS, TEXTS, try_headers

from hashembed import TextClassifier
from hashembed.classify import model_file
from hashembed.classify.model_file import classes_from
from hashembed.classify.quantize import BITS, coded_table, encode
from hashembed.engine import tensor_file as checkpoint
from hashembed.engine.tensor_file import (
    KEY,
    ModelFileError,
    all_finite,
    load_tensors,
    read_header,
    save_tensors,
)

MUTANTS = 2000
HEADERS, MANY_HEADERS = 300, 20_000


@pytest.fixture(scope="module")
def classifier():
    return TextClassifier(num_embeddings=40, num_buckets=10, embedding_dim=4, effort="fast").fit(
        TEXTS, LABELS
    )


@pytest.fixture
def path(classifier, tmp_path):
    classifier.save(tmp_path / "model.safetensors", bits=16)
    return tmp_path / "model.safetensors"


def header_of(path):
    with safe_open(path, framework="numpy") as file:
        return json.loads(file.metadata()[KEY])


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """Flip bits, cut, insert, repeat, or overwrite a number with an extreme one."""
    changed = bytearray(data)
    kind = rng.integers(6)
    at = int(rng.integers(len(data)))
    if kind == 0:
        changed[at] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        del changed[at:]
    elif kind == 2:
        del changed[at : at + int(rng.integers(1, 40))]
    elif kind == 3:
        changed[at:at] = rng.bytes(int(rng.integers(1, 40)))
    elif kind == 4:
        changed[at : at + 8] = struct.pack("<q", int(rng.choice([-1, 2**62, 0, 2**31])))
    else:
        header = changed[8 : 8 + struct.unpack("<Q", data[:8])[0]]
        digits = [i for i, byte in enumerate(header) if chr(byte).isdigit()]
        changed[8 + int(rng.choice(digits))] = int(rng.integers(ord("0"), ord("9") + 1))
    return bytes(changed)


def test_thousands_of_damaged_files(classifier, path, tmp_path):
    """Each is refused with a ModelFileError, or it is a whole model still and answers the same."""
    data, rng = path.read_bytes(), np.random.default_rng(0)
    want = TextClassifier.load(path).predict_proba(TEXTS)
    mutant = tmp_path / "mutant.safetensors"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = []
    for _ in range(MUTANTS):
        mutant.write_bytes(mutate(data, rng))
        try:
            loaded = TextClassifier.load(mutant)
        except ModelFileError as error:
            refused.append(str(error))
        else:
            assert np.array_equal(loaded.predict_proba(TEXTS), want)
    assert len(refused) > 0.9 * MUTANTS
    assert all(str(mutant) in message for message in refused)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"spec": {"num_embeddings": 2**31}},
            r"'P' of shape \(40, 2\), expected \(2147483648, 2\)",
        ),
        ({"spec": {"num_buckets": 2**31 - 1}}, "'E' of shape"),
        ({"spec": {"num_hashes": 3}}, "'P' of shape"),
        ({"classes": ["a"]}, "counts of 2 classes, expected 1"),
        ({"classes": ["a"], "class_counts": [1]}, "'W' of shape"),
        ({"label_form": "other"}, "labels of an unknown form"),
        ({"label_form": "lists"}, "form 'lists', but a model of one label per text"),
        ({"engine": {"multilabel": True}}, "form 'single', but a model of several labels"),
        ({"engine": {"multilabel": 1}}, "multilabel must be True or False"),
        ({"engine": {"embedding_dim": 65536}}, "embedding_dim must be .* to 16,384, found 65,536"),
        ({"engine": {"hidden_layers": [2**30]}}, r"has a model with hidden layers \(1073741824\)"),
        ({"engine": {"hidden_layers": "\x1b[31m"}}, "has a model with hidden layers .*: train a"),
        ({"engine": {"hidden_layers": None}}, r"has a model with hidden layers \(None\)"),
        ({"engine": {"other": 1}}, "cannot be understood: TypeError"),
        ({"classes": ["a", 1]}, "not all strings or all numbers"),
        ({"classes": ["a", "a"]}, "the same label twice"),
        ({"classes": [None, None]}, "not all strings or all numbers"),
        ({"classes": [2**64, 1]}, "cannot be understood: OverflowError"),
        ({"class_counts": [-1, 1]}, "class_counts must be"),
        ({"class_counts": [2**70, 1]}, "class_counts must be"),
        ({"texts_seen": 1e400}, "texts_seen must be"),
        ({"stream_rate": -1}, "-1 as its stream_rate"),
        ({"stream_rate": float("nan")}, "nan as its stream_rate"),
        ({"mean_squares": {"E_square": 1e300}}, "1e\\+300 as the mean E_square"),
        ({"mean_squares": {"X": 1.0}}, "has no mean_squares of"),
        ({"for_training": 1}, "1 as for_training"),
        ({"params": {"batch_size": 2**40}}, "batch_size must be"),
        ({"params": []}, "cannot be understood: AttributeError"),
        ({"history": {"epochs": [{"number": 0}]}}, "cannot be understood: TypeError"),
        ({"class_counts": [1]}, "counts of 1 classes, expected 2"),
        ({"text": {"ngrams": [0, 99]}}, "cannot be understood: ValueError"),
        ({"text": 7}, "cannot be understood"),
        ({"history": {}}, "cannot be understood: KeyError"),
        ({"engine": {"members": 2}}, "has no tensor '0.E'"),
        ({"engine": {"members": 10**9}}, "cannot be understood: ValueError"),
        ({"engine": {"embedding_dim": 5}}, "'E' of shape"),
    ],
)
def test_headers_that_do_not_fit(path, change, words):
    """With a right checksum: what a foreign or careless writer could make."""
    meta = header_of(path)["meta"]
    for name, value in change.items():
        if name == "spec":
            meta["engine"]["spec"].update(value)
        elif isinstance(value, dict) and value:
            meta[name].update(value)
        else:
            meta[name] = value
    save_tensors(path, "TextClassifier", load_file(path), meta)
    with pytest.raises(ModelFileError, match=words):
        TextClassifier.load(path)


def test_tensors_that_do_not_fit(path):
    meta, tensors = header_of(path)["meta"], load_file(path)
    poisoned = {**tensors, "E": np.full_like(tensors["E"], np.nan)}
    integers = {**tensors, "W": tensors["W"].astype(np.int32)}
    for wrong, words in (
        (poisoned, "holds NaN or infinity in its tensor 'E'"),
        (integers, "of type int32, expected floats"),
        ({**tensors, "Q": tensors["W"]}, "an unknown tensor: 'Q'"),
        ({**tensors, "W": np.full((2, 4), 1e300)}, "numbers too large in its tensor 'W'"),
        ({"E": tensors["E"], "P": tensors["P"]}, "has no tensor 'W'"),
        ({"W": tensors["W"]}, "has no tensor 'E'"),
    ):
        save_tensors(path, "TextClassifier", wrong, meta)
        with pytest.raises(ModelFileError, match=words):
            TextClassifier.load(path)


def test_a_header_that_promises_too_much(tmp_path):
    """A few bytes that claim to be terabytes."""
    path = tmp_path / "bomb.safetensors"
    header = {"E": {"dtype": "F32", "shape": [2**40, 2**10], "data_offsets": [0, 2**52]}}
    encoded = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + b"\0" * 64)
    with pytest.raises(ModelFileError, match="damaged"):
        TextClassifier.load(path)
    path.write_bytes(struct.pack("<Q", 2**60) + b"{}")
    with pytest.raises(ModelFileError, match="damaged"):
        TextClassifier.load(path)


@pytest.mark.parametrize("header", ["", "[]", "{}", "7", "[" * 100_000, '{"kind": 1}'])
def test_headers_that_are_no_headers(path, header):
    path.write_bytes(save({"x": np.zeros(3, np.float32)}, {KEY: header}))
    with pytest.raises(ModelFileError, match="is damaged"):
        TextClassifier.load(path)


def count_of(kinds, wanted):
    return sum(kinds[kind] for kind in wanted)


def test_headers_with_wrong_fields(classifier, tmp_path):
    found = try_headers(classifier, tmp_path, HEADERS, seed=1)
    assert count_of(found, ["loaded", "refused"]) == HEADERS
    assert found["loaded"] > HEADERS / 20
    assert found["not described"] > HEADERS / 20


@pytest.mark.slow
def test_many_headers_with_wrong_fields(classifier, tmp_path):
    found = try_headers(classifier, tmp_path, MANY_HEADERS, seed=2)
    print(f"\n{MANY_HEADERS:,} mutated headers: {dict(found)}")
    assert count_of(found, ["loaded", "refused"]) == MANY_HEADERS


def test_a_state_that_does_not_fit(classifier, tmp_path):
    """Of a model that was saved for training."""
    path = tmp_path / "model"
    classifier.save(path, for_training=True)
    tensors, meta = load_tensors(path, "TextClassifier")
    for change, words in (
        ({"E_square": tensors["E_square"][:1]}, "E_square must have the shape"),
        ({"P_square": -tensors["P_square"] - 1}, "sums of squares"),
        ({"E_square": tensors["E_square"].astype(np.int64)}, "must hold floats"),
        ({"Q": tensors["W"]}, "missing or unknown: Q"),
    ):
        save_tensors(path, "TextClassifier", {**tensors, **change}, meta)
        with pytest.raises(ModelFileError, match=words):
            TextClassifier.load(path)
    save_tensors(path, "TextClassifier", {"E": tensors["E"], **tensors}, meta)
    TextClassifier.load(path)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ([0, 2**63 + 1, 2**63 + 2], "u"),  # NumPy would make floats of them
        ([-5, 0, 7], "i"),
        ([True, False], "b"),
        (["a", ""], "U"),
        ([], "U"),
        ([1.0, 2.0], "f"),
    ],
)
def test_labels_keep_their_type_and_value(labels, kind):
    classes = classes_from(json.loads(json.dumps(labels)))
    assert classes.dtype.kind == kind
    assert classes.tolist() == labels


def test_labels_that_take_too_much_room(monkeypatch):
    """An array has as much room for every label as for the longest."""
    monkeypatch.setattr(model_file, "MAX_LABEL_BYTES", 2**20)
    classes_from(["a" * 100] + [str(i) for i in range(1000)])
    with pytest.raises(ModelFileError, match="1,001 labels, one with 1,000 characters"):
        classes_from(["a" * 1000] + [str(i) for i in range(1000)])


def test_a_header_that_a_file_cannot_hold(path, monkeypatch):
    monkeypatch.setattr(checkpoint, "MAX_HEADER", 1000)
    with pytest.raises(ValueError, match=r"labels and settings take .* at most 500"):
        save_tensors(path, "x", {}, {"classes": ["a" * 2000]})


def test_a_file_that_is_shortened_during_a_load(path):
    """With the file mapped into memory, this was a SIGBUS."""
    code = (
        "import os, sys\n"
        "from hashembed.engine import tensor_file as checkpoint\n"
        "read = checkpoint.read_layout\n"
        "def shorten(file):\n"
        "    layout = read(file)\n"
        "    os.truncate(sys.argv[1], 9000)\n"
        "    return layout\n"
        "checkpoint.read_layout = shorten\n"
        "try:\n"
        "    checkpoint.load_tensors(sys.argv[1], 'x')\n"
        "except checkpoint.ModelFileError as error:\n"
        "    print(error)\n"
    )
    save_tensors(path, "x", {"E": np.zeros((1000, 1000), np.float32)}, {})
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "became shorter while it was read" in done.stdout


def test_a_folder_is_no_model(tmp_path):
    with pytest.raises(ModelFileError, match="is a folder"):
        TextClassifier.load(tmp_path)


def test_the_header_alone(path):
    content = read_header(path)
    assert content["kind"] == "TextClassifier"
    assert content["tensors"]["E"] == {"shape": [10, 4], "dtype": "F16"}
    assert content["meta"]["classes"] == ["+", "-"]
    assert content["bytes"] == path.stat().st_size


def test_files_are_as_readable_as_others(path):
    plain = path.parent / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


tables = npst.arrays(
    np.float32,
    st.tuples(st.integers(0, 7), st.integers(1, 5)),
    elements=st.floats(-1e6, 1e6, width=32),
)


@given(tables, st.sampled_from(BITS))
def test_codes_are_close_and_keep_zeros_and_signs(table, bits):
    codes, largest = encode(table, bits)
    assert codes.dtype == np.uint8
    assert codes.shape == (len(table), -(-table.shape[1] * bits // 8))
    back = np.asarray(coded_table(codes, largest, bits, table.shape[1]))
    assert back.dtype == np.float32
    assert back.shape == table.shape
    assert (back[table == 0] == 0).all()
    assert (back * table >= 0).all()
    apart = np.abs(np.sqrt(np.abs(back, dtype=float)) - np.sqrt(np.abs(table, dtype=float)))
    top = 2 ** (bits - 1) - 1
    assert apart.max(initial=0) <= 0.501 * largest**0.5 / top
    again, _ = encode(back, bits)
    if np.abs(back).max(initial=0) == np.float32(largest):
        assert (again == codes).all()


def decoded(codes, largest, bits, columns):
    """The reference: sign * (code / top)^2 * largest."""
    if bits == 4:
        pairs = np.stack([codes & 15, codes >> 4], axis=2)
        codes = pairs.reshape(len(codes), 2 * codes.shape[1])[:, :columns]
    signed = codes.astype(np.int64)
    signed[signed >= 2 ** (bits - 1)] -= 2**bits
    x = signed.astype(np.float32) / np.float32(2 ** (bits - 1) - 1)
    return np.sign(x) * x * x * np.float32(largest)


@given(st.data(), st.integers(0, 40), st.integers(1, 19), st.integers(0, 9))
@pytest.mark.parametrize("bits", BITS)
def test_codes_are_decoded_into_wider_rows(bits, data, rows, columns, padding):
    """Any byte, any width; what lies beside the columns stays."""
    codes = data.draw(npst.arrays(np.uint8, (rows, -(-columns * bits // 8))))
    coded = coded_table(codes, 2.5, bits, columns)
    table = np.full((rows, columns + padding), np.float32(7))
    coded.fill(table[:, :columns])
    wanted = decoded(codes, 2.5, bits, columns)
    assert np.array_equal(table[:, :columns], wanted)
    assert (table[:, columns:] == 7).all()
    assert np.array_equal(np.asarray(coded), wanted)
    assert (coded.shape, coded.dtype) == (wanted.shape, wanted.dtype)
    with pytest.raises(ValueError, match="cannot decode a table of"):
        coded.fill(np.empty((rows + 1, columns), np.float32))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("members", [1, 2])
def test_files_of_fewer_bits(bits, members, tmp_path):
    clf = TextClassifier(num_embeddings=3000, num_buckets=300, embedding_dim=5, members=members)
    clf.fit(TEXTS, LABELS)
    path, half = tmp_path / "coded", tmp_path / "half"
    clf.save(path, bits=bits)
    clf.save(half, bits=16)
    assert path.stat().st_size < half.stat().st_size * (bits / 16 + 0.15)
    loaded = TextClassifier.load(path)
    assert loaded.get_params() == clf.get_params()
    np.testing.assert_allclose(
        loaded.predict_proba(TEXTS), clf.predict_proba(TEXTS), atol=0.02 if bits == 8 else 0.2
    )
    loaded.save(tmp_path / "again", bits=bits)
    again = TextClassifier.load(tmp_path / "again")
    np.testing.assert_array_equal(again.predict_proba(TEXTS), loaded.predict_proba(TEXTS))


def test_bits_that_cannot_be(classifier, tmp_path):
    with pytest.raises(ValueError, match="bits must be"):
        classifier.save(tmp_path / "x", bits=5)
    with pytest.raises(ValueError, match="keeps full precision, found bits=8"):
        classifier.save(tmp_path / "x", bits=8, for_training=True)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bits": 3}, "tables of 3 bits"),
        ({"bits": 4}, "codes of 'E' of a wrong shape"),
        ({"largest": {"E": float("inf"), "P": 1.0}}, "as the largest number of 'E'"),
        ({"largest": {"X": 1.0}}, "cannot be understood: KeyError"),
        ({"largest": {"E": 1.0}}, "has a tensor 'P' of type uint8"),
    ],
)
def test_codes_that_do_not_fit(classifier, tmp_path, change, words):
    path = tmp_path / "model"
    classifier.save(path, bits=8)
    tensors, meta = load_tensors(path, "TextClassifier")
    meta["coded"] |= change
    save_tensors(path, "TextClassifier", tensors, meta)
    with pytest.raises(ModelFileError, match=re.escape(words)):
        TextClassifier.load(path)


def test_every_half_is_recognised_as_finite_or_not():
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = np.isfinite(halves)
    assert all_finite(halves[finite])
    assert all_finite(halves[:0])
    assert not any(all_finite(np.array([half, 1], np.float16)) for half in halves[~finite])
