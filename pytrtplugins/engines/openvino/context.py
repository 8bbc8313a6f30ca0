"""Run engine `cpu`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from ...errors import EngineError, ExecutionError
from ..base.context import Arrays, ExecutionContext
from ..base.failures import as_error, name_expanded_nodes
from ..base.types import OwningEngine
from .arrays import check_indices, from_openvino, is_long, is_peculiar, refuse_long, refuse_short_floats, to_openvino
from .compiled import CompiledNetwork, Request

__all__ = ["CpuContext"]


class Owner(OwningEngine, Protocol):
    """Interface of a context's engine."""

    _whole: Any
    _network: CompiledNetwork | None
    _long: list[str]
    _limits: dict[str, int]
    _input_names: list[str]
    _output_names: list[str]

    def exact_session(self) -> Any:
        """The session for runs on inputs of which OpenVINO loses something."""

    def run_instead(self, error: ExecutionError, inputs: Arrays) -> Arrays:
        """Run onnxruntime after OpenVINO failed in a run."""

    def _explaining(self, what: str, kind: type[EngineError]) -> AbstractContextManager[None]:
        """In the block, raise a plugin's exception, or an error of this package."""


class CpuContext(ExecutionContext):
    """One inference request of the compiled model."""

    engine: Owner

    def __init__(self, engine: Owner) -> None:
        super().__init__(engine)
        with engine._explaining("OpenVINO cannot make the memory of a run", ExecutionError):
            self._request: Any = Request(engine._network) if engine._network else None

    def _run(self, inputs: Arrays) -> Arrays:
        session = self.engine._whole
        long = [name for name in self.engine._long if is_long(inputs[name])]
        if session is None and (long or any(map(is_peculiar, inputs.values()))):
            session = self.engine.exact_session()
            if session is None:
                refuse_short_floats(inputs)
                refuse_long({name: inputs[name] for name in long})
        if session is not None:
            with (
                name_expanded_nodes(lambda: self.engine.model_without_weights),
                as_error("onnxruntime failed in the run", self.engine.name, ExecutionError),
            ):
                values = session.run(self.engine._output_names, inputs)
            return dict(zip(self.engine._output_names, values, strict=True))
        for name, size in self.engine._limits.items():
            check_indices(name, inputs[name], size)
        tensors = {name: to_openvino(inputs[name]) for name in self.engine._input_names}
        try:
            with self.engine._explaining("OpenVINO failed in the run", ExecutionError):
                results = self._request.infer(tensors)
        except ExecutionError as error:
            return self.engine.run_instead(error, inputs)
        return {desc.name: from_openvino(results[index], desc) for index, desc in enumerate(self.engine.outputs)}

    def _close(self) -> None:
        del self._request
