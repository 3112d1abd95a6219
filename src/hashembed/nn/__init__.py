"""Everything that needs PyTorch: the layers, their optimizers, and the torch engine.

In: tensors of ids or keys. Out: vectors, gradients, trained models.
May import: core, hashing, text, readers, engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashembed.nn import optim
    from hashembed.nn.layers import HashEmbedding, HashEmbeddingBag
    from hashembed.nn.replace import Replacement, replace_embeddings

__all__ = ["HashEmbedding", "HashEmbeddingBag", "Replacement", "optim", "replace_embeddings"]

_HOMES = {
    "HashEmbedding": "hashembed.nn.layers",
    "HashEmbeddingBag": "hashembed.nn.layers",
    "Replacement": "hashembed.nn.replace",
    "optim": "hashembed.nn.optim",
    "replace_embeddings": "hashembed.nn.replace",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'this part of hashembed needs PyTorch: pip install "hashembed[torch]"'
        ) from error
    module = import_module(_HOMES[name])
    return module if name == "optim" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
