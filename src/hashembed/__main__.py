"""`python -m hashembed` is the command `hashembed`."""

from hashembed.cli import main

main(prog_name="hashembed")
