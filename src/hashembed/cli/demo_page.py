"""The page of the demonstration: a classifier that tells 16 languages apart, with examples."""

import os
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from hashembed.classify.classifier import TextClassifier
from hashembed.cli import demo_task as demo
from hashembed.web.facts import Accuracy
from hashembed.web.page import PageText, write_page

TITLE = "Which language is it?"
DESCRIPTION = (
    "A hash embedding of 0.6 million parameters tells 16 languages apart by words and by letters "
    "in a row. Write something, and see which letters gave it away."
)


def write_demo_page(path: str | os.PathLike[str], examples: Sequence[str]) -> int:
    """Train on the sentences that come with the package, and write the page. Returns its size."""
    table = demo.read_sentences()
    train, test = (table.filter(pc.equal(table["split"], split)) for split in ("train", "test"))
    classifier = language_classifier().fit(train["text"], train["language"])
    found = classifier.evaluate(test["text"], test["language"])
    accuracy = Accuracy(found.accuracy, f"{found.texts:,} other sentences", found.macro_f1)
    return write_page(
        path,
        classifier,
        PageText(TITLE, DESCRIPTION, [*examples, *_one_of_each(test)], accuracy),
    )


def language_classifier() -> TextClassifier:
    """The demonstration's hash embedding as a classifier."""
    return TextClassifier(
        ngrams=demo.TEXT.ngrams,
        subwords=demo.TEXT.subwords,
        punctuation=demo.TEXT.punctuation,
        embedding_dim=demo.DIM,
        num_embeddings=demo.HASH.num_embeddings,
        num_buckets=demo.HASH.num_buckets,
        num_hashes=demo.HASH.num_hashes,
        passes=demo.PASSES,
        batch_size=demo.BATCH,
        learning_rate=demo.HASH_RATE,
        members=1,
    )


def _one_of_each(sentences: pa.Table) -> list[str]:
    """The first sentence of each language."""
    first: dict[str, str] = {}
    for language, text in zip(
        sentences["language"].to_pylist(), sentences["text"].to_pylist(), strict=True
    ):
        first.setdefault(language, text)
    return list(first.values())
