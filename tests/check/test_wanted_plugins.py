"""Four plugins that users often need: each is right beside an independent implementation, and each planted defect is found by name."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import pytrtplugins as ptp
from tests.broken_kernels import NEEDED
from tests.check.plugins.batched_nms import BatchedNms
from tests.check.plugins.bilinear_sampler import BilinearSampler
from tests.check.plugins.deformable_conv import DeformableConv
from tests.check.plugins.hard_swish import HardSwish
from tests.small_process import in_small_process

pytestmark = NEEDED
PLUGINS = Path(__file__).with_name("plugins")
IMPORTANT = (
    "memory",
    "thread order",
    "enqueue",
    "graph capture",
    "enqueue in other types",
    "half precision",
    "large tensors",
    "changing dims",
)
"""Entries that must not be skipped."""
IMAGE = {"x": (2, 3, 5, 7), "grid": (2, 4, 6, 2)}
WIDE_IMAGE = {"x": (1, 2, 3, 90), "grid": (1, 4, 6, 2)}
CONV = {"x": (2, 3, 5, 6), "offset": (2, 12, 5, 7), "mask": (2, 6, 5, 7), "weight": (4, 3, 3, 2), "bias": (4,)}
CONV_IN_GROUPS = {
    "x": (2, 4, 7, 6),
    "offset": (2, 36, 4, 3),
    "mask": (2, 18, 4, 3),
    "weight": (3, 4, 3, 3),
    "bias": (3,),
}
BOXES = {"boxes": (2, 9, 4), "scores": (2, 3, 9)}
RANGES = {"boxes": (0.2, 1.0), "scores": (0.0, 1.0)}
TIED_SCORES = np.random.default_rng(0).integers(3, 9, (2, 3, 9)).astype(np.float32) / 8
RIGHT: dict[str, tuple[ptp.Plugin, dict[str, Any]]] = {
    "hard-swish": (HardSwish(), {}),
    "sampler": (BilinearSampler(), {"shapes": IMAGE}),
    "sampler without shapes": (BilinearSampler(), {}),
    "sampler with borders": (BilinearSampler(align_corners=True, padding="border"), {"shapes": IMAGE}),
    "sampler of a wide image": (BilinearSampler(), {"shapes": WIDE_IMAGE, "inputs": {"grid": (-0.9, 0.9)}}),
    "convolution": (DeformableConv(), {"shapes": CONV}),
    "convolution in groups": (
        DeformableConv(stride=2, padding=2, dilation=2, offset_groups=2),
        {"shapes": CONV_IN_GROUPS},
    ),
    "NMS": (BatchedNms(), {"shapes": BOXES, "inputs": RANGES}),
    "NMS without shapes": (BatchedNms(), {}),
    "NMS with room": (BatchedNms(max_outputs=20, iou_threshold=0.2), {"shapes": BOXES, "inputs": RANGES}),
    "NMS of equal scores": (BatchedNms(), {"shapes": BOXES, "inputs": {"boxes": (0.2, 1.0), "scores": TIED_SCORES}}),
}
"""Plugins, with the options of `check_plugin`."""


@pytest.mark.parametrize("name", RIGHT)
@in_small_process
def test_a_right_plugin_passes_and_no_important_check_is_skipped(name):
    plugin, options = RIGHT[name]
    report = ptp.check_plugin(plugin, engines=[], **options)
    assert report.ok, str(report)
    assert [entry for entry in IMPORTANT if report[entry].skipped] == [], report.table()


class Defect(NamedTuple):
    """Edits of a plugin's source, old text to new text; the entry that must fail; and what its detail must say."""

    edits: dict[str, str]
    entry: str
    text: str


