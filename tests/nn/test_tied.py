"""`layer.logits`: both ways to compute it, against the plain product."""

import pytest
import torch
import torch.nn.functional as F

from hashembed import HashEmbedding, HashEmbeddingBag
from hashembed.nn import tied
from hashembed.nn.ops import dispatch
from hashembed.nn.optim import RowAdam

IDS = torch.arange(40)


def layer(cls=HashEmbedding, *, B=9, **options):
    return cls(60, 6, **{"num_buckets": B, "init": 1.0, "seed": 1, "padding_idx": 3, **options})


@pytest.fixture(params=[True, False], ids=["components first", "vectors first"])
def components_first(request, monkeypatch):
    monkeypatch.setattr(tied, "_components_first", lambda *_: request.param)
    return request.param


@pytest.mark.parametrize("importance", [True, False])
@pytest.mark.parametrize("indexing", ["independent", "shared", "identity"])
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.usefixtures("components_first")
def test_scores_and_gradients_are_those_of_the_plain_product(k, indexing, importance):
    made = layer(num_hashes=k, indexing=indexing, importance=importance, dtype=torch.float64)
    hidden = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(2, 5, 40, dtype=torch.float64)
    inputs = [hidden, *made.parameters()]
    results = []
    for out in (made.logits(hidden, IDS), F.linear(hidden, made(IDS))):
        assert out.shape == (2, 5, 40)
        assert not out[..., 3].any()  # padding
        results.append([out, *torch.autograd.grad(out, inputs, upstream)])
    for mine, wanted in zip(*results, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("components_first")
def test_more_states_than_the_kernels_take_at_once(monkeypatch):
    monkeypatch.setattr(dispatch, "MAX_DIM", 4)
    made, hidden = layer(), torch.randn(11, 6)
    torch.testing.assert_close(made.logits(hidden, IDS), hidden @ made(IDS).T)


@pytest.mark.usefixtures("components_first")
@pytest.mark.parametrize("shape", [(6,), (0, 6), (2, 1, 3, 6)])
def test_shapes(shape):
    made = layer()
    hidden = torch.randn(shape, requires_grad=True)
    out = made.logits(hidden, IDS[:7])
    assert out.shape == (*shape[:-1], 7)
    out.sum().backward()
    assert made.logits(hidden, IDS[:0]).shape == (*shape[:-1], 0)


def test_candidates_of_its_own_for_each_state():
    made, hidden = layer(dtype=torch.float64), torch.randn(4, 5, 6, dtype=torch.float64)
    ids = torch.randint(0, 99, (4, 5, 8))
    want = (made(ids) * hidden.unsqueeze(2)).sum(-1)
    torch.testing.assert_close(made.logits(hidden, ids), want)


def test_columns_bags_and_concatenated_components():
    made = layer(columns=2)
    hidden = torch.randn(3, 6)
    want = hidden @ made(IDS, columns=1).T
    torch.testing.assert_close(made.logits(hidden, IDS, columns=1), want)
    bag = layer(HashEmbeddingBag)
    plain = layer()
    torch.testing.assert_close(bag.logits(hidden, IDS), plain.logits(hidden, IDS))
    wide = layer(aggregation="concat")
    hidden = torch.randn(3, 12)
    torch.testing.assert_close(wide.logits(hidden, IDS), hidden @ wide(IDS).T)


def test_the_way_with_fewer_products_is_chosen():
    small, large = layer(B=9), layer(B=58)
    assert tied._components_first(small, 100, 60)
    assert not tied._components_first(large, 100, 60)
    assert not tied._components_first(small, 1, 2)
    assert not tied._components_first(layer(sparse=True), 100, 60)
    optimizer = RowAdam(small.parameters())
    assert optimizer
    assert not tied._components_first(small, 100, 60)


def test_memory_stays_below_the_vectors_of_all_candidates():
    """Components first: a table of B numbers for each state, and the scores."""
    made = HashEmbedding(50_000, 256, num_buckets=100, init="transformer", seed=0)
    hidden, ids = torch.randn(2, 256), torch.arange(50_000)
    assert tied._components_first(made, 2, 50_000)
    sizes = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                sizes.append(out.numel())
            return out

    with Watch(), torch.no_grad():
        made.logits(hidden, ids)
    assert max(sizes) <= 2 * 50_000 < 50_000 * 256


@pytest.mark.usefixtures("components_first")
def test_compile_and_autocast():
    torch._dynamo.reset()
    made, hidden = layer(), torch.randn(5, 6)

    def loss(hidden):
        return F.cross_entropy(made.logits(hidden, IDS), torch.arange(5))

    want = loss(hidden)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(hidden), want)
    compiled(hidden).backward()
    got = made.weight.grad.clone()
    made.zero_grad()
    want.backward()
    torch.testing.assert_close(got, made.weight.grad)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = made.logits(hidden, IDS)
    assert scores.dtype == torch.bfloat16
    torch.testing.assert_close(scores.float(), made.logits(hidden, IDS), rtol=0.05, atol=0.1)
    scores.float().sum().backward()
    assert made.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.usefixtures("components_first")
def test_half_precision(dtype):
    made = layer(dtype=dtype)
    hidden = torch.randn(5, 6).to(dtype)
    want = hidden.float() @ made(IDS).float().T
    scores = made.logits(hidden, IDS)
    assert scores.dtype == dtype
    torch.testing.assert_close(scores.float(), want, rtol=0.05, atol=0.1)


@pytest.mark.parametrize("options", [{}, {"sparse": True}])
def test_a_tied_model_trains(options):
    torch.manual_seed(0)
    made = HashEmbedding(60, 16, num_buckets=30, init="transformer", seed=1, **options)
    kind = torch.optim.SparseAdam if options else RowAdam
    optimizer = kind(list(made.parameters()), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        loss = F.cross_entropy(made.logits(made(IDS), torch.arange(60)), IDS.flip(0))
        loss.backward()
        optimizer.step()
    assert loss < 1.0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: layer().logits(torch.randn(2, 5), IDS), r"\(\.\.\., 6\), found torch.float32"),
        (lambda: layer().logits(torch.ones(2, 6).long(), IDS), "must be floating point"),
        (lambda: layer().logits(torch.randn(2, 6), IDS.view(4, 10)), "leading dimensions"),
        (
            lambda: layer(append_importance=True).logits(torch.randn(2, 8), IDS),
            "append_importance=False",
        ),
    ],
)
def test_what_does_not_fit_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
