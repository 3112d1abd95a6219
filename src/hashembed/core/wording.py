"""Arguments and options in the words of those who read them: `label=` or `--label`."""

from collections.abc import Iterator
from contextlib import contextmanager

_in_command = False


@contextmanager
def command_words() -> Iterator[None]:
    """Within it, messages name the command's options instead of Python's arguments."""
    global _in_command
    before, _in_command = _in_command, True
    try:
        yield
    finally:
        _in_command = before


def named(name: str) -> str:
    """An argument as the subject of a sentence: `label`, or `--label`."""
    return f"--{name.replace('_', '-')}" if _in_command else name


def given(name: str, value: object = None) -> str:
    """An argument as one gives it: `label=`, `header=False`; or `--label`, `--no-header`."""
    if not _in_command:
        return f"{name}={'' if value is None else repr(value)}"
    if isinstance(value, bool):
        return named(name if value else f"no_{name}")
    return named(name) if value is None else f'{named(name)} "{value}"'
