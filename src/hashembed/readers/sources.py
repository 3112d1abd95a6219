"""From paths, globs, folders, URIs and "-" to the files to read."""

import fnmatch
import glob
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hashembed.core.locations import is_folder, is_uri, list_files
from hashembed.readers.report import DataError, number

if TYPE_CHECKING:
    from pathlib import Path

STDIN = "-"

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True)
class Source:
    """One file, or one folder of documents, or standard input ("-")."""

    path: str
    documents: tuple[tuple[str, str], ...] | None = None  # a folder's files: (class, path)

    @property
    def name(self) -> str:
        """The name in messages."""
        return "standard input" if self.path == STDIN else self.path


def find_sources(paths: Paths, labelled: bool = True) -> list[Source]:
    """The files that the paths stand for, in their order; those of a glob by name."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise DataError("found no paths: give at least one file, folder, glob, or '-'")
    sources = [s for path in given for s in _expand(os.fspath(path), labelled)]
    if [s.path for s in sources].count(STDIN) > 1:
        raise DataError("found standard input ('-') twice, but it can be read only once")
    return sources


def _expand(path: str, labelled: bool) -> list[Source]:
    if not isinstance(path, str):
        raise TypeError(f"a path must be a str or os.PathLike, found {path!r}")
    if "\0" in path or not path:
        raise DataError(f"found {path!r}, expected the path of a file or folder")
    if path == STDIN:
        return [Source(STDIN)]
    if is_uri(path):
        return _expand_uri(path)
    if os.path.isdir(path):
        return [_folder(path, labelled)]
    if os.path.exists(path):
        return [Source(path)]
    if glob.has_magic(path):
        found = sorted(glob.glob(path, recursive=True))
        if not found:
            raise DataError(f"{path}: no file matches this pattern")
        for each in found:
            if not os.path.isdir(each) and (reason := not_a_file(each)) is not None:
                raise DataError(f"{each}: {reason}")
        return [s for each in found for s in _expand(each, labelled)]
    raise DataError(f"{path}: no such file{_hint(path)}")


def _expand_uri(uri: str) -> list[Source]:
    """The files of a URI; a folder stands for all files below it."""
    try:
        base, mark, settings = uri.partition("?")
        if (magic := re.search(r"[*[]", base)) is None:
            if not is_folder(uri):
                return [Source(uri)]
            found, lacking = list_files(uri), "this folder has no files"
        else:
            above = base[: base.rindex("/", 0, magic.start()) + 1]
            inside = list_files(above + mark + settings)
            found = [each for each in inside if _matches(each.split("/"), uri.split("/"))]
            lacking = "no file matches this pattern"
    except OSError as error:
        raise DataError(f"{uri}: {error.strerror}") from None
    if not found:
        raise DataError(f"{uri}: {lacking}")
    return [Source(each) for each in found]


def _matches(names: list[str], pattern: list[str]) -> bool:
    """Whether the parts of a path match those of a glob; ** stands for any number of folders."""
    if not pattern or not names:
        return not pattern and not names
    if pattern[0] == "**" and _matches(names, pattern[1:]):
        return True
    rest = pattern if pattern[0] == "**" else pattern[1:]
    return fnmatch.fnmatchcase(names[0], pattern[0]) and _matches(names[1:], rest)


def _hint(path: str) -> str:
    """What may have been meant by a path that does not exist."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        return f", and no such folder: {folder}"
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return ""
    name = os.path.basename(path)
    same = [n for n in names if n.startswith(name + ".")]
    if not same:
        import difflib

        same = difflib.get_close_matches(name, names, 3, 0.6)
    if same:
        return (
            ": did you mean "
            + " or ".join(os.path.join(os.path.dirname(path), n) for n in same[:3])
            + "?"
        )
    return f" in {os.path.abspath(folder)}"


def _visible(folder: "Path") -> "list[Path]":
    try:
        return sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror}") from None


def not_a_file(path: str) -> str | None:
    """What this is, if not a regular file. Opening a pipe without a writer would wait forever."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if stat.S_ISREG(mode):
        return None
    names = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}
    return f"is {names.get(stat.S_IFMT(mode), 'a device')}, expected a file"


def _files(folder: "Path", seen: set[tuple[int, int]] | None = None) -> list[str]:
    """All files below a folder.

    A folder that several links lead to is read once; links may form a cycle.
    """
    seen = set() if seen is None else seen
    try:
        status = os.stat(folder)
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror or error}") from None
    if (status.st_dev, status.st_ino) in seen:
        return []
    seen.add((status.st_dev, status.st_ino))
    inside = [(path, path.is_dir()) for path in _visible(folder)]
    # Folders come before links to them, so that files are found under their own names.
    folders = sorted((path for path, is_folder in inside if is_folder), key=os.path.islink)
    files = {path: _files(path, seen) for path in folders}
    return [file for path, _ in inside for file in files.get(path, [str(path)])]


def _folder(path: str, labelled: bool) -> Source:
    from pathlib import Path

    root = Path(path)
    if not labelled:
        return Source(path, tuple(("", file) for file in _files(root)))
    inside = _visible(root)
    classes = [p for p in inside if p.is_dir()]
    loose = [p for p in inside if not p.is_dir()]
    wanted = "one folder for each class (folder/class/document.txt)"
    if loose:
        shown = f"{loose[0].name!r}" + (f" and {len(loose) - 1:,} more" if loose[1:] else "")
        pattern = root / f"*{loose[0].suffix}"
        raise DataError(
            f"{path}: expected {wanted}, found the file {shown} next to "
            f"{number(len(classes), 'folder')}. To read the files as data, give {str(pattern)!r}"
        )
    if not classes:
        raise DataError(f"{path}: expected {wanted}, found an empty folder")
    nested = [c for c in classes if (held := _visible(c)) and all(p.is_dir() for p in held)]
    if nested:
        raise DataError(
            f"{path}: expected {wanted}, but {nested[0].name!r} contains only folders: "
            f"did you mean {nested[0]}?"
        )
    return Source(path, tuple((c.name, file) for c in classes for file in _files(c)))
