"""Explanations as a page: the look of `page.py`, without a model and without code."""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from hashembed.classify.explain.render import FAINT, NO_NGRAMS, shown, visible
from hashembed.core.printable import printable
from hashembed.web import bundle

if TYPE_CHECKING:
    from hashembed.classify.explain.result import Explanation, Term

CLASSES, NGRAMS = 6, 12  # shown
STEPS = 40  # of colours and bars: a policy that allows no inline styles allows classes

HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src {policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
<body>
<main class="frame">
<h1 dir="auto">{title}</h1>
<p class="key"><span><span class="w for">word</span> speaks for the class</span>
<span><span class="w against">word</span> speaks against it</span>
<span>The stronger the colour, the more it counts. Point at a word to see the number.</span></p>
"""
END = "</main>\n</body>\n</html>\n"


def head(title: str) -> str:
    """The beginning of a page; sections and `END` follow."""
    steps = "".join(
        f".s{i} {{ --s: {i / STEPS}; --share: {i / STEPS}; }}\n" for i in range(STEPS + 1)
    )
    style = bundle.style("tokens", "explained") + steps
    return HEAD.format(title=escape(printable(title)), style=style, policy=bundle.digest(style))


def section(explanation: "Explanation", heading: str = "") -> str:
    """One explanation."""
    label = escape(printable(str(explanation.classes[explanation.class_index()])))
    terms = explanation.top(n=None)
    why = _ngrams(explanation, terms, label) if terms else f"<p>{escape(NO_NGRAMS)}</p>\n"
    return (
        f"<section>\n{f'<h2>{escape(heading)}</h2>' if heading else ''}\n"
        f"{_classes(explanation)}"
        f'<p class="words" dir="auto">{_words(explanation)}</p>\n{why}</section>\n'
    )


def unreadable(problem: str, heading: str) -> str:
    """What stands in the place of an explanation."""
    return f"<section>\n<h2>{escape(heading)}</h2>\n<p>{_plain(problem)}</p>\n</section>\n"


def _classes(explanation: "Explanation") -> str:
    """The likeliest classes, and the class asked about."""
    chances, asked = explanation.probabilities, explanation.class_index()
    likely = chances.argsort(kind="stable")[::-1][:CLASSES].tolist()
    rows = []
    for c in [*likely, *([] if asked in likely else [asked])]:
        name = escape(printable(str(explanation.classes[c])))
        chosen = ' class="asked"' if c == asked else ""
        rows.append(
            f'<tr{chosen}><th scope="row"><bdi>{name}</bdi></th>'
            f'<td class="number">{chances[c]:.1%}</td>{_bar(float(chances[c]), "for")}</tr>\n'
        )
    return f'<table class="classes"><tbody>\n{"".join(rows)}</tbody></table>\n'


def _words(explanation: "Explanation") -> str:
    """The text, its words coloured."""
    column = explanation.relative(explanation.word_contributions)[:, explanation.class_index()]
    evidence, text = column.tolist(), explanation.text
    largest = max(map(abs, evidence), default=0) or 1.0
    pieces, at = [], 0
    for (start, end), value in zip(explanation.words, evidence, strict=True):
        share = abs(value) / largest
        kind = "" if share < FAINT else f" {_side(value)} s{round(STEPS * share)}"
        pieces.append(
            f'{_plain(text[at:start])}<span class="w{kind}" title="{value:+.3f}">'
            f"{_plain(text[start:end])}</span>"
        )
        at = end
    return "".join([*pieces, _plain(text[at:])])


def _ngrams(explanation: "Explanation", terms: "Sequence[Term]", label: str) -> str:
    """The strongest n-grams for and against the class, and how all add up."""
    largest = abs(terms[0].evidence) or 1.0
    tables = []
    for kind in ("for", "against"):
        own = [term for term in terms if _side(term.evidence) == kind][:NGRAMS]
        rows = "".join(
            f'<tr><th scope="row"><bdi>{_plain(shown(term.text, term.subword))}</bdi></th>'
            f'<td class="number soft">{len(term.places)}</td>'
            f'<td class="number">{term.evidence:+.3f}</td>'
            f"{_bar(abs(term.evidence) / largest, kind)}</tr>\n"
            for term in own
        )
        tables.append(
            f"<table><caption>Speaks {kind} <bdi>{label}</bdi></caption>"
            '<thead><tr><th scope="col">n-gram</th><th scope="col" class="number">times</th>'
            '<th scope="col" class="number">adds</th><td></td></tr></thead>'
            f"<tbody>\n{rows}</tbody></table>\n"
        )
    told = explanation.summary(0)
    parts = [f"{told['bias']:+.3f} to start with", f"{told['others']:+.3f} from n-grams"]
    if not explanation.exact:
        parts.append(f"{told['unexplained']:+.3f} unexplained")
    total = f"<b>{told['sum']:+.3f} in all</b>"
    return (
        f'<div class="grams">\n{"".join(tables)}</div>\n'
        f'<p class="sum small">{", ".join(parts)}: {total}</p>\n'
    )


def _side(value: float) -> str:
    return "for" if value > 0 else "against"


def _bar(share: float, kind: str) -> str:
    return f'<td class="bar"><span class="{kind} s{round(STEPS * share)}"></span></td>'


def _plain(text: str) -> str:
    """Text that stays text, with every character visible."""
    return escape(visible(text))
