"""Small models: folds, prunes and codes a trained classifier until it has the size that is wanted.

With texts (`student.py`), everything the model knows about their n-grams becomes one table, in as
few numbers for each n-gram as the classes need. Without texts (`tables.py`), the tables stay, with
fewer numbers and coarser codes. `coding.py` decides which rows are kept, and how finely.
"""

from hashembed.classify.compress.compressing import compress

__all__ = ["compress"]