OTHER_TYPES = "enqueue in other types"
OVERFLOW = "integer overflow above 2^31 elements"
STATE = "state kept from other dims"
PAIR = "i < min(pair + 2, n)"
FLOATS = "self.floats.launch(x, y, x.size, threads=(x.size + 1) // 2, stream=stream)"
CODES = "self.codes.launch(x, y, x.size, self.scales, threads=x.size, stream=stream)"
F16 = """
__device__ float f16(float x) { return x * fminf(fmaxf(x * 0.16f + 0.5f, 0.0f), 1.0f); }

// a thread for two"""
HARD_SWISH = {
    "float16: an odd last value is not written": Defect(
        {PAIR: "i < pair + 2 && i < (sizeof(T) == 2 ? n / 2 * 2 : n)"},
        OTHER_TYPES,
        "on float16[1, 1, 1, 1]: elements are not written",
    ),
    "float16: 0.16 instead of 1 / 6": Defect(
        {
            "hard_swish_of(float(x[i]))": "(sizeof(T) == 2 ? f16(float(x[i])) : hard_swish_of(float(x[i])))",
            "\n// a thread for two": F16,
        },
        OTHER_TYPES,
        "elements differ",
    ),
    "an odd last value has a neighbour": Defect(
        {PAIR: "i < pair + 2"}, "memory", "out-of-bounds read, off by one: hard_swish.cu:9"
    ),
    "int8: no test for the end": Defect(
        {"if (i >= n) return;": ""}, OTHER_TYPES, "out-of-bounds read, off by one: hard_swish_codes.cu:8"
    ),
    "int8: the last code is not written": Defect(
        {"if (i >= n)": "if (i >= n - 1)"}, OTHER_TYPES, "on int8[1, 1, 1, 1]: elements are not written"
    ),
    "int8: the scale of the input for the output": Defect(
        {"value / y_scale": "value / x_scale"}, OTHER_TYPES, "for scales 0.03 -> 0.0"
    ),
    "int8: codes without their scale": Defect({"x[i] * x_scale": "x[i]"}, OTHER_TYPES, "for scales 0.03 -> 0.0"),
    "int8: scales in the wrong order": Defect(
        {"inputs[0].scale, outputs[0].scale": "outputs[0].scale, inputs[0].scale"},
        OTHER_TYPES,
        "for scales 0.03 -> 0.0",
    ),
    "int8: a code decides the next one": Defect(
        {
            "fminf(fmaxf(code, -128.0f), 127.0f));": "fminf(fmaxf(code, -128.0f), 127.0f));\n    if (i > 0 && y[i - 1] == 99) y[i] = 99;"
        },
        OTHER_TYPES,
        "race: hard_swish_codes.cu:11",
    ),
    "int8: the host waits": Defect(
        {CODES: f"{CODES}\n            stream and stream.synchronize()"},
        OTHER_TYPES,
        "on int8[1, 1, 1, 1]: synchronizes: ",
    ),
    "int8: the first run decides the number of codes": Defect(
        {CODES: "self.count = getattr(self, 'count', x.size)\n            " + CODES.replace("x.size", "self.count")},
        OTHER_TYPES,
        STATE,
    ),
    "int8: the class keeps the scales": Defect(
        {"self.scales =": "type(self).scales ="}, "changing dims", "state shared between contexts"
    ),
    "int8: the first scales are kept": Defect(
        {"self.scales = ": "if not hasattr(self, 'scales'):\n            self.scales = "},
        "changing dims",
        "state kept from other scales",
    ),
    "int8: codes are not clamped": Defect(
        {"fminf(fmaxf(code, -128.0f), 127.0f)": "static_cast<int>(code)"}, OTHER_TYPES, "expected -128"
    ),
    "int8: the kernel of floats": Defect(
        {"if DType.of(x) is DType.INT8": "if False"}, OTHER_TYPES, "for scales 0.03 -> 0.0"
    ),
    "the host waits": Defect(
        {FLOATS: f"{FLOATS}\n            stream and stream.synchronize()"},
        "graph capture",
        "synchronizes: stream.synchronize() lets the host wait",
    ),
    "a launch without the stream": Defect(
        {FLOATS: FLOATS.replace(", stream=stream", "")}, "graph capture", "uses the default stream"
    ),
    "the first run decides the number of threads": Defect(
        {
            FLOATS: "self.pairs = getattr(self, 'pairs', (x.size + 1) // 2)\n            "
            + FLOATS.replace("(x.size + 1) // 2", "self.pairs")
        },
        "changing dims",
        STATE,
    ),
    "an int counts to a long long": Defect(
        {"int n) {\n    const int pair": "long long n) {\n    const int pair", PAIR: "i < pair + 2 && i < n"},
        "large tensors",
        OVERFLOW,
    ),
}
SAMPLER = {
    "no test of the right border": Defect(
        {" && column < w": ""}, "memory", "out-of-bounds read, off by one: sample.cu"
    ),
    "no test of the upper border": Defect({"row >= 0 && ": ""}, "memory", "reads element -1 of input 0"),
    "a test with <= instead of <": Defect(
        {"&& row < h": "&& row <= h"}, "memory", "out-of-bounds read, off by one: sample.cu"
    ),
    "pixels are rounded to zero": Defect(
        {"static_cast<int>(floorf(px))": "static_cast<int>(px)"}, "enqueue", "elements differ"
    ),
    "outside of the image nothing is written": Defect(
        {"    float sum = 0.0f;": "    if (left < -1 || left >= w) return;\n    float sum = 0.0f;"},
        "enqueue writes all",
        "elements are not written",
    ),
    "x and y of the grid are exchanged": Defect(
        {"pixel_of(at[0], w": "pixel_of(at[1], w", "pixel_of(at[1], h": "pixel_of(at[0], h"},
        "enqueue",
        "elements differ",
    ),
    "all images use the first grid": Defect({"plane / c * oh * ow + place": "place"}, "enqueue", "elements differ"),
    "an int for the place in x": Defect({"static_cast<long long>(plane) * h": "plane * h"}, "large tensors", OVERFLOW),
    "the grid is changed in place": Defect(
        {
            "T* x, const float* grid": "T* x, float* grid",
            "const float* at": "float* at",
            "    float sum = 0.0f;": "    at[0] = px;\n    float sum = 0.0f;",
        },
        "input unchanged",
        "write to an input: sample.cu:21",
    ),
}
CONVOLUTION = {
    "no test of the right border": Defect(
        {"if (top >= 0 && left + 1 < w)": "if (top >= 0)"},
        "memory",
        "out-of-bounds read, off by one: deformable_conv.cu:9",
    ),
    "no test of the left border": Defect(
        {"if (top >= 0 && left >= 0)": "if (top >= 0)"}, "memory", "reads element -1 of input 0"
    ),
    "the mask is not used": Defect({" * float(mask[number * area + place])": ""}, "enqueue", "elements differ"),
    "offsets along x and y are exchanged": Defect(
        {
            "offset[2 * number * area": "offset[(2 * number + 1) * area",
            "offset[(2 * number + 1) * area": "offset[2 * number * area",
        },
        "enqueue",
        "elements differ",
    ),
    "all images use the first offsets": Defect({"(image * groups + group)": "group"}, "enqueue", "elements differ"),
    "as many threads as x has values": Defect(
        {"threads=y.size": "threads=x.size"}, "enqueue writes all", "elements are not written"
    ),
    "the class keeps what configure finds": Defect(
        {
            "    def enqueue(": "    def configure(self, inputs, outputs):\n"
            "        type(self).total = int(np.prod(outputs[0].dims))\n\n    def enqueue(",
            "y.size, sizes": "self.total, sizes",
        },
        "changing dims",
        "state shared between contexts",
    ),
    "float16: no bias": Defect(
        {"= float(bias[out])": "= sizeof(T) == 2 ? 0.0f : float(bias[out])"}, OTHER_TYPES, "on float16["
    ),
    "float16: sums in float16": Defect(
        {"float sum = float(bias[out])": "T sum = bias[out]", "sum += float(weight": "sum = float(sum) + float(weight"},
        OTHER_TYPES,
        "on float16[",
    ),
    "the first run decides the number of values": Defect(
        {
            "y.size, sizes": "self.total, sizes",
            "        fields = (": "        self.total = getattr(self, 'total', y.size)\n        fields = (",
        },
        "changing dims",
        STATE,
    ),
    "an int for the place in the offsets": Defect(
        {"const long long number": "const int number"}, "large tensors", OVERFLOW
    ),
    "values decide what is launched": Defect(
        {
            "        sizes = (": "        if float(bias[0]) == 0:\n            return\n        sizes = (",
            "weight, _), (y,) = inputs": "weight, bias), (y,) = inputs",
        },
        "graph capture",
        "reads a value on the host: ",
    ),
}
NMS = {
    "a shared counter without atomics": Defect(
        {"atomicAdd(counts + image, 1)": "counts[image] += 1"}, "thread order", "race: batched_nms.cu:26"
    ),
    "a missing barrier": Defect(
        {"number = 0;\n    __syncthreads();": "number = 0;"}, "thread order", "race: missing barrier: batched_nms.cu"
    ),
    "the counters are not cleared": Defect(
        {"self.clear.launch(counts, n, threads=n, stream=stream)": "pass"},
        "memory",
        "uninitialized read: batched_nms.cu:26",
    ),
    "the counters are cleared in the first run": Defect(
        {
            "self.clear.launch(counts, n,": "self.cleared = hasattr(self, 'cleared')\n        self.cleared or self.clear.launch(counts, n,"
        },
        "repeated runs",
        "state kept between runs",
    ),
    "an int for the image": Defect({"const long long image": "const int image"}, "large tensors", OVERFLOW),
    "the host reads the number of candidates": Defect(
        {
            "        self.select.launch(": "        most = min(most, max(1, int(counts[0])))\n        self.select.launch("
        },
        "graph capture",
        "reads a value on the host: ",
    ),
    "int32: the box instead of the class": Defect(
        {"kept[k] / count : -1": "kept[k] % count : -1"}, "enqueue", "output 3: "
    ),
    "int32: the number of candidates instead of results": Defect(
        {"found[image] = number": "found[image] = counts[image]"}, "enqueue", "output 0: "
    ),
    "more results than max_outputs": Defect({" && number < most": ""}, "memory", "of workspace"),
}
DEFECTS = {
    "hard-swish": HARD_SWISH,
    "sampler": SAMPLER,
    "sampler without shapes": {
        "align_corners is not used": Defect({"align_corners ? (": "false ? ("}, "enqueue", "align_corners=True"),
        "a grid of another batch is accepted": Defect({"check_equal(grid[0], x[0],": "str("}, "dims", "compute gives"),
    },
    "sampler with borders": {
        "the padding is not used": Defect({"if (border)": "if (false)"}, "enqueue", "elements differ")
    },
    "sampler of a wide image": {
        "float16: places in float16": Defect(
            {"pixel_of(at[0], w": "pixel_of(float(T(at[0])), w"}, OTHER_TYPES, "elements differ"
        )
    },
    "convolution": CONVOLUTION,
    "convolution in groups": {
        "all groups use the first offsets": Defect({"channel / (c / groups)": "0"}, "enqueue", "elements differ"),
        "groups of channels are interleaved": Defect(
            {"channel / (c / groups)": "channel % groups"}, "enqueue", "elements differ"
        ),
        "the dilation is not used": Defect({"tap / kw * dilation": "tap / kw"}, "enqueue", "elements differ"),
    },
    "NMS": NMS,
    "NMS with room": {
        "no padding of the classes": Defect(
            {"out_classes[k] = taken ? kept[k] / count : -1": "if (taken) out_classes[k] = kept[k] / count"},
            "enqueue writes all",
            "output 3: ",
        ),
        "boxes of all classes suppress each other": Defect(
            {"kept[k] / count == kind && ": ""}, "enqueue", "output 0: "
        ),
    },
    "NMS of equal scores": {
        "equal scores get one place": Defect(
            {" || (others == score && other < entry)": ""},
            "memory",
            "Before that: uninitialized read: batched_nms.cu:60",
        ),
    },
}
"""By the plugin of `RIGHT` in which they are planted."""
numbers = itertools.count()


