"""Small models of old opsets, as older exporters write them."""

from __future__ import annotations

import numpy as np

from tests.engines.model_parts import BOOL, F, body, info, model, node, values


def old_resize():
    """Opset 9: Upsample, whose scales are an input."""
    made = model(
        [
            node("Upsample", ["x", "scales"], ["u"], mode="nearest"),
            node("Slice", ["u"], ["y"], axes=[2], starts=[1], ends=[5]),
        ],
        [info("x", F, ["n", 2, 3, 3])],
        [info("y", F, ["n", 2, 4, 6])],
        {"scales": np.array([1, 1, 2, 2], np.float32)},
        opset=9,
        ir=4,
    )
    return made, [{"x": values(2, 2, 3, 3)}]


def old_axes():
    """Opset 11, as most networks of 2020: axes are attributes, Softmax takes all axes from its own on, Clip has inputs."""
    made = model(
        [
            node("Unsqueeze", ["x"], ["u"], axes=[1]),
            node("ReduceSum", ["u"], ["r"], axes=[1], keepdims=0),
            node("Clip", ["r", "low", "high"], ["c"]),
            node("Softmax", ["c"], ["p"], axis=1),
            node("Pad", ["p", "pads"], ["q"]),
            node("Split", ["q"], ["first", "second"], axis=1, split=[1, 2]),
            node("Squeeze", ["first"], ["y"], axes=[1]),
            node("Dropout", ["second"], ["z"], ratio=0.3),
        ],
        [info("x", F, ["n", 3, 4])],
        [info("y", F, ["n", 4]), info("z", F, ["n", 2, 4])],
        {"low": np.float32(0), "high": np.float32(1), "pads": np.zeros(6, np.int64)},
        opset=11,
        ir=6,
    )
    return made, [{"x": values(2, 3, 4)}]


def old_normalization():
    """Opset 7 and 8: BatchNormalization says ``spatial``, Dropout has a ratio, Reshape and Gemm broadcast."""
    made = model(
        [
            node("Conv", ["x", "w"], ["h"], kernel_shape=[1, 1]),
            node("BatchNormalization", ["h", "s", "b", "m", "v"], ["n"], epsilon=1e-3, momentum=0.9),
            node("Dropout", ["n"], ["d"], ratio=0.5),
            node("Reshape", ["d", "flat"], ["f"]),
            node("Gemm", ["f", "g", "c"], ["y"]),
        ],
        [info("x", F, [2, 2, 3, 3])],
        [info("y", F, [2, 5])],
        {
            "w": values(4, 2, 1, 1), "s": values(4), "b": values(4), "m": values(4), "v": np.abs(values(4)) + 1,
            "flat": np.array([2, 36]), "g": values(36, 5), "c": values(5),
        },
        opset=8,
        ir=4,
    )  # fmt: skip
    return made, [{"x": values(2, 2, 3, 3)}]


def old_branches():
    """Opset 11 with operators of that opset inside the branches."""
    then = body([node("Squeeze", ["h"], ["t"], axes=[0])], [info("t", F, None)])
    other = body([node("ReduceSum", ["h"], ["e"], axes=[0], keepdims=0)], [info("e", F, None)])
    made = model(
        [node("Unsqueeze", ["x"], ["h"], axes=[0]), node("If", ["flag"], ["y"], then_branch=then, else_branch=other)],
        [info("x", F, ["n"]), info("flag", BOOL, [])],
        [info("y", F, ["n"])],
        opset=11,
        ir=6,
    )
    return made, [{"x": values(3), "flag": np.array(True)}, {"x": values(3), "flag": np.array(False)}]
