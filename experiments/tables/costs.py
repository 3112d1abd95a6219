"""The cost of a method, as columns of tables: parameters and seconds of training."""

import statistics


def parameters(methods: list[list[dict]]) -> str:
    """Millions of parameters of each method; a dash for those that have not run."""
    return _joined(
        [f"{runs[0]['metrics']['parameters'] / 1e6:.3g}" if runs else "" for runs in methods]
    )


def seconds(methods: list[list[dict]], digits: int = 1) -> str:
    """The median time of training; only runs on a quiet machine count."""
    quiet = [[run["metrics"]["train_seconds"] for run in runs if run["quiet"]] for runs in methods]
    return _joined([f"{statistics.median(times):.{digits}f}" if times else "" for times in quiet])


def _joined(cells: list[str]) -> str:
    return " / ".join(cell or "–" for cell in cells) if any(cells) else ""
