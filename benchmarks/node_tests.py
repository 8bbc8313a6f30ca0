"""The tests that ONNX ships for each of its operators, run on engines and on the libraries below them, crashes included."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import multiprocessing
import pickle
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx

from pytrtplugins.utils.atomic import write_atomic

PASSED, REFUSED, WRONG, FAILED, CRASHED, HUNG = "passed", "refused", "wrong", "failed", "crashed", "hung"
LIBRARIES = {"onnxruntime": "onnxruntime alone", "cpu": "OpenVINO alone", "reference": "onnx.reference alone"}
"""The library below each engine, run without this package."""
_BUILD = Path(__file__).parents[1] / "build"
_LONGEST = 60.0  # seconds for one test
_REASON = 300  # characters
Item = TypeVar("Item")


@dataclass(frozen=True)
class Case:
    """One test.

    Attributes:
        name: Its name, without ``test_``.
        operator: The operator that it is for, with its domain unless that is ONNX's own.
        model: An ONNX model.
        data: Inputs and expected outputs, in the order of the graph's.
        rtol: Largest relative difference.
        atol: Largest absolute difference.
    """

    name: str
    operator: str
    model: Any
    data: tuple[tuple[list[Any], list[Any]], ...]
    rtol: float
    atol: float


@dataclass(frozen=True)
class Outcome:
    """What came of a test: one of the constants of this module, the reason, and values that a runner gives besides."""

    kind: str
    reason: str = ""
    values: Any = None


def load_cases(words: str = "") -> list[Case]:
    """All node tests that the installed ONNX ships, ordered by name; with ``words``, those whose name has one of them.

    ONNX makes them in 6 s of each process: they are kept in build/, for these versions of ONNX, NumPy and this module.
    """
    versions = [onnx.__version__, np.__version__, hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]]
    kept = _BUILD / f"onnx-node-tests-{'-'.join(versions)}.pickle"
    try:
        cases = pickle.loads(kept.read_bytes())
    except FileNotFoundError:
        cases = _made()
        kept.parent.mkdir(exist_ok=True)
        write_atomic(kept, pickle.dumps(cases))
    return [case for case in cases if not words or any(word in case.name for word in words.split())]


def _made() -> list[Case]:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # in onnx's own examples
        from onnx.backend.test.loader import load_node_model_tests

        found = load_node_model_tests()
    operators: dict[str, str] = {}
    cases = []
    for case in found:  # a test comes before its expanded forms
        name = case.name.removeprefix("test_")
        operators[name] = operators.get(name.partition("_expanded")[0]) or _operator(case.model)
        data = tuple(
            ([_array(x) for x in given], [_array(x) for x in expected]) for given, expected in case.data_sets or ()
        )
        cases.append(Case(name, operators[name], case.model, data, case.rtol, case.atol))
    return sorted(cases, key=lambda case: case.name)


def run_case(case: Case, runner: str) -> Outcome:
    """Run one test in this process."""
    from onnx.backend.test.runner import Runner

    from pytrtplugins.errors import PytrtpluginsError

    names = [info.name for info in case.model.graph.input]
    try:
        with contextlib.ExitStack() as stack, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = _RUNNERS.get(runner, _engine)(case.model, runner, stack)
            given = [run(dict(zip(names, inputs, strict=True))) for inputs, _ in case.data]
    except PytrtpluginsError as error:
        return Outcome(REFUSED, f"{type(error).__name__}: {_short(error)}")
    except Exception as error:
        return Outcome(FAILED, f"{type(error).__name__}: {_short(error)}")
    try:
        for outputs, (_, expected) in zip(given, case.data, strict=True):
            Runner.assert_similar_outputs(expected, outputs, rtol=case.rtol, atol=case.atol)
    except Exception as error:  # of arrays that cannot be compared too
        return Outcome(WRONG, _short(error))
    return Outcome(PASSED)


def run_cases(
    cases: Sequence[Item],
    run: Callable[[Item], Outcome],
    processes: int = 2,
    seconds: float = _LONGEST,
    start: str = "fork",
) -> Iterator[tuple[Item, Outcome]]:
    """Run tests in processes of their own; one that ends its process, or takes too long, is noted, and the next ones go on.

    Args:
        cases: The tests.
        run: Runs one of them.
        processes: Tests at a time.
        seconds: The longest that one may take.
        start: How a process begins. A "fork" has the tests in memory at once; it is for a process that has run no engine, since
            threads of a library are not there behind a fork and whoever waits for them hangs. "forkserver" is for all others.
    """
    waiting = list(reversed(range(len(cases))))
    workers: dict[Connection, _Worker] = {}
    try:
        while waiting or workers:
            while waiting and len(workers) < processes:
                worker = _Worker(cases, run, start)
                worker.begin(waiting.pop())
                workers[worker.pipe] = worker
            ready = wait(list(workers), timeout=1.0)
            late = [pipe for pipe, worker in workers.items() if time.monotonic() - worker.begun > seconds]
            for pipe in {*ready, *late}:  # the pipe of a process that ended is ready too
                worker = workers[pipe]  # type: ignore[index]
                outcome = worker.outcome("" if pipe in ready else f"more than {seconds:.0f} s")
                yield cases[worker.index], outcome
                alive = outcome.kind not in (CRASHED, HUNG)
                if alive and waiting:
                    worker.begin(waiting.pop())
                else:
                    del workers[pipe]  # type: ignore[arg-type]
                    worker.end()
    finally:
        for worker in workers.values():
            worker.end()


class _Worker:
    """A process that runs tests, one after the other."""

    def __init__(self, cases: Sequence[Any], run: Callable[[Any], Outcome], start: str) -> None:
        context = multiprocessing.get_context(start)
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(  # type: ignore[attr-defined]
            target=_serve, args=(theirs, cases, run), daemon=True
        )
        self._process.start()
        theirs.close()
        self.index, self.begun = -1, 0.0

    def begin(self, index: int) -> None:
        self.index, self.begun = index, time.monotonic()
        self.pipe.send(index)

    def outcome(self, late: str) -> Outcome:
        if late:
            return Outcome(HUNG, late)
        try:
            found: Outcome = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            return Outcome(CRASHED, f"the process ended with code {self._process.exitcode}")
        return found

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()


def _serve(pipe: Connection, cases: Sequence[Any], run: Callable[[Any], Outcome]) -> None:
    logging.disable(logging.CRITICAL)
    while True:
        pipe.send(run(cases[pipe.recv()]))


_Run = Callable[[dict[str, Any]], list[Any]]


def _engine(model: Any, name: str, stack: contextlib.ExitStack) -> _Run:
    from pytrtplugins.engines import build

    quantized = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
    engine = build(model, engine=name, precision="int8" if quantized else "fp32", threads=1, progress=False)
    context = stack.enter_context(engine.create_context())
    return lambda inputs: list(context.run(inputs).values())


def _cuda(model: Any, name: str, stack: contextlib.ExitStack) -> _Run:
    """Engine `cuda`, with functions of arrays and kernels that need no search; without a GPU what it plans, on NumPy arrays."""
    from pytrtplugins.engines import build
    from pytrtplugins.engines.cuda import CudaEngine
    from pytrtplugins.passes import prepare

    if CudaEngine.availability().reason:
        from tests.engines.cuda.host import run_on_host

        prepared = prepare(model)
        return lambda inputs: list(run_on_host(prepared, {key: np.asarray(x) for key, x in inputs.items()})[0].values())
    quantized = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
    settings = {"disable": [*CudaEngine.fast_build["disable"], "pointwise"], "float": "float32"}
    precision = "int8" if quantized else "fp32"
    engine = build(model, engine=name, precision=precision, settings=settings, progress=False)
    context = stack.enter_context(engine.create_context())
    return lambda inputs: list(context.run(inputs).values())


def _onnxruntime(model: Any, name: str, stack: contextlib.ExitStack) -> _Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda inputs: list(session.run(None, inputs))


def _openvino(model: Any, name: str, stack: contextlib.ExitStack) -> _Run:
    import openvino

    network = openvino.Core().read_model(model.SerializeToString(), b"")
    config = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    request = openvino.compile_model(network, "CPU", config).create_infer_request()

    def run(inputs: dict[str, Any]) -> list[Any]:
        results = request.infer(inputs)
        return [np.array(results[index]) for index in range(len(results))]

    return run


def _onnx_reference(model: Any, name: str, stack: contextlib.ExitStack) -> _Run:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(model)
    return lambda inputs: list(evaluator.run(None, inputs))


_RUNNERS = {
    "cuda": _cuda,
    LIBRARIES["onnxruntime"]: _onnxruntime,
    LIBRARIES["cpu"]: _openvino,
    LIBRARIES["reference"]: _onnx_reference,
}


def _operator(model: Any) -> str:
    """What a test is for: the last node that is not a constant, such as the one behind those that make a sequence."""
    nodes = [node for node in model.graph.node if node.op_type != "Constant"] or list(model.graph.node)
    domain = nodes[-1].domain
    return f"{domain}.{nodes[-1].op_type}" if domain not in ("", "ai.onnx") else str(nodes[-1].op_type)


def _array(value: Any) -> Any:
    from onnx import TensorProto, numpy_helper

    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _short(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:_REASON]
