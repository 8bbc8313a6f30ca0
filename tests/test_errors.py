"""The exception tree and optional imports."""

import sys

import pytest

from pytrtplugins import errors
from pytrtplugins.utils.optional import require


@pytest.mark.parametrize("name", errors.__all__)
def test_every_exception_descends_from_the_root_and_stands_in_the_drawn_tree(name):
    assert issubclass(getattr(errors, name), errors.PytrtpluginsError)
    assert name in errors.__doc__


@pytest.mark.parametrize(
    ("name", "builtin"),
    [("DimsError", ValueError), ("RegistryError", LookupError), ("MissingExtraError", ImportError), ("BuildError", RuntimeError),
     ("ConformanceError", AssertionError), ("CopyError", TypeError), ("CfgError", ValueError), ("CalibrationTableError", ValueError)],
)  # fmt: skip
def test_an_exception_is_also_the_builtin_that_a_caller_expects(name, builtin):
    assert issubclass(getattr(errors, name), builtin)


def test_the_facts_of_a_message_are_attributes():
    error = errors.CfgError("bad", path="a.cfg", line=7)
    assert (error.path, error.line, str(error)) == ("a.cfg", 7, "bad")
    with pytest.raises(AttributeError, match="no attribute 'column'"):
        _ = error.column


def test_a_refused_request_is_answered_with_400_and_no_time_to_come_back():
    error = errors.RequestError("bad")
    assert (error.status, error.retry_after, str(error)) == (400, None, "bad")
    assert error.facts == {"status": 400, "retry_after": None}
    error = errors.RequestError("later", status=503, retry_after=3)
    assert (error.status, error.retry_after) == (503, 3)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(errors.MissingExtraError, match=r'Do: pip install "pytrtplugins\[vision\]"') as caught:
        require("cv2", extra="vision", package="opencv-python-headless", feature="reading images")
    assert (caught.value.package, caught.value.extra) == ("opencv-python-headless", "vision")
    assert isinstance(caught.value.__cause__, ImportError)
    assert caught.value.msg == str(caught.value)
