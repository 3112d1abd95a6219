"""Replaces the large embedding tables of any model with hash layers."""

import warnings
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import torch
from torch import nn

from hashembed.core.checks import whole_number
from hashembed.hashing.spec import murmur3_32
from hashembed.nn.layers import HashEmbedding, HashEmbeddingBag
from hashembed.nn.table_list import HashTables, tables_in

Table = nn.Embedding | nn.EmbeddingBag


@dataclass
class Replacement:
    """What `replace_embeddings` did; printing it shows a table."""

    replaced: list[tuple[str, int, int]] = field(default_factory=list)  # name, before, after
    skipped: list[tuple[str, str]] = field(default_factory=list)  # name, reason
    total_before: int = 0
    total_after: int = 0

    def __str__(self) -> str:
        rows = [(name, f"{b:,}", f"{a:,}", f"{b / a:.1f}x") for name, b, a in self.replaced]
        shrink = f"{self.total_before / max(self.total_after, 1):.1f}x"
        rows.append(
            ("whole model", f"{self.total_before:,}", f"{self.total_after:,}", shrink),
        )
        head = ("table", "before", "after", "smaller")
        widths = [max(len(row[i]) for row in [head, *rows]) for i in range(4)]
        lines = [
            f"{row[0]:<{widths[0]}}  " + "  ".join(f"{row[i]:>{widths[i]}}" for i in (1, 2, 3))
            for row in [head, *rows]
        ]
        return "\n".join(lines + [f"left {name}: {reason}" for name, reason in self.skipped])


def replace_embeddings(
    model: nn.Module,
    *,
    min_parameters: int = 1_000_000,
    num_buckets: int | None = None,
    num_hashes: int = 2,
    indexing: str = "identity",
    one_table: bool = False,
    **options: Any,
) -> Replacement:
    """Replace every large `nn.Embedding` and `nn.EmbeddingBag` of a model, in place.

    The new layers are untrained: no vectors are copied. But the numbers of their vectors have the
    mean and the standard deviation of the table's, unless `init` says otherwise. A table stays if a
    hash layer does not support its options or would not be smaller; the report gives the reason. If
    the weight of a table is tied to another module, the function raises an error and changes
    nothing.

    Args:
        model: the model to change.
        min_parameters: replace tables with at least this many parameters (default 1,000,000).
        num_buckets: B of each new layer. None (default) takes about a tenth of the table's rows.
        num_hashes: k of each new layer (default 2).
        indexing: "identity" (default) accepts the ids that the table accepts; "independent" accepts
            any int64.
        one_table: replace an `nn.ModuleList` or `nn.ModuleDict` of tables of one width by a single
            layer with a column for each (default False). Its members are still found by number or
            name, and the whole looks up all columns at once. `min_parameters` counts them together.
        **options: other arguments of `HashEmbedding`, except those that change the width of the
            vectors. Without a `seed`, the hash functions of a layer follow from its name in the
            model, and its initial values come from torch's global generator.

    Returns:
        A report with the number of parameters before and after.

    Example:
        >>> model = nn.Sequential(nn.Embedding(1_000_000, 64), nn.Linear(64, 2))
        >>> print(replace_embeddings(model))
        table            before      after  smaller
        0            64,000,000  8,399,936     7.6x
        whole model  64,000,130  8,400,066     7.6x
    """
    whole_number("min_parameters", min_parameters, 0, 2**63 - 1)
    if _is_table(model):
        raise ValueError(
            f"model is itself an {type(model).__name__} and cannot be swapped in place: "
            "build a HashEmbedding instead"
        )
    for name in ("append_importance", "aggregation"):
        if options.get(name, False) not in (False, "sum"):
            raise ValueError(f"{name} changes the width of the vectors: the model would not fit")

    options = {
        "num_buckets": num_buckets,
        "num_hashes": num_hashes,
        "indexing": indexing,
        **options,
    }
    report = Replacement(total_before=_count(model))
    made: dict[nn.Module, nn.Module] = {}
    groups = _plan_groups(model, min_parameters, options, report) if one_table else []
    for name, group in groups:
        layer = _shared_layer(list(tables_in(group)), options)
        made[group] = HashTables(layer, group)
        if options.get("seed") is None:
            _hash_by_name(layer, name)
    grouped = {table for _, group in groups for table in group.children()}
    for name, table in _plan(model, min_parameters, options, report, grouped):
        made[table] = layer = _hash_layer(table, options)
        if options.get("seed") is None:
            _hash_by_name(layer, name)
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):  # children() would list a twin once
            if child in made:
                setattr(parent, name, made[child])
    report.total_after = _count(model)
    return report


def _plan_groups(
    model: nn.Module, min_parameters: int, options: dict[str, Any], report: Replacement
) -> list[tuple[str, nn.Module]]:
    """The lists and dictionaries of tables to replace by one layer each, with their names."""
    planned: list[tuple[str, nn.Module]] = []
    for name, group in model.named_modules():
        tables = tables_in(group)
        before = sum(table.weight.numel() for table in tables)
        if not tables or before < min_parameters or name == "":
            continue
        reason = next((why for table in tables if (why := _unsupported(table))), None)
        alike = {(type(table), str(_arguments(table, {}))) for table in tables}
        if reason is None and len(alike) > 1:
            reason = "its tables differ in width, type or options"
        if reason is None:
            for i, table in enumerate(tables):
                _refuse_tied(model, f"{name}.{i}", table)
            with warnings.catch_warnings(action="ignore"):
                meta = {**options, "device": "meta", "seed": 0}
                after = _count(_shared_layer(tables, meta))
            if after >= before:
                reason = f"a hash layer would have {after:,} parameters instead of {before:,}"
        if reason is not None:
            report.skipped.append((name, f"{reason}; its tables are treated one by one"))
            continue
        report.replaced.append((name, before, after))
        planned.append((name, group))
    return planned


