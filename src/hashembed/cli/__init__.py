"""The command `hashembed`: parse, call, print, one file for each command.

In: arguments, files, standard input. Out: files, tables, messages, exit codes.
May import: all rooms. Heavy imports wait until they are needed.
"""

import os
import sys

import click

from hashembed.cli.compare import compare_command
from hashembed.cli.demo import demo_command
from hashembed.cli.evaluate import test_command
from hashembed.cli.explain import explain_command
from hashembed.cli.info import info_command
from hashembed.cli.options import Polite
from hashembed.cli.plan import plan_command
from hashembed.cli.predict import predict_command
from hashembed.cli.train import train_command
from hashembed.cli.words import words_command

COMPLETION = """\b
Completion of commands and options with Tab, in bash (zsh and fish: use their names):
  eval "$(_HASHEMBED_COMPLETE=bash_source hashembed)"
Exit codes: 0 done, 1 trouble with data or model, 2 wrong usage, 130 interrupted."""


@click.group(
    cls=Polite, context_settings={"help_option_names": ["-h", "--help"]}, epilog=COMPLETION
)
@click.version_option(package_name="hashembed")
def main() -> None:
    """Hash embeddings: embedding tables that stay small and take any token."""


for command in (
    demo_command,
    train_command,
    test_command,
    compare_command,
    predict_command,
    explain_command,
    words_command,
    info_command,
    plan_command,
):
    main.add_command(command)


def _open_standard_streams() -> None:
    """Where standard input, output or error were closed (`>&-`), nothing is there or goes there.

    Otherwise the next file that is opened, a model, would be taken for them.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf8"))  # noqa: SIM115


def run() -> None:
    """The command as a process of its own."""
    # Where it is installed, Numba would import it at start-up, for linear algebra that we have not.
    sys.modules.setdefault("scipy", None)  # type: ignore[arg-type]
    _open_standard_streams()
    main(prog_name="hashembed")
