"""Triton's interpreter in less time.

At every call of a kernel or of a function in it, the interpreter looks through all members of its
language for those to replace. That is a third of the time of our tests. Which members these are
does not change, so here their names are found once.
"""

import inspect
from functools import cache

from triton.language import core
from triton.runtime import interpreter


@cache
def _names(package: object) -> list[str]:
    return [name for name, member in inspect.getmembers(package) if core.is_builtin(member)]


def _patch_builtin(package, builder, scope):
    for name in _names(package):
        member = getattr(package, name)
        if core.is_builtin(member):  # not yet replaced
            interpreter._patch_attr(package, name, member, builder, scope)


def use() -> None:
    """From now on, in this process."""
    interpreter._patch_builtin = _patch_builtin
