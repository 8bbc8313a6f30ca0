"""Vectors of channels that ONNX holds against the last axis are laid along the channels; what broadcasts as it was meant stays."""

from itertools import pairwise

import numpy as np
import pytest
from onnx import TensorProto, helper

from pytrtplugins.engines import build
from pytrtplugins.errors import ModelError
from pytrtplugins.passes import repair
from tests.mxnet import loops
from tests.passes.repairs.exports import exported, refused, repairs_of, run

SLOPE = np.float32([0.1, -0.5, 2, 0.25])


def data(*dims):
    return np.random.default_rng(4).normal(size=dims).astype(np.float32)


def prelu(*dims, slope=SLOPE, **options):
    return exported("relu = PRelu (data, relu_gamma)", {"relu_gamma": slope}, [*dims], "relu", **options)


@pytest.mark.parametrize("dims", [(1, 4, 6), (1, 4, 6, 7), (1, 4, 2, 6, 7)])
@pytest.mark.parametrize("name", ["mxnet_converted_model", "g"])
def test_a_slope_that_does_not_fit_is_laid_along_the_channels(dims, name):
    model, x = prelu(*dims, name=name), data(*dims)
    assert refused(model, data=x)
    with pytest.raises(ModelError, match=r"\nDo: pytrt repair MODEL.onnx -o FIXED.onnx"):
        build(model, engine="null")
    found = repair(model)
    np.testing.assert_allclose(run(found.model, data=x), loops.prelu(x, SLOPE), rtol=1e-6)
    (finding,) = found.findings
    assert (finding.repair, finding.node, finding.fault) == ("channel-vectors", "relu", True)
    assert finding.found == f"the slope 'relu_gamma' (4) beside dims ({', '.join(map(str, dims))})"
    assert repair(found.model).findings == ()


def test_a_slope_that_fits_by_accident_is_mended_where_mxnet_wrote_it():
    x = data(1, 4, 5, 4)
    wrong = run(prelu(1, 4, 5, 4), data=x)
    assert not np.allclose(wrong, loops.prelu(x, SLOPE))
    np.testing.assert_allclose(run(repair(prelu(1, 4, 5, 4)).model, data=x), loops.prelu(x, SLOPE), rtol=1e-6)
    other = prelu(1, 4, 5, 4, name="main_graph")
    assert repair(other).findings == ()
    other.producer_name = "MXNet"
    assert repairs_of(repair(other)) == {"channel-vectors": 1}


def test_a_slope_may_meet_a_free_width():
    assert repairs_of(repair(prelu("N", 4, "h", "w"))) == {"channel-vectors": 1}
    assert repair(prelu("N", 4, "h", "w", name="g")).findings == ()


def test_a_slope_of_four_axes_behind_a_dense_layer_loses_them():
    """insightface's form of mx2onnx: each slope goes through a Reshape to (1, C, 1, 1)."""
    nodes = "slope7 = Reshape (relu_gamma, reshape7) relu = PRelu (data, slope7)"
    weights = {"relu_gamma": SLOPE, "reshape7": np.array([1, -1, 1, 1], np.int64)}
    dense, image = (exported(nodes, weights, dims, "relu") for dims in ([2, 4], [2, 4, 6, 6]))
    x = data(2, 4)
    assert refused(dense, data=x) or run(dense, data=x).shape != (2, 4)
    found = repair(dense)
    assert repairs_of(found) == {"shape-arithmetic": 1, "channel-vectors": 1}
    np.testing.assert_allclose(run(found.model, data=x), loops.prelu(x, SLOPE), rtol=1e-6)
    assert repairs_of(repair(image)) == {"shape-arithmetic": 1}


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize("first", [True, False])
def test_sums_and_products_along_the_channels(op, first):
    """Three in a row: behind each the dims are known only once it is mended."""
    read = "v, {}" if first else "{}, v"
    chain = pairwise(["conv", "y0", "y1", "y2"])
    nodes = "conv = Conv (data, w) " + " ".join(f"{y} = {op} ({read.format(x)})" for x, y in chain)
    vector = np.float32([1, -2, 3, 4])
    model = exported(nodes, {"w": np.eye(4, dtype=np.float32)[:, :, None, None], "v": vector}, [1, 4, 6, 6], "y2")
    x = data(1, 4, 6, 6)
    function = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}[op]
    y = x
    for _ in range(3):
        y = function(loops.along(vector, x), y) if first else function(y, loops.along(vector, x))
    assert refused(model, data=x)
    found = repair(model)
    assert repairs_of(found) == {"channel-vectors": 3}
    np.testing.assert_allclose(run(found.model, data=x), y, rtol=1e-5)
    assert len(found.model.graph.initializer) == 2


@pytest.mark.parametrize("activation", ["Relu", "Selu", "Softplus", "Softsign"])
def test_a_product_that_fits_by_accident_is_mended_behind_a_convolution_of_mxnet(activation):
    weights = {"w": np.eye(4, dtype=np.float32)[:, :, None, None], "v": SLOPE}
    behind = f"c = Conv (data, w) r = {activation} (c) y = Mul (r, v)"
    x = data(1, 4, 4, 4)
    found = repair(exported(behind, weights, [1, 4, 4, 4], "y"))
    active = run(exported(f"y = {activation} (data)", {}, [1, 4, 4, 4], "y"), data=x)
    np.testing.assert_allclose(run(found.model, data=x), active * loops.along(SLOPE, x), rtol=1e-6)
    assert repair(exported("y = Mul (data, v)", weights, [1, 4, 4, 4], "y")).findings == ()
    assert repair(exported(behind, weights, [1, 4, 4, 4], "y", name="g")).findings == ()


def test_one_slope_may_be_read_in_two_ranks():
    nodes = "a = PRelu (data, s) sum = ReduceSum <axes = [3], keepdims = 0> (a) y = PRelu (sum, s)"
    model, x = exported(nodes, {"s": SLOPE}, [1, 4, 6, 7], "y"), data(1, 4, 6, 7)
    found = repair(model)
    assert repairs_of(found) == {"channel-vectors": 2}
    expected = loops.prelu(loops.prelu(x, SLOPE).sum(3), SLOPE)
    np.testing.assert_allclose(run(found.model, data=x), expected, rtol=1e-5)


def test_what_is_not_certain_stays():
    long = prelu(1, 5, 6, 7)
    unknown = exported("n = NonZero (data) d = Cast <to = 1> (n) y = Mul (d, s)", {"s": SLOPE}, [1, 4], "y")
    one = prelu(1, 4, 6, 7, slope=np.float32([0.5]))
    shaped = prelu(1, 4, 6, 4, slope=SLOPE.reshape(4, 1, 1))
    given = prelu(1, 4, 6, 7)
    given.graph.input.append(helper.make_tensor_value_info("relu_gamma", TensorProto.FLOAT, [4]))
    for model in (long, unknown, one, shaped):
        assert repair(model) == repair(model, skip=["channel-vectors"])
        assert repair(model).findings == ()
    assert repair(given, skip=["weight-inputs"]).findings == ()
    assert repairs_of(repair(given)) == {"weight-inputs": 1, "channel-vectors": 1}
