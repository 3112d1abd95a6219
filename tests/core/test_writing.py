"""Atomic writes, whatever exists under that name and whichever process is killed."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from hashembed.core import writing
from hashembed.core.writing import Parts, write_whole
from hashembed.engine.tensor_file import ModelFileError, load_tensors, save_tensors

KILLS, MANY_KILLS = 8, 60

SAVE = """
import sys
import numpy as np
from hashembed.engine.tensor_file import save_tensors
number = 0
while True:
    number += 1
    tensors = {"x": np.full(200_000, number, np.float32)}
    save_tensors(sys.argv[1], "x", tensors, number)
    print(number, flush=True)
"""


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o755])
def test_a_replaced_file_keeps_its_rights(tmp_path, mode):
    path = tmp_path / "file"
    write_whole(path, b"first")
    path.chmod(mode)
    write_whole(path, b"second")
    assert path.read_bytes() == b"second"
    assert mode_of(path) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_replaced_file_keeps_its_owner(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"")
    os.chown(path, 12345, 12346)
    write_whole(path, b"second")
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 12346)


def test_a_new_file_is_as_the_umask_wants_it(tmp_path):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "file", b"")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "file") == 0o640


def test_other_threads_keep_the_umask(tmp_path):
    """Reading the umask means changing it, and files of other threads would be open to all."""
    done = threading.Event()

    def write():
        while not done.is_set():
            write_whole(tmp_path / "model", b"x")

    before = os.umask(0o077)
    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(500):
            path = tmp_path / f"{number}"
            path.touch()
            assert mode_of(path) == 0o600
    finally:
        done.set()
        thread.join()
        os.umask(before)


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "file", tmp_path / "link"
    link.symlink_to(target)
    for content in (b"first", b"second"):  # at first it leads nowhere
        write_whole(link, content)
        assert link.is_symlink()
        assert target.read_bytes() == content
    assert sorted(os.listdir(tmp_path)) == ["elsewhere", "link"]


def test_devices_and_pipes_are_written_to(tmp_path):
    null = tmp_path / "null"
    try:
        os.mknod(null, stat.S_IFCHR | 0o666, os.stat("/dev/null").st_rdev)
        open(null, "wb").close()
    except OSError:
        null.unlink(missing_ok=True)
        null.symlink_to("/dev/null")
    write_whole(null, b"gone")
    assert stat.S_ISCHR(os.stat(null).st_mode)
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"through the pipe" * 10_000)
    reader.join()
    assert received == [b"through the pipe" * 10_000]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_folders_and_sockets_are_refused(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write_whole(tmp_path, b"")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "socket"))
        with pytest.raises(OSError, match="is a socket"):
            write_whole(tmp_path / "socket", b"")
    assert os.listdir(tmp_path) == ["socket"]


def test_a_pipe_is_no_model(tmp_path):
    """It is refused at once, without waiting for a writer."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="is a pipe"):
        load_tensors(tmp_path / "pipe", "x")


def test_what_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, b"first")

    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_whole(path, b"second")
    assert path.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["file"]


def test_only_leftovers_of_the_dead_are_removed(tmp_path):
    left = tmp_path / ".hashembed-0123456789abcdef.tmp"
    left.write_bytes(b"of a killed process")
    foreign = [tmp_path / ".hashembed-notes.tmp", tmp_path / "hashembed-0123456789abcdef.tmp"]
    for file in foreign:
        file.write_bytes(b"")
    descriptor, alive = writing._temporary(tmp_path, 0o600)
    write_whole(tmp_path / "file", b"")
    assert not left.exists()
    assert os.path.exists(alive)
    assert all(file.exists() for file in foreign)
    os.close(descriptor)
    write_whole(tmp_path / "file", b"")
    assert not os.path.exists(alive)


def test_many_writers_at_once(tmp_path):
    """No process takes the file of another for a leftover."""
    errors = []

    def write(number):
        try:
            for _ in range(50):
                write_whole(tmp_path / "file", bytes([number]) * 10_000)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(set((tmp_path / "file").read_bytes())) == 1
    assert os.listdir(tmp_path) == ["file"]


def test_parts(tmp_path):
    """The first part is asked for when the others are written."""
    path = tmp_path / "file"

    def first():
        (temporary,) = tmp_path.glob(".hashembed-*.tmp")
        assert temporary.read_bytes() == b"\0\0\0rest"
        return b"one"

    write_whole(path, Parts(3, first, [b"re", np.frombuffer(b"st", np.uint8).data]))
    assert path.read_bytes() == b"onerest"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("size", [2, 4])
def test_a_first_part_of_another_size(tmp_path, size):
    with pytest.raises(ValueError, match="the first part has 3 bytes"):
        write_whole(tmp_path / "file", Parts(size, lambda: b"one", [b"rest"]))
    assert os.listdir(tmp_path) == []


def test_parts_through_a_pipe(tmp_path):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, Parts(3, lambda: b"one", [b"re", b"st"]))
    reader.join()
    assert got == [b"onerest"]


def kill_during_saves(path, kills, seed):
    """After each kill the file is the new or the previous version, and nothing else is left."""
    rng, left = np.random.default_rng(seed), 0
    for _ in range(kills):
        process = subprocess.Popen([sys.executable, "-c", SAVE, path], stdout=subprocess.PIPE)
        first = process.stdout.readline()
        assert first == b"1\n"
        time.sleep(float(rng.uniform(0, 0.05)))
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
        process.wait()
        process.stdout.close()
        tensors, number = load_tensors(path, "x")
        assert number - int((rest or [b"1"])[-1]) in (0, 1)
        assert (tensors["x"] == number).all()
        left += len(os.listdir(path.parent)) - 1
        save_tensors(path, "x", {}, 0)
        assert os.listdir(path.parent) == [path.name]
    return left


def test_kills_during_save(tmp_path):
    kill_during_saves(tmp_path / "model", KILLS, seed=0)


@pytest.mark.slow
def test_many_kills_during_save(tmp_path):
    left = kill_during_saves(tmp_path / "model", MANY_KILLS, seed=1)
    print(f"\n{MANY_KILLS} of {MANY_KILLS} kills left a whole file; {left} leftovers were removed")
    assert left > 0
