"""The file of a trained model: what it keeps, and what is said of another file; and what a run begins with."""

# ruff: noqa: E402  (the samples need PyTorch)
from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason='the training sample needs torch (pip install "pytrtplugins[train]")')

import train_yolov2

from pytrtplugins.errors import FormatError, UsageError
from tests.samples.rectangles import ANCHORS, CLASSES, TINY, tiny_network
from yolov2_training import export
from yolov2_training.model import Model, load_model, save_model
from yolov2_training.recipe import Recipe

RECIPE = Recipe(stages=(4, 8, 8, 8, 16, 16), head=16, passthrough=4)
pytestmark = pytest.mark.usefixtures("one_thread")


def save(path: Path, network=None) -> Path:
    save_model(path, Model(network or tiny_network(2), ANCHORS, CLASSES), RECIPE)
    return path


def test_equal_models_give_equal_bytes_under_any_name(tmp_path: Path) -> None:
    first = save(tmp_path / "model.pt").read_bytes()
    assert save(tmp_path / "other.pt").read_bytes() == first
    assert save(tmp_path / "model.pt").read_bytes() == first


def test_numbers_that_float16_cannot_hold_are_kept(tmp_path: Path) -> None:
    network = tiny_network(2)
    values = [1e5, -2e5, 1e-9, 7e4, 65536.0]

    def tensors(network):
        convolution, norm, *_ = network.parts[0]
        return norm.running_var, norm.running_mean, norm.weight, norm.bias, convolution.weight.view(-1)

    with torch.no_grad():
        for tensor, value in zip(tensors(network), values, strict=True):
            tensor[0] = value
    again, recipe = load_model(save(tmp_path / "model.pt", network))
    assert recipe == RECIPE
    for tensor, value in zip(tensors(again.network), values, strict=True):
        assert tensor[0] == torch.tensor(value)
    content = torch.load(tmp_path / "model.pt", weights_only=True)["state"]
    kinds = {name: tensor.dtype for name, tensor in content.items() if tensor.ndim == 4}
    assert kinds.pop("parts.0.0.weight") == torch.float32
    assert set(kinds.values()) == {torch.float16}


def changed(**changes: object):
    def change(content: dict) -> object:
        content |= changes
        return content

    return change


def without(name: str):
    def change(content: dict) -> object:
        del content[name]
        return content

    return change


def with_state(**tensors: object):
    def change(content: dict) -> object:
        content["state"] |= {name.replace("_0", ".0").replace("parts_", "parts."): t for name, t in tensors.items()}
        return content

    return change


def with_recipe(**values: object):
    def change(content: dict) -> object:
        content["recipe"] |= values
        return content

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda content: content["state"], "no recipe, state, anchors and classes"),
        (lambda content: [content], "it has list, and no recipe"),
        (lambda content: {}, "it has nothing, and no recipe"),
        (lambda content: {7: "x"}, "it has 7, and no recipe"),
        (without("classes"), "no recipe, state, anchors and classes"),
        (changed(classes=[]), "its classes are no list of names"),
        (changed(classes=["red", 7]), "its classes are no list of names"),
        (changed(classes="ab"), "its classes are no list of names"),
        (changed(classes=["one"]), "tensor parts.30.weight is 35x16x1x1, its recipe says 30x16x1x1"),
        (changed(anchors=torch.ones(4, 2)), "its anchors are not 5 pairs of sizes"),
        (changed(anchors=torch.zeros(5, 2)), "its anchors are not 5 pairs of sizes"),
        (changed(anchors=[1.0]), "its anchors are not 5 pairs of sizes"),
        (changed(state=[]), "its state is no dict of tensors"),
        (with_state(parts_0_0=7), "its state is no dict of tensors"),
        (with_state(more=torch.ones(2)), "its tensor more is 2, its recipe says missing"),
        (changed(recipe=3), "its recipe is no dict"),
        (with_recipe(head=10**9), "the widths of its recipe"),
        (with_recipe(head=8192), "its recipe says"),
        (with_recipe(head="16"), "the widths of its recipe"),
        (with_recipe(stages=[4, 8]), "the widths of its recipe"),
        (with_recipe(stages=7), "the widths of its recipe"),
        (with_recipe(stages=[4, 8, 8, 8, 16, -16]), "the widths of its recipe"),
        (with_state(**{"parts.0.1.bias": torch.full((4,), float("nan"))}), "its weights are not all finite"),
        (with_state(**{"parts.0.1.bias": torch.zeros(1).expand(4)}), "its tensors repeat fewer numbers"),
    ],
)
def test_a_file_that_is_no_model_says_why(tmp_path: Path, change, why: str) -> None:
    path = save(tmp_path / "model.pt")
    content = torch.load(path, weights_only=True)
    torch.save(change(content), path)
    with pytest.raises(FormatError) as caught:
        load_model(path)
    cause, do = str(caught.value).split("\n")
    assert cause.startswith(f"{path}: not a model of this sample: ")
    assert why in cause
    assert do == "Do: give a model.pt that samples/train_yolov2.py wrote"


@pytest.mark.parametrize("what", ["missing", "folder", "junk", "cut", "empty"])
@pytest.mark.parametrize("option", ["--model", "--start"])
def test_a_model_that_cannot_be_read_is_refused(
    rectangles: Path, tmp_path: Path, capsys, what: str, option: str
) -> None:
    path = tmp_path / "given.pt"
    match what:
        case "folder":
            path.mkdir()
        case "junk":
            path.write_bytes(b"no model at all " * 20)
        case "cut":
            path.write_bytes(save(tmp_path / "model.pt").read_bytes()[:-200])
        case "empty":
            path.touch()
    line = ["--data", str(rectangles), "--device", "cpu", option, str(path), "--output", str(tmp_path / "out"), *TINY]
    assert train_yolov2.main([*line, *(["--evaluate", "all"] if option == "--model" else [])]) == 1
    cause, do = capsys.readouterr().err.splitlines()
    assert f"{path}" in cause
    assert do in ("Do: give a model.pt that samples/train_yolov2.py wrote", f"Do: ls {tmp_path}")


@pytest.mark.parametrize("how", ["missing", "empty", "junk", "cut"])
@pytest.mark.parametrize("lack", ["cfg", "weights", "names"])
def test_a_darknet_network_without_a_whole_file_is_refused(
    rectangles: Path, tmp_path: Path, capsys, lack: str, how: str
) -> None:
    export.write_darknet(tmp_path / "net", tiny_network(2), ANCHORS, CLASSES, size=64)
    path = tmp_path / f"net.{lack}"
    whole = path.read_bytes()
    path.unlink()
    if how != "missing":
        path.write_bytes({"empty": b"", "junk": b"\xff\xfe\x80 junk\n" * 9, "cut": whole[: len(whole) // 2]}[how])
    line = ["--data", str(rectangles), "--device", "cpu", "--output", str(tmp_path / "out"), *TINY]
    assert train_yolov2.main([*line, "--start", str(tmp_path / "net.cfg")]) == 1
    *causes, do = capsys.readouterr().err.splitlines()
    assert f"{tmp_path}/net." in causes[0]
    assert do.startswith("Do: ")


def test_a_missing_model_is_said_before_the_photos_are_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        load_model(tmp_path / "none.pt")
