"""From text to keys: words, n-grams, character n-grams; dictionaries and counts of n-grams.

In: anything that holds texts (Arrow, pandas, lists). Out: `Bags` of 64-bit keys.
May import: core, hashing.
"""

from hashembed.core.lazy import lazy_names

__all__ = ["Dictionary", "TextConfig", "text_to_bags"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Dictionary": "hashembed.text.dictionary",
        "TextConfig": "hashembed.text.config",
        "text_to_bags": "hashembed.text.pipeline",
    },
)
