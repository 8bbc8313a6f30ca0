"""The commands ``pytrt quantize`` and ``pytrt convert``, which write typed ONNX files for TensorRT 11 and other readers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

from ..calibration import Calibrator
from ..errors import UsageError
from ..export.typed_model import FloatNode, TypedModel, export_half, export_quantized
from ..utils.atomic import check_target
from ..utils.listing import count_text, first_lines, first_names
from .app import app
from .opaque import Shapes, open_with_shapes
from .shared import loading, options
from .shared.groups import NetworkOptions, grouped
from .shared.option import choice, option, typer
from .shared.results import Result

__all__ = ["convert", "quantize"]

_TITLES = {"tensorrt": "TensorRT", "onnxruntime": "onnxruntime", "openvino": "OpenVINO"}
OutputModel = Annotated[Path, option("FILE.onnx", "Write the model to this file.", "--output", "-o")]


@app.command("quantize")  # type: ignore[untyped-decorator]
@grouped
def quantize(
    network: NetworkOptions,
    output: OutputModel,
    cache: Annotated[
        Path | None, option("FILE", "Calibration cache, also one of TensorRT 7 to 10; default: MODEL with .cache.")
    ] = None,
    calibration: options.Images = None,
    rest: Annotated[Literal["fp32", "fp16", "bf16"], choice("Type of the layers that are not quantized.")] = "fp32",
    precision: Annotated[
        str,
        typer.Option(
            metavar="int8|fp8|FILE.yaml",
            callback=loading.check_precision,
            help="Precision of the codes; or a file of `pytrt precision search`, which brings its own scales.",
        ),
    ] = "int8",
    reader: Annotated[
        Literal["tensorrt", "onnxruntime", "openvino"],
        choice("Library that will read the file; it determines where Q/DQ nodes are placed.", "--for"),
    ] = "tensorrt",
    algorithm: Annotated[
        Literal["entropy", "minmax", "percentile"], choice("Calibration algorithm, with --calibration.")
    ] = "minmax",
    limit: options.FirstImages = None,
    mode: options.CalibrationMode = "letterbox",
    threads: options.Threads = None,
    shapes: Shapes = None,
) -> Result[TypedModel]:
    """Write a model with Q/DQ nodes, which says itself what computes in INT8 or FP8.

    TensorRT 11 has no calibrators and reads no calibration caches: it takes the scales from the model. The scales come from a cache,
    also from one that TensorRT 7 to 10 wrote, or from images. Layers whose tensors have no scale in the cache stay in float, and the
    command lists the tensors. The file is checked by onnx.checker, compared with the float32 model in onnxruntime, and built by the
    parser of TensorRT for RTX where that is installed. For TensorRT plugin nodes are kept; for the other libraries plugins are
    written as standard operators. Nodes that nobody here has a class for, such as EfficientNMS_TRT, stay as they are; what does not
    depend on them is quantized. --shape says the dims of what they give, where the model does not.

    Examples: pytrt quantize yolov2.onnx --cache yolov2.cache -o yolov2-int8.onnx

    pytrt quantize yolov2.onnx --cache yolov2.cache --rest fp16 -o yolov2-int8-fp16.onnx

    pytrt quantize yolov2.onnx --calibration images/ --precision fp8 -o yolov2-fp8.onnx

    pytrt quantize yolov2.onnx --cache yolov2.cache --for onnxruntime -o yolov2-ort.onnx
    """
    check_target(output)
    source = None
    if precision.endswith((".yaml", ".yml")):
        if cache or calibration:
            raise UsageError(f"{precision} holds its own scales: leave out --cache and --calibration.")
    else:
        source = _calibrator_or_cache(network.model, cache, calibration, precision, algorithm, limit, mode)
    result = export_quantized(
        open_with_shapes(network.model, network.weights, shapes),
        output,
        calibration=source,
        precision=precision,
        rest=rest,
        reader=reader,
        threads=threads,
    )
    return _result(result)


@app.command("convert")  # type: ignore[untyped-decorator]
@grouped
def convert(
    network: NetworkOptions,
    output: OutputModel,
    precision: Annotated[
        str,
        typer.Option(
            metavar="fp16|bf16|FILE.yaml",
            callback=loading.check_precision,
            help="Precision to write; or a file of `pytrt precision search`, layer by layer.",
        ),
    ],
    cache: Annotated[Path | None, option("FILE", "Calibration cache to take the ranges of tensors from.")] = None,
    calibration: Annotated[
        Path | None,
        option(
            "DIR|FILE.yaml", "Images, a data.yaml, or .npz files with an array for each input, to find the ranges with."
        ),
    ] = None,
    limit: options.FirstImages = None,
    mode: options.CalibrationMode = "letterbox",
    shapes: Shapes = None,
) -> Result[TypedModel]:
    """Write a float32 model in float16 or bfloat16, with float32 inputs and outputs.

    TensorRT 11 has no flag for FP16: a network computes in the types that the model says. Nodes whose weights or tensors are beyond
    float16 stay in float32, and the command lists them. The ranges of tensors come from a calibration cache, from images, or else
    from one run on random numbers. The file is checked as by `pytrt quantize`.

    Examples: pytrt convert yolov2.onnx --precision fp16 -o yolov2-fp16.onnx

    pytrt convert yolov2.onnx --precision fp16 --calibration images/ -o yolov2-fp16.onnx

    pytrt convert yolov2.onnx --precision precision.yaml -o yolov2-mixed.onnx
    """
    check_target(output)
    source: Calibrator | Path | None = cache
    if calibration is not None:
        if cache is not None:
            raise UsageError("--cache and --calibration both give the ranges of tensors: give one of them.")
        source = loading.make_calibrator("minmax", calibration, None, limit=limit, mode=mode)
    return _result(
        export_half(
            open_with_shapes(network.model, network.weights, shapes), output, precision=precision, calibration=source
        )
    )


def _calibrator_or_cache(
    model: Path,
    cache: Path | None,
    images: Path | None,
    precision: str,
    algorithm: str,
    limit: int | None,
    mode: str,
) -> Calibrator | Path:
    """The calibrator of the images; without images, the cache's path."""
    path = cache or model.with_suffix(".cache")
    if images is not None:
        return loading.make_calibrator(algorithm, images, path, limit=limit, mode=mode)
    if not path.is_file():
        raise UsageError(
            f"{precision.upper()} needs the scale of each tensor: there is no calibration cache {path}, and no images to make one "
            f"from.\nDo: --cache OLD.cache with a cache of TensorRT's, --calibration IMAGES, or "
            f"pytrt calibrate {shlex.quote(str(model))} --calibration IMAGES --cache {shlex.quote(str(path))}",
            cache=path,
        )
    return path


