"""What `hashembed demo --vectors` prints."""

from typing import TYPE_CHECKING

from hashembed.cli.tables import number_table

if TYPE_CHECKING:
    from rich.console import Console

    from hashembed.vectors.word_vectors import WordVectors


def show_vectors(console: "Console") -> None:
    """Train, judge, look up, and tell what to do next."""
    with console.status("Loading ..."):
        from hashembed.cli import demo_vectors as demo

        sentences = demo.load_sentences()
    with console.status("Training ..."):
        own, seconds = demo.train_now(sentences)
    words = int(own.model.dictionary.counts.sum())
    console.print(
        f"Learned vectors from {len(sentences.train):,} sentences in {len(sentences.languages)} "
        f"languages in {seconds:.1f} s. They have {len(own):,} different words that occur at least "
        f"{own.settings.min_count} times, {words:,} in all. Nobody told which language a sentence "
        "is in.\n"
    )
    with console.status("Comparing ..."):
        packaged, size = demo.of_package()
        rows = [
            (f"{len(sentences.train):,} sentences, just now", demo.judge(own, sentences)),
            (f"{demo.FILE_SENTENCES:,}, in the package", demo.judge(packaged, sentences)),
        ]
    table = number_table("words", "same language", "one label each")
    for name, found in rows:
        shares = (f"{found.same_language:.0%}", f"{found.accuracy:.0%}")
        table.add_row(name, f"{found.words:,}", *shares)
    console.print(table)
    chance = 1 / len(sentences.languages)
    console.print(
        f"\nsame language: of the {demo.TOP} words nearest to a word, those of its language (by "
        f"chance about {chance:.0%})\n"
        f"one label each: {len(sentences.test):,} other sentences get the language of the nearest "
        f"of {len(sentences.languages)} labelled sentences, one of each language: the share that "
        f"is right (mean of {demo.DRAWS} draws)\n\n"
        "More text without labels makes better vectors, and better vectors need fewer labels. So "
        "few sentences teach languages and word forms more than meanings. The nearest words in "
        f"the vectors of the package ({size / 1e3:.0f} kB):\n",
    )
    _show_words(console, packaged)
    console.print(
        "\nNext, learn from your own text (plain text, CSV, JSON lines, Parquet, folders). A "
        "million words and more teach meanings:\n"
        "  hashembed vectors corpus.txt -o vectors.safetensors\n"
        "  hashembed nearest vectors.safetensors WORD\n"
        "use them for a classifier with few labels:\n"
        "  hashembed train labelled.csv --unlabelled corpus.txt -o model.safetensors\n"
        "or look up words in the vectors of the package:\n"
        f"  hashembed nearest {demo.path_of_file()} {demo.WORDS[0]}",
        markup=False,
        soft_wrap=True,
    )


def _show_words(console: "Console", vectors: "WordVectors") -> None:
    from hashembed.cli import demo_vectors as demo

    for word, found in demo.nearest_words(vectors):
        name = word if word in vectors else f"{word} (unseen)"
        near = ", ".join(neighbour.word for neighbour in found)
        console.print(f"  {name:<20}{near}", markup=False, soft_wrap=True)
    a, b, c = demo.ANALOGY
    best = vectors.analogy(a, b, c, 1)[0].word
    console.print(f"\n  {a} is to {b} as {c} is to {best}", markup=False, soft_wrap=True)
