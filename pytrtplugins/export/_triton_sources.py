"""Prepare the model that Triton serves, for onnxruntime or as a TensorRT plan; refuse what Triton cannot serve."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..engines.base.engine_file import read_engine_file
from ..engines.base.plugins import write_decompositions
from ..engines.tensorrt.settings import Settings
from ..errors import EngineFileError, ModelError, PluginError, UsageError
from ..model import Graph, write_onnx
from ..model.proto import node_name
from ..plugin.onnx_node import STANDARD_DOMAINS, from_node, is_plugin_node
from ..plugin.policy import HOST_FORMS, NO_REQUESTS, check_forms, requested_forms, requested_forms_in
from ..plugin.registry import lookup
from ..tensor import SymbolicDim, TensorDesc
from ..utils.optional import onnx
from ..validation.dataflow import walk
from ._triton_config import bindings

__all__ = ["Source", "from_engine_file", "from_onnx", "from_plan"]

_ENTRY_OF_OPERATORS = b"RegisterCustomOps"  # what onnxruntime calls in a library of operators


@dataclass(frozen=True)
class Source:
    """The model that is served.

    Attributes:
        model: The ONNX model, with the shapes of its outputs: what onnxruntime runs, or what the plan was made from.
        plan: TensorRT's serialized engine; None: onnxruntime runs the model.
        max_batch: For how many the plan was built, if known.
        needs: What the server must have.
        version_compatible: Whether the plan is for other versions of TensorRT too.
    """

    model: onnx.ModelProto
    plan: bytes | None = None
    max_batch: int | None = None
    needs: tuple[str, ...] = ()
    version_compatible: bool = False

    @property
    def backend(self) -> str:
        """Triton's name for what runs it."""
        return "onnxruntime" if self.plan is None else "tensorrt"

    def write(self, folder: Path) -> None:
        """Write the model under the name that Triton looks for."""
        if self.plan is None:
            write_onnx(self.model, folder / "model.onnx", external_data=False)
        else:
            (folder / "model.plan").write_bytes(self.plan)


def from_onnx(
    model: onnx.ModelProto, libraries: Sequence[str | Path] = (), requested: Mapping[str, str] = NO_REQUESTS
) -> Source:
    """A model for onnxruntime: its plugins are written out, as for engine ``onnxruntime``; Triton has no Python for other forms.

    Raises:
        ModelError: a plugin has no decomposition, or nobody knows an operator, and no library is given.
        RegistryError: nobody has registered a plugin.
        UsageError: a library is none of onnxruntime's; or a plugin is to run in a form that needs Python.
    """
    _check_python(requested, ("decomposition", "enqueue") if libraries else ("decomposition",))
    check_forms(model, "onnxruntime", HOST_FORMS, requested)
    for library in libraries:
        if _ENTRY_OF_OPERATORS not in Path(library).read_bytes():
            raise UsageError(
                f"library {str(library)!r} has no function RegisterCustomOps: it is not a library of onnxruntime operators.\n"
                "Do: pytrt build MODEL --engine tensorrt -o FILE.engine, if it holds TensorRT plugins, and export that",
                path=library,
            )
    inlined = Graph(write_decompositions(model, HOST_FORMS, requested)).model  # with the shapes of all outputs
    functions = {(function.domain, function.name) for function in inlined.functions}
    for node in walk(inlined.graph.node):
        if libraries or node.domain in STANDARD_DOMAINS or (node.domain, node.op_type) in functions:
            continue
        raise ModelError(
            f"node {node_name(node)!r} ({node.domain}::{node.op_type}): {_why_not(node)}, so onnxruntime in "
            "Triton, which has no Python, cannot run it.\n"
            "Do: pytrt build MODEL --engine tensorrt -o FILE.engine && pytrt export-triton FILE.engine --library LIB.so",
            node=node.name,
        )
    return Source(inlined)