def _result(exported: TypedModel) -> Result[TypedModel]:
    refused = exported.parser is not None and exported.parser.refused
    problem = (
        f"{exported.file}: {exported.parser.library} refuses it: {exported.parser.problem}"
        if exported.parser and refused
        else ""
    )
    return Result(exported, _print, not refused, problem)


def _print(exported: TypedModel) -> None:
    types = (
        exported.precision
        if exported.rest == exported.precision
        else f"{exported.precision}, the rest in {exported.rest}"
    )
    reader = f", for {_TITLES[exported.reader]}" if exported.reader else ""
    print(f"{exported.file}: {types}{reader}, opset {exported.opset}, {exported.bytes:,} bytes")
    if exported.opaque:
        names = first_names(exported.opaque)
        print(f"{count_text(len(exported.opaque), 'node')} without a known class, written as before: {names}")
    if exported.reader:
        print(f"{count_text(len(exported.quantized), 'layer')} with weights in {exported.precision}")
        _print_float("in float", exported.float_layers, "layer")
    if exported.rest != "fp32":
        _print_float("in float32", exported.float32_nodes, "node")
    if exported.missing:
        names = first_names(exported.missing)
        print(f"{count_text(len(exported.missing), 'tensor')} of the model without a scale in the cache: {names}")
        more = "; (3) a node without a known class comes before it" if exported.opaque else ""
        print(
            f"  Causes: (1) TensorRT fused the tensor away; (2) the ONNX file was exported again, with other names{more}."
        )
        print("  Do: pytrt quantize MODEL --calibration IMAGES, if too much stays in float")
    print("onnx.checker: valid")
    _print_comparison(exported)
    if exported.parser is not None:
        parser = exported.parser
        parser_text = f"built, {parser.bytes:,} bytes" if parser.bytes else parser.problem.replace("\n", " ")
        print(f"{parser.library or 'parser'}: {parser_text}")


def _print_comparison(exported: TypedModel) -> None:
    comparison = exported.comparison
    if comparison.problem:
        print(f"not compared with float32: {comparison.problem}")
        return
    print(f"{comparison.runner}, beside float32, on {comparison.data}:")
    for output in comparison.outputs:
        print(f"  {output.name}: largest error {output.max_abs:.3g}, relative error {output.relative:.3g}")


def _print_float(where: str, nodes: tuple[FloatNode, ...], noun: str) -> None:
    if nodes:
        print(
            f"{count_text(len(nodes), noun)} {where}:",
            *first_lines([f"{node.name}: {node.why}" for node in nodes]),
            sep="\n",
        )
