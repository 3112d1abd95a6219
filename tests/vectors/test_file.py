"""Files of word vectors, read at once or on demand."""

import copy
import os
import pickle
import shutil

import numpy as np
import pytest

from hashembed import WordVectors
from hashembed.engine.tensor_file import ModelFileError

TEXTS = ["the cat sat on the mat", "the dog sat on the cat", "some words more"] * 20
ASKED = ["cat", "dogs", "unheard of words", "", None]


@pytest.fixture(scope="module")
def vectors():
    sizes = {"num_buckets": 5000, "num_embeddings": 6000}
    return WordVectors(embedding_dim=13, passes=1, min_count=1, sample=1.0, **sizes).fit(TEXTS)


@pytest.fixture(params=[8, 4, 3, 2])
def file(request, vectors, tmp_path):
    vectors.save(tmp_path / "v", bits=request.param)
    return tmp_path / "v"


def test_on_demand_as_at_once(file):
    whole, some = WordVectors.load(file), WordVectors.load(file, mmap=True)
    np.testing.assert_array_equal(some.transform(ASKED), whole.transform(ASKED))
    assert "whole" not in some.model.E.__dict__  # only some rows were read
    assert "whole" not in some.model.P.__dict__
    np.testing.assert_array_equal(some.vectors, whole.vectors)
    assert some.nearest("cat") == whole.nearest("cat")
    assert some.index_to_key == whole.index_to_key


def test_a_file_for_training_is_read_whole(vectors, tmp_path):
    vectors.save(tmp_path / "v", for_training=True)
    some = WordVectors.load(tmp_path / "v", mmap=True)
    np.testing.assert_array_equal(some.vectors, vectors.vectors)
    some.partial_fit(TEXTS)


def test_saved_again_it_is_the_same_file(file, tmp_path):
    bits = WordVectors.load(file).model.E.bits
    for mmap in (False, True):
        WordVectors.load(file, mmap=mmap).save(tmp_path / "again", bits=bits)
        assert (tmp_path / "again").read_bytes() == file.read_bytes()


def test_a_file_may_replace_itself(file):
    some = WordVectors.load(file, mmap=True)
    before = some["cat"]
    some.save(file, bits=4)
    np.testing.assert_array_equal(some["cat"], before)  # still that of the old file
    assert WordVectors.load(file)["cat"].shape == before.shape


def test_files_that_were_cut_off(file, tmp_path):
    whole = file.read_bytes()
    for size in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / "part").write_bytes(whole[:size])
        with pytest.raises(ModelFileError):
            WordVectors.load(tmp_path / "part", mmap=True)


@pytest.mark.parametrize("size", [0, 2000, 20_000])
def test_files_that_are_cut_off_while_in_use(file, size, tmp_path):
    shutil.copy(file, tmp_path / "copy")
    some = WordVectors.load(tmp_path / "copy", mmap=True)
    os.truncate(tmp_path / "copy", size)
    with pytest.raises(ModelFileError, match="became shorter"):
        some.transform(ASKED)


def test_scales_that_are_no_numbers(vectors, tmp_path):
    path = tmp_path / "v"
    vectors.save(path)
    content = bytearray(path.read_bytes())
    some = WordVectors.load(path, mmap=True)
    begin = some.model.E.scales._begin
    content[begin : begin + 2 * 5000] = b"\xff" * 10_000
    path.write_bytes(bytes(content))
    with pytest.raises(ModelFileError, match="NaN"):
        WordVectors.load(path, mmap=True)["cat"]
    with pytest.raises(ModelFileError, match="damaged"):
        WordVectors.load(path)


def test_other_files(tmp_path):
    (tmp_path / "v").write_text("no vectors")
    with pytest.raises(ModelFileError):
        WordVectors.load(tmp_path / "v", mmap=True)
    with pytest.raises(FileNotFoundError):
        WordVectors.load(tmp_path / "none", mmap=True)
    with pytest.raises(ModelFileError, match="folder"):
        WordVectors.load(tmp_path, mmap=True)


def test_vectors_that_stay_in_their_file_can_be_copied(file):
    some = WordVectors.load(file, mmap=True)
    for copied in (pickle.loads(pickle.dumps(some)), copy.deepcopy(some)):
        np.testing.assert_array_equal(copied["cat"], some["cat"])
