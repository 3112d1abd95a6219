"""A checksum of everything that a kernel is compiled from.

Numba inlines functions of other files into a kernel, but its disk cache checks only the kernel's
own file for changes. This checksum covers that file and every file of the package that it imports,
directly or indirectly.
"""

import re
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path

_PACKAGE = __name__.partition(".")[0]
_ROOT = Path(__file__).parent.parent
_CODE = re.compile(rf'"({_PACKAGE}(?:\.\w+)+)"')  # a module named for `core.njit.Intrinsic`
_IMPORT = re.compile(
    rf"^[ \t]*(?:import[ \t]+({_PACKAGE}[\w.]*)"
    rf"|from[ \t]+({_PACKAGE}[\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\n(]*))",
    re.MULTILINE,
)


@cache
def source_stamp(path: Path) -> str:
    """The checksum for a kernel in the file `path`."""
    found = {path}
    waiting = [path]
    while waiting:
        for imported in _imported_files(waiting.pop()):
            if imported not in found:
                found.add(imported)
                waiting.append(imported)
    whole = blake2b(digest_size=16)
    for file in sorted(found):
        content = file.read_bytes()
        whole.update(f"{file.name} {len(content)} ".encode())
        whole.update(content)
    return whole.hexdigest()


@cache
def _imported_files(path: Path) -> tuple[Path, ...]:
    """The files of the package that a file imports, also inside functions."""
    text = path.read_text(encoding="utf-8")
    modules = set(_CODE.findall(text))
    for plain, base, names in _IMPORT.findall(text):
        modules.update(_modules(plain or base, names))
    return tuple(file for module in modules if (file := _file_of(module)) is not None)


def _modules(base: str, names: str) -> Iterator[str]:
    """What an import statement may load: the module, and those of its names that are modules."""
    yield base
    for name in re.findall(r"\w+", re.sub(r"#[^\n]*|\bas\s+\w+", " ", names)):
        yield f"{base}.{name}"


def _file_of(module: str) -> Path | None:
    place = _ROOT.joinpath(*module.split(".")[1:])
    for file in (place / "__init__.py", place.with_suffix(".py")):
        if file.is_file():
            return file
    return None
