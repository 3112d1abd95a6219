"""Maps keys to importance rows and buckets, predicts collisions, and chooses table sizes.

In: keys (int64), or words and ids to make keys of. Out: rows and buckets, `Bags` of keys, sizes.
May import: core. `spec.py` is the specification that every other implementation is tested against.
"""

from hashembed.hashing.spec import HashSpec, id_keys, word_key

__all__ = ["HashSpec", "id_keys", "word_key"]
