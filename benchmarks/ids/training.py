"""One run: train, judge validation rows twice in each pass, stop when they get no better."""

import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.ids.data import Part, Task


@dataclass
class Outcome:
    """`loss` is the RMSE, or 1 - AUC of a ranking task; `auc` of a rating task is that of good."""

    loss: float
    auc: float
    round: int
    seconds: float
    test_loss: float = float("nan")
    test_auc: float = float("nan")


class Step:
    """Forward, backward and update on the rows in `rows`; on a GPU, a CUDA graph after 3 steps."""

    def __init__(self, task: Task, model: nn.Module, rate: float):
        self.task, self.model = task, model
        on_gpu = task.train.users.is_cuda
        self.optimizer = torch.optim.Adam(
            model.parameters(), lr=rate, fused=True, capturable=on_gpu
        )
        self.rows = torch.zeros(task.batch, dtype=torch.int64, device=task.train.users.device)
        self.graph, self.count, self.on_gpu = None, 0, on_gpu

    def __call__(self, rows: Tensor) -> None:
        self.rows.copy_(rows)
        self.count += 1
        if not self.on_gpu:
            return self._step()
        if self.count <= 3:  # compiles kernels and creates the optimizer's state
            aside = torch.cuda.Stream()
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                self._step()
            torch.cuda.current_stream().wait_stream(aside)
            return None
        if self.graph is None:
            self.optimizer.zero_grad()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._step()
        return self.graph.replay()

    def _step(self) -> None:
        part, model = self.task.train, self.model
        users, items = model.users(part.users[self.rows]), model.items(part.items[self.rows])
        if self.task.ranking:
            pair, other = model.score(users, items), model.score(users, items.roll(1, 0))
            loss = (F.softplus(-pair) + F.softplus(other)).mean()
        else:
            loss = F.mse_loss(model.score(users, items), part.ratings[self.rows])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def area(good: Tensor, other: Tensor) -> float:
    """AUC: how often a good one scores more than another; equal scores count half."""
    other = other.sort().values
    below = torch.searchsorted(other, good) + torch.searchsorted(other, good, right=True)
    return float(below.double().mean() / (2 * len(other)))


@torch.no_grad()
def judge(task: Task, model: nn.Module, part: Part) -> tuple[float, float]:
    """-> loss, AUC. Ranking compares each pair with the user and the next row's item."""
    scores = _scores(model, part.users, part.items)
    if task.ranking:
        auc = area(scores, _scores(model, part.users, part.items.roll(1)))
        return 1 - auc, auc
    good = part.ratings >= task.good
    return float(F.mse_loss(scores, part.ratings).sqrt()), area(scores[good], scores[~good])


def _scores(model: nn.Module, users: Tensor, items: Tensor) -> Tensor:
    parts = zip(users.split(2**16), items.split(2**16), strict=True)
    return torch.cat([model.score(model.users(u), model.items(i)) for u, i in parts])


def train(task: Task, model: nn.Module, rate: float, seed: int, clusterings: int = 0,
          test: bool = False) -> Outcome:  # fmt: skip
    """`clusterings`: after so many passes, tables that can learn their assignments do so."""
    device = task.train.users.device
    model = model.to(device)
    step, rows = Step(task, model, rate), len(task.train.users)
    order = torch.Generator(device).manual_seed(seed)
    batches = rows // task.batch // 2 * 2
    best, started = Outcome(float("inf"), 0.0, 0, 0.0), time.perf_counter()
    for number in range(1, task.rounds + 1):
        if number % 2:
            shuffled = torch.randperm(rows, generator=order, device=device)
            turn = iter(shuffled[: batches * task.batch].split(task.batch))
        for _ in range(batches // 2):
            step(next(turn))
        loss, auc = judge(task, model, task.valid)
        if loss < best.loss:
            best = Outcome(loss, auc, number, 0.0)
            if test:
                best.test_loss, best.test_auc = judge(task, model, task.test)
        if number - max(best.round, 2 * clusterings) >= task.patience or loss != loss:
            break
        if number % 2 == 0 and number // 2 <= clusterings:
            for table in (model.users, model.items):
                if hasattr(table, "cluster"):
                    table.cluster()
    best.seconds = time.perf_counter() - started
    return best
