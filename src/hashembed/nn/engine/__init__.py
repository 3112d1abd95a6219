"""The torch engine: a bag of hash vectors under any number of hidden layers, on any device."""

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
