"""`python -m hashembed` is the command `hashembed`."""

from hashembed.cli import run

run()
