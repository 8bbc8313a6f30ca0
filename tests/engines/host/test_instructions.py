"""Which instructions the libraries use: those that the variables of `tests.matrix` leave them, and that `cpu_features` tells."""

import ctypes
import os
from pathlib import Path

import numpy as np
import onnx
import pytest

from pytrtplugins.passes import quantize
from pytrtplugins.utils.cpu_features import cpu_features
from tests.engines.operators import literal
from tests.engines.test_int8 import extreme_net
from tests.measures import relative
from tests.passes.nets import as_uint8, calibrated, tiny_yolo


def compiled(model):
    core = pytest.importorskip("openvino").Core()
    return core.compile_model(
        core.read_model(model.SerializeToString(), b""), "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )


def kernels(model):
    """The names of OpenVINO's kernels: brgconv_avx512_f32."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    operations = compiled(fixed).get_runtime_model().get_ops()
    return {
        str(operation.get_rt_info()["primitiveType"].astype(str))
        for operation in operations
        if "primitiveType" in operation.get_rt_info()
    }


@pytest.mark.parametrize("quantized", [False, True], ids=["float32", "int8"])
def test_openvino_uses_the_newest_of_the_instructions_that_are_told(quantized):
    features = cpu_features()
    if not features & {"avx2", "avx512"}:
        pytest.skip("tells kernels of x86 apart")
    model = tiny_yolo()
    found = kernels(as_uint8(quantize(model, calibrated(model))) if quantized else model)
    expected, other = ("avx512", "avx2") if "avx512" in features else ("avx2", "avx512")
    assert any(expected in name for name in found), found
    assert not any(other in name for name in found), found


def test_openvino_adds_products_in_32_bits_where_the_features_say_so():
    """Weights of ±127 and activations of 255: without VNNI the sums of two products are cut off at 16 bits."""
    if not cpu_features() & {"avx2", "avx512"}:
        pytest.skip("other processors than x86 always add in 32 bits")
    model = as_uint8(extreme_net())
    x = np.ones((1, 64, 26, 26), np.float32)
    error = relative(compiled(model)({0: x})[0], literal(model, {"data": x})[0])
    assert (error < 1e-3) == bool(cpu_features() & {"vnni", "amx-int8"}), error


def test_numpy_uses_what_is_left_to_it():
    from numpy._core._multiarray_umath import __cpu_features__

    for name in os.environ.get("NPY_DISABLE_CPU_FEATURES", "").split():
        assert not __cpu_features__[name]
    if "ONEDNN_MAX_CPU_ISA" not in os.environ:
        assert __cpu_features__["AVX2"] == ("avx2" in cpu_features())


def test_openblas_takes_the_kernels_of_the_processor_that_it_is_told():
    wanted = os.environ.get("OPENBLAS_CORETYPE")
    libraries = list((Path(np.__file__).parents[1] / "numpy.libs").glob("libscipy_openblas*"))
    if wanted is None or not libraries:
        pytest.skip("OPENBLAS_CORETYPE is not set, or NumPy has another BLAS")
    name = ctypes.CDLL(str(libraries[0])).scipy_openblas_get_corename64_
    name.restype = ctypes.c_char_p
    assert name().decode().lower() == wanted.lower()
