"""Reads single n-grams out of a model without hidden layers, for exact explanations.

Only the rows of these n-grams are copied from the device.
"""

from dataclasses import dataclass

import numpy as np
import torch

from hashembed.core.arrays import F64, I64
from hashembed.hashing.bags import Bags
from hashembed.nn.engine.batches import to_device
from hashembed.nn.engine.model import DeepModel


def is_linear(model: DeepModel) -> bool:
    """Whether the logits are the bias and a sum over n-grams."""
    bag = model.network.bag
    return not model.network.hidden and bag.mode == "sum"


@dataclass(frozen=True)
class Reading:
    """A linear model on any device, as `hashembed.classify.explain.parts.Part` describes it."""

    model: DeepModel

    def vectors(self, keys: I64) -> F64:
        """The vectors of bags of one key each (n, d)."""
        alone = Bags(keys, np.arange(len(keys) + 1))
        return self.model.vectors(alone).astype(np.float64)

    @torch.no_grad()
    def weights(self, keys: I64) -> F64 | None:
        """Rows of P (n, k)."""
        P = self.model.network.bag.importance
        if P is None:
            return None
        rows, _ = self.model.spec(keys)
        found = P[to_device(rows, P.device)]
        return np.asarray(found.cpu().numpy(), np.float64)

    @torch.no_grad()
    def output(self) -> tuple[F64, F64]:
        """W (C, d), bias (C,)."""
        layer = self.model.network.output
        W, bias = (tensor.detach().cpu().numpy() for tensor in (layer.weight, layer.bias))
        return W.astype(np.float64), bias.astype(np.float64)
