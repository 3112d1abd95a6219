"""Single n-grams of a model without hidden layers, on a GPU if there is one."""

import numpy as np
import pytest
import torch

from hashembed.engine.shallow.model import ShallowModel
from hashembed.hashing.bags import Bags
from hashembed.hashing.spec import HashSpec
from hashembed.nn.engine.model import DeepModel
from hashembed.nn.engine.reading import Reading, is_linear

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KEYS = np.array([3, 1, 4, 1, 5, 2**62, -1])


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("d", [1, 5, 20])
@pytest.mark.parametrize("keys", [KEYS, KEYS[:1], KEYS[:0]], ids=len)
def test_as_the_shallow_engine_reads_them(k, d, keys):
    spec = HashSpec(50, 10, k)
    plain = ShallowModel(spec, d, 3, threads=1)
    reading = Reading(DeepModel.from_tensors(spec, plain.tensors(), device=DEVICE))
    rows, buckets = spec(keys)
    P, tables = plain.importance_weights[rows].astype(np.float64), plain.tables
    want = (tables.E[buckets].astype(np.float64) * P[:, :, None]).sum(axis=1)
    found = reading.vectors(keys)
    assert found.shape == (len(keys), d)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-9)
    np.testing.assert_array_equal(reading.weights(keys), P)
    W, bias = reading.output()
    np.testing.assert_array_equal(W, tables.W.astype(np.float64))
    np.testing.assert_array_equal(bias, tables.bias.astype(np.float64))


@pytest.mark.parametrize(
    "options", [{}, {"importance": False}, {"append_importance": True}, {"aggregation": "concat"}]
)
def test_vectors_and_output_layer_add_up_to_the_logits(options):
    model = DeepModel(HashSpec(50, 10), 4, 3, device=DEVICE, **options)
    assert is_linear(model)
    reading = Reading(model)
    W, bias = reading.output()
    z = model.scores(Bags(KEYS, np.array([0, 0, len(KEYS)])))
    np.testing.assert_allclose(z[0], bias, atol=1e-6)
    np.testing.assert_allclose(z[1], bias + (reading.vectors(KEYS) @ W.T).sum(0), atol=1e-5)
    assert (reading.weights(KEYS) is None) == (options == {"importance": False})


def test_what_is_not_linear():
    assert not is_linear(DeepModel(HashSpec(50, 10), 4, 3, hidden_layers=(3,)))
    assert not is_linear(DeepModel(HashSpec(50, 10), 4, 3, mode="mean"))
