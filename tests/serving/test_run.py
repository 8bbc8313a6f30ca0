"""Names and targets, and what is refused before anything is loaded."""

from __future__ import annotations

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.serving import Limits, ModelSpec
from pytrtplugins.serving.replica import Replica, model_class
from pytrtplugins.serving.run import read_target, serve


@pytest.mark.parametrize(
    ("text", "name", "target"),
    [
        ("nets/animals.engine", "animals", "nets/animals.engine"),
        ("my net.onnx", "my_net", "my net.onnx"),
        ("day=animals.engine", "day", "animals.engine"),
        ("tests.serving.served:Double", "double", "tests.serving.served:Double"),
        ("d2=tests.serving.served:Double", "d2", "tests.serving.served:Double"),
    ],
)
def test_a_target_has_a_name(text, name, target):
    assert read_target(text) == (name, target)


@pytest.mark.parametrize("text", ["a/b=x.engine", "=x.engine", "stats=x.engine", f"{65 * 'a'}=x.engine", ".hidden=x"])
def test_a_name_that_cannot_stand_in_an_address_is_refused(text):
    with pytest.raises(UsageError, match="cannot stand in an address") as caught:
        read_target(text)
    assert "Do: pytrt serve mymodel=" in str(caught.value)


def test_a_class_that_is_no_model_is_refused_with_those_that_are():
    with pytest.raises(UsageError, match=r"no class 'Nothing' .* It has: Double, Triple, Loads"):
        model_class("tests.serving.served:Nothing")


def test_two_models_of_one_name_are_refused():
    with pytest.raises(UsageError, match="two models are named 'a'"):
        serve([ModelSpec("a", "x.engine"), ModelSpec("a", "y.engine")])


def test_a_load_that_raises_is_one_line_and_the_command_that_shows_more():
    with pytest.raises(UsageError, match="served:Broken: load raised OSError: no weights") as caught:
        Replica(ModelSpec("broken", "tests.serving.served:Broken"), print)
    assert "Do: python -c" in str(caught.value)


def test_limits_are_sound_by_default():
    limits = Limits()
    assert 0 < limits.head_bytes < limits.body_bytes < limits.image_bytes
