"""Reliability and temperatures, against scikit-learn and SciPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from scipy.stats import binomtest
from sklearn.calibration import calibration_curve

from hashembed.classify import calibration
from hashembed.classify.calibration import BINS, best_temperature, reliability
from hashembed.engine.labels import Labels

# --- reliability --------------------------------------------------------------------------------


def test_bins_as_in_scikit_learn():
    rng = np.random.default_rng(0)
    p = np.concatenate([rng.random(2000), np.arange(BINS + 1) / BINS, [0, 0, 1, 1]])
    right = rng.random(len(p)) < p**2
    found = reliability(p, right, False)
    share, mean = calibration_curve(right, p, n_bins=BINS)
    np.testing.assert_allclose(found.accuracy, share)
    np.testing.assert_allclose(found.confidence, mean)
    assert found.counts.sum() == len(p)
    want = np.average(np.abs(share - mean), weights=found.counts)
    assert found.error == pytest.approx(want)


def test_an_edge_belongs_to_the_bin_below():
    places = [
        reliability([p], np.array([True]), False).counts.argmax() for p in (0, 1 / 15, 2 / 15)
    ]
    assert places == [0, 0, 1]
    assert reliability([1.0], np.array([True]), False).counts[-1] == 1


def test_error_of_known_cases():
    right = np.array([True, True, True, False])
    assert reliability(np.full(4, 0.75), right, False).error == 0
    assert reliability(np.ones(4), right, False).error == 0.25
    assert reliability(np.zeros(4), ~right, False).error == 0.25
    assert reliability(np.ones(4), right | True, False).error == 0
    assert reliability(np.empty(0), np.empty(0, bool), False).error == 0


def test_matrices_of_several_labels():
    p, wanted = np.array([[0.9, 0.1], [0.8, 0.3]], np.float32), np.array([[1, 0], [0, 0]], bool)
    found = reliability(p, wanted, True)
    assert found.counts.sum() == 4
    assert found.right.sum() == 1
    assert found.error == pytest.approx((0.1 + 0.1 + 0.8 + 0.3) / 4)


def test_intervals_are_wilsons():
    found = reliability(
        [0.5] * 7 + [0.99] * 3, np.array([1, 0, 0, 0, 0, 0, 0, 1, 1, 1], bool), False
    )
    low, high = found.interval()
    for place, right, n in ((7, 1, 7), (14, 3, 3)):
        want = binomtest(right, n).proportion_ci(method="wilson")
        assert (low[place], high[place]) == pytest.approx((want.low, want.high), abs=1e-6)
    assert (low[0], high[0]) == (0, 1)
    bins = found.to_list()
    assert bins[0] == {
        "above": 0,
        "up_to": 1 / 15,
        "answers": 0,
        "confidence": None,
        "accuracy": None,
    }
    assert bins[14]["accuracy"] == 1


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("n", [0, 1, 5000])
def test_the_plot(n, multilabel, tmp_path, monkeypatch):
    figures = []

    def kept(*arguments):
        figures.append(original(*arguments))
        return figures[-1]

    original = calibration.new_figure
    monkeypatch.setattr(calibration, "new_figure", kept)
    p = np.random.default_rng(0).random(n) ** 0.2
    found = reliability(p, p > 0.5, multilabel)
    found.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    upper, lower = figures[0].axes
    assert f"{found.error:.4f} on {n:,} " in upper.get_title()
    assert [bar.get_height() for bar in upper.patches] == found.accuracy.tolist()
    texts = [text.get_text() for text in lower.texts]
    assert texts == [
        str(n) if 0 < n < 1000 else "" if n == 0 else f"{n / 1000:.3g}k" for n in found.counts
    ]
    assert ("log scale" in lower.get_ylabel()) == (n == 5000)


def test_short_counts():
    numbers = [1, 999, 1000, 12_345, 999_499, 999_500, 1_500_000, 2_000_000_000]
    want = ["1", "999", "1k", "12.3k", "999k", "1M", "1.5M", "2G"]
    assert [calibration._short(n) for n in numbers] == want


# --- temperatures -------------------------------------------------------------------------------


def drawn(rng, n, classes, multilabel, temperature=1.0, scale=2.0):
    """Logits, and labels that are drawn from their probabilities at a temperature."""
    z = rng.standard_normal((n, classes)) * scale
    if multilabel:
        wanted = rng.random(z.shape) < 1 / (1 + np.exp(-z / temperature))
        rows, columns = np.nonzero(wanted)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
        return z, Labels(columns.astype(np.int64), offsets.astype(np.int64))
    noise = rng.gumbel(size=z.shape)
    return z, Labels.single((z / temperature + noise).argmax(axis=1))


def smoothed_loss(z, labels, multilabel):
    """The mean log loss at a logarithm of T, with half an answer that is wrong in addition."""
    n, classes = z.shape
    share = 0.5 / ((n * classes if multilabel else n) + 1)
    if multilabel:
        target = np.abs(labels.matrix(classes) - share)
        return lambda t: (np.logaddexp(0, z / np.exp(t)) - target * z / np.exp(t)).sum() / n
    target = np.where(labels.matrix(classes), 1 - share, share / max(classes - 1, 1))
    return lambda t: -(target * log_softmax(z / np.exp(t), axis=1)).sum() / n


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("temperature", [0.3, 1, 4])
@pytest.mark.parametrize(("n", "classes"), [(50, 2), (200, 3), (1000, 20)])
def test_the_best_temperature_is_what_scipy_finds(n, classes, temperature, multilabel):
    rng = np.random.default_rng(n)
    z, labels = drawn(rng, n, classes, multilabel, temperature)
    want = minimize_scalar(
        smoothed_loss(z, labels, multilabel),
        bounds=(np.log(0.05), np.log(20)),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert np.log(best_temperature(z, labels, multilabel)) == pytest.approx(want.x, abs=1e-5)


@pytest.mark.parametrize("multilabel", [False, True])
def test_the_temperature_of_drawn_labels_is_found_again(multilabel):
    z, labels = drawn(np.random.default_rng(3), 20_000, 5, multilabel, 2.5)
    assert best_temperature(z, labels, multilabel) == pytest.approx(2.5, rel=0.03)


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 1000),
    scale=st.floats(0.2, 5),
    shift=st.floats(-100, 100),
    multilabel=st.booleans(),
)
def test_larger_logits_need_a_higher_temperature(seed, scale, shift, multilabel):
    z, labels = drawn(np.random.default_rng(seed), 80, 4, multilabel)
    usual = best_temperature(z, labels, multilabel)
    found = best_temperature(z * scale, labels, multilabel)
    assert found == pytest.approx(np.clip(usual * scale, 0.05, 20), rel=1e-7)
    if not multilabel:  # softmax does not see a shift
        moved = best_temperature(z + shift, labels, multilabel)
        assert moved == pytest.approx(usual, rel=1e-7)


@pytest.mark.parametrize("multilabel", [False, True])
def test_temperatures_have_limits(multilabel):
    z, labels = drawn(np.random.default_rng(0), 400, 3, multilabel)
    assert best_temperature(z * 1e-4, labels, multilabel) == 0.05
    assert best_temperature(z * 1e4, labels, multilabel) == 20
    assert best_temperature(-z, labels, multilabel) == 20  # answers worse than chance


def test_rows_that_are_all_right_make_no_model_infinitely_sure():
    found = {}
    for n in (50, 500, 5000):
        labels = Labels.single(np.arange(n) % 3)
        z = 2.0 * labels.matrix(3)
        found[n] = best_temperature(z, labels, False)
        p = np.exp(2 / found[n]) / (np.exp(2 / found[n]) + 2)
        assert 1 - p == pytest.approx(0.5 / (n + 1))
    assert found[50] > found[500] > found[5000] > 0.05


@pytest.mark.parametrize("multilabel", [False, True])
def test_nothing_to_choose_from(multilabel):
    rng = np.random.default_rng(0)
    for n in (0, 1, 49):
        z, labels = drawn(rng, n, 3, multilabel, 4)
        assert best_temperature(z, labels, multilabel) == 1
    z, labels = drawn(rng, 50, 3, multilabel, 4)
    assert best_temperature(z, labels, multilabel) != 1
    assert best_temperature(np.zeros((60, 3)), drawn(rng, 60, 3, multilabel)[1], multilabel) == 1
    assert best_temperature(np.ones((60, 1)), Labels.single(np.zeros(60)), False) == 1
    assert (
        best_temperature(np.ones((60, 0)), Labels(np.empty(0, int), np.zeros(61, int)), True) == 1
    )


@pytest.mark.parametrize("multilabel", [False, True])
def test_types_and_layouts_of_logits(multilabel, monkeypatch):
    z, labels = drawn(np.random.default_rng(0), 300, 4, multilabel, 2)
    single = z.astype(np.float32)
    want = best_temperature(single.astype(np.float64), labels, multilabel)
    assert best_temperature(single, labels, multilabel) == want
    assert best_temperature(np.asfortranarray(single), labels, multilabel) == want
    before = single.copy()
    monkeypatch.setattr(calibration, "BLOCK", 100)
    assert best_temperature(single, labels, multilabel) == pytest.approx(want, rel=1e-12)
    assert np.array_equal(single, before)


def test_wrong_arguments():
    z, labels = np.ones((60, 3)), Labels.single(np.zeros(60))
    with pytest.raises(ValueError, match="found 59 documents, but the labels of 60"):
        best_temperature(z[1:], labels, False)
    with pytest.raises(ValueError, match="labels must be from 0 to 2, found 0 to 3"):
        best_temperature(z, Labels.single(np.arange(60) % 4), False)
    with pytest.raises(ValueError, match=r"finite array \(n, C\), found shape \(60,\)"):
        best_temperature(z[:, 0], labels, False)
    z[7, 1] = np.nan
    with pytest.raises(ValueError, match="finite"):
        best_temperature(z, labels, False)
