"""What other tools make of the planted defects of tests/precision: ``python -m benchmarks.peers_precision``.

ModelOpt's AutoCast writes a model with Casts, as `pytrtplugins.precision.search` does; both are judged by engine `reference` on
the inputs that both were given. Polygraphy compares all tensors of the float16 model with float32's and names those that differ.
They are packages of their own: ``pip install "nvidia-modelopt[onnx]" polygraphy``.
"""

from __future__ import annotations

import functools
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from pytrtplugins.engines import Engine, build
from pytrtplugins.precision import Network, parse_tolerance, search
from pytrtplugins.precision.tolerance import Tolerance
from tests.precision import planted

from .pages.machine import version_text, versions

TOLERANCE = "cosine=0.9995"
CASES: dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, str]]] = {
    "sound network": (planted.chain, {}),
    "weight of `conv3` beyond float16": (planted.overflowing, {}),
    "values of `conv2` beyond float16": (functools.partial(planted.large_values, 1e5), {}),
    "large values, within float16": (functools.partial(planted.large_values, 1e4), {}),
    "cancellation in `add`": (planted.cancelling, {}),
    "sums of `conv3` cancel, summed in float16": (planted.long_sums, {"sums": "float16"}),
}
HEAD = "| defect | all in FP16: error | search: kept | error | AutoCast: kept | error | Polygraphy: first tensor that differs |"


def error(engine: Engine, exact: Engine, samples: Sequence[Any], tolerance: Tolerance) -> float:
    """Of the outputs; 1 is just tolerated."""
    with engine.create_context() as context, exact.create_context() as reference:
        pairs = [(context.run(x), reference.run(x)) for x in samples]
        return max(tolerance.error(found[name], wanted[name]) for found, wanted in pairs for name in wanted)


def autocast(path: Path, inputs: Path) -> onnx.ModelProto:
    """ModelOpt's mixed precision model, with its defaults."""
    from modelopt.onnx.autocast import convert_to_mixed_precision

    return convert_to_mixed_precision(str(path), keep_io_types=True, calibration_data=str(inputs))


def kept(model: onnx.ModelProto, original: onnx.ModelProto) -> list[str]:
    """Layers of the original whose results are float32."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    floats = {
        info.name
        for info in (*graph.value_info, *graph.output)
        if info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    }
    names = {node.name for node in original.graph.node}
    return [node.name for node in graph.node if node.name in names and node.output[0] in floats]


def first_difference(path: Path, samples: Sequence[Any], tolerance: Tolerance) -> str:
    """What `polygraphy run` with all tensors marked sees first, judged by our tolerance."""
    from polygraphy.backend.onnx import BytesFromOnnx, ConvertToFp16, ModifyOutputs, OnnxFromPath
    from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
    from polygraphy.comparator import Comparator
    from polygraphy.constants import MARK_ALL
    from polygraphy.logger import G_LOGGER

    G_LOGGER.module_severity = G_LOGGER.ERROR
    loads = OnnxFromPath(str(path)), ConvertToFp16(OnnxFromPath(str(path)))
    runners = [OnnxrtRunner(SessionFromOnnx(BytesFromOnnx(ModifyOutputs(load, outputs=MARK_ALL)))) for load in loads]
    (_, exact), (_, found) = Comparator.run(runners, data_loader=samples)
    for node in onnx.load(path).graph.node:
        pairs = [(a[node.output[0]], b[node.output[0]]) for a, b in zip(found, exact, strict=True)]
        worst = max(tolerance.error(a, b) for a, b in pairs)
        if worst > 1:
            return f"`{node.output[0]}`: {worst:.3g}"
    return "none"


def tried(function: Callable[[], str]) -> str:
    """What a tool gives, or why it does not."""
    try:
        return function()
    except Exception as failure:  # whatever a tool fails with is its result here
        return f"{type(failure).__name__}: {str(failure).splitlines()[0][:60]}"


def row(name: str, folder: Path) -> str:
    """A line of the table."""
    make, settings = CASES[name]
    model, tolerance = make(), parse_tolerance(TOLERANCE)
    samples, path, inputs = planted.samples(model), folder / "net.onnx", folder / "inputs"
    onnx.save(model, path)
    inputs.mkdir(exist_ok=True)
    for number, sample in enumerate(samples):
        np.savez(inputs / f"{number}.npz", **sample)
    network = Network(model, "reference", settings=settings)
    judged = functools.partial(error, exact=network.reference(), samples=samples, tolerance=tolerance)
    result = search(network, samples, tolerance, "fp16")

    def by_autocast() -> str:
        cast = autocast(path, inputs)
        engine = build(cast, engine="reference", settings=settings)
        return f"{listed(kept(cast, model))} | {judged(engine):.3g}"

    ours = f"{listed(result.precisions.layers)} | {result.final:.3g}"
    differs = tried(lambda: first_difference(path, samples, tolerance))
    return f"| {name} | {result.final_before:.3g} | {ours} | {tried(by_autocast)} | {differs} |"


def listed(names: Any) -> str:
    """Names for a table."""
    return ", ".join(f"`{name}`" for name in names) or "none"


def debug_precision(folder: Path) -> str:
    """The last words of ``polygraphy debug precision``, which looks for layers itself."""
    command = [str(Path(sys.executable).with_name("polygraphy")), "debug", "precision", str(folder / "net.onnx"),
               "--mode=linear", "--fp16", "--check", "true"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("[!]")]
    return said[0] if said else f"exit code {done.returncode}"


def main() -> None:
    """Print the table."""
    logging.disable(logging.WARNING)
    packages = ("pytrtplugins", "nvidia-modelopt", "polygraphy", "onnxruntime", "onnxruntime-gpu", "onnx", "numpy")
    with tempfile.TemporaryDirectory() as folder:
        lines = [row(name, Path(folder)) for name in CASES]
        words = tried(lambda: debug_precision(Path(folder)))
    print(HEAD, "|---|---:|---|---:|---|---:|---|", *lines, sep="\n")
    print(f"\n`polygraphy debug precision`: {words}")
    print(version_text({"versions": versions(packages)}))


if __name__ == "__main__":
    main()
