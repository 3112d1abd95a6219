"""The table and the plot of `collisions`: n-grams that share a row, or a vector, with another."""

from pathlib import Path

import numpy as np

from experiments.running.store import records
from experiments.tables.cells import drawing, markdown


def table(folder: Path) -> str:
    """With independent rows. With shared rows, n-grams with the same row have the same vector."""

    def pair(share: dict, key: str) -> str:
        return f"{100 * share[key]:.3f} / {100 * share[f'{key}_expected']:.3f}"

    rows, header = [], ["set", "distinct"]
    for run in records(folder, "collisions"):
        shares = _independent(run)
        header[2:] = [
            *(f"% same row, K = {s['K']:,}" for s in shares),
            f"% same vector, K = {shares[0]['K']:,}",
        ]
        found = [*(pair(s, "same_row") for s in shares), pair(shares[0], "same_vector")]
        rows.append([run["dataset"], f"{run['metrics']['vocabulary']:,}", *found])
    return markdown(header, rows)


def plot(folder: Path, path: Path) -> None:
    """Shares of n-grams that share a row, and their distance from the expected ones."""
    found: dict[int, list[tuple[float, float, float]]] = {}
    for run in records(folder, "collisions"):
        for s in _independent(run):
            crowded = run["metrics"]["vocabulary"] / s["K"]
            point = crowded, 100 * s["same_row"], 100 * s["same_row_expected"]
            found.setdefault(s["K"], []).append(point)
    if not found:
        return
    with drawing(path, (1, 2), (9, 3.5)) as (_, panels):
        left, right = panels[0]
        x = np.geomspace(0.01, 300, 200)
        left.plot(x, 100 * (1 - np.exp(-x)), color="0.6", label="expected")
        for K, points in found.items():
            crowded, counted, expected = np.transpose(points)
            left.plot(crowded, counted, "o", markersize=4, label=f"K = {K:,}")
            right.plot(crowded, counted - expected, "o", markersize=4)
        right.axhline(0, color="0.6")
        for axes in panels[0]:
            axes.set_xscale("log")
            axes.set_xlabel("distinct n-grams / K")
        left.set_ylabel("in the same row as another, %")
        right.set_ylabel("counted - expected, points")
        left.legend(fontsize="small")


def _independent(run: dict) -> list[dict]:
    return [s for s in run["metrics"]["shares"] if s["indexing"] == "independent"]