def from_plan(model: onnx.ModelProto, path: Path, libraries: Sequence[str | Path]) -> Source:
    """A plan that other tools have made from a model.

    Raises:
        UsageError: there is no such file, or the model has plugins and no library is given.
    """
    if not path.is_file():
        raise UsageError(f"plan {str(path)!r}: no such file", path=path)
    functions = {(function.domain, function.name) for function in model.functions}  # TensorRT can do with those
    keys = {(node.domain, node.op_type) for node in walk(model.graph.node) if is_plugin_node(node)}
    _check_libraries(keys - functions, libraries)
    return Source(
        Graph(model).model, path.read_bytes(), needs=("the TensorRT version and the GPU that the plan was made with",)
    )


def from_engine_file(path: Path, libraries: Sequence[str | Path]) -> Source:
    """A saved engine: TensorRT's plan, or the ONNX model that another engine runs.

    Raises:
        UsageError: a plan has plugins and no library is given; or a plugin is to run in a form that needs Python.
    """
    file = read_engine_file(path)
    metadata, model, payload = file.metadata, file.model(), file.payload()
    with _as_file_errors(path):
        requested = requested_forms(metadata["options"].get("plugins", NO_REQUESTS))
    if metadata.get("engine") != "tensorrt":
        return from_onnx(model, libraries, requested_forms_in(model, requested))
    _check_python(requested, ("decomposition", "enqueue"))
    with _as_file_errors(path):
        if not payload:
            raise ValueError("it holds no serialized engine")
        facts = dict(metadata["requirements"])
        keys = {(str(namespace), str(name)) for namespace, name, _ in facts["plugins"]}
        max_batch = _max_batch(model, metadata["options"]["settings"])
        compatible = facts["version_compatible"] is True
        versions = f"{facts['tensorrt']} or a newer one of that major version" if compatible else facts["tensorrt"]
        needs = (
            f"TensorRT {versions}",
            f"a GPU of compute capability {facts['compute_capability']} ({facts['device']})",
        )
    _check_libraries(keys, libraries)
    return Source(model, payload, max_batch, needs, compatible)


@contextmanager
def _as_file_errors(path: Path) -> Iterator[None]:
    """In the block, errors of damaged metadata become `EngineFileError`."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise EngineFileError(f"{path}: it is damaged ({error}).\nDo: pytrt build again", path=path) from error


def _max_batch(model: onnx.ModelProto, settings: Mapping[str, Any]) -> int | None:
    """The largest first axis that all free inputs were built for."""
    descs = [TensorDesc(item.name, item.dims) for item in bindings(model)[0]]
    ranges = Settings.read(settings).ranges(descs)
    sizes = [ranges[desc.name][2][0] for desc in descs if desc.dims and isinstance(desc.dims[0], SymbolicDim)]
    return min(sizes, default=None)


def _check_python(requested: Mapping[str, str], possible: Collection[str]) -> None:
    for name, form in requested.items():
        if form not in possible:
            raise UsageError(
                f"plugins: {name} is to run as {form!r}, and Triton, which has no Python, runs {' or '.join(possible)} here.\n"
                f"Do: leave it to the export, or pytrt build MODEL --engine tensorrt --plugin-form {name}=enqueue -o FILE.engine && "
                "pytrt export-triton FILE.engine --library LIB.so",
                plugin=name,
                form=form,
            )


def _check_libraries(plugins: set[tuple[str, str]], libraries: Sequence[str | Path]) -> None:
    if plugins and not libraries:
        names = sorted(plugins)
        namespace, name = names[0]
        try:
            cls: Any = lookup(namespace, name)
            target = f"{cls.__module__}:{cls.__qualname__}"
        except PluginError:
            target = f"MODULE:{name}"
        raise UsageError(
            f"the plan has plugins ({', '.join('::'.join(key) for key in names)}), and Triton has no Python: it needs a library "
            f"with them.\nDo: pytrt export-plugin {target} -o lib{name.lower()}.so, then --library lib{name.lower()}.so",
            plugins=names,
        )


def _why_not(node: onnx.NodeProto) -> str:
    if not is_plugin_node(node):
        return "it is neither an ONNX operator nor a plugin"
    plugin = from_node(node)
    if not plugin.has_decomposition():
        return f"{plugin!r} has no decompose method"
    return f"{plugin!r} cannot be written out before all its dims are known"
