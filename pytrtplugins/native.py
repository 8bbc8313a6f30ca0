"""Use C++ plugins as Plugin classes, and Python plugins from C++.

A library registers its classes with the macro of ``pytrtplugins/plugin.h`` (`include_dir` says where that is) and links
nothing. The joint between the languages, ``pytrtplugins._native``, is optional: ``python -m pytrtplugins.native`` builds it
where a C++ compiler and Python's headers are.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from . import _native_build
from .cuda.bindings import array_at, stream_at
from .errors import PluginError, UnavailableError
from .plugin.base import Plugin
from .plugin.decorator import plugin
from .plugin.field_kinds import KINDS
from .plugin.runner import PluginRunner
from .tensor import Array, DType, TensorDesc, array_namespace, evaluate_dims
from .utils.optional import require
from .utils.override import override

if TYPE_CHECKING:
    from . import _native

__all__ = [
    "NativeLibrary",
    "NativePlugin",
    "as_native",
    "available",
    "include_dir",
    "layers",
    "load_library",
]

_TYPES = {kind.type_name: kind.annotation for kind in KINDS}
_libraries: dict[tuple[Path, str | None], NativeLibrary] = {}


def available() -> bool:
    """Return whether this installation has the native part."""
    return importlib.util.find_spec("pytrtplugins._native") is not None


def compiled() -> Any:
    """Return the native module for optional use by other modules; None if it is missing or of an older version."""
    module = _native_module() if available() else None
    return module if hasattr(module, "upload") else None


def include_dir() -> Path:
    """Return the include folder for a compiler: ``g++ -std=c++17 -shared -fPIC -I <this> acme.cpp -o libacme.so``.

    Raises:
        UnavailableError: the package was installed without the headers.
    """
    return _native_build.source_dir() / "plugins" / "include"


def load_library(path: str | os.PathLike[str], *, namespace: str | None = None) -> NativeLibrary:
    """Load a shared library and make a Plugin class of each plugin that it registers.

    The classes are registered like any other: `check_plugin`, engines and models know them. Loading a library again
    gives the same classes; it stays loaded until the process ends.

    Args:
        path: The library, ``libacme.so``.
        namespace: Of the classes, instead of their own: beside the Python classes that a library was exported from.

    Returns:
        The library; its classes are attributes: ``load_library("libacme.so").ChannelShuffle(groups=4)``.

    Raises:
        UnavailableError: this installation has no native part.
        PluginError: the file cannot be loaded, has no plugins, or was compiled for another version of the interface.
        RegistryError: another class has a plugin's key.
    """
    native, library_path = _native_module(), Path(path).resolve()
    if (library_path, namespace) not in _libraries:
        entries = native.load(str(library_path))
        if not entries:
            raise PluginError(
                f"library {library_path} has no plugins.\nDo: write PYTRTPLUGINS_REGISTER below each class."
            )
        classes = tuple(_make_class(entry, library_path.stem, namespace) for entry in entries)
        _libraries[library_path, namespace] = NativeLibrary(library_path, classes)
    return _libraries[library_path, namespace]


def layers() -> NativeLibrary:
    """Return the package's own layers in C++, of the namespace ``native``: ``layers().Reorg(stride=2)``.

    They run the kernels of the Python ones, on a CPU without Python's lock; on a GPU where the native part was built with
    CUDA's nvcc.

    Raises:
        UnavailableError: this installation has no native part.
    """
    _native_module()
    return load_library(Path(__file__).parent / "lib" / "libpytrtplugins_layers.so")


def as_native(plugin: Plugin, outputs: int = 1) -> _native.Handle:
    """Return a handle to a plugin with the C++ interface, for callers in C++.

    Args:
        plugin: Any plugin; one from a library gives a clone of its own C++ object.
        outputs: How many outputs a Python plugin has.

    Returns:
        A handle; ``handle.address`` is a ``pytrtplugins::Plugin*`` that lives as long as the handle. It is called from any
        thread, with or without Python's lock. Exceptions arrive as the C++ classes of ``errors.h``.
    """
    if isinstance(plugin, NativePlugin):
        return plugin.handle.clone()
    return cast("_native.Handle", _native_module().wrap(plugin.clone(), outputs))


class NativeLibrary:
    """A loaded library of plugins.

    Attributes:
        path: The file.
        plugins: Its Plugin classes, in the order of registration.
    """

    def __init__(self, path: Path, plugins: tuple[type[NativePlugin], ...]) -> None:
        self.path, self.plugins = path, plugins

    def __getattr__(self, name: str) -> type[NativePlugin]:
        classes: dict[str, type[NativePlugin]] = {cls.__name__: cls for cls in self.__dict__.get("plugins", ())}
        if name not in classes:
            raise AttributeError(f"{self.__dict__.get('path')} has no plugin {name!r}; it has {', '.join(classes)}")
        return classes[name]

    def __repr__(self) -> str:
        return f"NativeLibrary({self.path.name}: {', '.join(cls.__name__ for cls in self.plugins)})"


class NativePlugin(Plugin):
    """Base class of the classes that `load_library` makes: each method calls the C++ object, without Python's lock."""

    _entry: ClassVar[Any]
    _layouts: tuple[str, ...] = ()
    _scales: tuple[float, ...] = ()

    @property
    def handle(self) -> _native.Handle:
        """The C++ object."""
        return cast("_native.Handle", self.__dict__["_handle"])

    def validate(self) -> None:
        """Create the C++ object, which checks the fields."""
        self._handle = self._entry.make(self.fields())

    @property
    def num_inputs(self) -> int | None:
        """The number of inputs; None for any number."""
        count = self.handle.num_inputs
        return None if count < 0 else count

    @override
    def output_dims(self, *inputs: Any) -> Any:
        dims = self.handle.output_dims(list(inputs))
        return dims[0] if len(dims) == 1 else tuple(dims)

    def output_dtypes(self, *inputs: Any) -> Any:
        """Return ``outputType`` of each output."""
        return tuple(self.handle.output_types(list(inputs)))

    @override
    def supports_format(self, position: int, descs: Sequence[TensorDesc]) -> bool:
        known_descs = descs[: position + 1]
        if any(desc.layout not in ("linear", "nhwc") for desc in known_descs):
            return False
        return self.handle.supports_format(position, [*known_descs, *(descs[position] for _ in descs[position + 1 :])])

    @override
    def configure(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> None:
        self._layouts = tuple(desc.layout for desc in (*inputs, *outputs))
        self._scales = tuple(desc.scale or 0.0 for desc in (*inputs, *outputs))
        self.handle.configure(inputs, outputs)

    @override
    def workspace_size(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> int:
        return self.handle.workspace_size(inputs, outputs)

    @override
    def initialize(self) -> None:
        self.handle.initialize()

    def enqueue(self, inputs: Sequence[Array], outputs: Sequence[Array], workspace: Array | None, stream: Any) -> None:
        """Call the C++ ``enqueue`` on the arrays' own memory."""
        queue = int(getattr(stream, "ptr", stream) or 0)
        self.handle.enqueue(inputs, outputs, self._layouts, _address(workspace), queue, self._scales)

    @override
    def terminate(self) -> None:
        self.handle.terminate()

    def compute(self, *inputs: Array) -> Any:
        """Run a clone from configuration to termination; inputs that are not contiguous, or in the other byte order, are copied."""
        xp = array_namespace(inputs[0])
        arrays = [xp.asarray(array, array.dtype.newbyteorder("="), order="C") for array in inputs]
        dims = self.all_output_dims([array.shape for array in arrays])
        dtypes = self.all_output_dtypes([DType.of(array) for array in arrays], len(dims))
        outputs = [xp.empty(shape, dtype.numpy) for shape, dtype in zip(dims, dtypes, strict=True)]
        if xp is np:
            _native_module().run(self.handle, arrays, outputs)
        else:
            runner = PluginRunner(self.clone(), allocate=lambda size: xp.empty(size, xp.uint8))
            try:
                runner.run(arrays, outputs, xp.cuda.get_current_stream())
            finally:
                runner.close()
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _enqueue_on_gpu(plugin: Plugin, inputs: Any, outputs: Any, workspace: Any, stream: int) -> None:
    """Run a Python plugin on GPU addresses with their descriptions; called from C++."""
    cupy = require("cupy", extra="tensorrt", feature="a Python plugin, called from C++ on a GPU,")

    def view(pair: tuple[int, TensorDesc]) -> Any:
        address, desc = pair
        return array_at(cupy, address, evaluate_dims(desc.dims, {}), desc.dtype.numpy, plugin)

    queue = stream_at(cupy, stream)
    with queue:
        scratch = view(workspace) if workspace else None
        PluginRunner(plugin, allocate=None).enqueue([*map(view, inputs)], [*map(view, outputs)], queue, scratch)


def _make_class(entry: _native.Entry, library: str, namespace: str | None = None) -> type[NativePlugin]:
    entry_namespace, name, version = entry.key
    fields = entry.fields()
    body = {
        **{field: default for field, _, default in fields},
        "__annotations__": {field: _TYPES[kind] for field, kind, _ in fields},
        "__doc__": entry.description or f"{name} of {library}, written in C++.",
        "__module__": library,
        "_entry": entry,
        "int8": entry.int8,
    }
    return plugin(namespace=namespace or entry_namespace, version=version)(type(name, (NativePlugin,), body))


def _address(array: Array | None) -> int:
    if array is None:
        return 0
    interface = getattr(array, "__cuda_array_interface__", None) or array.__array_interface__
    return int(interface["data"][0])


def _native_module() -> Any:
    if not available():
        raise UnavailableError(
            "plugins in C++: this installation has no native part.\nDo: "
            + " and then ".join([*_native_build.missing(), _native_build.COMMAND])
        )
    return importlib.import_module("pytrtplugins._native")


if __name__ == "__main__":
    sys.exit(_native_build.main(sys.argv[1:]))
