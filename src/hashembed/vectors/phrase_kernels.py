"""Phrases in texts: the longest known n-gram at each place, from left to right."""

from hashembed.core.arrays import I64
from hashembed.core.njit import njit

INSIDE = -2  # the place of a word that belongs to the phrase before it


@njit(native=True, nogil=True, error_model="numpy")
def mark_phrases(ranks: I64, offsets: I64, words: I64, most: int, marks: I64) -> None:
    """The unit that begins at each word.

    ranks: of the n-grams of up to `most` words of each text: those that begin at its first word,
    the shortest first, then those at its second word, and so on. words: where each text begins
    among all words, (texts + 1,). marks: (words,), out: a rank, -1 for an unknown word, or INSIDE.
    """
    for t in range(len(offsets) - 1):
        x, inside = offsets[t], 0
        for w in range(words[t], words[t + 1]):
            longest = min(most, words[t + 1] - w)
            if inside > 0:
                marks[w] = INSIDE
                inside -= 1
            else:
                marks[w] = ranks[x]
                for n in range(longest, 1, -1):
                    if ranks[x + n - 1] >= 0:
                        marks[w] = ranks[x + n - 1]
                        inside = n - 1
                        break
            x += longest
