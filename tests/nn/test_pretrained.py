"""Layers fitted to a table that exists already."""

import pytest
import torch

from hashembed import HashEmbedding, HashEmbeddingBag
from hashembed.nn.optim import RowAdam

pytestmark = pytest.mark.filterwarnings("ignore:the vectors of the layer are far")


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def error(layer, table, ids=None):
    ids = torch.arange(len(table)) if ids is None else ids
    return ((layer(ids) - table).norm() / table.norm()).item()


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_a_table_that_a_layer_can_hold_is_found(k):
    """Rows that are mixtures of few components, with many rows for each unknown."""
    options = {"num_buckets": 100, "num_hashes": k, "seed": 5, "indexing": "identity"}
    source = HashEmbedding(2000, 16, init=1.0, **options)
    with torch.no_grad():
        source.importance.copy_(normal(2000, k))
    table = source(torch.arange(2000)).detach()
    layer = HashEmbedding.from_pretrained(table, sweeps=200, **options)
    assert layer.pretrained.relative_error < 1e-3
    assert error(layer, table) == pytest.approx(layer.pretrained.relative_error, abs=1e-5)


def test_a_bucket_for_each_id_without_weights_is_the_table_itself():
    table = normal(300, 8)
    options = {"num_buckets": 300, "num_hashes": 1, "importance": False}
    layer = HashEmbedding.from_pretrained(table, **options)
    torch.testing.assert_close(layer(torch.arange(300)), table, rtol=1e-5, atol=1e-5)
    assert layer.pretrained.relative_error < 1e-5


def test_the_report_is_what_the_layer_does():
    table = normal(1500, 12)
    layer = HashEmbedding.from_pretrained(table, num_buckets=700, padding_idx=3)
    fit = layer.pretrained
    kept = torch.arange(1500) != 3
    rows, vectors = table[kept], layer(torch.arange(1500))[kept]
    errors = (rows - vectors).norm(dim=1) / rows.norm(dim=1)
    cosines = torch.cosine_similarity(rows, vectors, dim=1)
    assert fit.ids == 1499
    assert fit.relative_error == pytest.approx(((rows - vectors).norm() / rows.norm()).item(), 1e-4)
    assert fit.mean_cosine == pytest.approx(cosines.mean().item(), abs=1e-5)
    for found, values in ((fit.row_errors, errors), (fit.row_cosines, cosines)):
        want = torch.quantile(values, torch.tensor([0.05, 0.5, 0.95]))
        torch.testing.assert_close(torch.tensor(found), want, rtol=0.02, atol=0.005)
    assert (fit.table_parameters, fit.parameters) == (1499 * 12, 700 * 12 + 1500 * 2)
    assert f"relative error                  {fit.relative_error:.3f}" in str(fit)
    assert "<table>" in fit._repr_html_()


@pytest.mark.parametrize("indexing", ["identity", "independent", "shared"])
def test_it_is_as_good_as_many_gradient_steps(indexing):
    table, ids = normal(600, 8), torch.arange(600)
    options = {"num_buckets": 150, "seed": 2, "indexing": indexing}
    fitted = HashEmbedding.from_pretrained(table, ids=ids, sweeps=100, **options)
    trained = HashEmbedding(600, 8, init=1.0, **options)
    optimizer = torch.optim.Adam(trained.parameters(), lr=0.03)
    for _ in range(400):
        optimizer.zero_grad()
        (trained(ids) - table).square().sum().backward()
        optimizer.step()
    assert fitted.pretrained.relative_error < 1.02 * error(trained, table)


