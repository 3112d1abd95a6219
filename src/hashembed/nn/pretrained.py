"""Fits a hash layer to a table that exists already, by alternating least squares.

    minimise  sum over ids w of  | T[w] - sum_i P[row(w), i] E[bucket_i(w)] |^2

Given E, each row of P is a least squares problem with k unknowns. Given P, the problem is linear in
E: A E = T, where A has k numbers in each row. A few steps of conjugate gradients improve E. All
sums have one order, so the result is the same in every run.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hashembed.core.checks import whole_number
from hashembed.core.tables import html_table
from hashembed.hashing.spec import HashSpec
from hashembed.nn.inputs import check_ids
from hashembed.nn.layer_protocol import HashLayer
from hashembed.nn.ops import indexing
from hashembed.nn.owners import owner_of

Layer = TypeVar("Layer")

_STEPS = 5  # of conjugate gradients in a sweep
_STEPS_ALONE = 60  # where E is all there is to find
_ENOUGH = 1e-3  # stop when five sweeps lower the error by less than this part of it
_PIECE = 2**16  # ids whose components are in memory at a time
_RIDGE = 1e-6  # of the diagonal: an id may have one bucket twice
_FAR = 0.5  # relative error that is worth a warning
_QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class TableFit:
    """How far the vectors of a layer are from the rows of the table that it was fitted to."""

    ids: int
    parameters: int  # of the layer
    table_parameters: int
    relative_error: float  # |T - vectors| / |T|, Frobenius norms
    mean_cosine: float  # between a row and its vector; rows of zeros do not count
    row_errors: tuple[float, float, float]  # quantiles 5%, 50%, 95% of |row - vector| / |row|
    row_cosines: tuple[float, float, float]  # the same quantiles
    sweeps: int

    def _rows(self) -> list[tuple[str, str]]:
        low, middle, high = (f"{100 * q:.0f}%" for q in _QUANTILES)
        return [
            ("ids", f"{self.ids:,}"),
            ("numbers of the table", f"{self.table_parameters:,}"),
            ("numbers of the layer", f"{self.parameters:,}"),
            ("relative error", f"{self.relative_error:.3f}"),
            ("mean cosine", f"{self.mean_cosine:.3f}"),
            (f"error of a row ({low}, {middle}, {high})", _listed(self.row_errors)),
            (f"cosine of a row ({low}, {middle}, {high})", _listed(self.row_cosines)),
            ("sweeps", str(self.sweeps)),
        ]

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self._rows())
        return "\n".join(f"{name:<{width}}  {value}" for name, value in self._rows())

    def _repr_html_(self) -> str:
        return html_table(("fit of a table", ""), self._rows())


def _listed(numbers: tuple[float, ...]) -> str:
    return ", ".join(f"{number:.3f}" for number in numbers)


def layer_for(
    cls: Callable[..., Layer], table: Tensor, ids: Tensor | None, options: dict[str, Any]
) -> Layer:
    """An untrained layer with room for a table."""
    _check_table(table)
    made: dict[str, Any] = {
        "num_embeddings": len(table),
        "indexing": "identity" if ids is None else "independent",
        "device": table.device,
        "dtype": table.dtype,
        "seed": 0,
        **options,
    }
    if made.get("aggregation", "sum") != "sum" or made.get("append_importance"):
        raise ValueError(
            'from_pretrained needs aggregation="sum" and append_importance=False: the vectors have '
            "the width of the table"
        )
    return cls(embedding_dim=table.shape[1], **made)


@runtime_checkable
class TrainedVectors(Protocol):
    """What `from_pretrained` needs of `WordVectors`."""

    @property
    def vectors(self) -> Any:
        """The vectors (V, d) of all words, the most frequent first."""

    def layer_tables(self) -> tuple[HashSpec, Any, Any]:
        """The hash, E (B, d) and P (K, k)."""


def table_of(vectors: Any) -> Any:
    """The vectors of all words as a tensor; anything else as it is."""
    if isinstance(vectors, TrainedVectors):
        return torch.from_numpy(np.array(vectors.vectors, np.float32))
    return vectors


@torch.no_grad()
def bag_layer(cls: Callable[..., Layer], vectors: TrainedVectors, options: dict[str, Any]) -> Layer:
    """A layer of bags that computes the vectors of words from their keys."""
    spec, E, P = vectors.layer_tables()
    fixed = {"num_embeddings", "num_buckets", "num_hashes", "indexing", "seed", "mode", "columns"}
    fixed |= {"embedding_dim", "aggregation", "append_importance", "importance", "ids", "sweeps"}
    if wrong := sorted(fixed & options.keys()):
        raise TypeError(f"word vectors determine {', '.join(wrong)}: leave it out")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of tables that save nothing: they exist
        layer: Any = cls(
            num_embeddings=spec.num_embeddings,
            embedding_dim=E.shape[1],
            num_buckets=spec.num_buckets,
            num_hashes=spec.num_hashes,
            indexing=spec.indexing,
            seed=spec.seed,
            mode="mean",
            **options,
        )
    layer.weight.copy_(torch.from_numpy(np.array(E, np.float32)))
    layer.importance.copy_(torch.from_numpy(np.array(P, np.float32)))
    made: Layer = layer
    return made


def warn_if_far(fit: TableFit, num_buckets: int, num_hashes: int) -> None:
    """Say so where a layer is too small for its table."""
    if fit.relative_error > _FAR:
        warnings.warn(
            f"the vectors of the layer are far from the table: relative error "
            f"{fit.relative_error:.2f}, median cosine {fit.row_cosines[1]:.2f}. Use more "
            f"num_buckets (found {num_buckets:,}) or num_hashes (found {num_hashes}), "
            "or train the layer further",
            UserWarning,
            stacklevel=3,
        )


def _check_table(table: Tensor) -> None:
    if not isinstance(table, Tensor) or not table.is_floating_point() or table.dim() != 2:
        found = (
            f"{table.dtype} of shape {tuple(table.shape)}"
            if isinstance(table, Tensor)
            else (type(table).__name__)
        )
        raise TypeError(f"table must be a floating point tensor (n, d), found {found}")
    if table.numel() == 0 or not bool(torch.isfinite(table).all()):
        raise ValueError("table must hold at least one row, and finite numbers only")


@torch.no_grad()
def fit(
    layer: HashLayer,
    table: Tensor,
    ids: Tensor | None,
    columns: Tensor | int | None,
    sweeps: int,
) -> TableFit:
    """`HashEmbedding.fit_table`."""
    _check_table(table)
    whole_number("sweeps", sweeps, 1, 10**6)
    if layer.output_dim != table.shape[1] or layer.append_importance or layer.aggregation != "sum":
        raise ValueError(
            f'table must be as wide as the vectors of a layer with aggregation="sum" and without '
            f"append_importance: found {table.shape[1]} columns for output_dim={layer.output_dim}"
        )
    here = layer.weight.device
    ids = torch.arange(len(table)) if ids is None else check_ids("ids", ids)
    if ids.shape != table.shape[:1]:
        raise ValueError(
            f"ids must be one for each row of the table, ({len(table)},), found {tuple(ids.shape)}"
        )
    ids, T = ids.to(here), table.to(here, torch.float32)
    keys = layer._all_keys(ids, columns)
    if layer.padding_idx is not None:
        kept = ids != layer.padding_idx
        keys, T = keys[kept], T[kept]
    if len(T) == 0:
        raise ValueError("table holds no row but that of padding_idx")
    rows, buckets = indexing.rows_and_buckets(keys, layer._current_seeds(), layer.spec)
    problem = _Problem(T, rows, buckets, layer)
    done = problem.solve(sweeps)
    for parameter, value in ((layer.weight, problem.E), (layer.importance, problem.P)):
        if parameter is not None and value is not None:
            parameter.copy_(value)
            owner = owner_of(parameter)
            if owner is not None:
                owner.discard_pending(parameter)
    numbers = sum(p.numel() for p in layer.parameters())
    # The errors are those of the layer as it is, rounded to its type.
    E = layer.weight.float()
    P = None if layer.importance is None else layer.importance.float()[rows]
    return _measure(T, _mixed(buckets, E, P), numbers, done)


def _measure(T: Tensor, vectors: Tensor, parameters: int, sweeps: int) -> TableFit:
    size, far = T.norm(dim=1), (T - vectors).norm(dim=1)
    some = size > 0
    cosines = F.cosine_similarity(T[some], vectors[some], dim=1)
    errors = far[some] / size[some]
    return TableFit(
        ids=len(T),
        parameters=parameters,
        table_parameters=T.numel(),
        relative_error=_ratio(far.double().norm(), size.double().norm()),
        mean_cosine=float(cosines.mean()) if len(cosines) else 1.0,
        row_errors=_quantiles(errors),
        row_cosines=_quantiles(cosines),
        sweeps=sweeps,
    )


def _ratio(part: Tensor, whole: Tensor) -> float:
    return float(part / whole) if float(whole) else float(part)


def _quantiles(values: Tensor) -> tuple[float, float, float]:
    if len(values) == 0:
        return 0.0, 0.0, 0.0
    ordered = values.sort().values  # torch.quantile takes at most 16 million numbers
    low, middle, high = (float(ordered[round(q * (len(values) - 1))]) for q in _QUANTILES)
    return low, middle, high


def _mixed(buckets: Tensor, E: Tensor, P: Tensor | None) -> Tensor:
    """sum_i P[w, i] E[buckets[w, i]], (n, d)."""
    return F.embedding_bag(buckets, E, mode="sum", per_sample_weights=P)


class _Groups:
    """Items sorted by the group that they belong to, to be summed group by group in one order."""

    def __init__(self, group: Tensor, count: int) -> None:
        self.order = torch.argsort(group, stable=True)
        sizes = torch.bincount(group, minlength=count)
        self.offsets = sizes.cumsum(0) - sizes

    def sum(self, values: Tensor, source: Tensor, factors: Tensor | None = None) -> Tensor:
        """sums of factors[item] * values[source[item]] over the items of each group."""
        weights = None if factors is None else factors[self.order]
        return F.embedding_bag(
            source[self.order], values, self.offsets, mode="sum", per_sample_weights=weights
        )


class _Problem:
    """The table, what its ids point to, and the E and P found so far."""

    def __init__(self, T: Tensor, rows: Tensor, buckets: Tensor, layer: HashLayer) -> None:
        self.T, self.rows, self.buckets = T, rows, buckets
        n, k = buckets.shape
        self.ids = torch.arange(n, device=T.device)
        self.by_bucket = _Groups(buckets.reshape(-1), layer.num_buckets)
        self.of_item = self.ids.repeat_interleave(k)  # items are (id, i)
        self.E = torch.zeros(layer.num_buckets, T.shape[1], device=T.device)
        self.P: Tensor | None = None
        if layer.importance is not None:
            self.by_row = _Groups(rows, layer.num_embeddings)
            generator = torch.Generator().manual_seed(layer.seed)
            P = torch.randn(layer.num_embeddings, k, generator=generator)
            self.P = P.to(T.device)

    def solve(self, sweeps: int) -> int:
        """Find E and P -> the number of sweeps."""
        if self.P is None:
            self._improve_E(_STEPS_ALONE)
            return 1
        before = float("inf")
        for sweep in range(1, sweeps + 1):
            self._improve_E(_STEPS)
            self._solve_P()
            if sweep % 5 == 0:
                error = float((self.T - _mixed(self.buckets, self.E, self.P[self.rows])).norm())
                if error > (1 - _ENOUGH) * before:
                    break
                before = error
        scale = self.P[self.rows].square().mean().sqrt()  # weights near one
        if scale > 0:
            self.P, self.E = self.P / scale, self.E * scale
        return sweep

    def _improve_E(self, steps: int) -> None:
        """Conjugate gradients on A'A E = A'T, for all columns of E at once."""
        p = None if self.P is None else self.P[self.rows]
        factors = None if p is None else p.reshape(-1)

        def transposed(values: Tensor) -> Tensor:
            return self.by_bucket.sum(values, self.of_item, factors)

        ones = torch.ones(len(self.T), 1, device=self.T.device)
        squares = None if factors is None else factors.square()
        diagonal = self.by_bucket.sum(ones, self.of_item, squares).clamp(min=1e-12)  # (B, 1)
        residual = transposed(self.T - _mixed(self.buckets, self.E, p))
        step = direction = residual / diagonal
        product = (residual * step).sum(0)  # (d,)
        for _ in range(steps):
            image = _mixed(self.buckets, direction, p)
            length = product / image.square().sum(0).clamp(min=1e-30)
            self.E = self.E + length * direction
            residual = residual - length * transposed(image)
            step = residual / diagonal
            last, product = product, (residual * step).sum(0)
            direction = step + product / last.clamp(min=1e-30) * direction

    def _solve_P(self) -> None:
        """The weights of each row, given E. A row that no id has keeps its weights."""
        assert self.P is not None
        k = self.buckets.shape[1]
        parts = []
        pieces = torch.split(self.buckets, _PIECE), torch.split(self.T, _PIECE)
        for buckets, T in zip(*pieces, strict=True):
            C = self.E[buckets]  # (m, k, d)
            products = C @ torch.cat([C, T.unsqueeze(1)], 1).transpose(1, 2)  # (m, k, k + 1)
            parts.append(products.flatten(1))
        G = self.by_row.sum(torch.cat(parts), self.ids).view(-1, k, k + 1)
        matrix, right = G[:, :, :k].contiguous(), G[:, :, k].contiguous()
        diagonal = matrix.diagonal(dim1=1, dim2=2)
        diagonal += _RIDGE * diagonal.mean(1, keepdim=True) + 1e-20
        found = _eliminate(matrix, right)
        used = torch.zeros(len(self.P), dtype=torch.bool, device=self.P.device)
        used[self.rows] = True
        self.P = torch.where(used.unsqueeze(1) & found.isfinite(), found, self.P)


def _eliminate(matrix: Tensor, right: Tensor) -> Tensor:
    """Solutions (K, k) of many small positive definite systems (K, k, k), without pivoting."""
    k = matrix.shape[1]
    for i in range(k):
        for j in range(i + 1, k):
            factor = (matrix[:, j, i] / matrix[:, i, i]).unsqueeze(1)
            matrix[:, j, i:] -= factor * matrix[:, i, i:]
            right[:, j] -= factor[:, 0] * right[:, i]
    found = torch.zeros_like(right)
    for i in reversed(range(k)):
        rest = (matrix[:, i, i + 1 :] * found[:, i + 1 :]).sum(1)
        found[:, i] = (right[:, i] - rest) / matrix[:, i, i]
    return found