def plugin_with_edits(plugin, edits, folder):
    """The plugin from a copy of its source, in which each text of `edits` is replaced; it must be there once."""
    module = type(plugin).__module__.rpartition(".")[2]
    unused = set(edits)
    for file in PLUGINS.glob(f"{module}.[pc]*"):
        source = file.read_text(encoding="utf-8").replace('namespace="wanted"', f'namespace="wanted.{next(numbers)}"')
        for text in [text for text in edits if text in source]:
            assert source.count(text) == 1, f"{file.name} has several: {text}"
            unused.remove(text)
            source = source.replace(text, f"@{list(edits).index(text)}@")  # the new text may hold the next one
        for index, text in enumerate(edits.values()):
            source = source.replace(f"@{index}@", text)
        (folder / file.name).write_text(source, encoding="utf-8")
    assert not unused, f"{module} has no {unused}"
    spec = importlib.util.spec_from_file_location(f"edited_{module}", folder / f"{module}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = edited = importlib.util.module_from_spec(spec)  # where annotations are looked up
    spec.loader.exec_module(edited)
    return getattr(edited, type(plugin).__name__)(**plugin.fields())


@pytest.mark.parametrize(("name", "defect"), [(name, defect) for name in DEFECTS for defect in DEFECTS[name]])
@in_small_process
def test_a_planted_defect_is_found_by_name(name, defect, tmp_path):
    plugin, options = RIGHT[name]
    edits, entry, text = DEFECTS[name][defect]
    slow = ["two threads"]  # and the same for all of these defects
    report = ptp.check_plugin(plugin_with_edits(plugin, edits, tmp_path), engines=[], skip=slow, **options)
    assert [failed.name for failed in report.failed] == [entry], str(report)
    assert text in report[entry].detail


def random_inputs(name, seed=0):
    """Normal numbers in the shapes of a plugin of `RIGHT`."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(dims).astype(np.float32) for dims in RIGHT[name][1]["shapes"].values()]


def onnx_output(operator, names, inputs, opset, attributes, reference=False):
    """The output of a model of one standard operator, from onnxruntime or from onnx.reference; inputs are float32 or int64."""
    node = onnx.helper.make_node(operator, names, ["y"], **attributes)
    kinds = {np.dtype(np.float32): onnx.TensorProto.FLOAT, np.dtype(np.int64): onnx.TensorProto.INT64}
    values = [
        onnx.helper.make_tensor_value_info(key, kinds[array.dtype], array.shape)
        for key, array in zip(names, inputs, strict=True)
    ]
    kind = kinds[np.dtype(np.int64 if operator == "NonMaxSuppression" else np.float32)]
    graph = onnx.helper.make_graph([node], operator, values, [onnx.helper.make_tensor_value_info("y", kind, None)])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=9)
    feeds = dict(zip(names, inputs, strict=True))
    if reference:
        session: Any = ReferenceEvaluator(model)
    else:
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, feeds)
    return y


def test_hard_swish_is_that_of_onnxruntime():
    x = 4 * np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32)
    np.testing.assert_allclose(HardSwish().compute(x), onnx_output("HardSwish", ["x"], [x], 14, {}), atol=1e-6)


@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_the_sampler_is_that_of_onnxruntime(align_corners, padding):
    inputs = random_inputs("sampler")
    attributes = {"mode": "linear", "padding_mode": padding, "align_corners": int(align_corners)}
    expected = onnx_output("GridSample", ["X", "grid"], inputs, 20, attributes)
    plugin = BilinearSampler(align_corners=align_corners, padding=padding)
    np.testing.assert_allclose(plugin.compute(*inputs), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["convolution", "convolution in groups"])
def test_the_convolution_is_that_of_onnx(name):
    x, offset, mask, weight, bias = inputs = random_inputs(name)
    plugin = RIGHT[name][0]
    attributes = {
        "strides": [plugin.stride] * 2,
        "pads": [plugin.padding] * 4,
        "dilations": [plugin.dilation] * 2,
        "offset_group": plugin.offset_groups,
        "kernel_shape": weight.shape[2:],
    }
    names, arrays = ["X", "W", "offset", "B", "mask"], [x, weight, offset, bias, mask]
    expected = onnx_output("DeformConv", names, arrays, 19, attributes, reference=True)
    np.testing.assert_allclose(plugin.compute(*inputs), expected, atol=1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("plugin", [BatchedNms(), BatchedNms(max_outputs=60, iou_threshold=0.3)], ids=str)
def test_the_boxes_are_those_of_onnxruntime(plugin, seed):
    rng = np.random.default_rng(seed)
    boxes, scores = rng.uniform(0.2, 1, (2, 20, 4)).astype(np.float32), rng.random((2, 3, 20), np.float32)
    names, limits = ["boxes", "scores", "most", "iou", "score"], [plugin.iou_threshold, plugin.score_threshold]
    arrays = [boxes, scores, np.array([20], np.int64), *(np.array([limit], np.float32) for limit in limits)]
    rows = onnx_output("NonMaxSuppression", names, arrays, 11, {"center_point_box": 1})
    counts, found_boxes, found_scores, classes = plugin.compute(boxes, scores)
    for image in range(2):
        expected = [(kind, box) for index, kind, box in rows if index == image]
        expected = sorted(expected, key=lambda pair: -scores[image][pair])[: plugin.max_outputs]
        count = counts[image, 0]
        assert count == len(expected)
        assert classes[image, :count].tolist() == [kind for kind, _ in expected]
        np.testing.assert_array_equal(found_boxes[image, :count], [boxes[image, box] for _, box in expected])
        np.testing.assert_array_equal(found_scores[image, :count], [scores[image][pair] for pair in expected])
        assert (classes[image, count:] == -1).all()
        assert not found_boxes[image, count:].any()
