"""One run: build the model of a job, train it, measure the perplexity."""

import math
import time
from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.language_model.data import Corpus
from benchmarks.language_model.model import LanguageModel, ngram_layer
from benchmarks.language_model.tables import make_table, start


@dataclass(frozen=True)
class Job:
    """What is trained."""

    study: str
    table: str = "hash"
    share: float = 1.0  # of the parameters of a full table
    hashes: int = 2
    weights: str = "ones"  # initial importance weights: see tables.start
    weight_size: float = 1.0
    std: float = 0.02  # of the vectors
    scale: float = 1.0  # of the vectors at the input
    tied: bool = True
    longest: int = 1  # n-grams at the input
    ngram_rows: int = 0
    ngram_buckets: int = 0
    ngram_weights: str = "paper"
    rate: float = 2e-3  # of the optimizer, at its highest
    epochs: int = 5
    seed: int = 0
    tested: bool = False  # also on the test split


@dataclass(frozen=True)
class Sizes:
    """Of all models of a run of the benchmark."""

    dim: int = 256
    layers: int = 4
    heads: int = 4
    length: int = 128
    batch: int = 64  # windows
    dropout: float = 0.1


def build(job: Job, sizes: Sizes, vocabulary: int) -> LanguageModel:
    table = make_table(job.table, vocabulary, sizes.dim, job.share, job.std, job.hashes)
    if job.table == "hash":
        start(table, job.weights, job.weight_size, job.std)
    output = None
    if not job.tied:
        output = make_table("full", vocabulary, sizes.dim, 1.0, 0.02)
    ngrams = None
    if job.longest > 1:
        ngrams = ngram_layer(sizes.dim, job.ngram_rows, job.ngram_buckets)
        start(ngrams, job.ngram_weights, 1.0, job.std)
    return LanguageModel(
        table,
        vocabulary,
        sizes.dim,
        layers=sizes.layers,
        heads=sizes.heads,
        length=sizes.length,
        dropout=sizes.dropout,
        scale=job.scale,
        output=output,
        ngrams=ngrams,
        longest=job.longest,
    )


def run(job: Job, sizes: Sizes, corpus: Corpus, device: str, compiled: bool) -> dict[str, object]:
    """-> the job's fields, numbers of parameters, perplexities, seconds."""
    begin = time.perf_counter()
    torch.manual_seed(job.seed)
    vocabulary = len(corpus.words)
    model = build(job, sizes, vocabulary).to(device)
    train = torch.from_numpy(corpus.train).to(device)
    validation = torch.from_numpy(corpus.validation).to(device)
    loss_of = compiled_loss() if compiled else loss
    losses = [evaluate(model, validation, sizes)]
    optimizer = make_optimizer(model, job.rate)
    steps_per_epoch = (len(train) - 1) // (sizes.length * sizes.batch)
    total = job.epochs * steps_per_epoch
    for epoch in range(job.epochs):
        model.train()
        for number, (tokens, targets) in enumerate(batches(train, sizes)):
            rate = job.rate * schedule(epoch * steps_per_epoch + number, total)
            for group in optimizer.param_groups:
                group["lr"] = rate
            with autocast(device):
                found = loss_of(model(tokens), model.vectors(), model.bias, targets)
            optimizer.zero_grad()
            found.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        losses.append(evaluate(model, validation, sizes))
    measured = {"test_perplexity": ""}
    if job.tested:
        test = torch.from_numpy(corpus.test).to(device)
        measured["test_perplexity"] = perplexity(evaluate(model, test, sizes))
    return {
        **asdict(job),
        "table_parameters": parameters(model.table),
        "ngram_parameters": parameters(model.ngrams) if model.ngrams else 0,
        "parameters": parameters(model),
        "start_loss": round(losses[0], 3),
        "perplexity_by_epoch": " ".join(str(perplexity(found)) for found in losses[1:]),
        "validation_perplexity": perplexity(losses[-1]),
        **measured,
        "seconds": round(time.perf_counter() - begin, 1),
    }


def batches(ids: Tensor, sizes: Sizes):
    """Windows in random order, from a random place on: (tokens, targets), each (batch, length)."""
    length = sizes.length
    offset = int(torch.randint(0, length, ()))
    count = (len(ids) - 1 - offset) // length
    starts = (offset + length * torch.randperm(count)).to(ids.device)
    inside = torch.arange(length + 1, device=ids.device)
    for i in range(0, count - sizes.batch + 1, sizes.batch):
        windows = ids[starts[i : i + sizes.batch, None] + inside]
        yield windows[:, :-1], windows[:, 1:]


def loss(hidden: Tensor, vectors: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of the next words, which are scored by their vectors.

    Impossible words fill up the vocabulary to a multiple of 64, which suits a GPU's matrix units.
    """
    more = -len(vectors) % 64
    bias = F.pad(bias, (0, more), value=float("-inf"))
    logits = F.linear(hidden.flatten(0, 1), F.pad(vectors, (0, 0, 0, more)), bias)  # (N, V + more)
    return F.cross_entropy(logits.float(), targets.flatten())


_compiled = None


def compiled_loss():
    """One kernel instead of several that write the logits of all words."""
    global _compiled
    if _compiled is None:
        _compiled = torch.compile(loss, dynamic=False)
    return _compiled


@torch.no_grad()
def evaluate(model: LanguageModel, ids: Tensor, sizes: Sizes) -> float:
    """Mean loss over windows side by side; every token but the first is predicted once."""
    model.eval()
    vectors = model.vectors().float()
    total, length = 0.0, sizes.length
    count = len(ids) - 1
    whole = count // length * length
    pieces = list(ids[:whole].view(-1, length).split(sizes.batch))
    targets = list(ids[1 : whole + 1].view(-1, length).split(sizes.batch))
    if whole < count:
        pieces.append(ids[None, whole:-1])
        targets.append(ids[None, whole + 1 :])
    for tokens, nexts in zip(pieces, targets, strict=True):
        with autocast(ids.device.type):
            hidden = model(tokens)
        total += float(loss(hidden.float(), vectors, model.bias, nexts)) * nexts.numel()
    return total / count


def perplexity(found: float) -> float:
    return round(math.exp(min(found, 20.0)), 2)


def make_optimizer(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    """AdamW. Matrices decay; biases, normalisations and importance weights do not."""
    decaying = {
        name: parameter
        for name, parameter in model.named_parameters()
        if parameter.dim() > 1 and not name.endswith("importance")
    }
    others = [p for name, p in model.named_parameters() if name not in decaying]
    groups = [
        {"params": list(decaying.values()), "weight_decay": 0.01},
        {"params": others, "weight_decay": 0.0},
    ]
    fused = next(model.parameters()).is_cuda
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), fused=fused)


def schedule(step: int, total: int) -> float:
    """A rise over a twentieth of the steps, then a cosine to zero."""
    rise = max(1, total // 20)
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - rise) / max(1, total - rise))))


def autocast(device: str) -> torch.autocast:
    kind = torch.device(device).type
    return torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda")


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def count_ngrams(ids: np.ndarray, longest: int, vocabulary: int) -> list[int]:
    """How many distinct 1-, 2-, ... grams a text has."""
    found, keys = [], ids.astype(np.int64) + 1
    for n in range(1, longest + 1):
        found.append(len(np.unique(keys)))
        keys = keys[:-1] * (vocabulary + 1) + ids[n:] + 1 if len(keys) > 1 else keys[:0]
    return found
