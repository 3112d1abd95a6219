"""Writes a page: one HTML file with a model, the code that runs it, and no request to anywhere."""

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from hashembed.classify.model_file import KIND
from hashembed.core.printable import printable
from hashembed.core.writing import write_whole
from hashembed.engine.tensor_file import (
    PACKED_VERSION,
    load_tensors,
    read_header,
    save_tensors,
)
from hashembed.web import bundle
from hashembed.web.facts import Accuracy, Subject

if TYPE_CHECKING:
    from hashembed.classify.classifier import TextClassifier

MOST_EXAMPLES = 100
TITLE = "Text classifier"

# Nothing is loaded and nothing is sent. Only the two texts with these hashes are run and applied,
# and no string becomes markup or code.
POLICY = (
    "default-src 'none'; script-src {script}; style-src {style}; img-src data:; "
    "connect-src 'none'; form-action 'none'; base-uri 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)

_FIELD = re.compile(r"\{\{(\w+)\}\}")


@dataclass(frozen=True)
class PageText:
    """What the maker of a page says about the model.

    title, description: the head of the page; None describes the classes.
    examples: texts to try, the first of which is shown when the page opens.
    accuracy: how often the model is right; None is what its training measured, if anything.
    class_names: what to show instead of the labels, one for each class, in their order.
    """

    title: str | None = None
    description: str | None = None
    examples: Sequence[str] = ()
    accuracy: Accuracy | None = None
    class_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if len(self.examples) > MOST_EXAMPLES:
            raise ValueError(
                f"found more than {MOST_EXAMPLES} examples, but a page has room for no more"
            )


def write_page(
    path: str | os.PathLike[str],
    model: "TextClassifier | str | os.PathLike[str]",
    text: PageText | None = None,
) -> int:
    """Write the page of a classifier or of a model file, and return its size in bytes.

    The same model and the same text give the same bytes.
    """
    data = page(model, text or PageText())
    write_whole(path, data)
    return len(data)


def page(model: "TextClassifier | str | os.PathLike[str]", text: PageText) -> bytes:
    """The page."""
    from hashembed.classify.classifier import TextClassifier

    if isinstance(model, TextClassifier):
        return _page_of_classifier(model, text)
    classifier = TextClassifier.load(model)  # which checks the file
    if text.class_names is not None:
        with TemporaryDirectory() as folder:
            renamed = Path(folder) / "model.safetensors"
            _rename(model, renamed, classifier, text.class_names)
            return page(renamed, replace(text, class_names=None))
    header = read_header(model)
    if header["meta"]["for_training"]:  # several times as large, and no better at answers
        return _page_of_classifier(classifier, text)
    return _filled(Path(model).read_bytes(), Subject(classifier, header), text)


def _rename(
    model: str | os.PathLike[str],
    to: Path,
    classifier: "TextClassifier",
    names: Sequence[str],
) -> None:
    """Write a model file with other labels."""
    count = len(classifier.classes_)
    if len(names) != count or len(set(names)) < count:
        raise ValueError(
            f"a model with {count:,} classes needs {count:,} different class names, found "
            f"{len(names):,}, {len(set(names)):,} of them different"
        )
    version = read_header(model)["format"]
    tensors, meta = load_tensors(model, KIND)
    save_tensors(to, KIND, tensors, {**meta, "classes": list(names)}, version)


def _page_of_classifier(classifier: "TextClassifier", text: PageText) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        classifier.save(path)
        if text.class_names is not None:
            return page(path, text)
        return _filled(path.read_bytes(), Subject(classifier, read_header(path)), text)


def _filled(model: bytes, subject: Subject, text: PageText) -> bytes:
    """The template with everything that belongs into it."""
    if subject.header["format"] > PACKED_VERSION:
        raise ValueError(
            "a model with pretrained vectors does not run in a page: train one without them"
        )
    script, style = bundle.script(), bundle.style("tokens", "page")
    policy = POLICY.format(script=bundle.digest(script), style=bundle.digest(style))
    markup = {
        "policy": policy,
        "title": _escaped(text.title or TITLE),
        "description": _escaped(text.description or subject.summary()),
        "version": _escaped(version("hashembed")),
        "tiles": _list(subject.tiles(text.accuracy)),
        "facts": _list(subject.facts(text.accuracy)),
        "meaning": _escaped(subject.meaning()),
        "given": _embedded_json({"examples": list(text.examples)}),
        "style": style,
        "script": script,
        "model": b64encode(model).decode("ascii"),
    }
    template = bundle.source("template/page.html")
    return _FIELD.sub(lambda field: markup[field[1]], template).encode("utf8", "replace")


def _escaped(text: str) -> str:
    """Text that stays text in HTML, in an attribute too."""
    return escape(printable(text))


def _list(terms: Iterable[tuple[str, str]]) -> str:
    """Names and values as the items of a description list."""
    return "".join(
        f"<div><dt>{_escaped(name)}</dt><dd>{_escaped(value)}</dd></div>" for name, value in terms
    )


def _embedded_json(value: object) -> str:
    """JSON that nothing in it can take out of its element."""
    return json.dumps(value).replace("<", "\\u003c")
