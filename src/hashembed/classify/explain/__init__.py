"""Why a text got its class, and which n-grams matter most over a corpus."""

from hashembed.core.lazy import lazy_names

__all__ = ["explain_text", "important_ngrams"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "explain_text": "hashembed.classify.explain.text",
        "important_ngrams": "hashembed.classify.explain.corpus",
    },
)
