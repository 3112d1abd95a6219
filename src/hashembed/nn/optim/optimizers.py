"""Optimizers that update only the rows that a batch touched. Manual: `docs/guides/optimizers.md`.

    optimizer = RowAdam(model.parameters(), lr=0.001)
    loss.backward()         # hash layers: gradients of the touched rows, each row once
    optimizer.step()        # updates these rows; all other parameters as torch.optim does
    optimizer.zero_grad()

The work of a step does not depend on the size of a table. Results are bit-identical for any number
of threads, and on a GPU from run to run. Nothing has to be switched on: once the optimizer exists,
hash layers compute sparse gradients for its tables, on the CPU and, with Triton, on a CUDA GPU.
This ends when the optimizer is deleted or another optimizer steps on the tables. All other
parameters (dense layers, layers inside `torch.func`) have dense gradients and get dense updates.

With `in_backward=True` the backward pass of a hash layer on a GPU updates the tables itself. Their
gradients are never stored, the host does not wait for the GPU, and a CUDA graph can capture the
whole step. (To change `lr` between replays, give it as a tensor on the GPU.) The `grad` of a table
stays None. So every step has exactly one backward pass, and neither GradScaler nor clipping works
on these gradients. `step()` updates all other parameters. On the CPU the option changes nothing.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hashembed.nn.cpu import row_kernels
from hashembed.nn.cpu.launch import as_array, run_kernel
from hashembed.nn.ops.dispatch import HAS_TRITON
from hashembed.nn.optim.base import RowOptimizer
from hashembed.nn.optim.history import Step, log2
from hashembed.nn.optim.tables import Group, State, memory, state_dtype, subtract

if HAS_TRITON or TYPE_CHECKING:
    from hashembed.nn.gpu import rows as cuda_rows


class RowSGD(RowOptimizer):
    """`torch.optim.SGD` on touched rows only. The results are the same.

    With momentum a row moves in every step, even without a gradient. It catches up when a hash
    layer is about to read it, as under `RowAdam`. The result is exact up to rounding, except that
    momentum is dropped once it has decayed by a factor of 1e10.

    Args:
        params: parameters or parameter groups.
        lr: learning rate (default 0.001).
        momentum: factor by which a row's momentum decays in each step, from 0 (default, no
            momentum) to below 1.
        nesterov: use Nesterov momentum (default False).
        weight_decay: L2 penalty, for dense gradients only (default 0).
        in_backward: on a GPU, update the tables of hash layers during the backward pass (default
            False).
    """

    _moment_names = ("momentum_buffer",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 0.001,
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        in_backward: bool = False,
    ) -> None:
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be from 0 to below 1, found {momentum}")
        if nesterov and not momentum:
            raise ValueError("nesterov needs a momentum above 0")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "nesterov": nesterov,
            "weight_decay": weight_decay,
            "in_backward": in_backward,
        }
        super().__init__(params, defaults)

    def __setstate__(self, state: Group) -> None:
        """Old states have no momentum."""
        for group in state["param_groups"]:
            group.setdefault("momentum", 0.0)
            group.setdefault("nesterov", False)
        super().__setstate__(state)

    def _has_momentum(self, state: State, group: Group) -> bool:
        """Whether it is on now, or was before: a schedule may change it."""
        return group["momentum"] > 0 or "records" in state or "momentum_buffer" in state

    def _factors(self, group: Group) -> tuple[float, float, float]:
        """mu, a, c of m = mu m + g, p -= a m + c g."""
        rate, mu = float(group["lr"]), float(group["momentum"])
        return (mu, rate * mu, rate) if group["nesterov"] else (mu, rate, 0.0)

    def _update_rows(
        self, p: Tensor, rows: Tensor, values: Tensor, state: State, group: Group
    ) -> None:
        gradient = (rows.numpy(), as_array(values))
        if not self._has_momentum(state, group):
            rate = torch.tensor([float(group["lr"])], dtype=state_dtype(p))
            run_kernel(row_kernels.sgd, values.numel(), memory(p), *gradient, rate.numpy())
            return
        if "records" not in state:
            state["step"] = int(state.get("step", 0))
            self._make_records(p, state, 0.0)
        t, table = self._begin_lazy_step(p, state, group)
        numbers = row_kernels.MomentumStep(t, *self._factors(group))
        run_kernel(row_kernels.momentum, 2 * values.numel(), table, *gradient, numbers)
        self._end_lazy_step(state, group)

    def _history_step(self, state: State, group: Group) -> Step:
        mu, of_m, _ = self._factors(group)
        return Step(log2(mu), 0.0, 0.0, of_m)

    def _update_all(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        if not self._has_momentum(state, group):
            subtract(p, grad * float(group["lr"]))
            return
        if "records" not in state and "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(grad)
            state["step"] = int(state.get("step", 0))
        self._step_densely(p, grad, state, group)

    def _dense_step(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        mu, of_m, of_g = self._factors(group)
        (buffer,) = self._moments_of(p, state)
        buffer.mul_(mu).add_(grad)
        subtract(p, buffer * of_m + grad * of_g)

    def _gpu_rule(self, p: Tensor, state: State, group: Group) -> "cuda_rows.Rule":
        if not self._has_momentum(state, group):
            return cuda_rows.Rule(cuda_rows.RuleKind.SGD, p, None, state["numbers"], state["step"])
        if "records" not in state:
            self._make_records(p, state, 0.0)
        of_rows = (state["records"], state["numbers"], state["step"])
        return cuda_rows.Rule(
            cuda_rows.RuleKind.MOMENTUM, p, *of_rows, self._history_on_gpu(state, group)
        )

    def _gpu_numbers(self, group: Group) -> "cuda_rows.Numbers":
        log = log2(float(group["momentum"]))
        return cuda_rows.Numbers(log_beta1=log, nesterov=bool(group["nesterov"]))


class RowAdagrad(RowOptimizer):
    """`torch.optim.Adagrad` on touched rows only. The results are the same.

    Args:
        params: parameters or parameter groups.
        lr: learning rate (default 0.01).
        eps: added to the square root of the accumulator (default 1e-10).
        rowwise: keep one accumulator for each row (the sum of its mean squared gradients) instead
            of one for each weight. It needs less memory and less memory traffic. For sparse
            gradients only (default False).
        weight_decay: L2 penalty, for dense gradients only (default 0).
        in_backward: on a GPU, update the tables of hash layers during the backward pass (default
            False).
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
        number = cuda_rows.RuleKind.ADAGRAD_ROWWISE if rowwise else cuda_rows.RuleKind.ADAGRAD
        return cuda_rows.Rule(number, p, state["sum"], state["numbers"], state["step"])


