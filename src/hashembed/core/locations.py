"""Files in other places than this machine: anything that Arrow has a file system for.

A location is a path, or a URI such as `s3://bucket/folder/file`, `gs://...` or `hdfs://...`. What
follows a question mark are settings of the file system, such as `s3://bucket/file?region=eu-west-1`.
Arrow's file systems are imported only for URIs.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from hashembed.core.writing import Parts, write_whole

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")  # two letters at least: C:\ is a drive


def is_uri(path: object) -> bool:
    """Whether this names a place outside the local file system, by its scheme."""
    return isinstance(path, str) and _URI.match(path) is not None


def file_system(uri: str) -> "tuple[FileSystem, str]":
    """Arrow's file system of a URI, and the path there."""
    from pyarrow import ArrowException
    from pyarrow.fs import FileSystem

    try:
        system, path = FileSystem.from_uri(uri)
    except (ArrowException, OSError, ValueError) as error:
        raise OSError(errno.EIO, f"cannot be reached: {error}", uri) from None
    return system, path


def open_location(location: str) -> Any:
    """Open a file for reading; it can be read from any place."""
    if not is_uri(location):
        return open(location, "rb")
    system, path = file_system(location)
    with _named(location):
        return system.open_input_file(path)


def read_location(location: str) -> bytes:
    """The content of a file."""
    with open_location(location) as file, _named(location):
        return bytes(file.read())


def write_location(location: str, data: bytes | Any, *, sync: bool = True) -> None:
    """Write bytes, or another buffer, to a file. It appears complete, or not at all.

    Object stores such as S3 show an object when its upload is complete. Elsewhere the file is
    written under another name and then moved. sync: as in `write_whole`.
    """
    if not is_uri(location):
        os.makedirs(os.path.dirname(location) or ".", exist_ok=True)
        write_whole(location, Parts(0, bytes, [data]), sync=sync)
        return
    system, path = file_system(location)
    with _named(location):
        if system.type_name in ("s3", "gcs", "abfs"):
            _write(system, path, data)
            return
        system.create_dir(path.rpartition("/")[0], recursive=True)
        temporary = f"{path}.{os.urandom(8).hex()}.tmp"
        try:
            _write(system, temporary, data)
            system.move(temporary, path)
        except BaseException:
            with suppress(OSError):
                system.delete_file(temporary)
            raise


@contextmanager
def local_copy(location: str | os.PathLike[str], *, read: bool = True) -> Iterator[str]:
    """The path of a file of this machine that stands for this one.

    For a URI it is a temporary file. With `read` it has the content; otherwise its content is
    written to the URI at the end, unless there was an error.
    """
    path = os.fspath(location)
    if not is_uri(path):
        yield path
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="hashembed-") as folder:
        local = os.path.join(folder, path.partition("?")[0].rpartition("/")[2] or "file")
        if read:
            with open(local, "wb") as file:
                file.write(read_location(path))
        yield local
        if not read:
            with open(local, "rb") as file:
                write_location(path, file.read())


def exists(location: str) -> bool:
    """Whether there is such a file or folder."""
    if not is_uri(location):
        return os.path.exists(location)
    from pyarrow.fs import FileType

    system, path = file_system(location)
    with _named(location):
        return bool(system.get_file_info(path).type != FileType.NotFound)


def size_of(location: str) -> int:
    """The bytes of a file."""
    if not is_uri(location):
        return os.stat(location).st_size
    system, path = file_system(location)
    with _named(location):
        return int(system.get_file_info(path).size)


def delete_location(location: str) -> None:
    """Delete a file, if it is there."""
    if not exists(location):
        return
    if not is_uri(location):
        os.unlink(location)
        return
    system, path = file_system(location)
    with _named(location):
        system.delete_file(path)


def delete_folder(location: str) -> None:
    """Delete a folder with all that is in it, if it is there."""
    if not is_uri(location):
        import shutil

        shutil.rmtree(location, ignore_errors=True)
        return
    system, path = file_system(location)
    with _named(location), suppress(FileNotFoundError):
        system.delete_dir(path)


def join_location(folder: str, *names: str) -> str:
    """The location of a file in a folder."""
    if is_uri(folder):
        base, mark, settings = folder.partition("?")
        return "/".join([base.rstrip("/"), *names]) + mark + settings
    return os.path.join(folder, *names)


def list_files(folder: str) -> list[str]:
    """All files below a folder, by name; hidden ones (._) are left out, as engines write them."""
    from pyarrow.fs import FileSelector, FileType

    system, root = file_system(folder)
    with _named(folder):
        found = system.get_file_info(FileSelector(root, recursive=True))
    base, mark, settings = folder.partition("?")
    start = base.rstrip("/").removesuffix(root.rstrip("/"))
    paths = [info.path for info in found if info.type == FileType.File]
    below = [path for path in paths if not _hidden(path.removeprefix(root))]
    return [start + path + mark + settings for path in sorted(below)]


def is_folder(location: str) -> bool:
    """Whether this URI is a folder, or the common beginning of objects in a store."""
    from pyarrow.fs import FileType

    system, path = file_system(location)
    with _named(location):
        return bool(system.get_file_info(path).type == FileType.Directory)


def _hidden(path: str) -> bool:
    return any(name.startswith((".", "_")) for name in path.split("/"))


def _write(system: "FileSystem", path: str, data: Any) -> None:
    with system.open_output_stream(path) as stream:
        stream.write(data)


@contextmanager
def _named(location: str) -> Iterator[None]:
    """Errors of Arrow name the location."""
    from pyarrow import ArrowException

    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "no such file", location) from None
    except (ArrowException, OSError) as error:
        raise OSError(errno.EIO, str(error), location) from None
