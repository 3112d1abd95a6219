"""The command `hashembed`: parse, call, print; one file for each command.

In: arguments, files, standard input. Out: files, tables, messages, exit codes.
May import: all rooms. Commands import heavy modules when they need them.
"""

import atexit
import gc
import os
import sys
import threading
from collections import UserDict
from importlib import import_module
from typing import Any

import click

from hashembed.cli.options import Polite


class LazyCommands(UserDict[str, Any]):
    """Commands by name, given as {command: its module}. Looking one up imports its module."""

    def __getitem__(self, name: str) -> click.Command:
        module = import_module(f"hashembed.cli.{super().__getitem__(name)}")
        command: click.Command = getattr(module, f"{name}_command")
        return command


COMMANDS = LazyCommands(
    {
        "demo": "demo",
        "train": "train",
        "test": "evaluate",
        "compare": "compare",
        "compress": "compress",
        "predict": "predict",
        "explain": "explain",
        "words": "words",
        "page": "page",
        "info": "info",
        "card": "card",
        "plan": "plan",
        "vectors": "vectors",
        "nearest": "nearest",
        "analogy": "nearest",
        "similarity": "similarity",
        "export": "exchange",
        "import": "exchange",
    }
)

COMPLETION = """\b
Tab completion in bash (in zsh or fish, write zsh_source or fish_source):
  eval "$(_HASHEMBED_COMPLETE=bash_source hashembed)"
Exit codes: 0 success, 1 error in data or model, 2 wrong usage, 130 interrupted."""


@click.group(
    cls=Polite,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=COMPLETION,
)
@click.version_option(package_name="hashembed")
def main() -> None:
    """Train, test and explain small text classifiers and word vectors."""


def _open_standard_streams() -> None:
    """Open standard streams that were closed (`>&-`) as /dev/null.

    Otherwise the next file to be opened, such as a model, would take their place.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf8"))  # noqa: SIM115


def run() -> None:
    """Run the command as a process."""
    _open_standard_streams()
    # Python's last collections of garbage would visit every object, and free only memory.
    atexit.register(gc.freeze)
    # Otherwise numpy starts threads for matrices, which then keep a core busy for a while. Most
    # commands multiply only small ones.
    if sys.argv[1:2] != ["similarity"]:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        main(prog_name="hashembed")
    except SystemExit as end:
        if end.code in (None, 0):
            _end_at_once()
        raise
    except KeyboardInterrupt:  # not while a command runs: it has a handler of its own
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def _end_at_once() -> None:
    """End the process without taking Python apart, which takes 10 ms after numpy and pyarrow.

    All that Python promises to do before is done: threads have ended, functions of `atexit` have
    run, and what was printed is written. If that fails, Python ends in its own way.
    """
    own = threading.current_thread()
    if any(thread is not own and not thread.daemon for thread in threading.enumerate()):
        return
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # a pipe that was closed
        return
    os._exit(0)
