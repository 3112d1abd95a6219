"""`class_weight`: what it means for one label a text and for several, and what it refuses."""

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.utils.class_weight import compute_class_weight

from hashembed import TextClassifier
from hashembed.classify.targets import encode
from hashembed.cli import main
from hashembed.engine.labels import Labels, document_weights, weigh_classes
from hashembed.engine.tensor_file import ModelFileError

SMALL = {"num_embeddings": 5000, "num_buckets": 500, "threads": 1}
# The words of a text; every class has words of its own, and rare classes come with others' words.
SHARES = np.array([0.5, 0.3, 0.12, 0.05, 0.03])


def single(count: int, seed: int) -> tuple[list[str], list[str]]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(len(SHARES), count, p=SHARES)
    noise = rng.choice(len(SHARES), (count, 6), p=SHARES)
    texts = [
        " ".join(f"w{c}x{rng.integers(40)}" for c in (label, label, *others))
        for label, others in zip(labels, noise, strict=True)
    ]
    return texts, [f"c{label}" for label in labels]


def several(count: int, seed: int) -> tuple[list[str], list[list[str]]]:
    rng = np.random.default_rng(seed)
    has = rng.random((count, len(SHARES))) < SHARES
    noise = rng.random((count, len(SHARES))) < 0.3
    texts = [
        " ".join(f"w{c}x{rng.integers(40)}" for c in [*np.flatnonzero(a), *np.flatnonzero(a | b)])
        for a, b in zip(has, noise, strict=True)
    ]
    return texts, [[f"c{c}" for c in np.flatnonzero(row)] for row in has]


def macro(model: TextClassifier, texts, labels) -> tuple[float, float]:
    """Macro recall and macro F1."""
    truth, found = (
        encode(given, model.classes_).labels.matrix(len(model.classes_))
        for given in (labels, model.predict(texts).tolist())
    )
    right, true, said = (truth & found).sum(0), truth.sum(0), found.sum(0)
    return (right / true).mean(), (2 * right / (true + said)).mean()


# --- the weights -------------------------------------------------------------------------------


def test_balanced_is_that_of_scikit_learn():
    y = np.array([0] * 7 + [1] * 2 + [2])
    weights = document_weights(Labels.single(y), np.arange(3), "balanced")
    np.testing.assert_allclose(
        weights, compute_class_weight("balanced", classes=np.arange(3), y=y)[y]
    )


def test_square_roots_have_the_same_mean():
    y = np.array([0] * 81 + [1] * 9 + [3])
    balanced, roots = (
        document_weights(Labels.single(y), np.arange(4), wish) for wish in ("balanced", "sqrt")
    )
    np.testing.assert_allclose([balanced.mean(), roots.mean()], 1, rtol=1e-6)
    np.testing.assert_allclose(roots[-1] / roots[0], np.sqrt(balanced[-1] / balanced[0]))


def test_several_labels_are_questions_of_their_own_as_in_one_vs_rest():
    matrix = np.random.default_rng(0).random((40, 4)) < [0.5, 0.1, 0, 1]
    labels = weigh_classes(encode(matrix.astype(int)).labels, np.arange(4), "balanced")
    for c in (0, 1):
        no, yes = compute_class_weight("balanced", classes=np.arange(2), y=matrix[:, c].astype(int))
        np.testing.assert_allclose(labels.class_weights[:, c], [yes, no], rtol=1e-6)
    np.testing.assert_allclose(labels.class_weights[:, 2:], 1)  # never or always: nothing to weigh
    np.testing.assert_array_equal(labels.take(np.array([3, 1])).class_weights, labels.class_weights)


def test_a_weight_of_one_of_several_labels_is_that_of_yes():
    labels = weigh_classes(encode([["a"], ["b", "a"]]).labels, np.array(["a", "b"]), {"b": 3})
    np.testing.assert_array_equal(labels.class_weights, [[1, 3], [1, 1]])


# --- what they do ------------------------------------------------------------------------------


@pytest.mark.parametrize("wish", ["sqrt", "balanced"])
@pytest.mark.parametrize("make", [single, several])
def test_rare_classes_are_found(make, wish):
    """At the default number of passes."""
    train, test = make(3000, 0), make(1000, 1)
    plain, weighted = (
        macro(TextClassifier(class_weight=given, **SMALL).fit(*train), *test)
        for given in (None, wish)
    )
    assert weighted[0] > plain[0] + 0.02
    if wish == "sqrt":
        assert weighted[1] > plain[1]


def test_a_dictionary_moves_one_of_several_labels_only():
    texts, labels = several(1500, 0)
    plain, weighted = (
        TextClassifier(class_weight=given, **SMALL).fit(texts, labels).predict_proba(texts).mean(0)
        for given in (None, {"c4": 8.0})
    )
    assert weighted[4] > 1.5 * plain[4]
    np.testing.assert_allclose(weighted[:4], plain[:4], rtol=0.2)


