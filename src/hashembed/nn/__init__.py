"""Everything that needs PyTorch: the layers, their optimizers, and the torch engine.

In: tensors of ids or keys. Out: vectors, gradients, trained models.
May import: core, hashing, text, readers, engine.
"""

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        'this part of hashembed needs PyTorch: pip install "hashembed[torch]"'
    ) from error

from hashembed.nn import optim
from hashembed.nn.layers import HashEmbedding, HashEmbeddingBag
from hashembed.nn.replace import Replacement, replace_embeddings

__all__ = ["HashEmbedding", "HashEmbeddingBag", "Replacement", "optim", "replace_embeddings"]
