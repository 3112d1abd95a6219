"""Makes `python -m hashembed` run the command `hashembed`."""

from hashembed.cli import run

run()
