"""Work in a second thread: results, exceptions, order, and systems without threads."""

import threading

import pytest

from hashembed.core.background import in_background, map_in_two, one_ahead


def refuse(self):
    raise RuntimeError("can't start new thread")


def test_the_result_of_another_thread():
    result = in_background(threading.get_ident)
    assert result() == result() != threading.get_ident()


def test_an_exception_is_raised_where_the_result_is_asked_for():
    result = in_background(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        result()


def test_without_threads(monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert in_background(threading.get_ident)() == threading.get_ident()
    assert list(one_ahead(iter(range(5)))) == list(range(5))


@pytest.mark.parametrize("items", [[], [1], [None, 0, None], list(range(100))])
def test_the_same_items(items):
    assert list(one_ahead(iter(items))) == items


def test_one_item_is_made_in_advance():
    made = threading.Semaphore(0)

    def items():
        for i in range(3):
            made.release()
            yield i

    ahead = one_ahead(items())
    assert next(ahead) == 0
    assert made.acquire(timeout=60)
    assert made.acquire(timeout=60)  # the second one, which nobody has asked for
    ahead.close()


def test_an_exception_comes_after_the_items_before_it():
    def items():
        yield 1
        raise ValueError("broken")

    ahead = one_ahead(items())
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="broken"):
        next(ahead)


def test_nothing_runs_after_the_end():
    """A file can be closed as soon as the iterator is."""
    open_, errors = [True], []
    started = threading.Event()

    def items():
        for i in range(100):
            if i:
                started.set()
            if not open_:
                errors.append(i)
            yield i

    for _ in one_ahead(items()):
        assert started.wait(timeout=60)
        break
    open_.clear()
    assert errors == []


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_maps_in_two_threads_and_keeps_the_order(count):
    assert map_in_two(lambda x: -x, range(count)) == [-x for x in range(count)]


def test_maps_in_two_threads():
    threads = map_in_two(lambda _: threading.get_ident(), range(2))
    assert threads[0] != threads[1] == threading.get_ident()


@pytest.mark.parametrize("bad", [0, 3])
def test_an_error_in_either_thread_is_raised(bad):
    with pytest.raises(ZeroDivisionError):
        map_in_two(lambda x: 1 // (x - bad), range(4))
