"""Collisions of live ids: counted one by one, and compared with theory."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hashembed import HashEmbedding, HashEmbeddingBag, HashSpec
from hashembed.hashing.diagnosis import Diagnosis
from hashembed.hashing.spec import id_keys


def diagnosis(ids, K=30, B=10, k=2, indexing="independent", importance=True):
    ids = np.asarray(ids, np.int64)
    keys = ids if indexing == "identity" else id_keys(ids)
    return Diagnosis(HashSpec(K, B, k, indexing, 1), np.unique(keys), len(ids), importance)


def shared(items):
    """How many items have an equal, by counting."""
    return sum(count for count in Counter(items).values() if count > 1)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 29), max_size=60),
    st.sampled_from(["independent", "shared", "identity"]),
    st.booleans(),
    st.integers(1, 3),
)
def test_counts_are_those_of_a_plain_loop(ids, indexing, importance, k):
    found = diagnosis(ids, k=k, indexing=indexing, importance=importance)
    distinct = sorted(set(ids))
    places = []
    for i in distinct:
        row, buckets = found.spec(i if indexing == "identity" else id_keys(i))
        places.append((int(row), tuple(buckets.tolist())))
    assert (found.ids, found.distinct) == (len(ids), len(distinct))
    rows = Counter(row for row, _ in places)
    buckets = Counter(b for _, many in places for b in many)
    for usage, counts, size in ((found.rows, rows, 30), (found.buckets, buckets, 10)):
        assert (usage.size, usage.used) == (size, len(counts))
        assert usage.most == max(counts.values(), default=0)
        mean = max(sum(counts.values()) / size, 1)
        assert usage.crowded == sum(count > 2 * mean for count in counts.values())
    assert found.same_row == shared([row for row, _ in places])
    vectors = places if importance else [tuple(sorted(many)) for _, many in places]
    assert found.same_vector == shared(vectors)
    assert str(found)
    assert "<table>" in found._repr_html_()


@pytest.mark.parametrize("indexing", ["independent", "shared"])
@pytest.mark.parametrize("importance", [True, False])
def test_predictions_are_near_what_is_measured(indexing, importance):
    found = diagnosis(range(20_000), 20_000, 200, 2, indexing, importance)
    for measured, predicted in (
        (found.same_row, found.predicted_same_row),
        (found.same_vector, found.predicted_same_vector),
    ):
        assert abs(measured - predicted) < 6 * (predicted + 1) ** 0.5 * 2


def test_batches_add_up():
    layer = HashEmbedding(500, 4, num_buckets=50, seed=0, padding_idx=7)
    ids = torch.randint(0, 900, (6, 40), generator=torch.Generator().manual_seed(0))
    whole = layer.diagnose(ids)
    total = sum(layer.diagnose(batch) for batch in ids)
    assert str(total) == str(whole)
    assert whole.distinct == len(set(ids.view(-1).tolist()) - {7})
    assert whole.ids == int((ids != 7).sum())
    total += layer.diagnose(ids[:1])
    assert (total.distinct, total.ids) == (whole.distinct, whole.ids + int((ids[0] != 7).sum()))
    with pytest.raises(ValueError, match="different layers"):
        total + HashEmbedding(500, 4, num_buckets=51, seed=0).diagnose(ids)
    with pytest.raises(TypeError):
        total + 1


def test_layers_of_every_kind():
    ids = torch.arange(12).view(3, 4)
    assert HashEmbedding(500, 4, columns=4).diagnose(ids).distinct == 12
    same = torch.zeros(3, 4, dtype=torch.int64)
    assert HashEmbedding(500, 4, columns=4).diagnose(same).distinct == 4
    assert HashEmbeddingBag(500, 4).diagnose(same).distinct == 1
    ranks = HashEmbedding(20, 4, columns=[5, 5, 5, 5], indexing="identity", num_buckets=5)
    found = ranks.diagnose(same)
    assert (found.distinct, found.same_row, found.rows.used) == (4, 0, 4)
    with pytest.raises(ValueError, match="size of their column"):
        ranks.diagnose(same + 5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ids": range(100), "K": 1000, "B": 500}, "nothing to change"),
        ({"ids": []}, "no ids yet"),
        ({"ids": range(100), "K": 50, "indexing": "shared"}, 'use indexing="independent"'),
        ({"ids": range(99), "importance": False}, "use more num_buckets or num_hashes"),
        ({"ids": range(100), "K": 30, "B": 90}, "num_embeddings=100 would be a row for each id"),
        ({"ids": range(100), "K": 10**6, "B": 90}, "num_embeddings=100 is enough"),
        ({"ids": range(200), "K": 900, "B": 10}, "a component vector serves 40 ids on average"),
    ],
)
def test_it_says_what_to_change(given, words):
    assert words in str(diagnosis(**given))
