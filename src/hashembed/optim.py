"""Row optimizers, `clip_grad_norm_` and `exchange_rows`; see `hashembed.nn.optim`."""

from hashembed.nn.optim import RowAdagrad, RowAdam, RowAdamW, RowSGD, clip_grad_norm_, exchange_rows

__all__ = ["RowAdagrad", "RowAdam", "RowAdamW", "RowSGD", "clip_grad_norm_", "exchange_rows"]
