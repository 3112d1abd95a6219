"""Two nodes give the same bits as one process."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import ray
from tests.cases.ray_cluster import cluster_of

import hashembed.distributed as hd
from hashembed import TextClassifier
from hashembed.core.locations import write_location
from hashembed.distributed import groups, keys
from hashembed.readers import DataError
from hashembed.text.config import TextConfig
from hashembed.text.dictionary import Dictionary
from hashembed.text.pipeline import text_to_bags

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

WORDS = np.array([f"w{i}" for i in range(500)])


def rows(count=1500, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=count)
    places = (rng.random((count, 12)) ** 3 * 500).astype(int)
    places[:, 0] = 490 + labels
    lengths = rng.integers(0, 12, count)
    texts = [" ".join(WORDS[p[: n + 1]]) for p, n in zip(places, lengths, strict=True)]
    texts[7] = ""
    return pa.table({"text": texts, "label": [f"c{x}" for x in labels], "id": range(count)})


@pytest.fixture(scope="module")
def cluster():
    with cluster_of(1, 1) as found:
        yield found


@pytest.fixture(scope="module")
def table():
    return rows()


@pytest.fixture(scope="module")
def ds(cluster, table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for number, start in enumerate(range(0, len(table), 170)):
        pa.parquet.write_table(table.slice(start, 170), folder / f"{number:03d}.parquet")
    return ray.data.read_parquet(str(folder), override_num_blocks=9)


@pytest.fixture(scope="module")
def clf(table):
    return TextClassifier(seed=3, effort="fast").fit(table["text"], table["label"])


def small_groups(monkeypatch):
    """Several groups of this small dataset, and several parts of a group."""
    monkeypatch.setattr(groups, "GROUP_BLOCKS", 2)


def state_of(clf):
    return {name: array.tobytes() for name, array in clf.model_.state().items()}


def test_predictions(ds, clf, table):
    found = hd.predict(clf, ds, keep=["id"], probabilities=True).to_pandas()
    assert list(found.columns) == ["id", "prediction", "probability"]
    assert found["id"].tolist() == table["id"].to_pylist()
    assert found["prediction"].tolist() == clf.predict(table["text"]).tolist()
    best = clf.predict_proba(table["text"]).max(axis=1)
    assert found["probability"].to_numpy(np.float32).tobytes() == best.tobytes()
    lists = hd.predict(clf, ds, keep=False, top=2, probabilities=True).to_pandas()
    want = clf.predict_top(table["text"], 2)
    pairs = zip(lists["predictions"], lists["probabilities"], strict=True)
    assert [list(zip(a, b, strict=True)) for a, b in pairs] == want


def test_measures(ds, clf, table, monkeypatch):
    small_groups(monkeypatch)
    for limits in ({}, {"top": 2}, {"threshold": 0.5}):
        found = hd.evaluate(clf, ds, **limits)
        want = clf.evaluate(table["text"], table["label"], **limits)
        assert found.to_dict() == want.to_dict()


def test_a_dictionary(ds, table, monkeypatch):
    small_groups(monkeypatch)
    config = TextConfig((1, 3))
    want = Dictionary.count(table["text"], config, 300, stop=["w0"])
    # With so little memory, in several rounds.
    found = hd.count_dictionary(ds, config=config, size=300, stop=["w0"], memory=1 << 16)
    assert np.array_equal(found.keys, want.keys)
    assert np.array_equal(found.counts, want.counts)
    assert found.strings.equals(want.strings)


def test_important_ngrams(ds, clf, table, monkeypatch):
    small_groups(monkeypatch)
    for by in ("weight", "evidence"):
        found = hd.important_ngrams(clf, ds, top=5, by=by)
        want = clf.important_ngrams(table["text"], top=5, by=by)
        assert found == want


@pytest.mark.parametrize("shuffle", ["full", "blocks"])
def test_training(ds, table, tmp_path, monkeypatch, shuffle):
    small_groups(monkeypatch)
    held_out = ray.data.from_arrow(rows(200, 1))
    validation = rows(200, 1)
    found = TextClassifier(passes=3, seed=5, members=2, ngrams=(1, 2), patience=2)
    same = hd.fit(found, ds, storage=tmp_path, validation=held_out, shuffle=shuffle)
    assert same is found
    want = TextClassifier(**found.get_params()).fit_batches(
        [(table["text"][:800], table["label"][:800]), (table["text"][800:], table["label"][800:])],
        validation=(validation["text"], validation["label"]),
        shuffle=shuffle,
    )
    assert state_of(found) == state_of(want)
    assert found.calibration_ == want.calibration_
    assert [e.loss for e in found.history_.epochs] == [e.loss for e in want.history_.epochs]
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == ["model.safetensors"]
    kept = TextClassifier.load(tmp_path / "model.safetensors")
    assert kept.predict(table["text"]).tolist() == want.predict(table["text"]).tolist()


def test_members_on_nodes_of_their_own(ds, table, tmp_path, monkeypatch):
    small_groups(monkeypatch)
    options = {"passes": 2, "members": 3, "seed": 2}
    found = hd.fit_members(TextClassifier(**options), ds, storage=tmp_path)
    texts, labels = table["text"], table["label"]
    halves = [(texts[:700], labels[:700]), (texts[700:], labels[700:])]
    want = TextClassifier(**options).fit_batches(halves)
    assert want.calibration_ is not None
    assert found.calibration_ == want.calibration_
    assert state_of(found) == state_of(want)


def test_a_choice(ds, table, tmp_path, monkeypatch):
    small_groups(monkeypatch)
    found = hd.choose(TextClassifier(seed=4), ds)
    want = TextClassifier(seed=4).fit(table["text"], table["label"])
    assert found.search_.to_dict() == want.search_.to_dict()
    hd.fit_members(found, ds, storage=tmp_path)
    found.save(tmp_path / "found")
    want.save(tmp_path / "want")
    assert found.search_.chosen.members > 1
    assert state_of(found) == state_of(want)
    once_more = hd.fit(hd.choose(TextClassifier(seed=4), ds), ds, storage=tmp_path)
    once_more.save(tmp_path / "once more")
    assert (tmp_path / "once more").read_bytes() == (tmp_path / "want").read_bytes()


def test_bad_rows(cluster, clf, tmp_path):
    good = rows(50)
    texts, labels = good["text"].to_pylist(), good["label"].to_pylist()
    texts[3], labels[5], labels[6] = None, None, " "
    ds = ray.data.from_arrow(pa.table({"text": texts, "label": labels}))
    with pytest.raises(DataError, match="the dataset, row 4: the text is missing"):
        hd.fit(TextClassifier(), ds, storage=tmp_path)
    found = hd.evaluate(clf, ds, on_error="skip")
    keep = [i for i in range(50) if i not in (3, 5, 6)]
    want = clf.evaluate([texts[i] for i in keep], [labels[i] for i in keep])
    assert found.to_dict() == want.to_dict()
    answers = hd.predict(clf, ds, keep=False).to_pandas()["prediction"]
    assert answers.isna().tolist() == [i == 3 for i in range(50)]


def test_files_by_our_readers(cluster, clf, table, tmp_path):
    small = table.slice(0, 300)
    for number, start in enumerate(range(0, 300, 100)):
        part = small.slice(start, 100).select(["label", "text"])
        pa.csv.write_csv(part, tmp_path / f"{number}.csv")
    (tmp_path / "3.csv").write_text("label,text\nc0\n")
    with pytest.raises(DataError, match=r"3\.csv, line 2"):
        hd.evaluate(clf, hd.read(str(tmp_path / "*.csv")))
    ds = hd.read(str(tmp_path / "*.csv"), on_error="skip")
    found = hd.evaluate(clf, ds)
    assert found.to_dict() == clf.evaluate(small["text"], small["label"]).to_dict()
    again = hd.fit(TextClassifier(), ds, storage=tmp_path)
    assert again.texts_seen_ == 300
    plain = hd.read(str(tmp_path / "0.csv"), labelled=False, text="text")
    answers = hd.predict(clf, plain, keep=False).to_pandas()["prediction"].tolist()
    assert answers == clf.predict(small["text"][:100]).tolist()


def test_mistakes_get_a_sentence(ds, clf):
    with pytest.raises(DataError, match="no column 'body', the columns are 'text', 'label', 'id'"):
        hd.predict(clf, ds, text="body")
    with pytest.raises(DataError, match="no column 'x'"):
        hd.predict(clf, ds, keep=["x"])
    with pytest.raises(ValueError, match="storage is missing: found 2 nodes"):
        hd.fit(TextClassifier(), ds)
    with pytest.raises(DataError, match="the text column 'id' holds int64, expected strings"):
        hd.evaluate(clf, ds, text="id")


def test_a_part_comes_back(tmp_path, table):
    bags = text_to_bags(table["text"], TextConfig((1, 2)))
    location = str(tmp_path / "keys" / "part")
    write_location(
        location, keys.part_bytes([bags[:700], bags[700:]], table["label"].combine_chunks())
    )
    found, labels = keys.read_part(location)
    assert np.array_equal(found.keys, bags.keys)
    assert np.array_equal(found.offsets, bags.offsets)
    assert labels.to_pylist() == table["label"].to_pylist()
