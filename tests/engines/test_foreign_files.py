"""Files that onnxruntime's optimizer, quantizers and converters write: engines give the numbers that onnxruntime gives node by node."""

import functools
import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.errors import BuildError
from pytrtplugins.passes import prepare
from pytrtplugins.passes.prepare import in_opset_of_precision
from tests.engines import foreign_files as files
from tests.engines.cuda.host import run_on_host
from tests.engines.operators import literal

ENGINES = ("cpu", "onnxruntime", "reference", "cuda")
TYPES = (("QUInt8", "QInt8"), ("QUInt8", "QUInt8"), ("QInt8", "QInt8"))
FLOAT, HALF, CODES = 1e-5, 3e-3, 0.06
"""Largest differences, relative to a network's largest value: of float32, of float16, of several layers that round to 8 bits."""


def is_quantized(model):
    return any(node.op_type == "QuantizeLinear" for node in model.graph.node)


@functools.lru_cache(maxsize=4)
def written(write, name, *options, opset=17):
    """Files that a tool of onnxruntime writes of a network, each with what it gives; engines are tested on the same ones."""
    model, feeds = files.NETWORKS[name](opset)
    with tempfile.TemporaryDirectory() as folder:
        results = write(model, feeds, Path(folder), *options)
    return feeds, [(file, literal(file, feeds)) for file in results]


def run(model, feeds, engine):
    precision = "int8" if is_quantized(model) else "fp32"
    if engine == "cuda":
        return run_on_host(
            in_opset_of_precision(prepare(model), precision) if precision == "int8" else prepare(model), feeds
        )[0]
    with ptp.build(model, engine=engine, precision=precision, progress=False).create_context() as context:
        return context.run(feeds)


def check(model, feeds, engine, tolerance, outputs=None):
    found = run(model, feeds, engine)
    for info, wanted in zip(model.graph.output, outputs or literal(model, feeds), strict=True):
        y = found[info.name]
        assert (y.dtype, y.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(y, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


def check_written(engine, tolerance, *how, **options):
    feeds, written_files = written(*how, **options)
    for file, outputs in written_files:
        check(file, feeds, engine, tolerance, outputs)


def optimized_file(model, feeds, folder, level=files.EXTENDED):
    return [files.optimized(model, level, folder)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("level", [files.BASIC, files.EXTENDED], ids=["basic", "extended"])
@pytest.mark.parametrize("name", files.NETWORKS)
def test_optimized_files(name, level, engine):
    check_written(engine, FLOAT, optimized_file, name, level)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["convolutional", "perceptron"])
def test_optimized_files_of_opset_11(name, engine):
    check_written(engine, FLOAT, optimized_file, name, opset=11)


@pytest.fixture
def blocked(tmp_path):
    """A file with blocked layouts, and an input."""
    model, feeds = files.convolutional()
    file = files.optimized(model, files.ALL, tmp_path)
    if not any(node.domain == "com.microsoft.nchwc" for node in file.graph.node):
        pytest.skip("onnxruntime blocks nothing on this CPU")
    return file, feeds


REFUSED = r"com\.microsoft\.nchwc::Conv \(node '.*'\): onnxruntime's optimizer wrote [^\n]*\nDo: optimize with ORT_ENABLE_EXTENDED, or"


@pytest.mark.parametrize("engine", ENGINES)
def test_blocked_layouts_run_where_onnxruntime_computes_and_are_refused_elsewhere(engine, blocked):
    file, feeds = blocked
    if engine in ("cpu", "onnxruntime"):
        check(file, feeds, engine, FLOAT)
        return
    with pytest.raises(BuildError, match=REFUSED) as caught:
        run(file, feeds, engine)
    assert f"engine {engine!r} does not have the operator" in str(caught.value)


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime", "reference"])
def test_blocked_layouts_are_not_quantized(engine, blocked):
    file, feeds = blocked
    with pytest.raises(BuildError, match=REFUSED):
        ptp.build(file, engine=engine, precision="int8", calibration=MinMaxCalibrator([feeds]), progress=False)
    with pytest.raises(BuildError, match=REFUSED):
        calibrate(file, MinMaxCalibrator([feeds]), engine=engine, progress=False)


STATIC = [*itertools.product(files.NETWORKS, ("QDQ", "QOperator"), TYPES, (False, True))]
SOME_STATIC = [pytest.param(*case, marks=pytest.mark.slow if index % 5 else ()) for index, case in enumerate(STATIC)]


def static_files(model, feeds, folder, *options):
    file = files.quantized(model, feeds, folder, *options)
    return file, files.optimized(file, files.EXTENDED, folder)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("name", "form", "types", "by_channel"), SOME_STATIC)
def test_statically_quantized_files(name, form, types, by_channel, engine):
    check_written(engine, CODES, static_files, name, form, types, by_channel)


def dynamic_files(model, feeds, folder, weights):
    file = files.quantized_dynamically(model, folder, weights)
    return file, files.optimized(file, files.EXTENDED, folder)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("weights", ["QInt8", pytest.param("QUInt8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", files.NETWORKS)
def test_dynamically_quantized_files(name, weights, engine):
    tolerance = CODES if name == "recurrent" else FLOAT  # what DynamicQuantizeLSTM multiplies stays in float
    check_written(engine, tolerance, dynamic_files, name, weights)


def packed_file(model, feeds, folder, *options):
    return [files.packed(model, *options)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("symmetric", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.parametrize(("bits", "form"), [(4, "QOperator"), (8, "QOperator"), (4, "QDQ")])
@pytest.mark.parametrize("name", ["perceptron", "recurrent"])
def test_files_with_blocks_of_codes_for_weights(name, bits, form, symmetric, engine):
    check_written(engine, FLOAT, packed_file, name, bits, form, 16, symmetric)


def float16_file(model, feeds, folder):
    return [files.in_float16(model)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", files.NETWORKS)
def test_files_in_float16(name, engine):
    check_written(engine, HALF, float16_file, name)


@pytest.mark.parametrize("engine", ["cpu", "onnxruntime"])
def test_int8_of_an_optimized_file(engine, tmp_path):
    """One table fits every engine, though onnxruntime runs the file's own operators in float32."""
    model, feeds = files.convolutional()
    file = files.optimized(model, files.EXTENDED, tmp_path)
    assert any(node.domain == "com.microsoft" for node in file.graph.node)
    table = calibrate(file, MinMaxCalibrator([feeds]), engine="onnxruntime", progress=False)
    built = ptp.build(
        file, engine=engine, precision="int8", calibration=table, settings={"int8": "always"}, progress=False
    )
    assert sum(node.op_type == "QuantizeLinear" for node in built.model_without_weights.graph.node) >= 3
    with built.create_context() as context:
        y = context.run(feeds)["y"]
    (wanted,) = literal(file, feeds)
    np.testing.assert_allclose(y, wanted, rtol=0, atol=0.1 * np.abs(wanted).max())
