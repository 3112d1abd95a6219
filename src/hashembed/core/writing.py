"""Atomic writes: a file appears complete, or not at all.

A file is written under a temporary name in the same folder, synced to disk, and renamed. A process
that is killed leaves its temporary file behind. The next process that writes into the folder tries
to lock such a file. If that succeeds, nobody is writing the file any more, and it is removed.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple

CAN_LOCK = os.name == "posix"  # elsewhere leftovers stay
if CAN_LOCK:
    import fcntl

PathLike = str | os.PathLike[str]

_LEFTOVER = re.compile(r"\.hashembed-[0-9a-f]{16}\.tmp")
_BINARY = getattr(os, "O_BINARY", 0)  # of Windows


class Parts(NamedTuple):
    """The content of a file in parts, of which the first is known last."""

    size: int  # bytes of the first part
    first: Callable[[], bytes]
    rest: Iterable[Any]  # bytes, or other buffers


def write_whole(path: PathLike, data: bytes | Parts, *, sync: bool = True) -> None:
    """Write or replace a file atomically; a file that is replaced passes on its permissions.

    sync: wait until it is on the disk, so that it also survives a power failure.

    A symbolic link stays a link, and its target is replaced. Anything but a regular file, such as
    /dev/null or a named pipe, is written to directly.
    """
    before = _status(path)
    if before is not None and not stat.S_ISREG(before.st_mode):
        check_sink(path, before)
        with open(path, "wb") as sink:
            if isinstance(data, Parts):
                sink.write(data.first())
            for part in data.rest if isinstance(data, Parts) else [data]:
                sink.write(part)
        return
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    _remove_leftovers(folder)
    descriptor, temporary = _temporary(folder, 0o666 if before is None else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if isinstance(data, bytes):
                file.write(data)
            else:
                _write_parts(file, data, sync)
            file.flush()
            if before is not None:
                _give_rights(descriptor, before)
            if sync:
                os.fsync(descriptor)
            if not CAN_LOCK:
                file.close()  # Windows does not rename open files
            os.replace(temporary, target)
    except BaseException as error:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.errno and not error.filename:  # a full disk
            error.filename = str(path)
        raise


def _write_parts(file: BinaryIO, parts: Parts, sync: bool) -> None:
    """The rest goes to disk before the first part is asked for, which may still be computed."""
    file.seek(parts.size)
    for part in parts.rest:
        file.write(part)
    file.flush()
    if sync:
        os.fsync(file.fileno())
    first = parts.first()
    if len(first) != parts.size:
        raise ValueError(f"the first part has {len(first):,} bytes, expected {parts.size:,}")
    file.seek(0)
    file.write(first)


def check_sink(path: PathLike, found: os.stat_result) -> None:
    """Refuse folders, sockets and block devices, which cannot be written to like a file."""
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder, expected a file", str(path))
    if not (stat.S_ISCHR(found.st_mode) or stat.S_ISFIFO(found.st_mode)):
        kind = "a socket" if stat.S_ISSOCK(found.st_mode) else "a device"
        raise OSError(errno.EINVAL, f"is {kind}, expected a file", str(path))


def _status(path: PathLike) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _temporary(folder: str, mode: int) -> tuple[int, str]:
    """A new file that this process has locked; its permissions follow the umask."""
    while True:
        name = os.path.join(folder, f".hashembed-{os.urandom(8).hex()}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY
        descriptor = os.open(name, flags, mode)
        if _lock(descriptor) is not False and os.path.exists(name):
            return descriptor, name
        os.close(descriptor)  # another process took it for a leftover before it was locked


def _give_rights(descriptor: int, before: os.stat_result) -> None:
    """Copy owner and permissions of the file that is replaced."""
    if not hasattr(os, "fchmod"):
        return
    own = os.fstat(descriptor)
    if (own.st_uid, own.st_gid) != (before.st_uid, before.st_gid):
        with suppress(PermissionError):  # only root may give files away
            os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def _remove_leftovers(folder: str) -> None:
    """Remove temporary files of ours that no living process is writing."""
    if not CAN_LOCK:
        return
    with suppress(OSError), os.scandir(folder) as entries:
        names = [entry.path for entry in entries if _LEFTOVER.fullmatch(entry.name)]
        for name in names:
            with suppress(OSError):
                descriptor = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    if _lock(descriptor):
                        os.unlink(name)
                finally:
                    os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """True; False if another process has the lock; None if files cannot be locked here."""
    if not CAN_LOCK:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
