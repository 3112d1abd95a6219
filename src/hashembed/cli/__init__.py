"""The command `hashembed`: parse, call, print. Heavy imports wait until they are needed."""

import click

from hashembed.cli.demo import demo_command
from hashembed.cli.plan import plan_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hashembed")
def main() -> None:
    """Hash embeddings: embedding tables that stay small and take any token."""


main.add_command(demo_command)
main.add_command(plan_command)
