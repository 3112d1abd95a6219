"""Optimizers that update only the rows that a batch touched: `RowSGD`, `RowAdagrad`, `RowAdam`.

    optimizer = RowAdam(model.parameters(), lr=0.001)
    loss.backward()         # hash layers: gradients of the touched rows, each row once
    optimizer.step()        # updates these rows; all other parameters as torch.optim does
    optimizer.zero_grad()

A step never does work of the size of a table, and the result is bitwise the same for any number of
threads, and on a GPU from run to run. Creating the optimizer is all it takes: for as long as it
lives, hash layers on the CPU or, with Triton, on a CUDA GPU give its parameters sparse gradients.
Everything else (dense layers, layers inside of `torch.func`) has dense gradients and is updated by
the ordinary dense rule.

With `in_backward=True` the backward pass of a hash layer on a GPU adds up and applies the gradients
of its tables at once: they are never stored, nothing waits for the GPU, and the whole step can be
captured in a CUDA graph (then give `lr` as a tensor on the GPU to change it). Their `grad` stays
None; so there is one backward pass a step, and no clipping of these gradients. `step()` updates all
other parameters. On the CPU it changes nothing.

What works: parameter groups, learning-rate schedulers, closures, `state_dict` (training resumes to
the bit), several backward passes before a step, `torch.compile` (with a graph break at the layer).
What does not: weight decay of sparse gradients (every row would have to move in every step; it is
an error, put the tables into a group with weight_decay=0), `torch.nn.utils.clip_grad_norm_` (it
refuses sparse gradients; use `clip_grad_norm_` of this module), DistributedDataParallel.
"""

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hashembed import row_kernels
from hashembed.nn.cpu import as_array, run_kernel
from hashembed.nn.ops import HAS_TRITON
from hashembed.nn.row_optimizer import (
    Group,
    RowOptimizer,
    State,
    coalesced,
    memory,
    state_dtype,
    subtract,
)

if HAS_TRITON:
    from hashembed.nn import cuda_rows

__all__ = ["RowAdagrad", "RowAdam", "RowSGD", "clip_grad_norm_"]

_NEGLIGIBLE = 1e-10  # where the momentum of a skipped row is cut off
_PIECE = 2**20  # rows that `flush` takes at a time


