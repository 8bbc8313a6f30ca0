"""What every engine keeps, as checks that an engine of another package can run on itself; `pytrtplugins.testing` makes tests of them.

The right numbers are computed here with NumPy, by hand.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BindingError, BuildError, EngineError
from ..utils.optional import onnx
from .selection import build, load_engine

__all__ = ["CHECKS"]

_WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4) / 8 - 0.5
_BIAS = np.array([0.5, -1, 0, 2], np.float32)


def _network() -> onnx.ModelProto:
    """(N, 3) → relu(x · weights + bias), (N, 4): the operators MatMul, Add and Relu are all that an engine needs."""
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "weights"], ["product"]),
        onnx.helper.make_node("Add", ["product", "bias"], ["sum"]),
        onnx.helper.make_node("Relu", ["sum"], ["y"]),
    ]
    infos = [onnx.helper.make_tensor_value_info(name, 1, ["N", size]) for name, size in (("x", 3), ("y", 4))]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in (("weights", _WEIGHTS), ("bias", _BIAS))]
    graph = onnx.helper.make_graph(nodes, "contract", infos[:1], infos[1:], constants)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)


def _rows(count: int, seed: int = 0) -> npt.NDArray[Any]:
    return np.random.default_rng(seed).standard_normal((count, 3)).astype(np.float32)


def _right(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.maximum(x @ _WEIGHTS + _BIAS, 0)


def _near(found: npt.NDArray[Any], x: npt.NDArray[Any]) -> None:
    assert (found.shape, found.dtype.name) == ((len(x), 4), "float32"), (
        f"expected float32 ({len(x)}, 4), found {found.dtype} {found.shape}"
    )
    np.testing.assert_allclose(found, _right(x), rtol=1e-5, atol=1e-5)


def _raises(kind: type[Exception], function: Callable[[], object]) -> None:
    try:
        function()
    except kind:
        return
    raise AssertionError(f"expected {kind.__name__}; nothing was raised")


def _numbers(engine: Any) -> None:
    built = build(_network(), engine=engine)
    assert [str(desc) for desc in (*built.inputs, *built.outputs)] == ["x: float32[N, 3]", "y: float32[N, 4]"]
    with built.create_context() as context:
        for count in (1, 5, 2):
            _near(context.run({"x": _rows(count, count)})["y"], _rows(count, count))


def _memory(engine: Any) -> None:
    """Inputs stay, outputs are the caller's, given ones are written, and what is not contiguous is read as it stands."""
    with build(_network(), engine=engine).create_context() as context:
        x, y = _rows(2), np.full((2, 4), np.nan, np.float32)
        before = x.copy()
        first = context.run({"x": x})["y"]
        kept = first.copy()
        _near(context.run({"x": _rows(2, 7)})["y"], _rows(2, 7))
        np.testing.assert_array_equal(x, before, "the run changed its input")
        np.testing.assert_array_equal(first, kept, "a later run changed the output of an earlier one")
        assert context.run({"x": x}, {"y": y})["y"] is y, "a given output was not given back"
        _near(y, x)
        wide = np.zeros((4, 6), np.float32)
        wide[::2, ::2] = x
        _near(context.run({"x": wide[::2, ::2]})["y"], x)


def _bindings(engine: Any) -> None:
    """What does not fit is refused, and the context works afterwards."""
    wrong: Sequence[Mapping[str, Any]] = (
        {},
        {"x": _rows(1), "other": _rows(1)},
        {"x": _rows(1).astype(np.float64)},
        {"x": _rows(1)[0]},
        {"x": np.zeros((1, 4), np.float32)},
        {"x": _rows(0)},
    )
    with build(_network(), engine=engine).create_context() as context:
        for inputs in wrong:
            _raises(BindingError, lambda inputs=inputs: context.run(inputs))  # type: ignore[misc]
        _near(context.run({"x": _rows(3)})["y"], _rows(3))


def _threads(engine: Any) -> None:
    """A context for each thread; queued runs come back in their order; a closed context runs nothing."""
    built = build(_network(), engine=engine)

    def work(seed: int) -> None:
        with built.create_context() as context:
            for count in range(1, 20):
                _near(context.run({"x": _rows(count, seed)})["y"], _rows(count, seed))

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(work, range(3)))
    with built.create_context() as context:
        queued = [context.run_async({"x": _rows(2, seed)}) for seed in range(4)]
        for seed, future in enumerate(queued):
            _near(future.result(60)["y"], _rows(2, seed))
    _raises(EngineError, lambda: context.run({"x": _rows(1)}))


def _files(engine: Any) -> None:
    """A saved engine gives the same bits; it is loaded by its name, which an entry point makes known."""
    built = build(_network(), engine=engine)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "contract.engine")
        built.save(path)
        loaded = load_engine(path)
        assert loaded.name == built.name, f"expected engine {built.name!r}, found {loaded.name!r}"
        with built.create_context() as one, loaded.create_context() as other:
            np.testing.assert_array_equal(one.run({"x": _rows(3)})["y"], other.run({"x": _rows(3)})["y"])


def _unknown_operators(engine: Any) -> None:
    """A node that nobody knows is refused when the engine is built; so is one that the engine lacks, by its operator."""
    model = _network()
    model.graph.node[2].op_type = "NoSuchOperator"
    _raises(BuildError, lambda: build(model, engine=engine))
    for operator in ("Mish", "Shrink"):
        model.graph.node[2].op_type = operator
        refusal = _refusal(model, engine)
        assert not refusal or (operator in refusal and "\nDo: " in refusal), (
            f"expected an error that names the operator {operator} and ends with Do:, found {refusal!r}.\n"
            f"Do: raise BuildError(\"engine 'NAME' does not have the operator {operator}\") in the engine's constructor; "
            "the node and what to do are added to it"
        )


def _refusal(model: onnx.ModelProto, engine: Any) -> str:
    """Text of the error of a build; empty for none."""
    try:
        build(model, engine=engine)
    except BuildError as error:
        return str(error)
    return ""


CHECKS: Mapping[str, Callable[[Any], None]] = {
    "numbers": _numbers,
    "memory": _memory,
    "bindings": _bindings,
    "threads": _threads,
    "files": _files,
    "unknown operators": _unknown_operators,
}
"""Name → a function that takes an engine's name or class, and raises AssertionError, or what the engine raised, where it fails."""
