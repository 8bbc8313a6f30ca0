"""What Triton checks before it serves a model, told again: its proto, and the rules of its onnxruntime backend."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import pytest


@cache
def model_config_proto() -> Any:
    """Triton's own ModelConfig, from the client's wheel; without gRPC, which the file does not need."""
    spec = importlib.util.find_spec("tritonclient")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("tritonclient is not installed. Do: pip install tritonclient")
    path = Path(spec.submodule_search_locations[0]) / "grpc" / "model_config_pb2.py"
    found = importlib.util.spec_from_file_location("model_config_pb2", path)
    module = importlib.util.module_from_spec(found)
    try:
        found.loader.exec_module(module)
    except Exception as error:  # made for a newer protobuf than is here
        pytest.skip(f"tritonclient's model_config_pb2 cannot be imported: {error}")
    return module


def parse(text: str) -> Any:
    """The message that Triton reads; fails at unknown fields, words and types."""
    from google.protobuf import text_format

    return text_format.Parse(text, model_config_proto().ModelConfig())


def serve(folder: Path) -> tuple[Any, Any]:
    """Load the one model version as the onnxruntime backend does (onnxruntime.cc, CompareDimsSupported).

    Returns:
        The config, and onnxruntime's session.
    """
    import onnxruntime

    config = parse((folder / "config.pbtxt").read_text("utf-8"))
    assert config.name == folder.name
    assert config.backend == "onnxruntime"
    (version,) = (path for path in folder.iterdir() if path.is_dir())
    session = onnxruntime.InferenceSession(version / "model.onnx", providers=["CPUExecutionProvider"])
    for side, items in ((config.input, session.get_inputs()), (config.output, session.get_outputs())):
        assert [io.name for io in side] == [item.name for item in items]
        for io, item in zip(side, items, strict=True):
            check_dims(config.max_batch_size, list(io.dims), item.shape)
            name = model_config_proto().DataType.Name(io.data_type)
            assert name == TYPES[item.type.removeprefix("tensor(").removesuffix(")")]
    return config, session


def check_dims(max_batch: int, dims: list[int], shape: list[Any]) -> None:
    """Require dims that the backend takes for a tensor of the model."""
    model = [dim if isinstance(dim, int) else -1 for dim in shape]
    if max_batch:
        assert model[0] == -1, "the first dimension must be -1"
        model = model[1:]
        dims = [] if dims == [1] and not model else dims  # reshaped
    if not model:
        assert all(dim == 1 for dim in dims)
        return
    assert len(model) == len(dims)
    assert all(here in (-1, there) for here, there in zip(model, dims, strict=True)), (model, dims)


TYPES = {
    "float": "TYPE_FP32",
    "float16": "TYPE_FP16",
    "bfloat16": "TYPE_BF16",
    "double": "TYPE_FP64",
    "string": "TYPE_STRING",
    "bool": "TYPE_BOOL",
    **{f"{sign}int{bits}": f"TYPE_{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""onnxruntime's names → Triton's (onnxruntime_utils.cc, ConvertOnnxDataType)."""
