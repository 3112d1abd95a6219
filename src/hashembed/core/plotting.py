"""Figures: the one place that imports matplotlib, which is optional."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(what: str, width: float, height: float) -> "Figure":
    """An empty figure of this size in inches; `what` names the subject if matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        message = f'drawing {what} needs matplotlib: pip install "hashembed[plot]"'
        raise ImportError(message) from None
    return Figure(figsize=(width, height), layout="constrained")