def test_ensembles_take_them():
    texts, labels = several(600, 0)
    plain, weighted = (
        TextClassifier(class_weight=given, members=2, **SMALL).fit(texts, labels)
        for given in (None, "balanced")
    )
    means = [model.predict_proba(texts).mean(0) for model in (plain, weighted)]
    assert (means[1][2:] > means[0][2:]).all()


def test_they_go_with_weights_of_texts_and_validation():
    texts, labels = several(300, 0)
    weights = np.linspace(0, 2, 300)
    model = TextClassifier(class_weight="sqrt", validation_fraction=0.2, **SMALL)
    assert model.fit(texts, labels, weights).history_.epochs[0].validation_accuracy is not None


def test_a_checkpoint_of_other_weights_is_refused(tmp_path):
    texts, labels = several(100, 0)
    TextClassifier(class_weight="sqrt", **SMALL).fit(texts, labels, checkpoint=tmp_path / "run")
    with pytest.raises(ModelFileError, match="another run"):
        TextClassifier(**SMALL).fit(texts, labels, checkpoint=tmp_path / "run")


def test_the_report_names_what_helps():
    model = TextClassifier(**SMALL).fit(["a"] * 40 + ["b"], ["x"] * 40 + ["y"])
    assert 'class weight "sqrt" finds more of the rare ones' in str(model.report_)
    assert "balanced" not in str(model.report_)


# --- what is refused ---------------------------------------------------------------------------

KNOWN = "the classes are 'x', 'y'"


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"typo": 2}, f"class_weight names 'typo', which is no class; {KNOWN}"),
        ({"x": 2, "yy": 1}, f"class_weight names 'yy', which is no class; {KNOWN}"),
        ({0: 2}, f"class_weight names 0, which is no class; {KNOWN}"),
        ({"x": float("nan")}, f"from 0 to 1e.09, found nan for 'x'; {KNOWN}"),
        ({"x": float("inf")}, f"found inf for 'x'; {KNOWN}"),
        ({"x": -1}, f"found -1 for 'x'; {KNOWN}"),
        ({"x": 1e300}, f"found 1e.300 for 'x'; {KNOWN}"),
        ({"x": "heavy"}, f"found 'heavy' for 'x'; {KNOWN}"),
        ({"x": None}, f"found None for 'x'; {KNOWN}"),
        ({"x": 0, "y": 0}, f"0 for every class: nothing to learn; {KNOWN}"),
        ("even", "must be None, 'balanced', 'sqrt' or a dictionary, found 'even'"),
        (2.0, "must be None, 'balanced', 'sqrt' or a dictionary, found 2.0"),
    ],
)
@pytest.mark.parametrize("labels", [["x", "y"], [["x"], ["x", "y"]]])
def test_refused_weights(wish, message, labels):
    with pytest.raises(ValueError, match=message):
        TextClassifier(class_weight=wish, **SMALL).fit(["a", "b"], labels)


def test_a_part_of_the_data_may_lack_a_class():
    """As in cross-validation: the dictionary is right, and names all classes there are."""
    wish = {"x": 1.0, "y": 2.0, "rare": 9.0}
    TextClassifier(class_weight=wish, **SMALL).fit(["a", "b"], ["x", "y"])


def test_in_a_stream_more_classes_may_come():
    model = TextClassifier(class_weight={"late": 3.0}, **SMALL)
    model.partial_fit(["a"], ["x"]).partial_fit(["b"], ["late"])
    assert model.classes_.tolist() == ["x", "late"]
    with pytest.raises(ValueError, match="names 1, which is no class; the classes are 'x'"):
        TextClassifier(class_weight={1: 3.0}, **SMALL).partial_fit(["a"], ["x"])
    with pytest.raises(ValueError, match="found -1 for 'late'"):
        TextClassifier(class_weight={"late": -1}, **SMALL).partial_fit(["a"], ["x"])
    for wish in ("balanced", "sqrt"):
        with pytest.raises(ValueError, match=f'class_weight="{wish}" needs all labels at once'):
            TextClassifier(class_weight=wish, **SMALL).partial_fit(["a"], ["x"])


def test_weights_that_overflow_together_are_refused():
    model = TextClassifier(class_weight={"x": 1e9}, **SMALL)
    for weights in ([1e38, 1], [1e300, 1]):
        with pytest.raises(ValueError, match="sample_weight must be finite"):
            model.fit(["a", "b"], ["x", "y"], sample_weight=weights)


def test_the_command(tmp_path):
    data, model = tmp_path / "data.csv", str(tmp_path / "model")
    data.write_text("label,text\n" + "x,a b\ny,c d\n" * 20)
    train = ["train", str(data), "-o", model, "--quiet"]
    for options in (["--class-weight", "sqrt"], ["--balanced"]):
        assert CliRunner().invoke(main, [*train, *options]).exit_code == 0
        want = {"--balanced": "balanced"}.get(options[0], "sqrt")
        assert TextClassifier.load(model).class_weight == want
    both = CliRunner().invoke(main, [*train, "--class-weight", "sqrt", "--balanced"])
    assert both.exit_code == 2
    assert "--balanced contradicts --class-weight sqrt" in both.output
