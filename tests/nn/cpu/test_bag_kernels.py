"""The Numba kernels against the PyTorch reference: outputs and every gradient."""

import itertools
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases.layer_calls import Case

from hashembed.core import njit as compiling
from hashembed.core.native.library import JIT, Runtime
from hashembed.hashing.spec import HashSpec
from hashembed.hashing.spec import id_keys as numpy_id_keys
from hashembed.nn.cpu import launch as cpu
from hashembed.nn.cpu.precision import load, store
from hashembed.nn.ops import dispatch as ops
from hashembed.nn.ops import indexing, reference


@pytest.fixture(autouse=True)
def poisoned_memory():
    """Memory that nobody has written reads as NaN, or as the largest integer."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert torch.empty(1).isnan()
    yield
    torch.use_deterministic_algorithms(before)


def assert_same(case, rtol, **options):
    for got, want in zip(case(ops, **options), case(reference, **options), strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=rtol, atol=rtol)


FORMS = list(
    itertools.product(
        ("independent", "shared", "identity"), (1, 2, 4), ("sum", "concat"), ("off", "on", "append")
    )
)


@pytest.mark.parametrize(("indexing", "k", "aggregation", "importance"), FORMS)
def test_every_form(indexing, k, aggregation, importance):
    case = Case(
        HashSpec(23, 7, k, indexing, seed=5), 3, importance=importance, aggregation=aggregation
    )
    for keep in (False, True):
        assert_same(case, 1e-12, keep=keep)
        assert_same(case, 1e-12, keep=keep, bag=False)
        assert_same(case, 1e-12, keep=keep, weights=True)
    case.form["mode"] = "mean"
    for keep in (False, True):
        assert_same(case, 1e-12, keep=keep)


@pytest.mark.parametrize("d", [1, 16, 17, 20])
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_widths(d, k, dtype):
    case = Case(HashSpec(101, 13, k), d, dtype=dtype)
    rtol = 1e-12 if dtype == torch.float64 else 3e-5
    assert_same(case, rtol, keep=True, weights=True)
    assert_same(case, rtol, bag=False)


@pytest.mark.parametrize(("K", "B", "k"), [(1, 1, 1), (2, 1, 1), (1, 2, 2), (2, 2, 2)])
@pytest.mark.parametrize("indexing", ["independent", "shared", "identity"])
def test_tiny_tables(K, B, k, indexing):
    case = Case(HashSpec(K, B, k, indexing), 3)
    assert_same(case, 1e-12, keep=True, weights=True)
    assert_same(case, 1e-12, bag=False)


def test_large_tables_sort_in_several_passes():
    case = Case(HashSpec(3_000_000, 5000, 2), 3, dtype=torch.float32)
    assert_same(case, 3e-5)


def test_plain_vectors_are_the_references_to_the_bit():
    case = Case(HashSpec(101, 13, 2), 20, dtype=torch.float32)
    assert torch.equal(case(ops, bag=False)[0], case(reference, bag=False)[0])


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.integers(0, 5), max_size=8),
    st.sampled_from(["sum", "mean"]),
    st.booleans(),
    st.booleans(),
)
def test_any_bag_lengths(lengths, mode, keep, sparse):
    case = Case(HashSpec(31, 6, 2), 3, lengths=lengths, mode=mode)
    want = case(reference, keep=keep)
    for got, wanted in zip(case(ops, keep=keep, sparse=sparse), want, strict=True):
        torch.testing.assert_close(got.to_dense(), wanted, rtol=1e-12, atol=1e-12)


def test_nothing_at_all():
    case = Case(HashSpec(31, 6, 2), 3, lengths=[])
    case.keys = case.keys[:0]
    for options in ({}, {"bag": False}, {"sparse": True}):
        out, of_E, of_P = case(ops, **options)
        assert out.shape == (0, 3)
        assert not of_E.to_dense().any()
        assert not of_P.to_dense().any()


@pytest.mark.parametrize("aggregation", ["sum", "concat"])
def test_sparse_gradients_hold_touched_rows_once_and_in_order(aggregation):
    case = Case(HashSpec(500, 90, 2), 3, aggregation=aggregation)
    dense = case(ops, keep=True)
    sparse = case(ops, keep=True, sparse=True)
    kept = case.keys[: case.offsets[-1]][case.keep[: case.offsets[-1]]]
    rows, buckets = case.spec(kept.numpy())
    for got, want, index in zip(sparse[1:], dense[1:], (buckets, rows), strict=True):
        assert got.is_coalesced()
        assert got.indices()[0].tolist() == np.unique(index).tolist()
        assert torch.equal(got.to_dense(), want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bag", [False, True])
def test_half_precision_is_rounded_once(dtype, bag):
    case = Case(HashSpec(101, 13, 2), 5, dtype=dtype, importance="append")
    got = case(ops, bag=bag, keep=True)
    exact = case(reference, bag=bag, keep=True, dtype=torch.float64)
    half, single = torch.finfo(dtype), torch.finfo(torch.float32)
    # Sums of about 100 numbers of size 1 in float32, then one rounding to nearest: half a unit.
    noise = 100 * single.eps
    for mine, want in zip(got, exact, strict=True):
        assert mine.dtype == dtype
        bound = want.abs() * half.eps / 2 + noise + half.tiny * half.eps
        assert ((mine.double() - want).abs() <= bound).all()


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float16, "int16"), (torch.bfloat16, "uint16")])
def test_conversions_agree_with_torch(dtype, bits):
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    # All halves, the midpoints between neighbours, and those moved by one bit of a float32.
    wide = every[every.isfinite()].float().sort().values
    middle = (wide[1:] + wide[:-1]) / 2
    infinity = torch.tensor(torch.inf)
    around = [torch.nextafter(middle, s * infinity) for s in (1, -1)]
    edges = torch.tensor([65519.9, 65520.0, 1e38, -1e38, 1e-45, torch.inf, -torch.inf, torch.nan])
    x = torch.cat([wide, middle, *around, edges]).view(1, -1)
    want = x.to(dtype)
    got = torch.empty_like(want)
    array = cpu.as_array(got)
    assert array.dtype == bits
    _convert(array, x.numpy())
    assert torch.equal(got[~x.isnan()], want[~x.isnan()])
    assert got[x.isnan()].isnan().all()
    back = torch.empty(1, len(every))
    _widen(cpu.as_array(every.view(1, -1)), back.numpy())
    torch.testing.assert_close(back[0], every.float(), rtol=0, atol=0, equal_nan=True)


def _convert(table, values):
    from numba import njit

    @njit
    def kernel(table, values):
        for j in range(table.shape[1]):
            store(table, 0, j, values[0, j])

    kernel(table, values)


def _widen(table, values):
    from numba import njit

    @njit
    def kernel(table, values):
        for j in range(table.shape[1]):
            values[0, j] = load(table, 0, j)

    kernel(table, values)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("bag", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_any_number_of_threads_gives_the_same_bits(threads, monkeypatch, bag, sparse):
    monkeypatch.setattr(cpu, "_NUMBERS_PER_WORKER", 1)
    case = Case(HashSpec(101, 13, 2), 5, dtype=torch.float32, lengths=[0, 500, 1, 0, 300, 7, 900])
    results = []
    for count in (1, 2, 8, 8):
        threads(count)
        results.append(case(ops, bag=bag, keep=True, weights=bag, sparse=sparse))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert torch.equal(a.to_dense(), b.to_dense())


def test_several_callers_at_once(threads, monkeypatch):
    monkeypatch.setattr(cpu, "_NUMBERS_PER_WORKER", 1)
    threads(2)
    case = Case(HashSpec(101, 13, 2), 5, dtype=torch.float32, lengths=[500, 300])
    want = case(ops)
    with ThreadPoolExecutor(3) as pool:
        for got in pool.map(lambda _: case(ops), range(30)):
            assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_kernels_run_after_a_fork(threads, monkeypatch):
    monkeypatch.setattr(cpu, "_NUMBERS_PER_WORKER", 1)
    threads(2)
    ids = torch.arange(1000)
    want = ops.id_keys(ids)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(cpu.id_keys(ids).numpy(), want.numpy()) else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5)])
def test_keys_of_ids_are_those_of_the_specification(shape):
    ids = torch.randint(-(2**63), 2**63 - 1, shape, generator=torch.Generator().manual_seed(0))
    got = ops.id_keys(ids)
    assert got.shape == shape
    assert np.array_equal(got.numpy(), numpy_id_keys(ids.numpy()))
    if len(shape) == 2:  # not contiguous
        assert torch.equal(ops.id_keys(ids.T), got.T)


@pytest.mark.parametrize("columns", [2, 5, 65536])
def test_keys_of_ids_in_columns_are_those_of_the_specification(columns, threads, monkeypatch):
    monkeypatch.setattr(cpu, "_NUMBERS_PER_WORKER", 1)
    threads(3)
    ids = torch.randint(-(2**63), 2**63 - 1, (7, 10), generator=torch.Generator().manual_seed(0))
    in_turn = np.arange(70).reshape(7, 10) % columns
    want = numpy_id_keys(ids.numpy(), in_turn)
    assert np.array_equal(ops.id_keys(ids, count=columns).numpy(), want)
    given = torch.from_numpy(in_turn)
    for implementation in (ops, indexing):
        assert np.array_equal(implementation.id_keys(ids, given).numpy(), want)
        assert np.array_equal(
            implementation.id_keys(ids.T, given.T[:, :1]).numpy(),
            numpy_id_keys(ids.numpy().T, in_turn.T[:, :1]),
        )


def test_gradcheck():
    case = Case(HashSpec(9, 4, 2), 3, lengths=[0, 2, 4])
    E, P, w = (t.requires_grad_() for t in (case.E, case.P, case.weights))

    def bag(E, P, w):
        return ops.hash_embedding_bag(
            case.keys, case.offsets, E, P, case.seeds, case.spec, per_sample_weights=w
        )

    assert torch.autograd.gradcheck(bag, (E, P, w))


def test_only_what_is_wanted():
    case = Case(HashSpec(31, 6, 2), 3)
    P = case.P.requires_grad_()
    ops.hash_embedding(case.keys, case.E, P, case.seeds, case.spec).sum().backward()
    assert P.grad.any()
    assert case.E.grad is None


def test_second_derivatives_are_refused_in_words():
    case = Case(HashSpec(31, 6, 2), 3)
    E, P = case.E.requires_grad_(), case.P.requires_grad_()
    out = ops.hash_embedding(case.keys, E, P, case.seeds, case.spec)
    (first,) = torch.autograd.grad(out.square().sum(), E, create_graph=True)
    with pytest.raises(RuntimeError, match="have no second derivatives"):
        first.sum().backward()


def test_wrong_inputs_do_not_reach_raw_memory():
    case = Case(HashSpec(31, 6, 2, "identity"), 3)
    rest = (case.E, case.P, case.seeds, case.spec)
    with pytest.raises(IndexError, match="takes ids from 0 to 30, found ids from 31 to 31"):
        ops.hash_embedding(torch.tensor([31]), *rest)
    with pytest.raises(ValueError, match="offsets must begin with 0"):
        ops.hash_embedding_bag(torch.tensor([1, 2]), torch.tensor([0, 3]), *rest)
    with pytest.raises(ValueError, match="weight must have 6 rows, found 5"):
        ops.hash_embedding(case.keys, case.E[:5], *rest[1:])
    with pytest.raises(ValueError, match=r"importance must be \(31, 2\), found \(30, 2\)"):
        ops.hash_embedding(case.keys, case.E, case.P[:30], *rest[2:])


def test_a_long_compilation_says_so_once(caplog, monkeypatch):
    monkeypatch.setattr(compiling, "LONG", 0.01)
    monkeypatch.setattr(compiling, "runtime", lambda: Runtime(JIT, "no linker", None))
    compiling._say.cache_clear()

    class Slow:
        def compile(self, types):
            time.sleep(0.1)

        def __call__(self, worker, workers, barrier):
            return worker

    for _ in range(2):
        kernel = compiling.njit(lambda worker, workers, barrier: worker)
        kernel.dispatcher = Slow()
        with caplog.at_level(logging.INFO, "hashembed"):
            assert cpu.run_kernel(kernel, 1) == [0]
    assert [r.message for r in caplog.records] == [
        "compiling CPU kernels; they are kept on disk for the next time (reason: no linker)"
    ]
