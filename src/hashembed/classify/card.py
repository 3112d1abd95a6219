"""The model card: a README.md that says what a model is, written from the header of its file.

What the header does not tell, the author may add. What nobody told is said to be unknown.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hashembed.classify import header_facts as facts
from hashembed.core.markup import markdown, markdown_table, yaml_text
from hashembed.core.printable import printable

if TYPE_CHECKING:
    from hashembed.classify.metrics import Evaluation

MOST_LABELS = 100  # in a table
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)
DATA_SET = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9_][\w.-]*)?", re.ASCII)


@dataclass(frozen=True)
class CardFacts:
    """What the author adds to a model card.

    Args:
        description: what the model is for, and where its texts come from, in Markdown.
        license: its licence, by the hub's name for it, such as "mit" or "cc-by-4.0".
        language: the language of its texts, or several, as codes such as "en".
        dataset: name of the data set that the texts for training and evaluation come from.
        evaluation: what `TextClassifier.evaluate` returned for texts that were not trained on.
    """

    description: str | None = None
    license: str | None = None
    language: str | list[str] | None = None
    dataset: str | None = None
    evaluation: "Evaluation | None" = None

    def __post_init__(self) -> None:
        for name in ("description", "license", "dataset"):
            if not isinstance(found := getattr(self, name), str | None):
                raise TypeError(f"{name} must be a str, found {type(found).__name__}")
        if not all(isinstance(code, str) for code in self.languages):
            raise TypeError(f"language must be a str or a list of them, found {self.language!r}")
        if self.evaluation is not None and not hasattr(self.evaluation, "macro_f1"):
            raise TypeError(
                "evaluation must be what TextClassifier.evaluate returns, found "
                f"{type(self.evaluation).__name__}"
            )

    @property
    def languages(self) -> list[str]:
        """The languages that were given."""
        if self.language is None:
            return []
        return [self.language] if isinstance(self.language, str) else list(self.language)


def model_card(header: dict[str, Any], name: str, given: CardFacts) -> str:
    """The card of a model with this header (`read_header`). The same input gives the same text.

    name: owner/name on the hub if it is known, or any other name.
    """
    _check_evaluation(header, given.evaluation)
    sections = [
        f"# {markdown(name)}\n\n{_opening(header)}",
        (given.description or "").strip()
        or "The author has not described what the model is for, nor where its texts come from.",
        f"## How to use it\n\n{_usage(name)}",
        f"## Labels\n\n{_labels(header['meta'])}",
        f"## Evaluation\n\n{_evaluation(given)}",
        f"## Training\n\n{_training(header, given)}",
        f"## What to know before use\n\n{_limits(header['meta'], given)}",
    ]
    body = "\n\n".join(sections).encode("utf8", "replace").decode()  # no halves of characters
    return f"---\n{_front_matter(name, given)}\n---\n\n{body}\n"


def _check_evaluation(header: dict[str, Any], evaluation: "Evaluation | None") -> None:
    if evaluation is None:
        return
    classes = header["meta"]["classes"]
    if evaluation.classes[: evaluation.known] != classes:
        raise ValueError(
            f"the evaluation is of another model: it has {evaluation.known:,} classes, and they "
            f"are not the {len(classes):,} of this model"
        )


# --- front matter ------------------------------------------------------------------------------


def _front_matter(name: str, given: CardFacts) -> str:
    """What the hub reads: YAML. Text of the author is always quoted ("no" is also a language)."""
    lines = ["library_name: hashembed", "pipeline_tag: text-classification"]
    lines += ["tags:", "- hash-embeddings", "- text-classification"]
    if given.license:
        lines.append(f"license: {yaml_text(given.license)}")
    if given.languages:
        lines += ["language:", *(f"- {yaml_text(code)}" for code in given.languages)]
    known = given.dataset is not None and DATA_SET.fullmatch(given.dataset) is not None
    if given.dataset and known:
        lines += ["datasets:", f"- {yaml_text(given.dataset)}"]
    if given.evaluation is not None:
        lines += [
            "metrics:",
            "- accuracy",
            "- f1",
            "model-index:",
            f"- name: {yaml_text(name)}",
            "  results:",
            "  - task:",
            "      type: text-classification",
            "    dataset:",
            f"      name: {yaml_text(given.dataset or 'not stated')}",
            f"      type: {yaml_text(given.dataset if given.dataset and known else 'other')}",
            "    metrics:",
        ]
        for kind, words, value in (
            ("accuracy", "Accuracy", given.evaluation.accuracy),
            ("f1", "Macro F1", given.evaluation.macro_f1),
        ):
            lines += [f"    - type: {kind}", f"      name: {words}", f"      value: {value:.4f}"]
    return "\n".join(lines)


# --- sections ----------------------------------------------------------------------------------


def _opening(header: dict[str, Any]) -> str:
    count = len(header["meta"]["classes"])
    labels = f"{count:,} label{'' if count == 1 else 's'}"
    gives = f"one of {labels}" if count > 1 else "the only label that it knows"
    if _several(header["meta"]):
        gives = f"any number of {labels}"
    return (
        f"A text classifier made with hashembed. It gives each text {gives}. The model is one "
        f"safetensors file of {header['bytes']:,} bytes. Loading it executes no code."
    )


def _usage(name: str) -> str:
    repository = name if REPOSITORY.fullmatch(name) else "owner/name"
    note = "" if repository == name else "Write the name of this repository for `owner/name`.\n\n"
    return (
        f'{note}```sh\npip install "hashembed[hub]"\n'
        f'echo "a text" | hashembed predict hub:{repository}\n```\n\n'
        "```python\nfrom hashembed import TextClassifier\n\n"
        f'clf = TextClassifier.from_pretrained("{repository}")\n'
        'print(clf.predict_top(["a text"], 3))  # labels and their probabilities\n```'
    )


def _labels(meta: dict[str, Any]) -> str:
    classes, counts, texts = meta["classes"], meta["class_counts"], meta["texts_seen"]
    shown = list(zip(classes, counts, strict=True))[:MOST_LABELS]
    rows = [
        [markdown(str(label)), f"{count:,}", f"{count / max(texts, 1):.1%}"]
        for label, count in shown
    ]
    table = markdown_table(["label", "training texts", "share of the texts"], rows)
    return f"{table}{_more(len(classes))}"


def _more(count: int) -> str:
    if count <= MOST_LABELS:
        return ""
    return f"\n\n{count - MOST_LABELS:,} more are not shown. `clf.classes_` lists all."


def _evaluation(given: CardFacts) -> str:
    found = given.evaluation
    if found is None:
        return "No evaluation was given, so the accuracy of the model is not known."
    source = f" of {markdown(given.dataset)}" if given.dataset else ", from a source not stated"
    answers = ""
    if found.top is not None or found.threshold is not None:
        limits = [] if found.top is None else [f"at most {found.top:,} per text"]
        limits += (
            [] if found.threshold is None else [f"with a probability above {found.threshold:g}"]
        )
        answers = f" Answers: {', '.join(limits)}; a text may have several."
    unknown = ""
    if len(found.classes) > found.known:
        more = len(found.classes) - found.known
        unknown = f" Labels that the model does not know, and so misses: {more:,}."
    measures = [
        ("accuracy", found.accuracy),
        ("macro F1", found.macro_f1),
        ("micro F1", found.micro_f1),
        ("average precision (mean of the labels)", found.macro_average_precision),
        ("log loss", found.log_loss),
        ("calibration error", found.calibration_error),
    ]
    overall = markdown_table(["measure", "value"], [[n, f"{value:.4f}"] for n, value in measures])
    columns = (found.precision, found.recall, found.f1)
    rows = [
        [markdown(str(label)), *(f"{column[i]:.3f}" for column in columns), f"{found.truly[i]:,}"]
        for i, label in enumerate(found.classes[:MOST_LABELS])
    ]
    each = markdown_table(["label", "precision", "recall", "F1", "texts"], rows)
    return (
        f"On {found.texts:,} texts{source}.{answers}{unknown}\n\n{overall}\n\n{each}"
        f"{_more(len(found.classes))}"
    )


def _training(header: dict[str, Any], given: CardFacts) -> str:
    meta = header["meta"]
    engine, passes = meta["engine"], len(meta["history"]["epochs"])
    rows = [
        ("data set", markdown(given.dataset) if given.dataset else "not stated"),
        ("training texts", f"{meta['texts_seen']:,}"),
        ("n-grams", facts.describe_text(meta["text"])),
        ("tables", facts.describe_tables(meta)),
        ("parameters", f"{facts.count_parameters(header):,}"),
        ("bits of a number in the tables", facts.table_bits(header)),
        ("members", facts.describe_members(engine)),
        ("passes", f"{passes:,}" if passes else "not recorded"),  # of a stream, for example
        ("seed", str(meta["params"].get("seed", "not stated"))),
        ("calibration", facts.describe_calibration(meta) or "none"),
    ]
    if meta.get("search"):
        from hashembed.classify.choose.search import Search

        search = Search.from_dict(meta["search"])
        chosen = f"by {search.metric}, from {len(search.trials)} trials on training texts"
        rows += [("settings chosen", chosen), ("the same settings", f"`{search.chosen.command()}`")]
    cells = [[name, printable(value)] for name, value in rows]
    return markdown_table(["what", "value"], cells, words=2)


def _limits(meta: dict[str, Any], given: CardFacts) -> str:
    longest = meta["text"]["ngrams"][1]
    words = "single words" if longest == 1 else f"n-grams of at most {longest} words"
    empty = "probabilities that are the shares above" if _several(meta) else "the most common label"
    sure = (
        "Probabilities were calibrated on texts like those of the training."
        if meta.get("calibration")
        else "Probabilities were not calibrated."
    )
    lines = [
        f"The model weighs {words}, wherever they stand. It does not understand sentences.",
        f"It knows only the labels above, and gives a text without words {empty}.",
        f"{sure} On texts of another kind they may be far off.",
        f"Licence: {markdown(given.license)}."
        if given.license
        else "No licence was stated. Ask the author before you use the model.",
    ]
    if facts.only_listed(meta):
        lines.append("It was made small: of its n-grams it knows those that mattered most.")
    if not given.languages:
        lines.append("The language of the training texts was not stated.")
    else:
        lines.append(f"Language of the texts: {', '.join(map(markdown, given.languages))}.")
    return "\n".join(f"- {line}" for line in lines)


def _several(meta: dict[str, Any]) -> bool:
    return bool(meta["label_form"] != "single")
