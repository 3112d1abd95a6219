"""`RowSGD`, `RowAdagrad`, `RowAdam`, `RowAdamW` and `clip_grad_norm_`; see `hashembed.nn.optim`."""

from hashembed.nn.optim import RowAdagrad, RowAdam, RowAdamW, RowSGD, clip_grad_norm_

__all__ = ["RowAdagrad", "RowAdam", "RowAdamW", "RowSGD", "clip_grad_norm_"]
