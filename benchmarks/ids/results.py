"""From the runs to the result files: one row for a cell, means over the seeds."""

from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev

from benchmarks.ids.models import DIM
from benchmarks.ids.pool import read_runs
from benchmarks.machine import RESULTS, machine, table

CELL = ("task", "model", "method", "fields", "fraction")


def write_tables(folder: Path) -> None:
    """ids.csv: test rows; ids_init.csv: initial values on validation rows; ids_speed.csv: steps."""
    where = next(read_runs(folder / "machine.jsonl"), machine())
    for name, rows in (
        ("ids.csv", cells(read_runs(folder / "final.jsonl"))),
        ("ids_init.csv", initial_values(read_runs(folder / "search.jsonl"))),
        ("ids_speed.csv", list(read_runs(folder / "speed.jsonl"))),
    ):
        with table(RESULTS / name, [c for c in rows[0] if c not in where]) as add:
            for row in rows:
                add({**where, **row})


def cells(records: Iterable[dict]) -> list[dict]:
    """Means and standard deviations of the test rows over the seeds.

    A run may say itself on which machine it was made.
    """
    groups: dict[tuple, list[dict]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in CELL), []).append(record)
    rows = []
    for key, runs in sorted(groups.items()):
        first = runs[0]
        losses, areas = ([run[name] for run in runs] for name in ("test_loss", "test_auc"))
        ranking = first["task"].endswith("ranking")
        rows.append(
            {
                **dict(zip(CELL, key, strict=True)),
                "parameters": first["params"],
                "dim": DIM,
                "rate": first["rate"],
                "variant": "; ".join(f"{name} {value}" for name, value in first["variant"].items()),
                "seeds": len(runs),
                "rmse": "" if ranking else round(mean(losses), 5),
                "rmse_std": "" if ranking or len(runs) < 2 else round(stdev(losses), 5),
                "auc": round(mean(areas), 5),
                "auc_std": round(stdev(areas), 5) if len(runs) > 1 else "",
                "passes": round(mean(run["round"] for run in runs) / 2, 2),
                **first.get("machine", {}),
            }
        )
    return rows


def initial_values(records: Iterable[dict]) -> list[dict]:
    """The best of the rates for each initial value of the hash embedding, on validation rows."""
    best: dict[tuple, dict] = {}
    for record in records:
        if record["method"] != "hash embedding" or set(record["variant"]) != {"init"}:
            continue
        key = record["task"], record["model"], tuple(record["variant"]["init"])
        if record["loss"] < best.get(key, {"loss": float("inf")})["loss"]:
            best[key] = record
    return [
        {
            "task": task,
            "model": model,
            "fraction": record["fraction"],
            "E_std": E,
            "P_mean": P,
            "P_std": std,
            "rate": record["rate"],
            "valid_rmse": "" if task.endswith("ranking") else round(record["loss"], 5),
            "valid_auc": round(record["auc"], 5),
            **record.get("machine", {}),
        }
        for (task, model, (E, P, std)), record in sorted(best.items())
    ]
