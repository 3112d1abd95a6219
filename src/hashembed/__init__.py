"""Hash embeddings: embedding tables that stay small and take any token.

Importing this package does not import torch. The layers import it on first use. If torch is
missing, the error names the command that installs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hashembed.classify.classifier import TextClassifier
    from hashembed.classify.vectorizer import TextVectorizer
    from hashembed.hashing.planner import plan
    from hashembed.hashing.spec import HashSpec
    from hashembed.nn import HashEmbedding, HashEmbeddingBag, optim, replace_embeddings
    from hashembed.text.string_keys import keys
    from hashembed.vectors.word_vectors import WordVectors

__version__ = "0.1.0"

__all__ = [
    "HashEmbedding",
    "HashEmbeddingBag",
    "HashSpec",
    "TextClassifier",
    "TextVectorizer",
    "WordVectors",
    "keys",
    "optim",
    "plan",
    "replace_embeddings",
]

_HOMES = {
    "HashEmbedding": "hashembed.nn",
    "HashEmbeddingBag": "hashembed.nn",
    "HashSpec": "hashembed.hashing",
    "TextClassifier": "hashembed.classify.classifier",
    "TextVectorizer": "hashembed.classify.vectorizer",
    "WordVectors": "hashembed.vectors.word_vectors",
    "keys": "hashembed.text.string_keys",
    "optim": "hashembed.nn",
    "plan": "hashembed.hashing.planner",
    "replace_embeddings": "hashembed.nn",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hashembed' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
