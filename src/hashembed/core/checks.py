"""Checks of arguments. Their messages name the argument, what was found and what is allowed."""

import operator
from collections.abc import Sequence

from hashembed.core.wording import named


def whole_number(name: str, value: object, low: int, high: int) -> int:
    """`value` as an int in [low, high], or a TypeError or ValueError that says what is wrong."""
    name, allowed = named(name), f"a whole number from {low:,} to {high:,}"
    if isinstance(value, bool):
        raise TypeError(f"{name} must be {allowed}, found the bool {value}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        found = f"{value!r} of type {type(value).__name__}"
        raise TypeError(f"{name} must be {allowed}, found {found}") from None
    if not low <= number <= high:
        raise ValueError(f"{name} must be {allowed}, found {number:,}")
    return number


def one_of(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a `value` that is not among the choices."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{named(name)} must be one of {listed}, found {value!r}")
