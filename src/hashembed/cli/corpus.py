"""Texts that are read several times: files, folders, and standard input by way of a file.

Counting and numbering the words of a corpus reads it about four times. A small corpus stays in
memory after the first time.
"""

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import click

from hashembed.cli.inputs import check_input
from hashembed.core.locations import is_uri

if TYPE_CHECKING:
    from hashembed.readers import Report

IN_MEMORY = 1 << 28  # bytes of text that are kept
STDIN, STDIN_NAME = "-", "standard input"
OnBytes = Callable[[int, int], object]  # which reading, from 1; bytes of text that it has read


class Corpus:
    """Calling it reads all texts once more, as Arrow columns. `report` is that of a whole reading.

    Standard input and pipes can be read only once, so they are copied to a temporary file. Leaving
    the context removes it.
    """

    def __init__(
        self, data: Sequence[str], options: dict[str, Any], temporary: str | None = None
    ) -> None:
        """temporary: the folder for copies; None is that of the system."""
        check_input(data)
        self._given, self._options, self._temporary = list(data), options, temporary
        self._paths: list[str] = []
        self._names: dict[str, str] = {}  # temporary file -> what it is a copy of
        self._kept: list[Any] | None = []  # columns, once a reading was complete and small
        self._stack = ExitStack()
        self.readings, self.bytes = 0, 0
        self.report: Report | None = None
        self.on_bytes: OnBytes = lambda reading, count: None
        self.on_report: Callable[[Report], object] = lambda report: None

    def __enter__(self) -> Self:
        with self._stack:  # removes what was copied if a later copy fails
            for path in self._given:
                self._paths += [self._copied(path)] if _once(path) else _files_of(path)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def __call__(self) -> Iterator[Any]:
        """All texts, from the beginning."""
        if self.report is not None and self._kept is not None:
            yield from self._kept
            return
        from hashembed.readers import DataError, read_text_batches

        self.readings += 1
        first, count, report = self.report is None, 0, None
        try:
            for batch in read_text_batches(self._paths, **self._options):
                count += batch.texts.nbytes
                report = batch.report
                if first:
                    self._keep(batch.texts, count)
                self.on_bytes(self.readings, count)
                yield batch.texts
        except DataError as error:
            raise DataError(self._renamed(str(error))) from None
        if first:
            self.report, self.bytes = self._named_report(report), count
            self.on_report(self.report)

    def _keep(self, column: Any, total: int) -> None:
        if self._kept is not None:
            self._kept = [*self._kept, column] if total <= IN_MEMORY else None

    def _copied(self, path: str) -> str:
        """A temporary file with what a pipe holds."""
        name = STDIN_NAME if path == STDIN else path
        if name in self._names.values():
            raise click.UsageError(f"found {name} twice, but it can be read only once.")
        descriptor, copy = tempfile.mkstemp(prefix="hashembed-", dir=self._temporary)
        self._stack.callback(_remove, copy)
        source = sys.stdin.buffer if path == STDIN else open(path, "rb")  # noqa: SIM115
        with os.fdopen(descriptor, "wb") as file:
            try:
                shutil.copyfileobj(source, file, 1 << 20)
            except OSError as error:
                raise click.ClickException(
                    f"Cannot copy {name} to {copy}: {error.strerror or error}. --cache-dir "
                    "chooses another folder."
                ) from None
            finally:
                if path != STDIN:
                    source.close()
        self._names[copy] = name
        return copy

    def _renamed(self, message: str) -> str:
        for copy, name in self._names.items():
            message = message.replace(copy, name)
        return message

    def _named_report(self, report: "Report | None") -> "Report":
        """The report with the names that the user gave."""
        from dataclasses import replace

        from hashembed.readers import Report

        if report is None:
            return Report(files=[self._names.get(path, path) for path in self._paths])
        report.files = [self._names.get(file, file) for file in report.files]
        for problems in (report.problems, report.repairs):
            problems[:] = [
                replace(one, file=self._names.get(one.file, one.file)) for one in problems
            ]
        return report


def _once(path: str) -> bool:
    """Whether this can be read only once."""
    if path == STDIN:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False  # a pattern, a URI, or a missing file, which the reader explains
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def _files_of(path: str) -> list[str]:
    """The path; or, for a folder with files of known formats, these files.

    In a folder of other files, each file is a text.
    """
    if is_uri(path) or not os.path.isdir(path):
        return [path]
    from hashembed.readers.formats.detect import format_by_name

    found = []
    for folder, folders, names in os.walk(path):
        folders.sort()
        found += [
            os.path.join(folder, name)
            for name in sorted(names)
            if not name.startswith(".") and format_by_name(name) is not None
        ]
    return found or [path]


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)
