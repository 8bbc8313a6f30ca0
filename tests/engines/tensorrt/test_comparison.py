"""docs/reference/comparison_programs.md: its two programs for TensorRT, as far as they go without a builder and a GPU."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from pytrtplugins.engines.tensorrt.plugin_fields import field_collection
from tests.driver.conftest import find_headers
from tests.pages import blocks

from .driver import Expr, ExprBuilder

FILES = {block.title: block.text for block in blocks("docs/reference/comparison_programs.md") if block.title}


@pytest.fixture
def quick(api, monkeypatch) -> Iterator[Any]:
    """``tensorrt.plugin`` with the page's plugin; Triton and PyTorch are names here."""
    if not api.builds:
        pytest.skip("the lean package has no tensorrt.plugin: TENSORRT_SUBSTRATE=stubs")
    language, triton = ModuleType("triton.language"), ModuleType("triton")
    language.constexpr, triton.jit, triton.language = int, lambda function: function, language
    for name, module in (("torch", ModuleType("torch")), ("triton", triton), ("triton.language", language)):
        monkeypatch.setitem(sys.modules, name, module)
    names: dict[str, Any] = {}
    exec(compile(FILES["prelu_qdp.py"], "prelu_qdp.py", "exec", dont_inherit=True), names)
    monkeypatch.setattr(api.trt, "IDimensionExpr", Expr)
    monkeypatch.setattr(api.trt, "DimsExprs", lambda count: [None] * count)
    registry = api.trt.get_plugin_registry()
    yield registry.get_creator("PRelu", "1", "acme")
    registry.deregister_creator(registry.get_creator("PRelu", "1", "acme"))
    quick = names["trtp"]._lib
    del quick.QDP_REGISTRY["acme::PRelu"], quick.QDP_CREATORS["acme::PRelu"]
    delattr(quick.op.acme, "PRelu")


def test_tensorrt_takes_the_decorated_functions(quick, api):
    trt = api.trt
    request = [trt.QuickPluginCreationRequest.PREFER_JIT]
    made = quick.create_plugin("PRelu", "acme", trt.PluginFieldCollection([]), trt.TensorRTPhase.BUILD, *request)
    types = [trt.DataType.HALF, trt.DataType.FLOAT]
    assert made.get_output_data_types(types, [4, 1]) == types[:1]
    (dims,) = made.get_output_shapes([[Expr(2, free=True), Expr(3), Expr(4), Expr(5)], [Expr(3)]], [], ExprBuilder())
    assert [expr.value for expr in dims] == [2, 3, 4, 5]
    shown = [trt.DynamicPluginTensorDesc() for _ in range(3)]
    found = made.get_supported_format_combinations(shown, 2)
    assert [desc.type.name for desc in found] == ["FLOAT", "FLOAT", "FLOAT", "HALF", "FLOAT", "HALF"]
    assert {desc.format.name for desc in found} == {"LINEAR"}


def test_tensorrt_loads_the_compiled_plugin_and_makes_one(api, tmp_path):
    include, reason = find_headers(api.major)
    if include is None or shutil.which("nvcc") is None:
        pytest.skip(reason or "nvcc is missing. Do: install CUDA's toolkit")
    source, library = tmp_path / "prelu_v3.cu", tmp_path / "libprelu.so"
    source.write_text(FILES["prelu_v3.cu"], "utf-8")
    warnings = "-Xcompiler=-fPIC,-Wall,-Wextra,-Werror,-Wno-deprecated-declarations"
    options = ["-std=c++17", "-arch=sm_80", "-shared", warnings, "-isystem", include]
    subprocess.run(["nvcc", *map(str, [*options, "-o", library, source])], check=True)
    registry = api.trt.get_plugin_registry()
    handle = registry.load_library(str(library))
    try:
        creator = registry.get_creator("PRelu", "1", "acme")
        assert [(field.name, field.type.name) for field in creator.field_names] == [("slope", "FLOAT32")]
        fields = field_collection(api, [("slope", "FLOAT32", np.array([0.1, 0.2], np.float32))])
        assert creator.create_plugin("prelu", fields, api.trt.TensorRTPhase.BUILD) is not None
        nothing = field_collection(api, [])
        assert creator.create_plugin("prelu", nothing, api.trt.TensorRTPhase.BUILD) is None
    finally:
        registry.deregister_library(handle)
