"""Real clusters on this machine: one head and other nodes, each a raylet of its own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

STORE = 96 << 20  # bytes of the object store of a node


@contextmanager
def cluster_of(*cores: int) -> Iterator[Cluster]:
    """A cluster whose nodes have so many cores; Python is connected to it."""
    root = str(Path(__file__).parents[2])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, before]))  # of the workers
    os.environ["RAY_DATA_DISABLE_PROGRESS_BARS"] = "1"
    cluster = Cluster()
    try:
        for number in cores:
            cluster.add_node(num_cpus=number, object_store_memory=STORE)
        ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
        cluster.wait_for_nodes()
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
