"""The torch engine: a bag of hash vectors under any number of hidden layers, on any device.

`model.py` has `DeepModel`, `network.py` its layers. On a GPU `transfer.py` copies documents,
`prepare.py` makes batches in advance, `graph.py` runs the steps, `fused.py` (shallow models) and
`head.py` (all others) train on a batch. `hashembed.nn.gpu` explains the words of the GPU code,
docs/how-it-works/gpu-step.md tells the way of one step.
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
