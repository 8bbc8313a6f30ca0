"""Names and targets, and what is refused before anything is loaded."""

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.serving import Limits, ModelSpec
from pytrtplugins.serving.batching.replica import Replica, model_class
from pytrtplugins.serving.run import check, read_target, serve


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
    with pytest.raises(UsageError, match=r"no class 'Nothing' .* It has: Double, OtherRows, Immediate, Triple, Loads"):
        model_class("tests.serving.served:Nothing")


def test_two_models_of_one_name_are_refused():
    with pytest.raises(UsageError, match="two models have the name 'a'"):
        serve([ModelSpec("a", "x.engine"), ModelSpec("a", "y.engine")])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([{"share": 0.5}, {"shadow": True}], "model 'a': one version must have neither share nor shadow"),
        ([{}, {"share": 0.5}, {"share": 0.6}], "model 'a': the shares of its versions are more than 1"),
    ],
)
def test_versions_that_cannot_be_served_together_are_refused(options, said):
    specs = [ModelSpec("a", "x.engine", version=str(1 + number), **each) for number, each in enumerate(options)]
    with pytest.raises(UsageError, match=said):
        check(specs)


def test_a_canary_is_no_shadow():
    with pytest.raises(UsageError, match="give share or shadow, not both"):
        ModelSpec("a", "x.engine", share=0.1, shadow=True)


def test_a_load_that_raises_is_one_line_and_the_command_that_shows_more():
    with pytest.raises(UsageError, match="served:Broken: load raised OSError: no weights") as caught:
        Replica(ModelSpec("broken", "tests.serving.served:Broken"), None, print)
    assert "Do: python -c" in str(caught.value)


def test_limits_are_sound_by_default():
    limits = Limits()
    assert 0 < limits.head_bytes < limits.body_bytes < limits.image_bytes
