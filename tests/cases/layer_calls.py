"""Calls of the two operations, for every implementation."""

import itertools

import numpy as np
import torch

from hashembed.hashing.spec import derive_seeds
from hashembed.hashing.spec import id_keys as numpy_id_keys

LENGTHS = [0, 3, 0, 1, 7, 40, 2, 0, 5, 1, 0]


BEHIND = 3  # tokens behind the last bag


class Case:
    """One call, for both implementations."""

    def __init__(self, spec, d, *, importance="on", dtype=torch.float64, lengths=LENGTHS, **form):
        rng = np.random.default_rng(7)
        n = sum(lengths) + BEHIND
        # A few ids over and over, and some that come once.
        ids = np.where(rng.random(n) < 0.6, rng.integers(0, 5, n), rng.integers(-(2**40), 2**40, n))
        keys = ids % spec.num_embeddings if spec.indexing == "identity" else numpy_id_keys(ids)
        self.keys, self.spec = torch.from_numpy(keys), spec
        self.offsets = torch.tensor([0, *itertools.accumulate(lengths)])
        self.seeds = torch.from_numpy(derive_seeds(spec.seed, spec.num_hashes).astype(np.int64))
        g = torch.Generator().manual_seed(1)

        def normal(*shape):
            return torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)

        self.E = normal(spec.num_buckets, d)
        self.P = None if importance == "off" else normal(spec.num_embeddings, spec.num_hashes)
        self.form = {"append_importance": importance == "append", **form}
        self.keep = torch.from_numpy(rng.random(n) < 0.7)
        self.weights = normal(n)
        self.generator = g

    def __call__(self, module, *, bag=True, keep=False, weights=False, dtype=None, sparse=False):
        """-> output, then the gradients of E, P and the weights, those that there are."""
        dtype = dtype or self.E.dtype
        tables = [self.E, self.P, self.weights if weights else None]
        E, P, w = (None if t is None else t.detach().to(dtype).requires_grad_() for t in tables)
        options = {"keep": self.keep if keep else None, "sparse": sparse, **self.form}
        if bag:
            out = module.hash_embedding_bag(
                self.keys,
                self.offsets,
                E,
                P,
                self.seeds,
                self.spec,
                per_sample_weights=w,
                **options,
            )
        else:
            options.pop("mode", None)
            out = module.hash_embedding(self.keys, E, P, self.seeds, self.spec, **options)
        upstream = torch.randn(
            out.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64
        )
        # Rounded as the narrow type would be, so that both sides get the same gradient.
        upstream = upstream.to(self.E.dtype).to(dtype)
        inputs = [t for t in (E, P, w) if t is not None]
        return [out.detach(), *torch.autograd.grad(out, inputs, upstream)]
