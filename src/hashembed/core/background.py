"""Work in a second thread while the first one goes on."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_background(function: Callable[[], Result]) -> Callable[[], Result]:
    """Start function() -> a function that waits for its result, or raises its exception.

    If the system refuses a thread, function() runs when the result is asked for.
    """
    done: list[Any] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            done.append(function())
        except BaseException as error:
            failed.append(error)

    def result() -> Result:
        thread.join()
        if failed:
            raise failed[0]
        return cast(Result, done[0])

    thread = threading.Thread(target=work)
    try:
        thread.start()
    except RuntimeError:
        return function
    return result


def map_in_two(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """The results of function(item), in order. A second thread computes half of them."""
    middle = len(items) // 2
    waiting = in_background(lambda: [function(item) for item in items[:middle]])
    try:
        rest = [function(item) for item in items[middle:]]
    except BaseException:
        waiting()  # no thread outlives the call; an error of an earlier item comes first
        raise
    return waiting() + rest


def one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items: while one is used, the next is made in a second thread."""
    ends = [cast(Item, None)]  # one that no iterator gives

    def step() -> list[Item]:
        for item in items:
            return [item]
        return ends

    waiting = in_background(step)
    try:
        while (found := waiting()) is not ends:
            waiting = in_background(step)
            yield found[0]
    finally:
        with suppress(BaseException):  # nothing may use the items after this
            waiting()
