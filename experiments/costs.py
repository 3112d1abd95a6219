"""What a method takes: parameters and seconds of training, as columns of tables."""

import statistics


def parameters(methods: list[list[dict]]) -> str:
    """In millions, one number for each method that has run, blanks for the others."""
    return _joined(
        [f"{runs[0]['metrics']['parameters'] / 1e6:.3g}" if runs else "" for runs in methods]
    )


def seconds(methods: list[list[dict]], digits: int = 1) -> str:
    """The median time of training, from runs on a quiet machine alone."""
    quiet = [[run["metrics"]["train_seconds"] for run in runs if run["quiet"]] for runs in methods]
    return _joined([f"{statistics.median(times):.{digits}f}" if times else "" for times in quiet])


def _joined(cells: list[str]) -> str:
    return " / ".join(cell or "–" for cell in cells) if any(cells) else ""
