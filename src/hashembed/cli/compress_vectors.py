"""`hashembed compress` for word vectors."""

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from hashembed.vectors.word_vectors import WordVectors

BITS = (8, 4, 3, 2)
_ASKED, _TOP = 300, 10  # words whose nearest words are compared


class Compressed(NamedTuple):
    """Both files. agreement: the share of the ten nearest words that stayed, of frequent words."""

    bytes_before: int
    bytes_after: int
    words_before: int
    words_after: int
    agreement: float

    def __str__(self) -> str:
        shrunk = self.bytes_before / max(self.bytes_after, 1)
        return (
            f"before  {self.bytes_before:>13,} bytes  {self.words_before:>10,} words\n"
            f"after   {self.bytes_after:>13,} bytes  {self.words_after:>10,} words  "
            f"({shrunk:.1f} times smaller)\n"
            f"Of the {_TOP} words nearest to a frequent word, {self.agreement:.0%} are the same."
        )


def compress_vectors(
    path: str, output: str, size: int | None, bits: int | None, threads: int | None
) -> Compressed:
    """Write smaller vectors, and compare them with those before."""
    if size is None and bits is None:
        raise click.UsageError("word vectors need --size, such as 5MB, or --bits 8, 4, 3 or 2.")
    if bits is not None and bits not in BITS:
        raise click.BadParameter(
            f"found {bits}, but word vectors take 8, 4, 3 or 2.", param_hint="--bits"
        )
    from hashembed.vectors.word_vectors import WordVectors

    vectors: Any = WordVectors.load(path, threads=threads)
    if size is None:
        vectors.save(output, bits=bits or 8)
    else:
        vectors.compress(size=size, bits=bits).save(output)
    small = WordVectors.load(output, threads=threads)
    return Compressed(
        os.path.getsize(path),
        os.path.getsize(output),
        len(vectors),
        len(small),
        _agreement(vectors, small),
    )


def _agreement(before: "WordVectors", after: "WordVectors") -> float:
    """The mean share of equal words among the nearest ones."""
    words = [word for word in before.index_to_key[:_ASKED] if word in after]
    same = asked = 0
    for word in words:
        wanted, found = ({near.word for near in v.nearest(word, _TOP)} for v in (before, after))
        same, asked = same + len(wanted & found), asked + len(wanted)
    return same / asked if asked else 0.0
