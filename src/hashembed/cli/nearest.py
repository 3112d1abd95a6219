"""`hashembed nearest` and `hashembed analogy`."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from hashembed.cli.answering import is_terminal, results
from hashembed.cli.inputs import check_input
from hashembed.cli.options import Subcommand, json_option, say, threads_option, vectors_argument
from hashembed.core.printable import printable

if TYPE_CHECKING:
    from hashembed.vectors.neighbours import Neighbour
    from hashembed.vectors.word_vectors import WordVectors

NEAREST_EXAMPLE = """\b
Examples:
  hashembed nearest vectors.safetensors king
  hashembed nearest vectors.safetensors king queen --top 5 --json
  hashembed nearest vectors.safetensors < words.txt"""
ANALOGY_EXAMPLE = """\b
Examples:
  hashembed analogy vectors.safetensors man king woman
  hashembed analogy vectors.safetensors france paris germany --top 3
  hashembed analogy vectors.safetensors < triples.txt"""

top_words_option = click.option(
    "--top",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="K",
    help="How many words to show.",
)


@click.command("nearest", cls=Subcommand, epilog=NEAREST_EXAMPLE)
@vectors_argument
@click.argument("words", nargs=-1, metavar="[WORD]...")
@top_words_option
@threads_option
@json_option
def nearest_command(
    vectors: str, words: tuple[str, ...], top: int, threads: int | None, as_json: bool
) -> None:
    """Find the words nearest to a word, also to one that the corpus did not have.

    Prints words of the corpus and their cosines. Without WORD, or with -, it answers every line of
    standard input. Several words in one WORD, as in "new york", stand for their mean.
    """

    def answer(loaded: "WordVectors", asked: str) -> Answer:
        if not _has_vector(loaded, asked):
            return Answer({"word": asked}, f"{printable(asked)}: {_why_none(loaded, asked)}", [])
        known = asked in loaded
        title = printable(asked) + ("" if known else f" ({_unknown(asked)})")
        return Answer({"word": asked, "known": known}, title, loaded.nearest(asked, top))

    _answer_all(vectors, words, threads, as_json, "Word: ", answer)


@click.command("analogy", cls=Subcommand, epilog=ANALOGY_EXAMPLE)
@vectors_argument
@click.argument("words", nargs=-1, metavar="[A B C]")
@top_words_option
@threads_option
@json_option
def analogy_command(
    vectors: str, words: tuple[str, ...], top: int, threads: int | None, as_json: bool
) -> None:
    """Find what is to C as B is to A: man king woman -> queen.

    Prints the words of the corpus nearest to B - A + C, without these three. Without words, or with
    -, it answers every line of standard input.
    """
    if words not in ((), ("-",)) and len(words) != 3:
        raise click.UsageError(f"expected three words, A B C, found {len(words)}.")

    def answer(loaded: "WordVectors", line: str) -> Answer:
        asked = line.split()
        if len(asked) != 3:
            reason = f"{printable(line)}: expected three words, found {len(asked)}"
            return Answer({"words": asked}, reason, [])
        lacking = [word for word in asked if not _has_vector(loaded, word)]
        if lacking:
            reason = f"{printable(lacking[0])}: {_why_none(loaded, lacking[0])}"
            return Answer({"words": asked}, reason, [])
        a, b, c = asked
        title = printable(f"{a} : {b} = {c} : ?")
        return Answer({"words": asked}, title, loaded.analogy(a, b, c, top))

    lines = words if words in ((), ("-",)) else (" ".join(words),)
    _answer_all(vectors, lines, threads, as_json, "A B C: ", answer)


@dataclass(frozen=True)
class Answer:
    """What was asked, a title or the reason why there is no answer, and the words found."""

    asked: dict[str, Any]
    title: str
    found: "Sequence[Neighbour]"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        near = [{"word": one.word, "cosine": round(one.cosine, 4)} for one in self.found]
        return {**self.asked, "nearest": near, **({} if near else {"problem": self.title})}

    def __str__(self) -> str:
        lines = [f"{one.cosine:8.4f}  {printable(one.word)}" for one in self.found]
        return "\n".join([self.title, *lines])


def _answer_all(
    path: str,
    words: tuple[str, ...],
    threads: int | None,
    as_json: bool,
    prompt: str,
    answer: "Callable[[WordVectors, str], Answer]",
) -> None:
    """Answer the words, or the lines of standard input. Exit code 1 if nothing had an answer."""
    from_input = words in ((), ("-",))
    check_input(["-"] if from_input else [])
    from hashembed.vectors.word_vectors import WordVectors

    out, vectors = results(), WordVectors.load(path, threads=threads)
    lines = _lines(prompt) if from_input else iter(words)
    answers = (answer(vectors, line) for line in lines)
    if as_json and not from_input:
        found = list(answers)
        out.write(json.dumps([one.to_dict() for one in found], indent=2, ensure_ascii=False) + "\n")
        answered = any(one.found for one in found)
    else:
        answered = from_input
        for one in answers:
            answered = bool(one.found) or answered
            if as_json:  # a line for each
                out.write(json.dumps(one.to_dict(), ensure_ascii=False) + "\n")
            elif one.found:
                out.write(f"{one}\n")
            else:
                say(one)
            out.flush()
    if not answered:
        click.get_current_context().exit(1)


def _lines(prompt: str) -> Iterator[str]:
    """The lines of standard input that are not blank, with a prompt in a terminal."""
    while True:
        if is_terminal(sys.stdin):
            click.echo(prompt, nl=False, err=True)
        line = sys.stdin.buffer.readline()
        if not line:
            return
        if text := line.decode("utf8", "replace").strip():
            yield text


def _has_vector(vectors: "WordVectors", text: str) -> bool:
    return bool(vectors.transform([text]).any())


def _unknown(word: str) -> str:
    """How the vector of something that is no word of the corpus was made."""
    if len(word.split()) > 1:
        return "the mean of its words"
    return "not in the vocabulary: a vector of its character n-grams"


def _why_none(vectors: "WordVectors", word: str) -> str:
    if not any(character.isalnum() for character in word):
        return "found no word"
    if vectors.settings.subwords is None:
        return "not in the vocabulary, and these vectors have no character n-grams"
    return "not in the vocabulary, and none of its character n-grams is"
