"""Memory of an engine, measured in a process of its own."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from onnx import numpy_helper

import pytrtplugins as ptp
from pytrtplugins.errors import ExecutionError
from pytrtplugins.tables.memory import measure_memory
from tests.onnx_parts import info, model, node

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def test_the_weights_of_an_engine_are_in_its_memory_and_the_library_is_not(tmp_path):
    weights = np.ones((2048, 2048), np.float32)  # 16 MiB
    product = model(
        node("MatMul", "x w", "y"), weights=[numpy_helper.from_array(weights, "w")], inputs=[info("x", ["N", 2048])]
    )
    engine = ptp.build(product, engine="onnxruntime", progress=False)
    engine.save(tmp_path / "a.engine")
    found = measure_memory(tmp_path / "a.engine", 2)
    assert 15 < found.host < 250  # the file, its copies, and what the library packs
    assert found.gpu == 0


def test_a_process_that_fails_says_why(tmp_path):
    (tmp_path / "a.engine").write_bytes(b"no engine")
    with pytest.raises(ExecutionError, match=r"a\.engine"):
        measure_memory(tmp_path / "a.engine", 1)
