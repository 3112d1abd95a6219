"""Word vectors in classification: learned from unlabelled text, used where labels are few.

In: texts, labels, `WordVectors`. Out: features of documents, and a part of a classifier whose
logits are added to those of its n-grams. May import: all rooms up to `vectors`.
"""
