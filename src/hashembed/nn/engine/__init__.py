"""The torch engine: a bag of hash vectors under any number of hidden layers, on any device.

`model.py` has `DeepModel`, `network.py` its layers. On a GPU `transfer.py` copies documents,
`prepare.py` prefetches batches, `graph.py` runs the steps, and `fused.py` (shallow models) or
`head.py` (all others) trains on a batch. `hashembed.nn.gpu` defines the terms of the GPU code.
docs/how-it-works/gpu-step.md follows one step from start to end.
"""

from hashembed.core.lazy import lazy_names

__all__ = ["DeepModel", "load_deep", "save_deep"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "DeepModel": "hashembed.nn.engine.model",
        "load_deep": "hashembed.nn.engine.file",
        "save_deep": "hashembed.nn.engine.file",
    },
)