def test_more_buckets_come_closer():
    table = normal(1000, 16)
    errors = [
        HashEmbedding.from_pretrained(table, num_buckets=B).pretrained.relative_error
        for B in (50, 200, 800)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.5


def test_it_is_deterministic_and_leaves_the_generator_alone():
    table = normal(500, 8)
    before = torch.random.get_rng_state()
    layers = [HashEmbedding.from_pretrained(table, num_buckets=100) for _ in range(2)]
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(layers[0].weight, layers[1].weight)
    assert torch.equal(layers[0].importance, layers[1].importance)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        again = HashEmbedding.from_pretrained(table, num_buckets=100)
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(again.weight, layers[0].weight)


def test_ids_may_share_rows_of_weights():
    table, ids = normal(900, 8), torch.arange(900) * 2**40 - 5
    layer = HashEmbedding.from_pretrained(table, ids=ids, num_embeddings=300, num_buckets=400)
    assert (layer.num_embeddings, layer.indexing) == (300, "independent")
    full = HashEmbedding.from_pretrained(table, ids=ids, num_buckets=400)
    assert full.pretrained.relative_error < layer.pretrained.relative_error < 0.9
    assert error(layer, table, ids) == pytest.approx(layer.pretrained.relative_error, rel=1e-4)


def test_columns_and_bags():
    table = normal(400, 8)
    layer = HashEmbeddingBag(800, 8, num_buckets=500, columns=2, seed=0)
    ids, columns = torch.arange(400) // 2, torch.arange(400) % 2
    fit = layer.fit_table(table, ids, columns=columns)
    assert layer.pretrained is fit
    found = layer(ids, torch.arange(400), columns=columns)
    assert ((found - table).norm() / table.norm()).item() == pytest.approx(
        fit.relative_error, rel=1e-3
    )
    made = HashEmbeddingBag.from_pretrained(table, num_buckets=300, mode="mean")
    assert made.mode == "mean"


def test_freeze():
    table = normal(200, 8)
    frozen = HashEmbedding.from_pretrained(table, num_buckets=150)
    assert not any(p.requires_grad for p in frozen.parameters())
    assert not frozen(torch.arange(3)).requires_grad
    free = HashEmbedding.from_pretrained(table, freeze=False, num_buckets=150)
    assert all(p.requires_grad for p in free.parameters())
    optimizer = RowAdam(free.parameters(), lr=0.01)
    free(torch.arange(200)).square().sum().backward()
    optimizer.step()
    before = free.weight.detach().clone()
    assert free.freeze() is free
    assert not free(torch.arange(3)).requires_grad
    assert torch.equal(free.weight, before)
    free.requires_grad_()
    assert free(torch.arange(3)).requires_grad
    free.importance.requires_grad_(False)  # one table only
    optimizer.zero_grad()
    free(torch.arange(3)).sum().backward()
    assert free.importance.grad is None
    assert free.weight.grad is not None


def test_pending_updates_of_a_row_optimizer_do_not_survive_a_fit():
    table = normal(200, 8)
    layer = HashEmbedding(200, 8, num_buckets=150, indexing="identity", init=1.0, seed=0)
    optimizer = RowAdam(layer.parameters(), lr=0.1)
    for step in range(6):
        optimizer.zero_grad()
        layer(torch.arange(200 - 30 * step)).square().sum().backward()
        optimizer.step()
    fit = layer.fit_table(table)
    assert error(layer, table) == pytest.approx(fit.relative_error, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_dtypes(dtype):
    table = normal(300, 8).to(dtype)
    layer = HashEmbedding.from_pretrained(table, num_buckets=200)
    assert layer.weight.dtype == dtype
    assert error(layer, table) == pytest.approx(layer.pretrained.relative_error, rel=0.05)


def test_a_layer_that_is_too_small_warns():
    with pytest.warns(UserWarning, match=r"far from the table: relative error 0\.\d\d"):
        HashEmbedding.from_pretrained(normal(500, 32), num_buckets=20)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: HashEmbedding.from_pretrained([[1.0]]), "found list"),
        (lambda: HashEmbedding.from_pretrained(torch.ones(3, 2).long()), r"torch.int64 of shape"),
        (lambda: HashEmbedding.from_pretrained(torch.full((30, 4), torch.nan)), "finite"),
        (lambda: HashEmbedding.from_pretrained(torch.ones(0, 4)), "at least one row"),
        (
            lambda: HashEmbedding.from_pretrained(torch.ones(30, 4), aggregation="concat"),
            'aggregation="sum"',
        ),
        (
            lambda: HashEmbedding.from_pretrained(torch.ones(30, 4), ids=torch.arange(3)),
            r"one for each row of the table, \(30,\), found \(3,\)",
        ),
        (lambda: HashEmbedding(99, 4).fit_table(torch.ones(30, 5)), "found 5 columns"),
    ],
)
def test_what_does_not_fit_is_refused(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()
