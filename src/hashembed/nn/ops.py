"""The two operations behind the layers; one place that picks an implementation by device.

Keys come from `hashembed.nn.indexing.id_keys`, from the text pipeline, or are dictionary ranks
(`identity`). Bags are in CSR form: `offsets` has one entry more than there are bags.
"""

from hashembed.nn.reference import hash_embedding, hash_embedding_bag

__all__ = ["hash_embedding", "hash_embedding_bag"]
