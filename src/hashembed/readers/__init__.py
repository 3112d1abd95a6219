"""From files to Arrow columns of labels and texts.

    data = read("train.csv")
    print(data.report)
    TextClassifier().fit(data.texts, data.labels)

In: paths of CSV, TSV, JSON lines, Parquet, fastText files and folders. Out: `LabelledText`, and a
report of what was found, repaired and skipped. May import: core, hashing, text.
"""

from hashembed.core.lazy import lazy_names

__all__ = [
    "FORMATS",
    "DataError",
    "LabelledText",
    "Problem",
    "Report",
    "no_texts",
    "read",
    "read_batches",
    "read_fasttext",
    "read_text_batches",
    "read_texts",
]

_FILES = "hashembed.readers.read_files"

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "FORMATS": "hashembed.readers.rows",
        "DataError": "hashembed.readers.report",
        "LabelledText": _FILES,
        "Problem": "hashembed.readers.report",
        "Report": "hashembed.readers.report",
        "no_texts": _FILES,
        "read": _FILES,
        "read_batches": _FILES,
        "read_fasttext": "hashembed.readers.formats.fasttext",
        "read_text_batches": _FILES,
        "read_texts": _FILES,
    },
)
