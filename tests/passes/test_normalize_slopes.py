"""Slopes of PRelu in old opsets, against plain loops: there they lie along the channels, later along the last axes."""

import numpy as np
import onnxruntime
import pytest

from pytrtplugins.passes import normalize
from tests.engines.model_parts import F, info, model, node, values


def old_slopes(x_dims, *slopes, nodes=(), outputs=("y",), **constants):
    """PRelus of opset 6, one behind the other, whose slopes lie along the channels; the last gives y."""
    names = ["x", *(f"h{number}" for number in range(1, len(slopes))), "y"]
    prelus = [node("PRelu", [x, slope], [y]) for x, slope, y in zip(names, slopes, names[1:], strict=False)]
    made = [info(name, F, None) for name in outputs]
    return model([*prelus, *nodes], [info("x", F, x_dims)], made, constants, opset=6, ir=6)


def along_channels(x, slope):
    """PRelu before opset 7."""
    y = x.copy()
    for channel in range(x.shape[1]):
        y[:, channel] = np.where(x[:, channel] < 0, x[:, channel] * slope[channel % len(slope)], x[:, channel])
    return y


def converted(made, x):
    """What the normalized model gives in onnxruntime, which asks for opset 7 and newer."""
    found = normalize(made)
    assert found.opset_import[0].version == 13
    session = onnxruntime.InferenceSession(found.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})


@pytest.mark.parametrize("dims", [(2, 3), (2, 3, 3), (2, 3, 3, 3), (2, 3, 2, 2, 3)])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_slopes_of_old_prelus_lie_along_the_channels(dims, count):
    x = values(*dims)
    slopes = {f"s{number}": values(3) for number in range(count)}
    expected = x
    for slope in slopes.values():
        expected = along_channels(expected, slope)
    np.testing.assert_allclose(converted(old_slopes(dims, *slopes, **slopes), x)[0], expected, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 2000])
def test_slopes_of_old_prelus_may_be_one_or_many_and_serve_several(size):
    x, slope = values(1, size, 2, 1), values(size)
    found = converted(old_slopes(x.shape, "s", "s", s=slope), x)[0]
    np.testing.assert_allclose(found, along_channels(along_channels(x, slope), slope), rtol=1e-6)


def test_one_slope_needs_no_known_rank_and_serves_others_too():
    made = old_slopes(None, "s", nodes=[node("Neg", ["s"], ["z"])], outputs=("y", "z"), s=np.float32([0.5]))
    x = values(2, 3, 3)
    for found, expected in zip(converted(made, x), (along_channels(x, [0.5]), np.float32([-0.5])), strict=True):
        np.testing.assert_array_equal(found, expected)


SHAPED = node("Reshape", ["x", "shape"], ["r"])
UNSHAPED = {
    "computed": old_slopes((2, 3, 3), "s", nodes=[node("Abs", ["a"], ["s"])], a=values(3)),
    "of no known rank": old_slopes(None, "s", s=values(3)),
    "of what nobody knows": model(
        [node("Anything", ["x"], ["h"], domain="acme"), node("PRelu", ["h", "s"], ["y"])],
        [info("x", F, (2, 3, 3))], [info("y", F, None)], {"s": values(3)}, opset=6, ir=6, domains=("acme",),
    ),
    "read by others": old_slopes((2, 3, 3), "s", nodes=[node("Neg", ["s"], ["z"])], outputs=("y", "z"), s=values(3)),
    "of two ranks": old_slopes(
        (2, 3, 3), "t", "s", nodes=[SHAPED, node("PRelu", ["r", "s"], ["z"])], outputs=("y", "z"),
        t=values(3), s=values(3), shape=np.int64([1, 3, 2, 3]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("reason", UNSHAPED)
def test_a_model_whose_slopes_cannot_be_reshaped_stays_as_it_is(reason, caplog):
    made = UNSHAPED[reason]
    found = normalize(made)
    assert found == made
    name = "PRelu_z" if reason == "of two ranks" else "PRelu_y"
    assert f"node {name!r} (PRelu) cannot be converted to opset 13: its slopes" in caplog.text


def test_slopes_stay_as_they_are_where_something_else_cannot_be_converted():
    made = old_slopes((2, 3, 3, 3), "s", nodes=[node("Upsample", ["y"], ["z"])], outputs=("z",), s=values(3))
    assert normalize(made) == made


def test_slopes_that_broadcast_already_stay():
    made = old_slopes((2, 3, 3), "s", s=values(3, 1))
    made.opset_import[0].version = 7
    assert [*normalize(made).graph.initializer[0].dims] == [3, 1]
    x, slope = values(2, 3, 3), values(3)
    made = old_slopes((2, 3, 3), "s", s=slope)
    made.opset_import[0].version = 7
    np.testing.assert_array_equal(converted(made, x)[0], np.where(x < 0, x * slope, x))
