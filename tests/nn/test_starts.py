"""Initial values by name: the outputs have the variance that the name promises."""

import pytest
import torch

from hashembed import HashEmbedding, HashEmbeddingBag
from hashembed.nn.starts import STARTS

D = 64
PROMISED = {"transformer": D**-0.5, 1.0: 1.0, 0.02: 0.02}


def outputs(**options):
    layer = HashEmbedding(20_000, D, num_buckets=5_000, seed=0, **options)
    return layer, layer(torch.arange(20_000)).detach()


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("importance", [True, False])
@pytest.mark.parametrize("aggregation", ["sum", "concat"])
@pytest.mark.parametrize("init", list(PROMISED))
def test_outputs_have_the_promised_variance(init, aggregation, importance, k):
    options = {"importance": importance, "aggregation": aggregation, "num_hashes": k}
    _, vectors = outputs(init=init, **options)
    assert vectors.shape[1] == (k * D if aggregation == "concat" else D)
    assert vectors.std().item() == pytest.approx(PROMISED[init], rel=0.03)
    assert abs(vectors.mean().item()) < 0.03 * PROMISED[init]


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize(("options", "weight"), [({}, 0.0005), ({"init": "dot"}, 0.01)])
def test_starts_near_zero(options, weight, k):
    layer, vectors = outputs(num_hashes=k, **options)
    assert layer.init == options.get("init", "bag")
    assert layer.weight.std().item() == pytest.approx(0.1, rel=0.02)
    assert layer.importance.std().item() == pytest.approx(weight, rel=0.02)
    assert vectors.std().item() == pytest.approx(0.1 * weight * k**0.5, rel=0.05)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("importance", [True, False])
def test_a_mean_and_a_standard_deviation(importance, k):
    _, vectors = outputs(init=(0.3, 0.05), importance=importance, num_hashes=k)
    assert vectors.mean().item() == pytest.approx(0.3, rel=0.01)
    assert vectors.std().item() == pytest.approx(0.05, rel=0.03)


def test_tied_logits_of_unit_states_have_unit_variance():
    layer, _ = outputs(init="transformer")
    logits = layer.logits(torch.randn(50, D), torch.arange(5_000))
    assert logits.std().item() == pytest.approx(1.0, rel=0.05)


def test_the_name_is_kept_shown_and_used_again():
    layer = HashEmbedding(300, 4, init="transformer", seed=0)
    assert "init='transformer'" in repr(layer)
    assert "init" not in repr(HashEmbedding(300, 4))
    start = layer.weight.detach().clone()
    with torch.no_grad():
        layer.weight.zero_()
    layer.reset_parameters()
    assert torch.equal(layer.weight, start)
    assert (layer.importance == 1).all()
    bag = HashEmbeddingBag(300, 4, init=0.5)
    assert bag.init == 0.5
    meta = HashEmbedding(300, 4, init="transformer", seed=0, device="meta").to_empty(device="cpu")
    meta.reset_parameters()
    assert torch.equal(meta.weight, start)


@pytest.mark.parametrize("init", ["linear", -1.0, True, (1.0, 2.0, 3.0), (0.0, "x"), None])
def test_what_is_no_start_is_refused(init):
    with pytest.raises((ValueError, TypeError), match="init must be one of 'bag', 'dot'"):
        HashEmbedding(300, 4, init=init)


def test_every_name_is_tested():
    assert {"bag", "dot", *(name for name in PROMISED if isinstance(name, str))} == set(STARTS)
