"""`hashembed predict`."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

import click

from hashembed.cli.answering import (
    columns_to_keep,
    is_terminal,
    results,
    threshold_option,
    top_option,
)
from hashembed.cli.inputs import Batches, check_input
from hashembed.cli.on_cluster import check_on, on_option, predict_there
from hashembed.cli.options import (
    Subcommand,
    data_options,
    model_argument,
    quiet_option,
    reading,
    say,
    threads_option,
)
from hashembed.cli.outputs import Output, check_outputs, force_option
from hashembed.cli.writers import (
    SEPARATOR,
    Columns,
    JsonTexts,
    Values,
    Writer,
    format_of,
    whole_file,
    writer_for,
)
from hashembed.core.locations import is_uri
from hashembed.core.printable import printable

if TYPE_CHECKING:
    from hashembed.classify.classifier import TextClassifier
    from hashembed.readers import LabelledText

EXAMPLE = """\b
Examples:
  echo "what a film" | hashembed predict model.safetensors
  hashembed predict model.safetensors reviews.txt --top 3
  hashembed predict model.safetensors reviews.csv --text body --json
  hashembed predict model.safetensors reviews.csv -o answers.csv --keep id,title -p
  hashembed predict hub:owner/name reviews.txt
  hashembed predict model.safetensors s3://bucket/texts/ --on auto -o s3://bucket/answers"""

Answer = list[tuple[Any, float]]  # labels with probabilities, the likeliest first


