"""`RowSGD`, `RowAdagrad`, `RowAdam` and `clip_grad_norm_`; see `hashembed.nn.optim`."""

from hashembed.nn.optim import RowAdagrad, RowAdam, RowSGD, clip_grad_norm_

__all__ = ["RowAdagrad", "RowAdam", "RowSGD", "clip_grad_norm_"]
