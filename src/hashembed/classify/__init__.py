"""`TextClassifier`: labels, metrics, model files, streams, explanations.

In: texts and labels in any common form. Out: predictions, evaluations, explanations, model files.
May import: all rooms but cli.
"""

from hashembed.core.lazy import lazy_names

__all__ = ["TextClassifier", "compare"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "TextClassifier": "hashembed.classify.classifier",
        "compare": "hashembed.classify.comparing",
    },
)
