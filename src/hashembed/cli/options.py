"""What the commands share: options, messages, errors and exit codes."""

import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import click

from hashembed.core.locations import is_uri
from hashembed.core.wording import command_options

Command = TypeVar("Command", bound=Callable[..., Any])


HUB = "hub:"  # what the name of a model on the hub begins with


class ModelFile(click.Path):
    """A model file. hub:owner/name, hub:owner/name@revision, or a URI, is downloaded first.

    kind: what the file has to hold, as in its header; None if the command takes every kind. The
    loader checks it, and `Subcommand` then names the command that takes such a file.
    """

    def __init__(self, kind: str | None = "TextClassifier") -> None:
        super().__init__(dir_okay=False)
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path of the file on this machine."""
        completing = ctx is not None and ctx.resilient_parsing
        if completing or not (str(value).startswith(HUB) or is_uri(value)):
            return super().convert(value, param, ctx)
        from hashembed.cli.hub import downloaded, fetched

        if is_uri(value):
            return fetched(value)
        quiet = ctx is not None and bool(ctx.params.get("quiet"))
        return downloaded(str(value).removeprefix(HUB), quiet)


MODEL_FILE = ModelFile()
VECTOR_FILE = ModelFile("WordVectors")
ANY_MODEL = ModelFile(None)


class Drawable(Protocol):
    """A result that can draw itself."""

    def plot(self, path: str) -> None:
        """Draw it into a file."""


THOUSANDS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
COUNT_UNITS = {**THOUSANDS, "b": 10**9}
BYTE_UNITS = {
    **THOUSANDS,
    **{f"{unit}b": factor for unit, factor in THOUSANDS.items()},
    **{f"{unit}ib": 1024**power for power, unit in enumerate("kmgt", 1)},
}

FORMATS = ("csv", "tsv", "jsonl", "parquet", "fasttext", "folder", "lines")


def quantity(
    units: dict[str, int], examples: str
) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """A callback for whole numbers with units: '2.5k' -> 2500."""

    def read(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
        if value is None:
            return None
        from decimal import Decimal

        match = re.fullmatch(r"\s*(\d[\d_]*\.?\d*(?:e\+?\d{1,2})?)\s*([a-z]*)\s*", value, re.I)
        if match and match[2].lower() in units:
            number = Decimal(match[1]) * units[match[2].lower()]
            if 1 <= number <= 10**18 and number == int(number):
                return int(number)
        raise click.BadParameter(
            f"found {value!r}, expected a whole number from 1 to 10^18, such as {examples}."
        )

    return read


def lengths(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    """'1-2' -> (1, 2), '2' -> (2, 2)."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,2})(?:-(\d{1,2}))?", value)
    shortest, longest = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= shortest <= longest:
        raise click.BadParameter(
            f"found {value!r}, expected a length from 1 to 99 or a range of them, such as 2 or 1-3."
        )
    return shortest, longest


