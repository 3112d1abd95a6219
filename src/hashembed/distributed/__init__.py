"""Corpora and predictions that no single machine holds, on a Ray cluster.

    import ray, hashembed.distributed as hd
    ds = ray.data.read_parquet("s3://corpus/")
    clf = hd.fit(TextClassifier(), ds, text="text", label="label", storage="s3://runs/one")
    hd.predict(clf, ds, text="text", keep=["id"]).write_parquet("s3://answers/")

In: Ray datasets with a column of texts. Out: classifiers, dictionaries, measures, and Ray datasets
of answers, the same bits as on one machine. All nodes make keys, count and predict; one node
trains. Needs `pip install "hashembed[ray]"` on every node. May import: every room but cli and web.
"""

from hashembed.core.lazy import lazy_names

__all__ = [
    "choose",
    "count_dictionary",
    "evaluate",
    "fit",
    "fit_members",
    "important_ngrams",
    "predict",
    "read",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "choose": "hashembed.distributed.choosing",
        "count_dictionary": "hashembed.distributed.dictionary",
        "evaluate": "hashembed.distributed.answers",
        "fit": "hashembed.distributed.training",
        "fit_members": "hashembed.distributed.members",
        "important_ngrams": "hashembed.distributed.words",
        "predict": "hashembed.distributed.answers",
        "read": "hashembed.distributed.reading",
    },
)