@click.command("predict", cls=Subcommand, epilog=EXAMPLE)
@model_argument
@click.argument("data", nargs=-1)
@data_options(labelled=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write the columns of the data and the predictions: .csv, .tsv, .jsonl or .parquet.",
)
@click.option(
    "--keep",
    callback=columns_to_keep,
    metavar="COLUMNS",
    help="With --output: columns of the data to write, such as id,title. All by default.",
)
@force_option
@top_option
@threshold_option
@click.option("--probabilities", "-p", is_flag=True, help="Also print the probabilities.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@on_option
@threads_option
@quiet_option
def predict_command(
    model: str,
    data: tuple[str, ...],
    output: str | None,
    keep: list[str | int] | None,
    force: bool,
    top: int | None,
    threshold: float | None,
    probabilities: bool,
    as_json: bool,
    on: str | None,
    threads: int | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Predict the labels of texts.

    Prints one line for each text, in order. DATA is one or more files; by default standard input,
    one text per line, answered as the lines come. An empty text gets the most common class. With
    --on-error skip, a row that cannot be read gets an empty answer.
    """
    if keep is not None and output is None:
        raise click.UsageError("--keep needs --output: it names the columns to write.")
    if as_json and output is not None:
        raise click.UsageError("--json prints to standard output. Use --output FILE.jsonl instead.")
    sources = list(data) or ["-"]
    if on is not None:
        check_on(click.get_current_context(), on)
        asked_of = {"keep": keep, "top": top, "threshold": threshold}
        _predict_there(on, model, sources, reading(options), asked_of, output, probabilities, quiet)
        return
    format = None if output is None else format_of(output)
    check_outputs([model, *data], [Output("--output", output, "table")], force)
    check_input(sources)

    from hashembed.classify.answers import limits
    from hashembed.classify.classifier import TextClassifier
    from hashembed.readers import read_text_batches

    classifier = TextClassifier.load(model, threads=threads)
    several = classifier.label_form_ != "single"
    asked = limits(several, threshold, top, classifier.threshold_)
    kept = output is not None and (True if keep is None else keep)
    batches = Batches(read_text_batches(sources, keep=kept, **reading(options)))
    asking: _Asked
    if output is not None and format is not None:
        asking = table = _Table(classifier, asked, format, probabilities)
        with whole_file(output) as file:
            table.write(batches, writer_for(format, file))
    else:
        asking = lines = _Lines(classifier, asked, probabilities or top is not None, as_json)
        lines.write(batches, results())
    report = batches.report
    if report is not None and (data or report.formats != ["lines"] or report.repaired):
        say(report, quiet)
    if asking.blank:
        say(f"{_rows(asking.blank)} could not be read and got an empty answer.", quiet)
    if output is not None:
        say(f"Wrote {output}, {_rows(0 if report is None else report.rows)}.", quiet)


def _predict_there(
    on: str,
    model: str,
    data: list[str],
    source: dict[str, Any],
    asked: dict[str, Any],
    output: str | None,
    probabilities: bool,
    quiet: bool,
) -> None:
    """With --on: all nodes write Parquet files into a folder."""
    import os

    from hashembed.classify.classifier import TextClassifier

    if output is None or (not is_uri(output) and os.path.exists(output)):
        found = "none" if output is None else f"{output}, which exists"
        raise click.UsageError(
            f"With --on, the answers are Parquet files: give a new folder or a URI as --output, "
            f"found {found}."
        )
    keep = asked["keep"]
    options = {**asked, "keep": True if keep is None else keep, "probabilities": probabilities}
    classifier = TextClassifier.load(model)
    predict_there(on, classifier, data, source, options, output, quiet)
    say(f"Wrote {output}.", quiet)


class _Asked:
    """Asks a model about batches, and counts the rows that could not be read."""

    def __init__(self, classifier: "TextClassifier", asked: tuple[float | None, int | None]):
        self.classifier, (self.threshold, self.top) = classifier, asked
        self.multilabel = classifier.label_form_ != "single"
        self.one = not self.multilabel and self.top == 1  # never several answers for a text
        self.blank = 0

    def answers(self, batch: "LabelledText") -> list[Answer | None]:
        """The answers for a batch; None for a row that could not be read."""
        found = self.classifier.predict_top(batch.texts, self.top, threshold=self.threshold)
        if not batch.texts.null_count:
            return list(found)
        self.blank += batch.texts.null_count
        missing = batch.texts.is_null().to_pylist()
        return [None if gone else x for x, gone in zip(found, missing, strict=True)]


class _Lines(_Asked):
    """Answers as lines for standard output."""

    def __init__(
        self,
        classifier: "TextClassifier",
        asked: tuple[float | None, int | None],
        probabilities: bool,
        as_json: bool,
    ):
        super().__init__(classifier, asked)
        self.probabilities, self.as_json = probabilities, as_json
        terminal = is_terminal(results())
        names = [str(c) for c in classifier.classes_.tolist()]
        self.names = {
            c: printable(name) if terminal or set("\t\n\r") & set(name) else name
            for c, name in zip(classifier.classes_.tolist(), names, strict=True)
        }

    def write(self, batches: Iterable["LabelledText"], out: TextIO) -> None:
        """Write a line for each text, and flush after every batch."""
        for batch in batches:
            out.write("".join(f"{self._line(answer)}\n" for answer in self.answers(batch)))
            out.flush()

    def _line(self, answer: Answer | None) -> str:
        """Tab-separated labels, with probabilities if wanted; or JSON."""
        if self.as_json:
            return self._json(answer)
        if answer is None:
            return ""
        if self.probabilities:
            return "\t".join(f"{self.names[label]}\t{p:.4f}" for label, p in answer)
        return "\t".join(self.names[label] for label, _ in answer)

    def _json(self, answer: Answer | None) -> str:
        labels = [label for label, _ in answer or []]
        found: dict[str, Any] = {"labels": labels}
        if not self.multilabel:
            found = {"label": labels[0] if labels else None}
        found["probabilities"] = {str(label): round(p, 6) for label, p in answer or []}
        return json.dumps(found, ensure_ascii=False)


class _Table(_Asked):
    """Answers as columns, next to those of the data."""

    def __init__(
        self,
        classifier: "TextClassifier",
        asked: tuple[float | None, int | None],
        format: str,
        probabilities: bool,
    ):
        super().__init__(classifier, asked)
        self.probabilities, self.joined = probabilities, format in ("csv", "tsv")
        names = [str(c) for c in classifier.classes_.tolist()]
        unclear = [name for name in names if SEPARATOR in name]
        if self.joined and not self.one and unclear:
            raise click.UsageError(
                "Several labels are written into one column, separated by commas, but the label "
                f"{unclear[0]!r} has a comma in it. Write a .jsonl or .parquet file."
            )

    def write(self, batches: Batches, writer: Writer) -> None:
        """Write all batches; without any row, only the header of the answers."""
        from hashembed.readers import no_texts

        for batch in batches:
            writer.write(self.columns(batch))
        if batches.report is None:
            writer.write(self.columns(no_texts()))
        writer.close()

    def columns(self, batch: "LabelledText") -> Columns:
        """The kept columns of the data, then the answers."""
        from hashembed.classify.answers import free_name

        answers = self.answers(batch)
        columns = _kept(batch)
        word = "prediction" if self.one else "predictions"
        columns[free_name(word, columns)] = self._column(answers, 0)
        if self.probabilities:
            word = "probability" if self.one else "probabilities"
            columns[free_name(word, columns)] = self._column(answers, 1)
        return columns

    def _column(self, answers: list[Answer | None], part: int) -> Any:
        """The labels, or with part 1 their probabilities."""
        import pyarrow as pa

        kind = pa.from_numpy_dtype(self.classifier.classes_.dtype)
        kind = pa.float64() if part else kind
        if self.one:
            values = [x[0][part] if x else None for x in answers]
            return Values(_rounded(values) if part else values, kind)
        listed = [None if x is None else [pair[part] for pair in x] for x in answers]
        if part:
            listed = [None if x is None else _rounded(x) for x in listed]
        if self.joined:
            texts = [None if x is None else SEPARATOR.join(map(str, x)) for x in listed]
            return Values(texts, pa.string())
        return Values(listed, pa.list_(kind))


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _rounded(values: list[Any]) -> list[Any]:
    return [None if p is None else round(p, 6) for p in values]


def _kept(batch: "LabelledText") -> Columns:
    from hashembed.readers.rows import JSON_TEXT, NO_COLUMN

    table = batch.kept
    if table is None:
        return {}
    return {
        field.name: JsonTexts(table[i]) if field.metadata == JSON_TEXT else table[i]
        for i, field in enumerate(table.schema)
        if field.name != NO_COLUMN
    }
