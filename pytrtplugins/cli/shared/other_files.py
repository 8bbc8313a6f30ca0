"""Errors for files that are not models: they name the kind of file, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ...errors import UsageError
from ...models import find_model, published_models

__all__ = ["expect_images", "expect_model", "not_an_engine_here"]

_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
_IMAGE_HEADS = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8")  # which no ONNX file begins with
_VIDEOS = (".avi", ".mkv", ".mov", ".mp4", ".webm")
_CAFFE = 'onnx.save(darknet2caffe.from_caffe("{stem}.prototxt", "{stem}.caffemodel"), "{stem}.onnx") in Python, and name that'
_OTHERS = {  # suffix → what it is, and what to do
    **dict.fromkeys(_IMAGES, ("an image", "name the model first, then images: pytrt run MODEL {path}")),
    **dict.fromkeys(_VIDEOS, ("a video", "name the model first, then videos: pytrt run MODEL {path}")),
    ".weights": (
        "darknet's weights, which mean nothing without their .cfg",
        "name that, with the weights beside it: {stem}.cfg",
    ),
    **dict.fromkeys(
        (".pt", ".pth", ".ckpt", ".safetensors"),
        ("PyTorch's weights", 'torch.onnx.export(network, example, "{stem}.onnx"), and name that'),
    ),
    ".params": ("weights of MXNet's", "pytrt import mxnet SYMBOL.json {path} -o {stem}.onnx, and name that"),
    ".caffemodel": ("caffe's weights", _CAFFE),
    ".prototxt": ("a network of caffe's", _CAFFE),
    ".tflite": ("a model of TensorFlow Lite's", "tf2onnx.convert --tflite {path} --output {stem}.onnx, and name that"),
    ".pb": ("a model of TensorFlow's", "python -m tf2onnx.convert --output {stem}.onnx, and name that"),
    **dict.fromkeys(
        (".npy", ".npz"), ("arrays", "name the model first; pytrt run MODEL --input NAME={path} reads an array")
    ),
    ".cache": ("a calibration cache", "name the model, and pass this one as --cache {path}"),
    **dict.fromkeys((".yaml", ".yml"), ("a precision file", "name the model, and pass this one as --precision {path}")),
    ".names": ("a list of class names", "name the model, and pass this one as --names {path}"),
    **dict.fromkeys(
        (".plan", ".trt"),
        ("an engine of TensorRT's own tools", "pytrt build MODEL.onnx --engine tensorrt -o {stem}.engine"),
    ),
    ".py": ("a Python file", "name the model, and pass this one as --plugins {path}"),
}


_SYMBOL = ("a network of MXNet's", "pytrt import mxnet {path} MODEL.params -o {stem}.onnx, and name that")
_SYMBOL_HEAD = re.compile(rb'\{\s*"nodes"')
_NO_IMAGES = {  # suffix → what it is, and what to do
    ".weights": ("darknet's weights", "pass it as --weights {path}; without it the file beside the .cfg is taken"),
    ".names": ("a list of class names", "pass it as --names {path}"),
    ".npy": ("an array", "pass it as --input NAME={path}"),
}


def expect_images(texts: Sequence[str]) -> None:
    """Require what may be images, videos, folders, globs or URLs."""
    for text in texts:
        what, do = _NO_IMAGES.get(Path(text).suffix.lower(), ("", ""))
        if what and not Path(text).is_dir():
            raise UsageError(f"{text} is {what}; expected an image.\nDo: {do.format(path=text)}", path=Path(text))


def expect_model(path: Path) -> Path:
    """Check a path to a model; the name of a published model becomes the path of the downloaded copy.

    Raises:
        UsageError: the model of that name was not fetched yet; or it is a folder, or its suffix is that of files of another kind.
    """
    if str(path) in published_models() and not path.exists():
        model_file = find_model(str(path))
        if model_file is None:
            raise UsageError(f"model {str(path)!r} was not fetched yet.\nDo: pytrt download {path}", path=path)
        return model_file
    if path.is_dir():
        raise UsageError(
            f"{path} is a folder; expected a model: an ONNX file, a saved engine, or darknet's .cfg.\nDo: name a file in it",
            path=path,
        )
    what, do = _OTHERS.get(path.suffix.lower()) or _by_contents(path)
    if what:
        stem = path.with_suffix("")
        raise UsageError(
            f"{path} is {what}; expected a model: an ONNX file, a saved engine, or darknet's .cfg.\n"
            f"Do: {do.format(path=path, stem=stem)}",
            path=path,
        )
    return path


def _by_contents(path: Path) -> tuple[str, str]:
    """Recognize by its contents an image with another suffix, or MXNet's JSON; two empty texts otherwise."""
    if not path.is_file():
        return "", ""
    with path.open("rb") as file:
        head = file.read(12)
    if _SYMBOL_HEAD.match(head):
        return _SYMBOL
    is_image = head.startswith(_IMAGE_HEADS) or (head[:4] == b"RIFF" and head[8:] == b"WEBP")
    return _OTHERS[_IMAGES[0]] if is_image else ("", "")


def not_an_engine_here(path: Path) -> UsageError:
    """The error for a saved engine if the command needs the model that it was built from."""
    return UsageError(
        f"{path} is an engine, built already; here the model is needed of which it was built: an ONNX file, or darknet's .cfg.\n"
        f"Do: name that model; engines are for pytrt run, bench, inspect, evaluate, compare, profile and export-triton",
        path=path,
    )
