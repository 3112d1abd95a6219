"""The PyTorch side: layers that stand in for `nn.Embedding` and `nn.EmbeddingBag`."""

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
