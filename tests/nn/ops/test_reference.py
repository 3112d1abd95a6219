"""The plain PyTorch reference against a loop over tokens that anybody can check by eye."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hashembed.hashing.spec import HashSpec, derive_seeds
from hashembed.hashing.spec import id_keys as numpy_id_keys
from hashembed.nn.ops.indexing import id_keys, rows_and_buckets
from hashembed.nn.ops.reference import hash_embedding, hash_embedding_bag

INT64 = st.integers(-(2**63), 2**63 - 1)


def tables(spec: HashSpec, d: int, dtype=torch.float64):
    g = torch.Generator().manual_seed(1)
    E = torch.randn(spec.num_buckets, d, generator=g, dtype=torch.float64).to(dtype)
    P = torch.randn(spec.num_embeddings, spec.num_hashes, generator=g, dtype=torch.float64)
    seeds = torch.from_numpy(derive_seeds(spec.seed, spec.num_hashes).astype(np.int64))
    return E, P.to(dtype), seeds


def slow_vector(key, E, P, spec, aggregation, append):
    """One token, by the paper's equation."""
    row, buckets = spec(key)
    p = P[int(row)] if P is not None else torch.ones(spec.num_hashes, dtype=E.dtype)
    parts = [p[i] * E[int(bucket)] for i, bucket in enumerate(buckets)]
    vector = torch.cat(parts) if aggregation == "concat" else sum(parts)
    return torch.cat([vector, p]) if append else vector


def make_keys(spec, ids):
    ids = np.asarray(ids, np.int64)
    return ids % spec.num_embeddings if spec.indexing == "identity" else numpy_id_keys(ids)


@given(st.lists(INT64, max_size=20), st.integers(1, 2**32), st.integers(4, 2**32), INT64)
def test_torch_hash_gives_the_bits_of_the_specification(ids, K, B, seed):
    x = torch.tensor(ids, dtype=torch.int64)
    assert np.array_equal(id_keys(x).numpy(), numpy_id_keys(np.array(ids, np.int64)))
    for indexing in ("independent", "shared", "identity"):
        spec = HashSpec(K, B, 4, indexing, seed)
        keys = make_keys(spec, ids)
        seeds = torch.from_numpy(derive_seeds(seed, 4).astype(np.int64))
        rows, buckets = rows_and_buckets(torch.from_numpy(keys), seeds, spec)
        want_rows, want_buckets = spec(keys)
        assert np.array_equal(rows.numpy(), want_rows)
        assert np.array_equal(buckets.numpy(), want_buckets.reshape(-1, 4))


FORMS = list(
    itertools.product(
        ("independent", "shared", "identity"), (1, 2, 3), ("sum", "concat"), ("off", "on", "append")
    )
)


@pytest.mark.parametrize(("indexing", "k", "aggregation", "importance"), FORMS)
def test_every_form_against_a_loop(indexing, k, aggregation, importance):
    spec = HashSpec(23, 7, k, indexing, seed=5)
    E, P, seeds = tables(spec, d=3)
    P = None if importance == "off" else P
    append = importance == "append"
    form = {"aggregation": aggregation, "append_importance": append}
    keys = make_keys(spec, [0, 5, -3, 2**62, 5, 11, 12, 13])
    weights = torch.linspace(-1, 2, len(keys), dtype=torch.float64)
    each = torch.stack([slow_vector(key, E, P, spec, aggregation, append) for key in keys])

    out = hash_embedding(torch.from_numpy(keys), E, P, seeds, spec, **form)
    torch.testing.assert_close(out, each, rtol=1e-12, atol=1e-12)

    offsets = [0, 0, 3, 4, 4, 8]  # empty bags first, in the middle; a bag of one
    args = (torch.from_numpy(keys), torch.tensor(offsets), E, P, seeds, spec)
    bags = [slice(a, b) for a, b in itertools.pairwise(offsets)]
    want = torch.stack([(weights[bag, None] * each[bag]).sum(0) for bag in bags])
    got = hash_embedding_bag(*args, per_sample_weights=weights, **form)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)

    want = torch.stack([each[bag].sum(0) / max(len(each[bag]), 1) for bag in bags])
    got = hash_embedding_bag(*args, mode="mean", **form)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("aggregation", ["sum", "concat"])
@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_gradients_of_E_P_and_per_sample_weights(aggregation, append, mode):
    spec = HashSpec(9, 4, 2, seed=3)
    E, P, seeds = tables(spec, d=3)
    E, P = E.requires_grad_(), P.requires_grad_()
    keys = torch.from_numpy(numpy_id_keys([4, 4, -9, 10**15, 0, 6]))
    keep = torch.tensor([True, True, False, True, True, True])
    offsets = torch.tensor([0, 2, 2, 6])
    weights = torch.linspace(0.5, 2, 6, dtype=torch.float64).requires_grad_()
    form = {"aggregation": aggregation, "append_importance": append, "keep": keep}

    def plain(E, P):
        return hash_embedding(keys, E, P, seeds, spec, **form)

    def bag(E, P, w):
        w = w if mode == "sum" else None
        return hash_embedding_bag(
            keys, offsets, E, P, seeds, spec, per_sample_weights=w, mode=mode, **form
        )

    assert torch.autograd.gradcheck(plain, (E, P))
    assert torch.autograd.gradcheck(bag, (E, P, weights))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_rounds_once_at_the_end(dtype):
    spec = HashSpec(50, 10, 2)
    E, P, seeds = tables(spec, d=5, dtype=dtype)
    keys = torch.from_numpy(numpy_id_keys(np.arange(200)))
    offsets = torch.tensor([0, 120, 200])
    half = hash_embedding_bag(keys, offsets, E, P, seeds, spec)
    full = hash_embedding_bag(keys, offsets, E.float(), P.float(), seeds, spec)
    assert half.dtype == dtype
    assert torch.equal(half, full.to(dtype))


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 5), max_size=8),
    st.integers(0, 3),
    st.sampled_from(["sum", "mean"]),
    st.booleans(),
)
def test_any_bag_lengths_and_tokens_behind_the_last_bag(lengths, behind, mode, drop):
    spec = HashSpec(31, 6, 2)
    E, P, seeds = tables(spec, d=2)
    total = sum(lengths)
    keys = torch.from_numpy(numpy_id_keys(np.arange(total + behind) * 7 - 20))
    keep = torch.arange(total + behind) % 3 != 0 if drop else None
    offsets = torch.tensor([0, *itertools.accumulate(lengths)])
    for sparse in (False, True):
        got = hash_embedding_bag(
            keys, offsets, E, P, seeds, spec, mode=mode, keep=keep, sparse=sparse
        )
        assert got.shape == (len(lengths), 2)
        each = hash_embedding(keys, E, P, seeds, spec)
        for i, (a, b) in enumerate(itertools.pairwise(offsets.tolist())):
            chosen = each[a:b] if keep is None else each[a:b][keep[a:b]]
            want = chosen.sum(0) / (max(len(chosen), 1) if mode == "mean" else 1)
            torch.testing.assert_close(got[i], want, rtol=1e-12, atol=1e-12)
