"""Extract nodes of a model as a separate model, and make its onnxruntime session."""

from __future__ import annotations

import logging
import os
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...model.proto import copy_fields, copy_of, infos_of, node_name
from ...utils.optional import onnx, require
from ...validation.dataflow import tensors_read, walk
from ...validation.operators import standard_domain, standard_opset
from ..base.failures import shorten_message
from .elements import GuardedSession, may_be_plain, needs_guard, with_checks, without_known
from .shared_session import Session

__all__ = ["Session", "Submodel", "Submodels", "in_oldest_opset", "make_session", "optimized_model", "unsupported_node"]

_log = logging.getLogger(__name__)
_SAFE_IR = 10  # known to onnxruntime since 1.18
_ERRORS = 3  # and nothing less is logged
_ENTRIES = {"session.qdq_matmulnbits_accuracy_level": "1"}
"""What int8 and int4 weights are multiplied by stays float32, as the model says; onnxruntime rounds it to int8 by default."""


@dataclass(frozen=True)
class Submodel:
    """A part of a model with standard operators, run as a whole.

    Attributes:
        model: They as a model of their own.
        inputs: Tensors that it reads.
        outputs: Tensors that it gives.
    """

    model: onnx.ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Submodels:
    """Extracts nodes from a model, with the constants that they and their subgraphs read.

    Args:
        model: A model with the types of all tensors. It stays as it is while nodes are cut out.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._model = model
        self._infos = infos_of(graph)
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._readers = Counter(name for node in graph.node for name in tensors_read(node))
        self._readers.update(info.name for info in graph.output)

    def extract(self, nodes: Sequence[onnx.NodeProto], *, typed: bool = True) -> Submodel:
        """Extract nodes, in order, as a separate model.

        Args:
            nodes: The nodes.
            typed: Whether the types of what they give are to be known.

        Raises:
            KeyError: the type of a tensor is not known.
        """
        written = [name for node in nodes for name in node.output]
        read = list(
            dict.fromkeys(name for node in nodes for name in (*node.input, *sorted(tensors_read(node))) if name)
        )
        readers_inside = Counter(name for node in nodes for name in tensors_read(node))
        available = self._constants.keys() | written
        inputs = [name for name in read if name not in available]
        outputs = [name for name in written if self._readers[name] > readers_inside[name]]
        submodel = type(self._model)()
        copy_fields(self._model, submodel, without=("graph",))
        submodel.graph.name = self._model.graph.name
        submodel.graph.node.extend(nodes)
        submodel.graph.initializer.extend(self._constants[name] for name in read if name in self._constants)
        submodel.graph.input.extend(self._infos[name] for name in inputs)
        if typed:
            submodel.graph.output.extend(self._infos[name] for name in outputs)
        else:
            for name in outputs:
                submodel.graph.output.add(name=name)
        return Submodel(submodel, tuple(inputs), tuple(outputs))


def make_session(
    model: onnx.ModelProto,
    threads: int,
    entries: Mapping[str, str] | None = None,
    disabled: Collection[str] | None = None,
) -> Session:
    """An onnxruntime CPU session for a model of standard operators, without some of its optimizers.

    The model stays as it is from then on. A model that onnxruntime refuses with its optimizers is run without them, with a warning in the
    log.
    """
    ort = require("onnxruntime", extra="cpu", feature="engines 'onnxruntime' and 'cpu'")

    def session(model: onnx.ModelProto, *, optimized: bool) -> Any:
        options = ort.SessionOptions()
        options.log_severity_level = _ERRORS
        options.intra_op_num_threads = threads
        for name, value in (_ENTRIES | dict(entries or {})).items():
            options.add_session_config_entry(name, value)
        if not optimized:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        with _named_nodes(model):
            data, providers = model.SerializeToString(), ["CPUExecutionProvider"]
        return ort.InferenceSession(data, options, providers=providers, disabled_optimizers=disabled)

    def guarded(model: onnx.ModelProto, *, optimized: bool = True) -> Session:
        make = partial(session, model, optimized=optimized)
        if needs_guard(model):
            return GuardedSession(make, model, partial(session, optimized=False))
        return Session(make)

    model = with_checks(without_known(model))
    try:
        return guarded(model, optimized=not may_be_plain(model))
    except Exception as error:  # onnxruntime raises types of its own
        first = error
    older = in_oldest_opset(model)
    if older is not None:
        with suppress(Exception):
            return guarded(older)
    try:
        plain = guarded(model if older is None else older, optimized=False)
    except Exception:  # it is not the optimizers
        raise first from None
    _log.warning("onnxruntime runs the model without its optimizers, which fail: %s", shorten_message(first))
    return plain


def unsupported_node(model: onnx.ModelProto) -> onnx.NodeProto | None:
    """The first node that onnxruntime cannot run by itself, of a model with the types of its tensors; None where there is none."""
    submodels = Submodels(model)
    nodes: Iterable[onnx.NodeProto] = model.graph.node
    for node in nodes:
        try:
            make_session(submodels.extract([node], typed=False).model, 1)
        except KeyError:  # of a tensor whose type is not known
            continue
        except Exception:  # onnxruntime raises types of its own
            return node
    return None


@contextmanager
def _named_nodes(model: onnx.ModelProto) -> Iterator[None]:
    """In the block, nodes without a name have that of their first output, for onnxruntime's errors."""
    nodes = [node for node in walk(model.graph.node) if not node.name]
    for node in nodes:
        node.name = node_name(node)
    try:
        yield
    finally:
        for node in nodes:
            node.ClearField("name")


def optimized_model(model: onnx.ModelProto, disabled: Collection[str] | None = None) -> onnx.ModelProto:
    """The model after onnxruntime's optimizer, before layout changes, which rename tensors: fused operators are nodes."""
    ort = require("onnxruntime", extra="cpu")
    options = ort.SessionOptions()
    options.log_severity_level = _ERRORS
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "optimized.onnx")
        options.optimized_model_filepath = path
        data = model.SerializeToString()
        ort.InferenceSession(data, options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled)
        return onnx.load(path, load_external_data=False)


def in_oldest_opset(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model with the oldest opset that has its operators in the same version; None if it already has that opset.

    An operator means the same in each opset until it changes. Libraries refuse opsets that are newer than they are.
    """
    opset = standard_opset(model)
    types = {node.op_type for node in walk(model.graph.node) if not standard_domain(node.domain)}
    if not opset or model.functions or not all(onnx.defs.has(op_type, opset, "") for op_type in types):
        return None
    oldest = max((onnx.defs.get_schema(op_type, opset, "").since_version for op_type in types), default=0)
    if not 0 < oldest < opset:
        return None
    twin = copy_of(model)
    for item in twin.opset_import:
        if not standard_domain(item.domain):
            item.version = oldest
    twin.ir_version = min(twin.ir_version, _SAFE_IR)
    return twin
