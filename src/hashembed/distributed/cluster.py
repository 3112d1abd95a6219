"""Ray itself: importing it, the size of the cluster, errors of tasks."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hashembed.readers.report import DataError

ADDED = "\nFailed to "  # how Ray begins what it adds to messages, about its own settings


def load_ray() -> Any:
    """The module `ray`."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        message = 'hashembed.distributed needs Ray: pip install "hashembed[ray]"'
        raise ImportError(f"{message} ({error})") from None
    return ray


def connected() -> Any:
    """The module `ray`, connected to a cluster; it starts one on this machine if there is none."""
    ray = load_ray()
    if not ray.is_initialized():
        ray.init()
    return ray


def cluster_cores() -> int:
    """The number of cores of all nodes."""
    return max(1, int(load_ray().cluster_resources().get("CPU", 1)))


def largest_node() -> int:
    """The cores of the node with the most."""
    nodes = [node for node in load_ray().nodes() if node["Alive"]]
    return max([1, *(int(node["Resources"].get("CPU", 0)) for node in nodes)])


def node_count() -> int:
    """The number of nodes."""
    return sum(bool(node["Alive"]) for node in load_ray().nodes())


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise the error that a task raised, without the stack of the cluster, if it is ours."""
    ray = load_ray()
    try:
        yield
    except ray.exceptions.RayError as error:
        cause = _innermost(error)
        if isinstance(cause, DataError | ValueError | TypeError | ArithmeticError | OSError):
            if cause.args and isinstance(cause.args[0], str):
                cause.args = (cause.args[0].partition(ADDED)[0], *cause.args[1:])
            raise cause from None
        raise


def column_names(ds: Any) -> list[str]:
    """The columns of a dataset; its first rows may have to be read."""
    with plain_errors():
        return list(ds.columns() or [])


def _innermost(error: BaseException) -> BaseException:
    while True:
        cause = getattr(error, "cause", None) or error.__cause__
        if not isinstance(cause, BaseException):
            return error
        error = cause