def lengths_or_auto(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[int, int] | str | None:
    """'2-4' -> (2, 4), 'auto' -> 'auto'; 'none' -> None for character n-grams."""
    if value == "auto":
        return value
    if value == "none" and param.name == "subwords":
        return None
    return lengths(ctx, param, value)


def _named_or_numbered(value: str) -> str | int:
    """A column's number if the value is one, else its name."""
    return int(value) if re.fullmatch(r"[0-9]{1,9}", value) else value


def _column(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> str | int | None:
    if len(values) > 1:
        found = " and ".join(repr(value) for value in values)
        raise click.BadParameter(
            f"found {found}, expected one column. For several labels in one column, give "
            "--label-separator."
        )
    return _named_or_numbered(values[0]) if values else None


def _columns(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> list[str | int] | None:
    """'a,b' and 'c' -> a, b and c. The option may be repeated."""
    parts = [part for value in values for part in value.split(",")]
    return [_named_or_numbered(part) for part in parts] or None


def _with_tabs(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    r"""A tab may be written as \t."""
    return None if value is None else value.replace("\\t", "\t")


def _together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_LABEL_OPTIONS = [
    click.option(
        "--label",
        callback=_column,
        multiple=True,
        metavar="COLUMN",
        help="Label column: a name, or a number from 1. review.stars is a nested key.",
    ),
    click.option(
        "--label-separator",
        callback=_with_tabs,
        metavar="TEXT",
        help='Separator of several labels in that column, such as "," in "sports,news".',
    ),
]
_TEXT_OPTIONS = [
    click.option(
        "--text",
        callback=_columns,
        multiple=True,
        metavar="COLUMNS",
        help="Text column. Several, such as title,body, are joined. May be repeated.",
    ),
    click.option(
        "--header/--no-header",
        default=None,
        help="Whether row 1 names the columns. Detected by default.",
    ),
    click.option(
        "--delimiter",
        callback=_with_tabs,
        metavar="CHARACTER",
        help="Separator of columns; \\t is a tab. Detected by default.",
    ),
    click.option(
        "--quotes/--no-quotes",
        default=None,
        help="Whether double quotes enclose columns. Detected by default.",
    ),
    click.option(
        "--escapes/--no-escapes",
        default=None,
        help="Whether \\n in a text stands for a line end.",
    ),
    click.option(
        "--label-prefix",
        metavar="TEXT",
        help="Prefix of labels in fastText's format, if not __label__.",
    ),
    click.option("--encoding", help="Encoding of the data, such as latin-1. UTF-8 by default."),
    click.option(
        "--on-error",
        type=click.Choice(["stop", "skip"]),
        default="stop",
        show_default=True,
        help="What to do with a row that cannot be read: stop, or skip and report it.",
    ),
]


def data_options(labelled: bool = True) -> Callable[[Command], Command]:
    """How to read files. Everything that is not given is detected."""
    formats = [name for name in FORMATS if not (labelled and name == "lines")]
    format_option = click.option(
        "--format", type=click.Choice(formats), help="Format of the data. Detected by default."
    )
    return _together(format_option, *(_LABEL_OPTIONS if labelled else ()), *_TEXT_OPTIONS)


def reading(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options of `data_options` out of a command's options."""
    names = (
        *("format", "label", "label_separator", "text", "header", "delimiter", "quotes", "escapes"),
        *("label_prefix", "encoding", "on_error"),
    )
    return {name: options.pop(name) for name in names if name in options}


quiet_option = click.option(  # eager: it is known when a model is downloaded
    "--quiet", "-q", is_flag=True, is_eager=True, help="Print errors only."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON to standard output.")
seed_option = click.option("--seed", type=int, default=0, show_default=True, help="Random seed.")
threads_option = click.option(
    "--threads", type=click.IntRange(1), help="Number of threads. All cores by default."
)
punctuation_option = click.option(
    "--punctuation",
    type=click.Choice(["drop", "keep"]),
    default="drop",
    show_default=True,
    help="Drop punctuation, or keep runs of it, such as ++ or :-), as words.",
)
model_argument = click.argument("model", type=MODEL_FILE)
vectors_argument = click.argument("vectors", type=VECTOR_FILE)
plot_option = click.option(
    "--plot",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Draw a figure into this file (.png, .svg, .pdf).",
)


def option_names(ctx: click.Context) -> dict[str, str]:
    """The options of a command as the user writes them, {"learning_rate": "--learning-rate"}."""
    options = [param for param in ctx.command.params if isinstance(param, click.Option)]
    return {str(option.name): max(option.opts, key=len) for option in options}


def was_given(ctx: click.Context, name: str) -> bool:
    """Whether the user gave this option."""
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def say(message: object, quiet: bool = False) -> None:
    """Print a message on standard error. Standard output is for results."""
    if not quiet:
        click.echo(str(message), err=True)


def draw(result: Drawable, path: str | None, quiet: bool = False) -> None:
    """Draw `result.plot(path)`, if a path was given."""
    draw_with(result.plot, "--plot", path, quiet)


def draw_with(
    plot: Callable[[str], None], option: str, path: str | None, quiet: bool = False
) -> None:
    """Call `plot(path)`, if a path was given with this option."""
    if path is None:
        return
    try:
        plot(path)
    except ImportError as error:
        raise click.ClickException(f"{error}") from None
    except ValueError as error:  # matplotlib names the formats it knows
        raise click.BadParameter(f"{error}.", param_hint=option) from None
    except OSError as error:
        raise click.ClickException(f"Cannot write {path}: {error.strerror or error}.") from None
    say(f"Wrote {path}.", quiet)


@contextmanager
def counting_bar(total: int | None = None) -> Iterator[Callable[[int], object]]:
    """A progress bar for counting n-grams, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("Counting n-grams", total=total)
        yield lambda count: bar.advance(task, count)


class Subcommand(click.Command):
    """A command whose error messages name its options, not the arguments of the library."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        try:
            with command_options(option_names(ctx)):
                return super().invoke(ctx)
        except ValueError as error:
            if type(error).__name__ == "ModelFileError":
                from hashembed.cli.kinds import check_kind

                for param in self.params:
                    given = ctx.params.get(str(param.name))
                    if isinstance(param.type, ModelFile) and given is not None:
                        check_kind(given, param.type.kind)
            raise


class Polite(click.Group):
    """Turns errors into a message and an exit code: 1 data or model, 2 usage, 130 Ctrl-C."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # click ends quietly
        except OSError as error:
            name = f"{error.filename}: " if error.filename else ""
            raise click.ClickException(f"{name}{error.strerror or error}.") from None
        except (ValueError, ArithmeticError, ImportError, MemoryError) as error:
            if _is_ours(error):
                raise click.ClickException(f"{error}") from None
            raise
        except KeyboardInterrupt:
            # A second Ctrl-C must not disturb the exit.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            say("\ninterrupted")
            sys.exit(130)


def _is_ours(error: BaseException) -> bool:
    """Whether the message is written for the user: raised by this package, or out of memory."""
    if isinstance(error, MemoryError | ImportError):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return str(module).startswith("hashembed")
