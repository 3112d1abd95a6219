"""Names of arguments in messages: `label` for a Python caller, `--label` for the command's user.

Messages get the name of an argument from `named` or `given`. A command declares its options with
`command_options`. While it runs, messages use the names of these options.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_options: Mapping[str, str] = {}  # argument -> the running command's option


@contextmanager
def command_options(options: Mapping[str, str]) -> Iterator[None]:
    """Name these options in messages, {"learning_rate": "--learning-rate"}."""
    global _options
    before, _options = _options, options
    try:
        yield
    finally:
        _options = before


def option_names() -> Mapping[str, str]:
    """The options of the running command, for `command_options` in another process."""
    return _options


def named(name: str) -> str:
    """An argument as the subject of a sentence: `label`, or `--label`."""
    return _options.get(name, name)


def given(name: str, value: object = None) -> str:
    """An argument as one gives it: `label=`, `header=False`; or `--label`, `--no-header`."""
    option = _options.get(name)
    if option is None:
        return f"{name}={'' if value is None else repr(value)}"
    if isinstance(value, bool):
        return option if value else f"--no-{option.removeprefix('--')}"
    if value is None:
        return option
    quoted = isinstance(value, str) and not value.isidentifier()
    return f'{option} "{value}"' if quoted else f"{option} {value}"
