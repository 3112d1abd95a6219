"""Text of any origin inside Markdown and YAML: it is shown, and changes nothing around it."""

import json
import re
from collections.abc import Sequence

from hashembed.core.printable import printable

# Characters that Markdown, HTML or formulas ($) give a meaning, also inside a line.
_SPECIAL = re.compile(r"[\\`*_\[\]<>#|~$&]")
# What YAML does not take as it is, or would fold: control characters, line ends, halves of pairs.
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


def markdown(text: str, most: int = 100) -> str:
    """One line of Markdown that shows the text itself, cut after `most` characters."""
    shown = printable(text[:most]) + ("…" if len(text) > most else "")
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", shown).strip() or "&nbsp;"


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A table of cells in Markdown. The first `words` columns are text, the others numbers."""
    rule = ["---" if i < words else "---:" for i in range(len(heads))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, rule, *rows))


def yaml_text(text: str) -> str:
    """A double-quoted YAML string in one line; JSON's escapes are YAML's."""
    quoted = json.dumps(text, ensure_ascii=False)
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)
