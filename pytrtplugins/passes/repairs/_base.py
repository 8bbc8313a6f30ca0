"""The base class of repairs: passes that report what they found, where and why, and what they did about it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ...model.ir import array_of
from ...model.proto import node_name
from ...utils.optional import ir
from ...utils.override import override
from .._base import Pass, PassResult
from ..constants import PropagateConstants

__all__ = ["Finding", "Repair", "Repaired", "forget_dims", "held_constant", "infer_dims", "is_by_mxnet"]


@dataclass(frozen=True)
class Finding:
    """One problem that a repair found and repaired.

    Attributes:
        repair: The repair's name.
        fault: Whether onnxruntime refuses the model for it, or computes something else than was meant. Otherwise the numbers are
            right, and stay the same.
        node: The node's name, or that of an input of the model.
        found: What is there.
        done: What the repair makes of it.
    """

    repair: str
    fault: bool
    node: str
    found: str
    done: str


@dataclass(frozen=True)
class Repaired(PassResult):
    """The result of a repair.

    Attributes:
        findings: What was found; all of it is mended in the model.
    """

    findings: tuple[Finding, ...] = ()


class Repair(Pass):
    """A pass that repairs one kind of fault, or removes one kind of leftover, in the main graph: subclasses implement `mend`.

    It reads the dims that tensors have in the model; `repair` infers them before.

    Attributes:
        fault: What `Finding` has in general.
        why: Why exporters write it, and what comes of it; one sentence.
        on_request: Whether it runs only where it is named, since it changes what a sound model can do.
    """

    fault: ClassVar[bool]
    why: ClassVar[str]
    on_request: ClassVar[bool] = False

    @override
    def call(self, model: ir.Model) -> Repaired:
        findings = tuple(self.mend(model))
        return Repaired(model, bool(findings), findings)

    @abstractmethod
    def mend(self, model: ir.Model) -> Iterator[Finding]:
        """Change the model in place, and yield the findings."""

    def finding(self, node: ir.Node | str, found: str, done: str, *, fault: bool | None = None) -> Finding:
        """A finding at a node, or at an input of this name; ``fault`` overrides whether this repair's findings are faults."""
        name = node if isinstance(node, str) else node_name(node)
        return Finding(self.name, self.fault if fault is None else fault, name, found, done)


def is_by_mxnet(model: ir.Model) -> bool:
    """Whether MXNet's exporter wrote the model. It leaves the producer's name empty, and names each graph the same."""
    return model.graph.name == "mxnet_converted_model" or (model.producer_name or "").lower().startswith("mxnet")


def held_constant(value: ir.Value | None) -> Any:
    """The array of a constant that callers cannot replace; None of anything else."""
    return None if value is None or value.is_graph_input() else array_of(value)


def infer_dims(model: ir.Model) -> None:
    """Write down the dims that are known; nothing else changes."""
    PropagateConstants(computes=lambda node: False)(model)


def forget_dims(graph: ir.Graph) -> None:
    """Take back what is known of dims that nodes write, and of the first ones of outputs: after a change they are inferred anew."""
    for node in graph:
        for value in node.outputs:
            if not value.is_graph_output():
                value.shape = None
            elif value.shape is not None and value.shape:
                value.shape = ir.Shape([None, *value.shape[1:]])
