"""Arguments in messages: as Python's caller writes them, or as the command's user does."""

import pytest

from hashembed.core.checks import one_of, whole_number
from hashembed.core.wording import command_options, given, named

OPTIONS = {"header": "--header", "label_separator": "--label-separator", "top": "--top"}


def test_python_names_arguments():
    assert named("label_separator") == "label_separator"
    assert given("label_separator") == "label_separator="
    assert given("label_separator", ",") == "label_separator=','"
    assert given("header", False) == "header=False"


def test_a_command_names_its_options():
    with command_options(OPTIONS):
        assert named("label_separator") == "--label-separator"
        assert given("label_separator") == "--label-separator"
        assert given("label_separator", ",") == '--label-separator ","'
        assert given("header", True) == "--header"
        assert given("header", False) == "--no-header"
        assert given("label_separator", "x") == "--label-separator x"
        assert given("top", 3) == "--top 3"
        assert given("other", 3) == "other=3"  # no option of this command
    assert named("header") == "header"


def test_options_are_forgotten_after_an_error():
    with command_options(OPTIONS), pytest.raises(ValueError, match=r"^--top must be a whole"):
        whole_number("top", 0, 1, 9)
    with command_options(OPTIONS), pytest.raises(ValueError, match=r"^--header must be one of 'a'"):
        one_of("header", "b", ("a",))
    with pytest.raises(ValueError, match=r"^top must be a whole"):
        whole_number("top", 0, 1, 9)
