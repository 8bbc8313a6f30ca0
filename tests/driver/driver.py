"""TensorRT's part, played by driver.cpp: every call from C++, through TensorRT's registry, to plugins of any language."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence
from ctypes import POINTER, byref, c_char_p, c_double, c_float, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pytrtplugins import Plugin
from pytrtplugins.engines.tensorrt._api import Api
from pytrtplugins.engines.tensorrt.collected import collecting
from pytrtplugins.engines.tensorrt.creators import register, unregister
from pytrtplugins.engines.tensorrt.dims import count_outputs
from pytrtplugins.engines.tensorrt.plugin_fields import Extras, to_fields
from pytrtplugins.tensor import DType

MAX_DIMS = 8
BUILD, RUNTIME = 0, 1
LINEAR, HWC, CHW32 = 0, 8, 5  # TensorFormat, which the lean package lacks
FP8 = 6  # DataType

Items = list[tuple[str, str, np.ndarray]]
DTYPES = {"FLOAT32": np.float32, "INT32": np.int32, "CHAR": np.int8, "FLOAT64": np.float64, "INT64": np.int64,
          "INT8": np.int8, "INT16": np.int16}  # fmt: skip


class Tensor(ctypes.Structure):
    _fields_ = (
        ("type", c_int32),
        ("format", c_int32),
        ("rank", c_int32),
        ("scale", c_float),
        *((name, c_int64 * MAX_DIMS) for name in ("dims", "min", "opt", "max")),
    )


class Tensors(ctypes.Structure):
    _fields_ = (("all", POINTER(Tensor)), ("inputs", c_int32), ("outputs", c_int32))


class Field(ctypes.Structure):
    _fields_ = (("name", c_char_p), ("data", c_void_p), ("type", c_int32), ("length", c_int32))


class Collection(ctypes.Structure):
    _fields_ = (("count", c_int32), ("fields", POINTER(Field)))


RESULTS = {
    "registry": c_void_p, "load_library": c_void_p, "creator": c_void_p, "create": c_void_p, "clone": c_void_p,
    "attach": c_void_p, "save": c_void_p, "declared": POINTER(Collection), "saved": POINTER(Field), "text": c_char_p,
    "workspace": c_int64}  # fmt: skip


class Refused(Exception):
    """A call of the driver failed; the text is what the library logged."""

    def __init__(self, call: str, log: str) -> None:
        super().__init__(f"{call}: {log}")
        self.call = call


@dataclass
class Built:
    """What an engine file keeps of one layer."""

    fields: Items
    outputs: list[np.ndarray]
    workspace: int
    tactics: list[int]


class Place:
    """Where the arrays lie: in this process; NumPy's."""

    stream = 0

    def array(self, values: np.ndarray) -> Any:
        return values.copy()

    def numpy(self, array: Any) -> np.ndarray:
        return np.array(array)

    def address(self, array: Any) -> int:
        return array.ctypes.data

    def synchronize(self) -> None:
        """Wait for what is queued."""


