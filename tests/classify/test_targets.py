"""Labels of any kind to numbers and back."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from hashembed.classify.targets import decode, encode, join


def numbers(targets):
    offsets = targets.labels.offsets
    return [targets.labels.labels[a:b].tolist() for a, b in pairwise(offsets)]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["b", "a", "b"], ["a", "b"]),
        (np.array(["b", "a", "b"]), ["a", "b"]),
        (np.array(["b", "a", "b"], object), ["a", "b"]),
        ([7, -3, 7], [-3, 7]),
        ([True, False, True], [False, True]),
        (np.array([1.0, 0.0, 1.0]), [0.0, 1.0]),
        (pa.array(["b", "a", "b"]), ["a", "b"]),
        (pa.chunked_array([["b"], ["a", "b"]]).dictionary_encode(), ["a", "b"]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ["a", "b"]),
        (iter("bab"), ["a", "b"]),
    ],
)
def test_one_label_a_text(labels, classes):
    targets = encode(labels)
    assert targets.form == "single"
    assert targets.classes.tolist() == classes
    assert numbers(targets) == [[1], [0], [1]]


@pytest.mark.parametrize(
    "labels",
    [
        [["b", "a"], [], ["b"]],
        [("b", "a"), (), ("b", "b")],
        [{"b", "a"}, frozenset(), {"b"}],
        pa.array([["b", "a"], [], ["b"]]),
        np.array([np.array(["b", "a"]), np.array([]), np.array(["b"])], object),
    ],
)
def test_several_labels_a_text(labels):
    targets = encode(labels)
    assert targets.form == "lists"
    assert targets.classes.tolist() == ["a", "b"]
    assert [sorted(x) for x in numbers(targets)] == [[0, 1], [], [1]]
    back = decode(targets.labels.matrix(2), targets.classes, "lists")
    assert back.tolist() == [("a", "b"), (), ("b",)]


def test_a_matrix_of_zeros_and_ones():
    matrix = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]])
    for form in (matrix, matrix.tolist(), list(matrix)):
        targets = encode(form)
        assert targets.form == "matrix"
        assert numbers(targets) == [[0, 2], [], [1]]
        assert (
            decode(targets.labels.matrix(3), targets.classes, "matrix").tolist() == matrix.tolist()
        )


def test_new_classes_come_last():
    targets = encode(["b", "a", "z", "c"], np.array(["m", "b"]))
    assert targets.classes.tolist() == ["m", "b", "a", "c", "z"]
    assert numbers(targets) == [[1], [2], [4], [3]]
    long = encode(["a longer name"], targets.classes).classes
    assert long[-1] == "a longer name"
    assert encode([["b"], ["q"]], np.array(["b"])).classes.tolist() == ["b", "q"]


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("abc", "found one: 'abc'"),
        (None, "y is None"),
        (["a", None], r"label 1 is missing"),
        (pa.array(["a", None]).dictionary_encode(), "label 1 is missing"),
        (np.array([0, np.nan]), "label 1 is missing"),
        ([0.5, 1.5], "Unknown label type: continuous"),
        (["a", 1, True], "use .str.y. for y in labels."),
        ([b"x", b"y"], "labels must be str, int or bool"),
        (["a", ["b"]], "label 1 is"),
        ([["b"], "a"], "label 1 is 'a', but the labels before it are lists"),
        (np.array([[0, 2], [1, 0]]), "indicator matrix"),
        (np.zeros((2, 2, 2)), "one dimension"),
    ],
)
def test_mistakes_get_a_sentence(labels, words):
    with pytest.raises((TypeError, ValueError), match=words):
        encode(labels)


def test_labels_of_another_type_later_are_refused():
    words = "labels so far are str, such as 'a', found int, such as 1: .*astype.str."
    with pytest.raises(TypeError, match=words):
        encode([1, 2], np.array(["a"]))
    words = "labels so far are int, such as 0, found str, such as '1': .*astype.int."
    for labels in (["1", "2"], [["1"], ["2", "1"]]):
        with pytest.raises(TypeError, match=words):
            encode(labels, np.array([0, 1]))
    with pytest.raises(TypeError, match=r"np.asarray.labels. == 'no', with the label that means T"):
        encode(["no", "yes"], np.array([False, True]))
    with pytest.raises(ValueError, match="found 3 columns of labels, but the model has 2 classes"):
        encode(np.array([[1, 0, 1], [0, 0, 0]]), np.arange(2))


def test_single_labels_where_there_may_be_several():
    known = np.array(["a", "b"])
    for labels in (["b", "c", "a"], pa.array(["b", "c", "a"]).dictionary_encode()):
        targets = encode(labels, known, "lists")
        assert targets.form == "lists"
        assert targets.classes.tolist() == ["a", "b", "c"]
        assert numbers(targets) == [[1], [2], [0]]
    for labels in ([2, 0], [[2], [0]]):
        targets = encode(labels, np.arange(3), "matrix")
        assert targets.form == "matrix"
        assert numbers(targets) == [[2], [0]]
    with pytest.raises(ValueError, match=r"found label 5, but the .* of 3 columns: .* are 0 to 2"):
        encode([5], np.arange(3), "matrix")
    with pytest.raises(ValueError, match=r"found a matrix .* trained with lists of labels"):
        encode(np.eye(2, dtype=int), known, "lists")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([["a"], ["b", "a"]], "several labels for one text .text 2 has 'b' and 'a'"),
        ([["a"], []], "a text without a label .text 2."),
        ([["a"], ["b"]], "found lists of labels"),
        (np.eye(2, dtype=int), "found a matrix of labels"),
    ],
)
def test_several_labels_for_a_model_of_one(labels, words):
    known = np.arange(2) if isinstance(labels, np.ndarray) else np.array(["a", "b"])
    with pytest.raises(ValueError, match=f"{words}.*: give one label for each text, or train"):
        encode(labels, known, "single")


def test_batches_of_single_labels_join_those_of_lists():
    first = encode(["b", "a"])
    second = encode([["a", "b"], []], first.classes)
    for parts, want in (
        ([first, second], [[1], [0], [0, 1], []]),
        ([second, encode(["b"], second.classes)], [[0, 1], [], [1]]),
    ):
        targets = join(parts)
        assert targets.form == "lists"
        assert numbers(targets) == want
    with pytest.raises(ValueError, match="the same form in all batches, found matrix and single"):
        join([encode(np.eye(2, dtype=int)), encode([1, 0])])


BIG = 2**63


@pytest.mark.parametrize(
    "labels",
    [
        [BIG, BIG + 1, BIG],
        np.array([BIG, BIG + 1, BIG], np.uint64),
        np.array([BIG, BIG + 1, BIG], object),
        pa.array([BIG, BIG + 1, BIG], pa.uint64()),
        [[BIG], [BIG + 1], [BIG]],
    ],
)
def test_large_whole_numbers_stay_apart(labels):
    targets = encode(labels)
    assert targets.classes.tolist() == [BIG, BIG + 1]
    assert numbers(targets) == [[0], [1], [0]]
    more = encode([5, BIG + 1], known=targets.classes)
    assert more.classes.tolist() == [BIG, BIG + 1, 5]
    assert numbers(more) == [[2], [1]]
    later = encode([BIG + 1], known=encode([1, 2]).classes)
    assert later.classes.tolist() == [1, 2, BIG + 1]


def test_large_and_small_whole_numbers_are_one_type():
    """NumPy makes floats of such lists."""
    for labels in ([BIG, BIG + 1, 3], np.array([BIG, BIG + 1, 3], object)):
        targets = encode(labels)
        assert targets.classes.tolist() == [3, BIG, BIG + 1]
        assert numbers(targets) == [[1], [2], [0]]
    assert numbers(encode([[BIG, BIG + 1, 3], [3]])) == [[1, 2, 0], [0]]


@pytest.mark.parametrize(
    "labels",
    [
        [BIG, BIG + 1, -1],  # no type of NumPy's holds both
        [np.uint64(BIG + 1), np.int64(-1)],
        np.array([np.uint64(BIG + 1), np.int64(-1)], object),
        [[BIG + 1, -5], [1]],
        [2**60, 2**60 + 1, 1.0],
        [2**64, 1],
        np.array([2**64, 2**64 + 1], object),
        [[2**64], [1]],
        [2**70, 2**70 + 1],
    ],
)
def test_whole_numbers_that_floats_would_merge_are_refused(labels):
    with pytest.raises(ValueError, match=r"whole numbers of one type.*str\(y\)"):
        encode(labels)


def test_signed_and_unsigned_numbers_that_no_type_holds():
    with pytest.raises(TypeError, match=r"labels so far are 'uint64', .* found int.*str\(y\)"):
        encode([-1], known=encode([BIG]).classes)