def _plan(
    model: nn.Module,
    min_parameters: int,
    options: dict[str, Any],
    report: Replacement,
    grouped: set[nn.Module],
) -> list[tuple[str, Table]]:
    """The tables to replace, with their names; reports them and those that stay."""
    planned: list[tuple[str, Table]] = []
    for name, module in model.named_modules():
        if not _is_table(module) or module in grouped:
            continue
        before = module.weight.numel()
        if before < min_parameters:
            continue
        reason = _unsupported(module)
        if reason is None:
            _refuse_tied(model, name, module)
            with warnings.catch_warnings(action="ignore"):  # about layers that would be larger
                after = _count(_hash_layer(module, {**options, "device": "meta", "seed": 0}))
            if after >= before:
                reason = f"a hash layer would have {after:,} parameters instead of {before:,}"
            else:
                report.replaced.append((name, before, after))
                planned.append((name, module))
        if reason is not None:
            report.skipped.append((name, reason))
    return planned


def _is_table(module: nn.Module) -> TypeGuard[Table]:
    return isinstance(module, Table) and not isinstance(module, HashEmbedding)


def _hash_by_name(layer: HashEmbedding, name: str) -> None:
    """Choose the hash by the table's name: the same in every run, different for every table."""
    layer._set_hash(replace(layer.spec, seed=murmur3_32(name.encode(), 0)))


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _unsupported(module: Table) -> str | None:
    """Why this table must stay as it is, or None."""
    if type(module) not in (nn.Embedding, nn.EmbeddingBag):
        return f"{type(module).__name__} may do more than look up rows"
    if not module.weight.requires_grad:
        return "its weight is frozen, and a hash layer's would have to be learned"
    if module.max_norm is not None:
        return "max_norm is set, which a hash layer does not have"
    if module.scale_grad_by_freq:
        return "scale_grad_by_freq is set, which a hash layer does not have"
    if getattr(module, "mode", "sum") == "max":
        return 'mode="max", which a hash layer does not have'
    return None


def _refuse_tied(model: nn.Module, name: str, table: Table) -> None:
    storage = table.weight.untyped_storage().data_ptr()
    for other_name, other in model.named_modules():
        if other is table:
            continue
        for parameter_name, parameter in other.named_parameters(recurse=False):
            same = parameter.untyped_storage().data_ptr() == storage and storage != 0
            if parameter is table.weight or same:
                raise ValueError(
                    f"{name}.weight is tied to {other_name}.{parameter_name}: a hash layer has no "
                    "such matrix to share. Untie them first (give the other module its own "
                    "parameter; Hugging Face: config.tie_word_embeddings = False) or leave "
                    "this table out by min_parameters"
                )


def _arguments(table: Table, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a hash layer that can take the place of `table`, without its sizes."""
    arguments: dict[str, Any] = {
        "embedding_dim": table.embedding_dim,
        "padding_idx": table.padding_idx,
        "sparse": table.sparse,
        "device": table.weight.device,
        "dtype": table.weight.dtype,
        **options,
    }
    if isinstance(table, nn.EmbeddingBag):
        arguments["mode"] = table.mode
        arguments["include_last_offset"] = table.include_last_offset
    return arguments


def _hash_layer(table: Table, options: dict[str, Any]) -> HashEmbedding:
    """An untrained hash layer that can take the place of `table`."""
    arguments = {"init": _scale([table]), **_arguments(table, options)}
    layer = HashEmbeddingBag if isinstance(table, nn.EmbeddingBag) else HashEmbedding
    return layer(table.num_embeddings, **arguments).train(table.training)


def _shared_layer(tables: list[Table], options: dict[str, Any]) -> HashEmbedding:
    """An untrained hash layer with a column for each of the tables."""
    sizes = [table.num_embeddings for table in tables]
    columns = sizes if options["indexing"] == "identity" else len(sizes)
    arguments = {"init": _scale(tables), "columns": columns, **_arguments(tables[0], options)}
    layer = HashEmbeddingBag if isinstance(tables[0], nn.EmbeddingBag) else HashEmbedding
    return layer(sum(sizes), **arguments).train(tables[0].training)


@torch.no_grad()
def _scale(tables: list[Table]) -> tuple[float, float]:
    """Mean and standard deviation of the numbers of tables, without the row for padding."""
    if any(table.weight.is_meta for table in tables):
        return 0.0, 1.0  # as nn.Embedding begins
    count, total, squares = 0, 0.0, 0.0
    for table in tables:
        for first in range(
            0, table.num_embeddings, 2**16
        ):  # a part at a time: no second table in memory
            part = table.weight[first : first + 2**16].double()
            count, total = count + part.numel(), total + float(part.sum())
            squares += float(part.square().sum())
        if table.padding_idx is not None:
            row = table.weight[table.padding_idx].double()
            count, total = count - row.numel(), total - float(row.sum())
            squares -= float(row.square().sum())
    if count == 0:
        return 0.0, 1.0
    mean = total / count
    return mean, max(squares / count - mean**2, 0.0) ** 0.5
