"""Puts the sources of pages together: modules into one script, style sheets into one.

The modules of `template/` import each other by name, so that they can be read, and tested, like any
others. A page has no files to import from. There each becomes a function that is called once and
returns what the module exports:

    import { a } from "./b.mjs";    ->    const { a } = $b;
    export const c = 1;             ->    const c = 1; ... return { c };
"""

import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

# In the order of use: each imports only from those before it.
MODULES = {
    "hashembed": "module",
    **dict.fromkeys(
        ("dom", "csv", "words", "ngrams", "classes", "many", "about", "page"), "template"
    ),
}

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "[./\w]*/(\w+)\.mjs";$', re.M)
_EXPORT = re.compile(r"^export ((?:class|const|function|async function) (\w+))", re.M)
_LEFT = re.compile(r"^(?:import|export)\b.*", re.M)


def source(name: str) -> str:
    """A file of this room, with lines that end in LF."""
    return (files("hashembed.web") / name).read_text("utf8").replace("\r\n", "\n")


def script() -> str:
    """All code of a page as one module."""
    parts = []
    for name, folder in MODULES.items():
        parts.append(as_function(name, source(f"{folder}/{name}.mjs")))
    return _embeddable("".join(parts))


def as_function(name: str, text: str) -> str:
    """A module as a function that is called at once."""
    text = _IMPORT.sub(r"const \1 = $\2;", text)
    exported = ", ".join(found for _, found in _EXPORT.findall(text))
    text = _EXPORT.sub(r"\1", text)
    if left := _LEFT.search(text):
        raise ValueError(f"{name}.mjs: a page cannot have the line {left[0]!r}")
    return f"const ${name} = (() => {{\n{text}\nreturn {{ {exported} }};\n}})();\n"


def style(*names: str) -> str:
    """Style sheets, one after another."""
    return _embeddable("".join(source(f"template/{name}.css") for name in names))


def digest(text: str) -> str:
    """The hash by which a policy allows a script or a style sheet: 'sha256-...'."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _embeddable(text: str) -> str:
    """The text, if HTML takes it as it is: nothing in it ends its element."""
    if found := re.search(r"<(?:/(?:script|style)|!--)", text, re.I):
        raise ValueError(f"found {found[0]!r}, which would end the script or the style of a page")
    return text
