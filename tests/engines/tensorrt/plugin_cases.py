"""The plugins of the package, of the documentation and of tests, each with dims that it takes; and networks around them."""

from __future__ import annotations

import linecache
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from pytrtplugins.layers import Region, Reorg, Yolo
from pytrtplugins.plugin.base import Plugin
from pytrtplugins.tensor import DType
from tests.check.plugins.batched_nms import BatchedNms
from tests.check.plugins.bilinear_sampler import BilinearSampler
from tests.check.plugins.deformable_conv import DeformableConv
from tests.check.plugins.hard_swish import HardSwish
from tests.engines.plugin_models import Next, Pair, Scaled
from tests.pages import texts

from .user_plugins import Counting, Everything, MeanAndRest, Offsets, Scale, ThirdOfChannels, TwoWays, Weighted

_OPSET, _IR = 19, 10
_INT32 = np.dtype(np.int32)


class PluginCase(NamedTuple):
    """A plugin, and the inputs of its node.

    Attributes:
        plugin: The plugin.
        dims: Dims of each input.
        integers: Which inputs are int32; the others are float32.
    """

    plugin: Plugin
    dims: tuple[tuple[int, ...], ...]
    integers: tuple[int, ...] = ()

    def dtype(self, index: int) -> np.dtype[Any]:
        return _INT32 if index in self.integers else np.dtype(np.float32)


def page_class(page: str, name: str) -> type[Plugin]:
    """The first class of a name in a page's programs, under a namespace of its own: several pages have a plugin of one name."""
    namespace = f'@ptp.plugin(namespace="test.pages.{Path(page).stem}")'
    for text in texts(page, "python"):
        if re.search(rf"^class {name}\b", text, re.MULTILINE):
            head = "import numpy as np\nimport numpy.typing as npt\nimport pytrtplugins as ptp\n"
            program = head + re.sub(r'@ptp\.plugin\(namespace="\w+"\)', namespace, text)
            path = f"<{page}: {name}>"
            linecache.cache[path] = (len(program), None, program.splitlines(keepends=True), path)
            module = ModuleType(re.sub(r"\W", "_", f"{page}_{name}"))
            sys.modules[module.__name__] = module  # where the types of fields are looked up
            exec(compile(program, path, "exec"), module.__dict__)
            found: type[Plugin] = getattr(module, name)
            return found
    raise AssertionError(f"{page} has no class {name}")


_FOUR = ((2, 4, 6, 8),)
_CONV = ((2, 3, 5, 6), (2, 12, 5, 7), (2, 6, 5, 7), (4, 3, 3, 2), (4,))

CASES: dict[str, PluginCase] = {
    "Reorg": PluginCase(Reorg(stride=2), _FOUR),
    "Region": PluginCase(Region(anchors=(1, 2, 3, 4), classes=3, num=2), ((1, 16, 4, 4),)),
    "Yolo": PluginCase(Yolo(anchors=(10, 14, 23, 27), mask=(0, 1), classes=3), ((1, 16, 4, 4),)),
    "custom_layer.md": PluginCase(page_class("docs/how-to/custom_layer.md", "ChannelShuffle")(), _FOUR),
    "tensorrt.md": PluginCase(page_class("docs/how-to/tensorrt.md", "ChannelShuffle")(), _FOUR),
    "tutorial.md": PluginCase(page_class("docs/start/tutorial.md", "Snake")(), _FOUR),
    "fields.md, weights": PluginCase(page_class("docs/how-to/fields.md", "PRelu")(slope=[0.1, 0.2, 0.3, 0.4]), _FOUR),
    "fields_data.md, numbers of rows": PluginCase(
        page_class("docs/how-to/fields_data.md", "Rows")(), ((4, 3), (2,)), (1,)
    ),
    "HardSwish": PluginCase(HardSwish(), _FOUR),
    "BilinearSampler": PluginCase(BilinearSampler(), ((2, 3, 5, 7), (2, 4, 6, 2))),
    "DeformableConv": PluginCase(DeformableConv(), _CONV),
    "BatchedNms": PluginCase(BatchedNms(), ((2, 9, 4), (2, 3, 9))),
    "Scale": PluginCase(Scale(factor=3.0), _FOUR),
    "MeanAndRest": PluginCase(MeanAndRest(), _FOUR),
    "Everything": PluginCase(Everything(required=1), _FOUR),
    "Offsets": PluginCase(Offsets(by=np.arange(4, dtype=np.float32)), _FOUR),
    "Weighted": PluginCase(Weighted(), _FOUR * 2),
    "TwoWays": PluginCase(TwoWays(), _FOUR),
    "Counting": PluginCase(Counting(), _FOUR),
    "ThirdOfChannels": PluginCase(ThirdOfChannels(), ((5, 6),)),
    "Scaled": PluginCase(Scaled(), ((2, 3), (2, 3))),
    "Next": PluginCase(Next(), ((2, 3),)),
    "Pair": PluginCase(Pair(), ((2, 3),)),
}


def network(
    case: PluginCase, *, around: bool = False, constant: int | None = None, twice: bool = False, batch: str = ""
) -> Any:
    """A model with the plugin's node, whose name is "plugin".

    Args:
        case: The plugin.
        around: Whether a Relu stands before each float input, and a Neg behind each output.
        constant: The input that is an initializer.
        batch: Name of the first axis of each input, whose size is then free.
        twice: Whether the first input is an output of the model, too, behind a Sigmoid.
    """
    names = [f"x{index}" for index in range(len(case.dims))]
    read = [
        f"r{name}" if around and index not in (*case.integers, constant) else name for index, name in enumerate(names)
    ]
    outputs = [f"y{index}" for index in range(len(case.plugin.all_output_dims(case.dims)))]
    nodes = [
        helper.make_node("Relu", [name], [other], other)
        for name, other in zip(names, read, strict=True)
        if name != other
    ]
    nodes.append(case.plugin.as_node(read, outputs, "plugin"))
    dtypes = case.plugin.all_output_dtypes([DType(str(case.dtype(index))) for index in range(len(names))], len(outputs))
    kinds = [helper.np_dtype_to_tensor_dtype(dtype.numpy) for dtype in dtypes]
    ends = list(outputs)
    if around:
        nodes += [helper.make_node("Neg", [name], [f"z{name}"], f"z{name}") for name in outputs]
        ends = [f"z{name}" for name in outputs]
    if twice:
        nodes.append(helper.make_node("Sigmoid", [names[0]], ["other"], "other"))
        ends.append("other")
        kinds.append(TensorProto.FLOAT)
    dims = [(batch, *shape[1:]) if batch else shape for shape in case.dims]
    infos = {
        name: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(case.dtype(index)), dims[index])
        for index, name in enumerate(names)
    }
    weights = []
    if constant is not None:
        array = np.arange(np.prod(case.dims[constant])).reshape(case.dims[constant]).astype(case.dtype(constant))
        weights.append(numpy_helper.from_array(array % 2, names[constant]))
        del infos[names[constant]]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(ends, kinds, strict=True)]
    graph = helper.make_graph(nodes, "places", list(infos.values()), results, weights)
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(case.plugin.plugin_key().namespace, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR)
