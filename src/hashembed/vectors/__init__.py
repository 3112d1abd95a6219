"""Word vectors, learned from text without labels: `WordVectors`.

In: text, or files of vectors. Out: a vector for any word; nearest words, analogies, model files.
May import: all rooms before it (core, hashing, text, readers, engine, nn).
"""

from hashembed.core.lazy import lazy_names

__all__ = ["WordVectors"]

__getattr__, __dir__ = lazy_names(__name__, {"WordVectors": "hashembed.vectors.word_vectors"})