class RowAdam(RowOptimizer):
    """`torch.optim.Adam` on touched rows only. A row catches up on the steps that it missed.

    Under Adam a row whose gradient is zero still moves, by its momentum. Take a row with moments m
    and v after step s that is next needed at step t. Dense Adam would have moved it by

        m / (sqrt(v) + eps') * sum_{u = s+1}^{t-1} c_u M_u / sqrt(V_u)
        c_u = lr_u sqrt(1 - beta2^u) / (1 - beta1^u)

    where M_u and V_u are the products of all beta1 and beta2 from step s + 1 to u. Its moments
    would have decayed to M_{t-1} m and V_{t-1} v. The sum is the same for all rows last updated at
    step s. So the optimizer keeps one number for each past step, computed with the learning rate
    and betas of that step. There are two approximations. While a row waits, eps shrinks along with
    sqrt(v), from eps' = eps sqrt(1 - beta2^(s+1)) on. And momentum is dropped once it has decayed
    by a factor of 1e10.

    A row catches up when a hash layer is about to read it, in training and in evaluation. So the
    outputs of the layers are those of dense Adam. Saving (`state_dict` of a model or of the
    optimizer), copying and pickling apply all pending updates. Call `flush()` before you read
    `weight` or `importance` directly; otherwise rows lack their pending updates. If other code
    writes to a table, the written values count: see `docs/guides/optimizers.md`.

    Args:
        params: parameters or parameter groups.
        lr: learning rate (default 0.001).
        betas: decay rates of the first and second moment, between 0 and 1, with beta1^2 < beta2
            (default 0.9 and 0.999).
        eps: added to the square root of the second moment (default 1e-8).
        weight_decay: L2 penalty, for dense gradients only (default 0).
        in_backward: on a GPU, update the tables of hash layers during the backward pass (default
            False).
    """

    _moment_names = ("exp_avg", "exp_avg_sq")

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
        _checked_betas(betas)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "in_backward": in_backward,
        }
        super().__init__(params, defaults)

    def _start(self, p: Tensor, sparse: bool, state: State, group: Group) -> None:
        state["step"] = 0
        for name in () if sparse else self._moment_names:
            state[name] = torch.zeros(p.shape, dtype=state_dtype(p), device=p.device)

    def _next_epsilon(self, state: State, group: Group) -> float:
        """eps' of rows updated in the last step."""
        _, beta2 = group["betas"]
        return float(group["eps"]) * math.sqrt(1 - float(beta2) ** (int(state["step"]) + 1))

    def _kept(self, group: Group) -> float:
        """The factor that decoupled weight decay multiplies a weight by in this step."""
        return 1.0

    def _update_rows(
        self, p: Tensor, rows: Tensor, values: Tensor, state: State, group: Group
    ) -> None:
        beta1, beta2 = _checked_betas(group["betas"])
        if "records" not in state:
            self._make_records(p, state, self._next_epsilon(state, group))
        kept = self._kept(group)
        t, table = self._begin_lazy_step(p, state, group)
        numbers = row_kernels.AdamStep(
            step=t,
            beta1=beta1,
            rest1=1 - beta1,
            beta2=beta2,
            rest2=1 - beta2,
            size=float(group["lr"]) / (1 - beta1**t),
            root=1 / math.sqrt(1 - beta2**t),
            epsilon=float(group["eps"]),
            kept=kept,
        )
        gradient = (rows.numpy(), as_array(values))
        run_kernel(row_kernels.adam, 4 * values.numel(), table, *gradient, numbers)
        self._end_lazy_step(state, group)

    def _history_step(self, state: State, group: Group) -> Step:
        (beta1, beta2), t = map(float, group["betas"]), int(state["step"])
        move = float(group["lr"]) * math.sqrt(1 - beta2**t) / (1 - beta1**t)
        logs = (log2(beta1), log2(beta2), log2(self._kept(group)))
        return Step(*logs, move, self._next_epsilon(state, group))

    def _gpu_rule(self, p: Tensor, state: State, group: Group) -> "cuda_rows.Rule":
        if "records" not in state:
            self._make_records(p, state, self._next_epsilon(state, group))
        number = cuda_rows.RuleKind.ADAMW if self._decouples_decay else cuda_rows.RuleKind.ADAM
        of_rows = (state["records"], state["numbers"], state["step"])
        return cuda_rows.Rule(number, p, *of_rows, self._history_on_gpu(state, group))

    def _gpu_numbers(self, group: Group) -> "cuda_rows.Numbers":
        log_beta1, log_beta2 = map(log2, _checked_betas(group["betas"]))
        decay = float(group["weight_decay"]) if self._decouples_decay else 0.0
        return cuda_rows.Numbers(float(group["eps"]), log_beta1, log_beta2, decay)

    def _update_all(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        self._step_densely(p, grad, state, group)

    def _dense_step(self, p: Tensor, grad: Tensor, state: State, group: Group) -> None:
        (beta1, beta2), t = map(float, group["betas"]), int(state["step"])
        m, v = self._moments_of(p, state)
        m.lerp_(grad, 1 - beta1)
        v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        root = v.sqrt().div_(math.sqrt(1 - beta2**t)).add_(group["eps"])
        change = m / root * (float(group["lr"]) / (1 - beta1**t))
        if self._decouples_decay:
            change += p.to(change.dtype) * (float(group["lr"]) * group["weight_decay"])
        subtract(p, change)


class RowAdamW(RowAdam):
    """`torch.optim.AdamW` on touched rows only: `RowAdam` with weight decay that works on tables.

    As under dense AdamW, every step multiplies every row by 1 - lr * weight_decay, even rows that
    no batch ever touches. A row catches up on this decay, too, when it is next needed.

    Args:
        params: parameters or parameter groups.
        lr: learning rate (default 0.001).
        betas: as in `RowAdam` (default 0.9 and 0.999).
        eps: as in `RowAdam` (default 1e-8).
        weight_decay: decoupled weight decay (default 0.01). lr * weight_decay must be below 1.
        in_backward: as in `RowAdam` (default False).
    """

    _decouples_decay = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 0.001,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        in_backward: bool = False,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            in_backward=in_backward,
        )

    def _kept(self, group: Group) -> float:
        kept = 1 - float(group["lr"]) * float(group["weight_decay"])
        if kept <= 0:
            raise ValueError(
                f"lr times weight_decay must be below 1, found {group['lr']} times "
                f"{group['weight_decay']}"
            )
        return kept


def _checked_betas(betas: tuple[float, float]) -> tuple[float, float]:
    beta1, beta2 = map(float, betas)
    if not (0 < beta1 < 1 and 0 < beta2 < 1 and beta1**2 < beta2):
        raise ValueError(f"betas must lie between 0 and 1, and beta1^2 below beta2, found {betas}")
    return beta1, beta2
