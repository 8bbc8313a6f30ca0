"""INT8 in TensorRT: Q/DQ in 10 and 11, its own calibrators over ours in 10."""

import ctypes
from collections import Counter
from typing import Any

import numpy as np
import pytest

from pytrtplugins.calibration import CalibrationTable, EntropyCalibrator, MinMaxCalibrator, PercentileCalibrator
from pytrtplugins.errors import CalibrationTableError, NoDataError, UnavailableError
from pytrtplugins.passes import prepare
from tests.engines.networks import OutOfPaperError, conv_net, image

from .builds import build, parsed, table_of
from .checked import HostMemory

IMPLICIT = {"quantization": "implicit"}


def test_int8_is_explicit_by_default(tensorrt):
    models = parsed(tensorrt)
    model = prepare(conv_net())
    build(model, precision="int8", calibration=table_of(model))
    kinds = Counter(node.op_type for node in models[0].graph.node)
    assert kinds["QuantizeLinear"] >= 1
    assert kinds["DequantizeLinear"] > kinds["QuantizeLinear"]


def test_tensorrt_11_has_no_implicit_quantization(tensorrt):
    if tensorrt.major == 10:
        pytest.skip("10 has it")
    model = prepare(conv_net())
    with pytest.raises(UnavailableError, match=r"no implicit quantization[\s\S]*Do: leave out"):
        build(model, precision="int8", calibration=table_of(model), settings=IMPLICIT)


@pytest.fixture
def ten(tensorrt):
    if tensorrt.major != 10:
        pytest.skip("TensorRT 11 has no calibrators")
    return tensorrt


def test_an_implicit_build_reads_a_table_under_tensorrts_own_version(ten, tmp_path):
    model = prepare(conv_net())
    table = table_of(model, "MinMaxCalibration").with_version("8.6.1")
    table.write(tmp_path / "x.cache")
    read, flags = [], list[Any]()
    ten.answers["IBuilderConfig.set_flag"] = flags.append

    def run(network, config):
        bridge = config.int8_calibrator
        assert isinstance(bridge, ten.trt.IInt8MinMaxCalibrator)
        read.append(bridge.read_calibration_cache())
        return HostMemory(b"plan")

    ten.answers["Builder.build_serialized_network"] = run
    for calibration in (table, tmp_path / "x.cache", MinMaxCalibrator(cache=tmp_path / "x.cache")):
        build(model, precision="int8", calibration=calibration, settings=IMPLICIT)
    assert read == [table.with_version("10.16.1").to_bytes()] * 3
    assert flags == [ten.trt.BuilderFlag.INT8, ten.trt.BuilderFlag.FP16] * 3  # of which it chooses for each layer


def test_an_implicit_build_feeds_batches_and_keeps_the_table(ten, tmp_path):
    cases = [
        (EntropyCalibrator, "IInt8EntropyCalibrator2"),
        (MinMaxCalibrator, "IInt8MinMaxCalibrator"),
        (PercentileCalibrator, "IInt8LegacyCalibrator"),
    ]
    for cls, base in cases:
        cache = tmp_path / f"{cls.__name__}.cache"
        calibrator = cls([{"data": image(3)}, {"data": image(4, seed=2)}], cache=cache)
        model = prepare(conv_net(batch="N"))
        table = table_of(model, cls.algorithm).with_version("10.16.1")
        seen = list[Any]()

        def run(network, config, base=base, seen=seen, table=table):
            bridge = config.int8_calibrator
            assert isinstance(bridge, getattr(ten.trt, base))
            assert bridge.read_calibration_cache() is None
            assert bridge.get_batch_size() == 3
            while addresses := bridge.get_batch(["data"]):
                seen.append(ten_floats(addresses[0]))
            bridge.write_calibration_cache(memoryview(table.to_bytes()))
            return HostMemory(b"plan")

        ten.answers["Builder.build_serialized_network"] = run
        build(model, precision="int8", calibration=calibrator, settings={**IMPLICIT, "batch": (1, 3, 8)})
        images = np.concatenate([image(3), image(4, seed=2)])
        np.testing.assert_array_equal(seen, images[:6].reshape(2, 3, 3, 8, 8))
        assert CalibrationTable.read(cache) == table
        assert cls(cache=cache).cached_table(list(table), required=[]) == table
    assert "IBuilderConfig.set_calibration_profile" in ten.calls


def ten_floats(address):
    count = 3 * 3 * 8 * 8
    return np.array((ctypes.c_float * count).from_address(address)).reshape(3, 3, 8, 8)


def test_what_a_calibrator_raises_is_raised_by_build(ten):
    def batches():
        yield {"data": image()}
        raise OutOfPaperError("the disk is gone")

    def run(network, config):
        bridge = config.int8_calibrator
        assert bridge.get_batch(["data"])
        with pytest.raises(OutOfPaperError):
            bridge.get_batch(["data"])  # TensorRT takes that for the end of the data
        return HostMemory(b"plan")

    ten.answers["Builder.build_serialized_network"] = run
    with pytest.raises(OutOfPaperError, match="the disk is gone"):
        build(prepare(conv_net()), precision="int8", calibration=MinMaxCalibrator(batches()), settings=IMPLICIT)


def test_too_few_images_for_one_batch_are_no_data(ten):
    def run(network, config):
        assert config.int8_calibrator.get_batch(["data"]) is None
        return HostMemory(b"plan")

    ten.answers["Builder.build_serialized_network"] = run
    options = {"calibration": MinMaxCalibrator([{"data": image(3)}]), "settings": {**IMPLICIT, "batch": 8}}
    with pytest.raises(NoDataError, match="do not fill one batch of 8"):
        build(conv_net(batch="N"), precision="int8", **options)


def test_a_cache_whose_sidecar_names_another_network_is_refused(ten, tmp_path):
    calibrator = MinMaxCalibrator(cache=tmp_path / "x.cache")
    model = prepare(conv_net())
    calibrator.store_table(table_of(model, "MinMaxCalibration"), network="of another network")
    with pytest.raises(CalibrationTableError, match="another network"):
        build(model, precision="int8", calibration=tmp_path / "x.cache", settings=IMPLICIT)


def test_a_table_of_another_network_is_refused_before_the_build(ten):
    with pytest.raises(CalibrationTableError, match="another network"):
        build(conv_net(), precision="int8", calibration=CalibrationTable({"elsewhere": 1.0}), settings=IMPLICIT)
    assert "Builder.build_serialized_network" not in ten.calls
