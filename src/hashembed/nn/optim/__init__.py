"""Optimizers that update only the rows that a batch touched; `docs/guides/optimizers.md`."""

from hashembed.nn.optim.clipping import clip_grad_norm_
from hashembed.nn.optim.exchange import exchange_rows
from hashembed.nn.optim.optimizers import RowAdagrad, RowAdam, RowAdamW, RowSGD

__all__ = ["RowAdagrad", "RowAdam", "RowAdamW", "RowSGD", "clip_grad_norm_", "exchange_rows"]
