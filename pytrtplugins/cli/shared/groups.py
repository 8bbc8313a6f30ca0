"""Groups of options that several commands share: a dataclass declares them, and a command has it as one parameter."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...engines import Engine
from ...model import Graph
from ...utils.optional import onnx
from . import loading, option_values, options

if TYPE_CHECKING:
    from darknet2caffe.to_onnx import BatchSize

__all__ = ["EngineOptions", "NetworkOptions", "grouped"]


def grouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """Let a command take groups of options: the fields of each dataclass among its parameters become options in its place."""
    hints = typing.get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {
        name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint) and name != "return"
    }
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        shown = inspect.signature(groups[name]).parameters.values() if name in groups else [parameter]
        types = typing.get_type_hints(groups[name], include_extras=True) if name in groups else hints
        parameters += [item.replace(kind=item.KEYWORD_ONLY, annotation=types[item.name]) for item in shown]

    @functools.wraps(command)
    def with_groups(**values: Any) -> Any:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in dataclasses.fields(group)})
        return command(**values)

    with_groups.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {item.name: item.annotation for item in parameters} | {"return": hints["return"]}
    return with_groups


@dataclass(frozen=True)
class NetworkOptions:
    """Options for a network, and modules of its plugins."""

    model: options.Model
    weights: options.Weights = None
    plugins: options.Plugins = None

    def open(self, *batch: BatchSize) -> onnx.ModelProto:
        """Read the network as an ONNX model; darknet's networks get the given batch."""
        return loading.open_model(self.model, self.weights, *batch)

    def open_graph(self) -> Graph:
        """Read the network to change it."""
        return loading.open_graph(self.model, self.weights)


@dataclass(frozen=True)
class EngineOptions(NetworkOptions):
    """Options for a network and for building its engine."""

    engine: options.Engine = "auto"
    precision: options.Precision = "fp32"
    cache: options.Cache = None
    threads: options.Threads = None
    settings: options.Settings = None
    forms: options.Forms = None

    def open_engine(self, settings: dict[str, Any] | None = None, **more: Any) -> Engine:
        """Build or load the engine; other arguments are those of `loading.open_engine`."""
        return loading.open_engine(
            self.model,
            self.weights,
            self.engine,
            self.precision,
            self.cache,
            self.threads,
            settings={**option_values.read_settings(self.settings), **(settings or {})},
            plugins=option_values.read_forms(self.forms),
            **more,
        )
