"""What an engine is, the loop that trains it, and the shallow engine.

In: `Bags` and `Labels`. Out: a trained engine, its history, its files.
May import: core, hashing, text.
"""

from hashembed.core.lazy import lazy_names

__all__ = ["Labels", "TrainConfig", "fit"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Labels": "hashembed.engine.labels",
        "TrainConfig": "hashembed.engine.defaults",
        "fit": "hashembed.engine.loop",
    },
)