class RowSGD(RowOptimizer):
    """`torch.optim.SGD` without momentum, on touched rows only. The results are the same."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 0.001,
        *,
        weight_decay: float = 0.0,
        in_backward: bool = False,
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "in_backward": in_backward}
        super().__init__(params, defaults)

    def _update_rows(
        self, p: Tensor, rows: Tensor, values: Tensor, state: State, group: Group
    ) -> None:
        rate = torch.tensor([float(group["lr"])], dtype=state_dtype(p))
        arrays = (memory(p), rows.numpy(), as_array(values), rate.numpy())
        run_kernel(row_kernels.sgd, values.numel(), *arrays)

    def _update_all(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        subtract(p, grad * float(group["lr"]))

    def _gpu_rule(self, p: Tensor, state: State, group: Group) -> "cuda_rows.Rule":
        return cuda_rows.Rule(cuda_rows.SGD, p, None, state["numbers"], state["step"])


class RowAdagrad(RowOptimizer):
    """`torch.optim.Adagrad` on touched rows only. The results are the same.

    Args:
        params: parameters or parameter groups.
        lr: the learning rate.
        eps: added to the root of the accumulated squares.
        rowwise: keep one accumulator a row, of the mean square of its gradient, instead of one a
            number: less memory, and less to read and write. For sparse gradients only.
        weight_decay: for dense gradients only.
        in_backward: update the tables of hash layers in the backward pass, on a GPU.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 0.01,
        *,
        eps: float = 1e-10,
        rowwise: bool = False,
        weight_decay: float = 0.0,
        in_backward: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "eps": eps,
            "rowwise": rowwise,
            "weight_decay": weight_decay,
            "in_backward": in_backward,
        }
        super().__init__(params, defaults)

    def _start(self, p: Tensor, sparse: bool, state: State, group: Group) -> None:
        shape = (len(p), 1) if sparse and group["rowwise"] else p.shape
        state["sum"] = torch.zeros(shape, dtype=state_dtype(p), device=p.device)

    def _update_rows(
        self, p: Tensor, rows: Tensor, values: Tensor, state: State, group: Group
    ) -> None:
        arrays = (memory(p), state["sum"].numpy(), rows.numpy(), as_array(values))
        numbers = (float(group["lr"]), float(group["eps"]))
        run_kernel(row_kernels.adagrad, values.numel(), *arrays, *numbers)

    def _update_all(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        square = grad.square()
        if state["sum"].shape != p.shape:
            square = square.mean(1, keepdim=True)
        state["sum"].add_(square)
        rate = group["lr"]
        if not (isinstance(rate, Tensor) and rate.device == p.device):
            rate = float(rate)  # one on the GPU is read there
        subtract(p, grad / state["sum"].sqrt().add_(group["eps"]) * rate)

    def _gpu_rule(self, p: Tensor, state: State, group: Group) -> "cuda_rows.Rule":
        rowwise = state["sum"].shape != p.shape
        number = cuda_rows.ADAGRAD_ROWWISE if rowwise else cuda_rows.ADAGRAD
        return cuda_rows.Rule(number, p, state["sum"], state["numbers"], state["step"])


class RowAdam(RowOptimizer):
    """`torch.optim.Adam` on touched rows only, with the steps that a row skipped made up for.

    Under Adam a row whose gradient is zero still moves, by its momentum. A row with moments m and v
    after step s that is next needed at step t would have moved, with r = beta1 / sqrt(beta2), by

        m / (sqrt(v) + eps') * sum_{u = s+1}^{t-1} lr_u r^(u-s) sqrt(1 - beta2^u) / (1 - beta1^u)

    and its moments decayed to beta1^(t-1-s) m and beta2^(t-1-s) v. The sum is the same for all rows
    last updated at step s, so one number for each past step is kept, the learning rates of the time
    included. The only approximations: eps is taken to shrink along with sqrt(v), from
    eps' = eps sqrt(1 - beta2^(s+1)) on, and momentum decayed by 1e10 is dropped.

    A row catches up when a hash layer is about to read it, in training and in evaluation alike, so
    whatever passes through the layers is as under dense Adam. Reading `weight` or `importance`
    themselves - to save, export or compile a model - needs a `flush()` first, or rows are seen as
    they were when last used. To resume training no flush is needed: the `state_dict` knows.

    Args:
        params: parameters or parameter groups.
        lr: the learning rate.
        betas: decay of the moments, beta1^2 < beta2.
        eps: added to the root of the second moment.
        weight_decay: for dense gradients only.
        in_backward: update the tables of hash layers in the backward pass, on a GPU.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 0.001,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        in_backward: bool = False,
    ) -> None:
        if not (0 < betas[0] < 1 and 0 < betas[1] < 1 and betas[0] ** 2 < betas[1]):
            raise ValueError(
                f"betas must lie between 0 and 1, and beta1^2 below beta2, found {betas}"
            )
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "in_backward": in_backward,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def before_read(
        self, table: Tensor, rows: Tensor, base: int = 0, count: Tensor | None = None
    ) -> None:
        """Let these rows catch up."""
        self._catch_up(table, rows, 0, len(table), base, count)

    @torch.no_grad()
    def flush(self) -> None:
        """Let all rows catch up; takes as long as a step of dense Adam."""
        for p in self.state:
            self._catch_up_all(p)

    def _start(self, p: Tensor, sparse: bool, state: State, group: Group) -> None:
        state["step"] = 0
        for name in () if sparse else ("exp_avg", "exp_avg_sq"):
            state[name] = torch.zeros(p.shape, dtype=state_dtype(p), device=p.device)

    def _make_records(self, p: Tensor, state: State, group: Group) -> None:
        """State for sparse gradients, after none or some steps with dense ones."""
        width, t = p.shape[1], int(state["step"])
        shape = (len(p), row_kernels.record_width(width))
        if p.device.type == "cpu":
            records = _large_zeros(shape, state_dtype(p))
        else:
            records = torch.zeros(shape, dtype=state_dtype(p), device=p.device)
        if "exp_avg" in state:
            records[:, :width] = state.pop("exp_avg")
            records[:, width : 2 * width] = state.pop("exp_avg_sq")
            _stamps(records)[:, 2 * width] = t
        state["records"] = records
        tails = torch.zeros(2, 1024 + t, dtype=torch.float64)
        tails[1, t] = group["eps"] * math.sqrt(1 - group["betas"][1] ** (t + 1))
        state["tails"] = tails.to(p.device)

    def _update_rows(
        self, p: Tensor, rows: Tensor, values: Tensor, state: State, group: Group
    ) -> None:
        if "records" not in state:
            self._make_records(p, state, group)
        state["step"] = int(state["step"]) + 1
        betas, arrays = self._arrays(p, state, group)
        numbers = (state["step"], float(group["lr"]), betas, float(group["eps"]))
        gradient = (rows.numpy(), as_array(values))
        run_kernel(row_kernels.adam, 4 * values.numel(), *arrays, *gradient, *numbers)
        self._add_tail(state, group)

    def _gpu_rule(self, p: Tensor, state: State, group: Group) -> "cuda_rows.Rule":
        if "records" not in state:
            self._make_records(p, state, group)
        state["tails"] = cuda_rows.ring(state["tails"], state["step"])
        return cuda_rows.Rule(
            cuda_rows.ADAM, p, state["records"], state["numbers"], state["step"], state["tails"]
        )

    def _update_all(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        if "records" in state and p.is_cuda:
            self._catch_up_all(p)
            with self._gpu_step(p, state, group):
                self._update_moments(p, grad, state, group)
        else:
            self._catch_up_all(p)
            state["step"] = int(state["step"]) + 1
            self._update_moments(p, grad, state, group)
            if "records" in state:
                self._add_tail(state, group)

    def _update_moments(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        (beta1, beta2), t = group["betas"], int(state["step"])
        if "records" in state:
            m, v = state["records"][:, : 2 * p.shape[1]].chunk(2, dim=1)
            _stamps(state["records"])[:, 2 * p.shape[1]] = t
        else:
            m, v = state["exp_avg"], state["exp_avg_sq"]
        m.lerp_(grad, 1 - beta1)
        v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        root = v.sqrt().div_(math.sqrt(1 - beta2**t)).add_(group["eps"])
        subtract(p, m / root * (float(group["lr"]) / (1 - beta1**t)))

    def _catch_up(
        self,
        p: Tensor,
        rows: Tensor,
        begin: int,
        end: int,
        base: int = 0,
        count: Tensor | None = None,
    ) -> None:
        state = self.state.get(p, {})
        if "records" not in state:
            return
        group = self._group_of(p)
        if p.is_cuda:
            cuda_rows.catch_up(self._ready_gpu_rule(p, state, group), rows, base, count)
            return
        betas, arrays = self._arrays(p, state, group)
        numbers = (begin, end, int(state["step"]), betas)
        work = rows.numel() * p.shape[1]
        run_kernel(row_kernels.adam_catch_up, work, *arrays, as_array(rows), *numbers)

    def _catch_up_all(self, p: Tensor) -> None:
        for begin in range(0, len(p), _PIECE):
            end = min(begin + _PIECE, len(p))
            self._catch_up(p, torch.arange(begin, end, device=p.device), begin, end)

    def _arrays(self, p: Tensor, state: State, group: Group) -> tuple[tuple[float, float], Any]:
        beta1, beta2 = map(float, group["betas"])
        records = state["records"].numpy()
        tails = state["tails"].numpy()
        stamps = _stamps(state["records"]).numpy()
        arrays = (memory(p), records, stamps, tails, _powers(beta1, beta2))
        return (beta1, beta2), arrays

    def _add_tail(self, state: State, group: Group) -> None:
        """tails[0, s] = the sum of the class's docstring from s + 1 to now; tails[1, s] = eps'."""
        (beta1, beta2), t = group["betas"], int(state["step"])
        size = state["tails"].shape[1]
        if t >= size:
            state["tails"] = torch.cat([state["tails"], torch.zeros(2, size)], dim=1)
        tails = state["tails"].numpy()
        ratio = beta1 / math.sqrt(beta2)
        begin = max(1, t - math.ceil(math.log(_NEGLIGIBLE) / math.log(ratio)))
        term = float(group["lr"]) * math.sqrt(1 - beta2**t) / (1 - beta1**t)
        tails[0, begin:t] += term * ratio ** np.arange(t - begin, 0, -1)
        tails[1, t] = group["eps"] * math.sqrt(1 - beta2 ** (t + 1))


def _stamps(records: Tensor) -> Tensor:
    return records.view(torch.int32 if records.dtype == torch.float32 else torch.int64)


@cache
def _powers(beta1: float, beta2: float) -> Any:
    """beta^n for small n; (2, 256)."""
    return np.array([[beta1], [beta2]]) ** np.arange(256)


def _large_zeros(shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """From NumPy, which asks Linux for huge pages: rows are found faster."""
    return torch.from_numpy(np.zeros(shape, np.float64 if dtype == torch.float64 else np.float32))


def clip_grad_norm_(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """`torch.nn.utils.clip_grad_norm_` (the 2-norm) for gradients of both kinds."""
    tensors = []
    for p in parameters:
        if p.grad is not None and p.grad.is_sparse:
            p.grad = coalesced(p.grad)
            tensors.append(p.grad._values())
        elif p.grad is not None:
            tensors.append(p.grad)
    total = torch.nn.utils.get_total_norm(tensors)
    scale = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for tensor in tensors:
        tensor.mul_(scale.to(tensor.device))
    return total