class Driver:
    """One TensorRT: its package, its registry, and the libraries that the driver's build made."""

    def __init__(self, folder: Path, api: Api, runtime: Path, place: Place | None = None) -> None:
        self.folder, self.api, self.place = folder, api, place or Place()
        self._library = ctypes.CDLL(str(folder / "libtensorrt_driver.so"))
        for name, kind in RESULTS.items():
            self._function(name).restype = kind
        self.registry = self.call("registry", str(runtime).encode())
        assert self.registry, f"{runtime} is not of the headers' major version"

    def _function(self, name: str) -> Any:
        return getattr(self._library, f"driver_{name}")

    def call(self, name: str, *arguments: Any) -> Any:
        """A function of the driver; addresses are passed as pointers."""
        return self._function(name)(*(c_void_p(item) if type(item) is int else item for item in arguments))

    def checked(self, name: str, *arguments: Any) -> Any:
        """The same, where zero is success."""
        code = self.call(name, *arguments)
        if code:
            raise Refused(name, self.log() or f"code {code}")

    def log(self) -> str:
        """What libraries have logged since the last call."""
        text = ctypes.create_string_buffer(4000)
        self.call("log", text, c_int32(len(text)))
        return text.value.decode()

    # -- who offers the plugins --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def library(self, name: str | Path) -> Iterator[None]:
        """Open one of the build's libraries, or a file, through TensorRT's load_library."""
        path = name if isinstance(name, Path) else self.folder / f"lib{name}.so"
        handle = self.call("load_library", self.registry, str(path).encode())
        if not handle:
            raise Refused("load_library", str(path))
        try:
            yield
        finally:
            self.call("unload_library", self.registry, handle)

    @contextlib.contextmanager
    def offered(self, plugin: type[Plugin], language: str) -> Iterator[None]:
        """The creator of a plugin class in TensorRT's registry, in Python or in C++."""
        if language == "python":
            register(plugin)
            with collecting():
                yield
            unregister(plugin)
        else:
            unregister(plugin)
            own = plugin.__module__.startswith("pytrtplugins.")
            with self.library("pytrtplugins_loadable" if own else "driver_user_plugins"):
                yield

    # -- what TensorRT hands over ------------------------------------------------------------------------------------

    def tensor(self, dims: Sequence[int], dtype: DType | int, *, free: Sequence[int] = (), factor: int = 1, layout: int = LINEAR,
               scale: float = 0.0) -> Tensor:  # fmt: skip
        """A tensor whose axes ``free`` may be up to ``factor`` times as large."""
        made = Tensor(dtype if type(dtype) is int else int(self.api.data_type(dtype)), layout, len(dims), scale)
        for axis, size in enumerate(dims):
            made.dims[axis] = -1 if axis in free else size
            made.min[axis] = made.opt[axis] = size
            made.max[axis] = size * (factor if axis in free else 1)
        return made

    @staticmethod
    def tensors(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Tensors:
        every = (*inputs, *outputs)
        return Tensors((Tensor * len(every))(*every), len(inputs), len(outputs))

    def items(self, plugin: Plugin) -> Items:
        """A plugin's fields as the Python adapter writes them."""
        return [
            (field.name, field.type.name, np.array(field.data))
            for field in to_fields(self.api, plugin, Extras(count_outputs(plugin)))
        ]

    def read(self, fields: Any, count: int) -> Items:
        """Fields as they lie in memory."""
        kinds = self.api.trt.PluginFieldType
        found = []
        for field in fields[:count]:
            kind = kinds(field.type).name
            size = field.length * np.dtype(DTYPES[kind]).itemsize
            data = ctypes.string_at(field.data, size) if size else b""
            found.append((field.name.decode(), kind, np.frombuffer(data, DTYPES[kind])))
        return found

    # -- calls -------------------------------------------------------------------------------------------------------

    def creator(self, plugin: type[Plugin]) -> Any:
        namespace, name, version = (text.encode() for text in plugin.plugin_key())
        return self.call("creator", self.registry, name, version, namespace)

    def declared(self, plugin: type[Plugin]) -> list[tuple[str, str]]:
        found = self.call("declared", self.creator(plugin)).contents
        return [(name, kind) for name, kind, _ in self.read(found.fields, found.count)]

    def create(self, plugin: type[Plugin], items: Items, phase: int = BUILD) -> Any:
        """Let the creator make a plugin of these fields."""
        creator = self.creator(plugin)
        if not creator:
            raise Refused("creator", f"{plugin.plugin_key()} is not in the registry")
        kinds = self.api.trt.PluginFieldType
        arrays = [np.ascontiguousarray(values) for _, _, values in items]
        fields = (Field * len(items))(*(
            Field(name.encode(), values.ctypes.data, int(getattr(kinds, kind)), values.size)
            for (name, kind, _), values in zip(items, arrays, strict=True)
        ))  # fmt: skip
        return self.made("create", creator, fields, c_int32(len(items)), c_int32(phase))

    def made(self, call: str, *arguments: Any) -> Any:
        """A new plugin: of a creator, a clone, or of a context."""
        found = self.call(call, *arguments)
        if not found:
            raise Refused(call, self.log())
        return found

    def destroy(self, *plugins: Any) -> None:
        for plugin in plugins:
            self.call("destroy", plugin)

    def output_types(self, plugin: Any, inputs: Sequence[int], count: int | None = None) -> list[DType]:
        count = self.call("output_count", plugin) if count is None else count
        ins, outs = (c_int32 * len(inputs))(*inputs), (c_int32 * count)()
        self.checked("output_types", plugin, ins, c_int32(len(inputs)), outs, c_int32(count))
        return [self.api.dtype(self.api.trt.DataType(value)) for value in outs]

    def output_dims(self, plugin: Any, inputs: Sequence[Tensor]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """For each output its dims, -1 where they are free, and their values."""
        count = self.call("output_count", plugin)
        ins, outs = (Tensor * len(inputs))(*inputs), (Tensor * count)()
        self.checked("output_dims", plugin, ins, c_int32(len(inputs)), outs, c_int32(count))
        return [(tuple(out.dims[: out.rank]), tuple(out.opt[: out.rank])) for out in outs]

    def accepts(self, plugin: Any, tensors: Tensors) -> bool:
        """Whether the plugin takes the types and layouts, asked position by position."""
        count = tensors.inputs + tensors.outputs
        return all(self.call("accepts", plugin, c_int32(position), byref(tensors)) == 1 for position in range(count))

    def tactics(self, plugin: Any) -> list[int]:
        found = (c_int32 * 16)()
        return list(found[: self.call("tactics", plugin, found, c_int32(16))])

    def save(self, plugin: Any) -> Items:
        """A copy of the fields to serialize."""
        saved = self.made("save", plugin)
        count = c_int32()
        items = self.read(self.call("saved", saved, byref(count)), count.value)
        self.call("forget", saved)
        return items

    def enqueue(self, plugin: Any, tensors: Tensors, inputs: Sequence[int], outputs: Sequence[int], workspace: int,
                stream: int = 0, *, times: int = 1, aside: bool = False) -> np.ndarray:  # fmt: skip
        """Queue the plugin's work ``times`` times; how many nanoseconds of this thread each took."""
        passed = (c_double * times)()
        self.checked(
            "enqueue", plugin, byref(tensors), (c_void_p * len(inputs))(*inputs), (c_void_p * len(outputs))(*outputs),
            c_void_p(workspace), c_void_p(stream), c_int32(times), passed, c_int32(aside))  # fmt: skip
        return np.array(passed)

    # -- the whole life ----------------------------------------------------------------------------------------------

    def build(self, plugin: Plugin, arrays: Sequence[np.ndarray], *, factor: int = 3) -> Built:
        """What a builder does with one layer, for batches up to ``factor`` times that of the arrays."""
        first = self.create(type(plugin), self.items(plugin))
        made = self.made("clone", first)  # the network's own
        self.destroy(first)
        dtypes = self.output_types(made, [int(self.api.data_type(DType.of(array))) for array in arrays])
        ranged = [self.tensor(array.shape, DType.of(array), free=(0,), factor=factor) for array in arrays]
        dims = [values for _, values in self.output_dims(made, ranged)]
        outputs = [np.full(shape, 77).astype(dtype.numpy) for shape, dtype in zip(dims, dtypes, strict=True)]
        tensors = self.tensors(
            ranged, [self.tensor(array.shape, DType.of(array), free=(0,), factor=factor) for array in outputs]
        )
        if not self.accepts(made, tensors):
            raise Refused("accepts", f"{plugin!r} refuses {[str(dtype) for dtype in dtypes]}")
        self.checked("configure", made, byref(tensors))
        workspace, tactics = self.call("workspace", made, byref(tensors)), self.tactics(made)
        for tactic in tactics or [0]:  # timed
            self.execute(made, arrays, outputs, workspace, tactic)
        built = Built(self.save(made), outputs, workspace, tactics)
        self.destroy(made)
        return built

    def execute(self, plugin: Any, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray], workspace: int,
                tactic: int = 0, *, aside: bool = False) -> None:  # fmt: skip
        """One execution context, run twice on copies of the arrays."""
        place = self.place
        scratch = place.array(np.full(workspace + 1, 0xA5, np.uint8))
        sides = [[place.array(array) for array in side] for side in (arrays, outputs)]
        context, tensors = self.attach(plugin, arrays, outputs, tactic)
        place.synchronize()
        addresses = [[place.address(array) for array in side] for side in sides]
        self.enqueue(context, tensors, *addresses, place.address(scratch), place.stream, times=2, aside=aside)
        place.synchronize()
        for array, found in zip(outputs, sides[1], strict=True):
            array[...] = place.numpy(found)
        self.destroy(context)

    def attach(self, plugin: Any, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray], tactic: int = 0) -> Any:
        """The plugin of an execution context that is ready for these arrays, and their descriptions."""
        context = self.made("attach", plugin)
        tensors = self.tensors(
            *([self.tensor(array.shape, DType.of(array)) for array in side] for side in (arrays, outputs))
        )
        self.checked("set_tactic", context, c_int32(tactic))
        self.checked("shape_change", context, byref(tensors))
        return context, tensors

    def run(self, plugin: Plugin, built: Built, arrays: Sequence[np.ndarray], **options: Any) -> list[np.ndarray]:
        """What a runtime does with a layer of an engine file."""
        made = self.create(type(plugin), built.fields, RUNTIME)
        outputs = [np.full_like(array, 55) for array in built.outputs]
        self.execute(made, arrays, outputs, built.workspace, **options)
        self.destroy(made)
        return outputs
