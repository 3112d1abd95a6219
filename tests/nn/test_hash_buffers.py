"""A layer keeps its hash functions, whatever is done to its buffers."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

from hashembed import HashEmbedding, HashEmbeddingBag

IDS = torch.tensor([[0, 1, -1, 5], [2**63 - 1, -(2**63), 10**15, 5]])

AVERAGES = {
    "mean": {},
    "moving": {"multi_avg_fn": get_ema_multi_avg_fn(0.9)},
    "moving, one by one": {"avg_fn": get_ema_avg_fn(0.9)},
}


def seen(layer):
    """With importance weights large enough to see."""
    nn.init.normal_(layer.importance)
    return layer


def averaged_over_steps(layer, **options):
    """A layer that trained, and its average with the buffers averaged, too."""
    average = AveragedModel(layer, use_buffers=True, **options)
    for _ in range(4):
        with torch.no_grad():
            for p in layer.parameters():
                p.add_(torch.randn_like(p))
        average.update_parameters(layer)
    return average


def twin_of(layer):
    """The weights of `layer` in a layer that was built with its seed."""
    twin = type(layer)(layer.num_embeddings, layer.embedding_dim, seed=layer.spec.seed)
    with torch.no_grad():
        for mine, other in zip(twin.parameters(), layer.parameters(), strict=True):
            mine.copy_(other)
    return twin


@pytest.mark.parametrize("name", AVERAGES)
@pytest.mark.parametrize("cls", [HashEmbedding, HashEmbeddingBag])
def test_averages_of_models_have_the_hash_of_the_model(cls, name):
    layer = seen(cls(300, 4))
    average = averaged_over_steps(layer, **AVERAGES[name])
    inner = average.module
    twin = twin_of(inner)
    if name != "mean":  # PyTorch's mean happens to leave equal integers alone
        assert not torch.equal(inner.hash_seeds, twin.hash_seeds)
    want = twin(IDS)
    assert want.abs().max() > 0.1
    assert torch.equal(average(IDS), want)
    assert inner.seed == layer.seed
    layer.load_state_dict(inner.state_dict())
    assert torch.equal(layer(IDS), want)
    average.update_parameters(layer)
    assert torch.equal(average(IDS), twin_of(inner)(IDS))


def test_the_state_of_an_average_names_the_hash_before_anybody_called_it():
    inner = averaged_over_steps(seen(HashEmbedding(300, 4)), **AVERAGES["moving"]).module
    state, want = inner.state_dict(), twin_of(inner)
    fresh = HashEmbedding(300, 4)
    fresh.load_state_dict(state)
    assert torch.equal(fresh(IDS), want(IDS))
    assert torch.equal(fresh.hash_seeds, want.hash_seeds)


def moving_average():
    inner = averaged_over_steps(seen(HashEmbedding(300, 4)), **AVERAGES["moving"]).module
    return inner, twin_of(inner)(IDS)


def saved_and_loaded(layer):
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


WAYS = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda layer: pickle.loads(pickle.dumps(layer)),
    "torch.save": saved_and_loaded,
    "compile": lambda layer: torch.compile(layer, fullgraph=True, backend="aot_eager"),
    "export": lambda layer: torch.export.export(layer, (IDS,)).module(),
    "strict export": lambda layer: torch.export.export(layer, (IDS,), strict=True).module(),
    "double": lambda layer: layer.double().float(),
    "vmap": torch.vmap,
}


@pytest.mark.parametrize("way", WAYS)
def test_an_average_goes_every_way(way):
    torch._dynamo.reset()
    layer, want = moving_average()
    torch.testing.assert_close(WAYS[way](layer)(IDS), want)


def test_half_precision_keeps_the_hash():
    layer = seen(HashEmbedding(300, 4))
    for dtype in (torch.float16, torch.bfloat16):
        half = copy.deepcopy(layer).to(dtype)
        torch.testing.assert_close(half(IDS).float(), layer(IDS), rtol=0.02, atol=0.01)


def test_a_hash_written_to_the_buffers_is_taken_over():
    """As DDP does, and every loader that copies or assigns one tensor after the other."""
    source = seen(HashEmbedding(300, 4, seed=1))
    state = source.state_dict()

    def copied(layer):
        for name, value in state.items():
            layer.get_buffer(name).copy_(value) if "hash" in name else None

    def assigned(layer):
        for name in ("hash_seeds", "hash_spec"):
            setattr(layer, name, state[name].clone())

    def one_by_one(layer):
        for name, value in state.items():
            layer.load_state_dict({name: value.clone()}, strict=False, assign=True)

    for write in (copied, assigned, one_by_one):
        target = HashEmbedding(300, 4, seed=2)
        target(IDS)
        with torch.no_grad():
            for mine, other in zip(target.parameters(), source.parameters(), strict=True):
                mine.copy_(other)
        write(target)
        torch._dynamo.reset()
        compiled = torch.compile(target, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(IDS), source(IDS))
        assert torch.equal(target(IDS), source(IDS)), write
        assert target.seed == target.spec.seed == 1
        assert "seed=1" in repr(target)


def test_graphs_are_shared_by_layers():
    """However many layers of one kind there are, none makes the compiler begin anew."""
    torch._dynamo.reset()
    for _ in range(torch._dynamo.config.recompile_limit + 2):
        layer = HashEmbedding(300, 4)
        layer.compile(fullgraph=True, backend="eager")
        layer(IDS)


def test_a_compiled_layer_sees_a_state_that_was_loaded_later():
    torch._dynamo.reset()
    source, target = seen(HashEmbedding(300, 4)), HashEmbedding(300, 4)
    compiled = torch.compile(target, fullgraph=True, backend="aot_eager")
    compiled(IDS)
    target.load_state_dict(source.state_dict())
    torch.testing.assert_close(compiled(IDS), source(IDS))


def test_a_fresh_layer_takes_over_the_saved_hash():
    source = nn.Sequential(seen(HashEmbedding(300, 4)), nn.Linear(4, 2))
    state = source.state_dict()
    want = source(IDS)

    def build(device=None):
        with torch.device(device or "cpu"):
            return nn.Sequential(HashEmbedding(300, 4), nn.Linear(4, 2))

    loaded, assigned, emptied = build(), build("meta"), build("meta")
    loaded.load_state_dict(state)
    assigned.load_state_dict({name: t.clone() for name, t in state.items()}, assign=True)
    emptied.to_empty(device="cpu").load_state_dict(state)
    for model in (loaded, assigned, emptied):
        assert torch.equal(model(IDS), want)
        assert model[0].seed == source[0].seed


def test_a_state_whose_seeds_were_averaged_is_read_by_its_specification():
    """Version 0.1 saved averages with broken `hash_seeds`."""
    source = seen(HashEmbedding(300, 4, seed=0))
    state = source.state_dict()
    state["hash_seeds"] = (state["hash_seeds"].float() * 0.999).long()
    target = HashEmbedding(300, 4)
    target.load_state_dict(state)
    assert torch.equal(target(IDS), source(IDS))
    assert torch.equal(target.hash_seeds, source.hash_seeds)


def test_layers_pickled_by_version_0_1():
    layer = seen(HashEmbedding(300, 4, seed=3))
    want = layer(IDS)
    for name in ("_seeds", "_seen", "_seed_gives_values"):
        del layer.__dict__[name]
    old = pickle.loads(pickle.dumps(layer))
    assert torch.equal(old(IDS), want)
    old.reset_parameters()
    assert torch.equal(old.weight, HashEmbedding(300, 4, seed=3).weight)


def test_meta_keeps_the_hash_that_was_drawn():
    torch.manual_seed(1)
    layer = HashEmbedding(300, 4, device="meta")
    torch.manual_seed(1)
    assert layer.seed == HashEmbedding(300, 4).seed
    layer.to_empty(device="cpu")
    seen(layer).reset_parameters()
    assert torch.equal(layer(IDS), twin_of(layer)(IDS))
    back = copy.deepcopy(layer).to("meta")
    assert back(IDS.to("meta")).is_meta
    assert back.to_empty(device="cpu").seed == layer.seed


def test_inference_mode_first_then_gradients():
    layer = seen(HashEmbedding(300, 4))
    layer.hash_seeds.add_(1)  # nonsense
    del layer.__dict__["_seeds"]
    with torch.inference_mode():
        layer._set_hash(layer.spec)
        inside = layer(IDS)
    assert not layer._seeds.is_inference()
    layer(IDS).sum().backward()
    assert torch.equal(inside, layer(IDS))
    assert torch.equal(inside, twin_of(layer)(IDS))


def test_layers_without_values():
    with FakeTensorMode():
        layer = HashEmbedding(300, 4)
        assert layer.state_dict()["hash_seeds"].shape == (3,)


def test_stacked_models_keep_their_own_hashes():
    layers = [seen(HashEmbedding(300, 4)) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(layers)
    base = copy.deepcopy(layers[0]).to("meta")

    def call(p, b):
        return torch.func.functional_call(base, (p, b), (IDS,))

    together = torch.vmap(call)(parameters, buffers)
    for mine, layer in zip(together, layers, strict=True):
        torch.testing.assert_close(mine, layer(IDS))
    one = {**dict(layers[1].named_parameters()), **dict(layers[1].named_buffers())}
    keeps = layers[0](IDS)
    assert torch.equal(torch.func.functional_call(layers[0], one, (IDS,)), layers[1](IDS))
    assert torch.equal(layers[0](IDS), keeps)
