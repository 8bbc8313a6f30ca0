"""Write networks of torchvision, timm and transformers as ONNX files, as their users would: by both exporters of PyTorch, at several
opsets, and through onnxruntime's optimizer and quantizer. `python -m benchmarks.files FOLDER` then runs them on engines.

python -m benchmarks.exporters FOLDER                       all networks: minutes on 16 cores, and some 20 GB
python -m benchmarks.exporters FOLDER -k resnet bert --opsets 17
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytrtplugins.utils.numbers import IntRange

from .node_tests import PASSED, REFUSED, Outcome, run_cases

if TYPE_CHECKING:
    import torch

__all__ = ["NETWORKS", "Export", "Network", "exports", "write_files"]

_OPSETS = (11, 13, 17, 21)
_EXPORTERS = ("torchscript", "dynamo")
_TOOLS_OPSET = 17
"""The export that onnxruntime's tools read."""
_CALIBRATED_ON = 2


@dataclass(frozen=True)
class Network:
    """A network with random weights.

    Attributes:
        name: Its name in its library.
        library: ``torchvision``, ``timm`` or ``transformers``.
        size: Height and width of its images, or the number of its tokens.
        options: What its constructor is given.
    """

    name: str
    library: str
    size: int
    options: dict[str, Any]


_IMAGES = {
    "torchvision": {
        64: "alexnet resnet18 resnext50_32x4d densenet121 mobilenet_v2 mobilenet_v3_small mnasnet0_5 shufflenet_v2_x0_5 squeezenet1_1 "
        "efficientnet_b0 regnet_y_400mf convnext_tiny swin_t swin_v2_t googlenet",
        96: "inception_v3 lraspp_mobilenet_v3_large deeplabv3_mobilenet_v3_large",
        224: "vit_b_32 maxvit_t",
    },
    "timm": {
        64: "mobilevit_xxs ghostnet_100 lcnet_050 repvgg_a0 rexnet_100 semnasnet_075 gernet_s dla34 hrnet_w18_small resnest14d "
        "skresnet18 ese_vovnet19b_dw tf_efficientnet_lite0 tf_mobilenetv3_small_minimal_100 edgenext_xx_small poolformer_s12 "
        "regnetz_b16 cs3darknet_s fastvit_t8 nf_resnet26",
        224: "deit_tiny_patch16_224 levit_128s pit_ti_224 xcit_nano_12_p16_224 tiny_vit_5m_224 mixer_s32_224",
    },
}
_LAYERS = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 300,
}
_TOKENS: dict[str, dict[str, Any]] = {
    "BertModel": _LAYERS,
    "RobertaModel": _LAYERS,
    "ElectraModel": {**_LAYERS, "embedding_size": 64},
    "AlbertModel": {**_LAYERS, "embedding_size": 64},
    "DistilBertModel": {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "vocab_size": 300},
    "MPNetModel": _LAYERS,
    "SqueezeBertModel": {**_LAYERS, "embedding_size": 64},
    "MobileBertModel": {**_LAYERS, "intra_bottleneck_size": 32, "embedding_size": 32, "true_hidden_size": 32},
    "GPT2Model": {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 300},
    "OPTModel": {**_LAYERS, "ffn_dim": 128, "word_embed_proj_dim": 64},
    "GPTNeoXModel": _LAYERS,
    "LlamaModel": {**_LAYERS, "num_key_value_heads": 2},
    "T5EncoderModel": {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 300},
    "CLIPTextModel": _LAYERS,
}


def networks() -> Iterator[Network]:
    """All networks, the names of one library together."""
    for library, sizes in _IMAGES.items():
        for size, names in sizes.items():
            for name in names.split():
                yield Network(name, library, size, {"num_classes": 10})
    for name, options in _TOKENS.items():
        yield Network(name, "transformers", 12, options)


NETWORKS = tuple(networks())


@dataclass(frozen=True)
class Export:
    """One file of a network, and those that onnxruntime's tools write from it.

    Attributes:
        network: The network.
        exporter: ``torchscript`` or ``dynamo``.
        opset: The opset that is asked for.
    """

    network: Network
    exporter: str
    opset: int

    @property
    def name(self) -> str:
        """Name of the file, without a suffix."""
        return f"{self.network.name}-{self.exporter}-{self.opset}"


def exports(words: Sequence[str], opsets: Sequence[int]) -> list[Export]:
    """Exports of the networks whose name has one of the words."""
    chosen = [network for network in NETWORKS if not words or any(word in network.name for word in words)]
    return [Export(network, exporter, opset) for network in chosen for opset in opsets for exporter in _EXPORTERS]


def write_files(export: Export, folder: Path) -> Outcome:
    """Export a network into a folder, and write what onnxruntime's tools make of it."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    path = folder / f"{export.name}.onnx"
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            module, inputs = _module(export.network)
            _export(export, module, inputs, path)
        except Exception as error:  # of many kinds
            path.unlink(missing_ok=True)
            return Outcome(REFUSED, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    failed = {}
    if export.opset == _TOOLS_OPSET:
        for tool, write in _tools().items():
            written = folder / f"{export.name}-{tool}.onnx"
            try:
                write(path, written, {name: array.numpy() for name, array in inputs.items()})
            except Exception as error:  # of many kinds
                written.unlink(missing_ok=True)
                failed[tool] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return Outcome(PASSED, "", failed)


def _module(network: Network) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """A network, ready to be exported, and inputs for it."""
    import torch

    if network.library == "transformers":
        import transformers

        found = getattr(transformers, network.name)
        config = found.config_class(**network.options, attn_implementation="eager")
        tokens = torch.randint(3, 250, (2, network.size))
        return _Tokens(found(config).eval()), {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    image = torch.rand(2, 3, network.size, network.size)
    if network.library == "timm":
        import timm

        return timm.create_model(network.name, **network.options).eval(), {"image": image}
    import torchvision

    options = dict(network.options)
    if network.name in ("googlenet", "inception_v3"):
        options |= {"aux_logits": False, "init_weights": False}
    if "mobilenet_v3_large" in network.name:
        options["weights_backbone"] = None
    module = torchvision.models.get_model(network.name, weights=None, **options).eval()
    return (_First(module) if "_mobilenet_v3_large" in network.name else module), {"image": image}


def _Tokens(model: Any) -> torch.nn.Module:
    import torch

    class Tokens(torch.nn.Module):
        """A network of tokens, whose caches are left out."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=input_ids, attention_mask=attention_mask)[0]

    return Tokens()


def _First(model: Any) -> torch.nn.Module:
    import torch

    class First(torch.nn.Module):
        """The first of a network's outputs."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return self.model(image)["out"]

    return First()


def _export(export: Export, module: torch.nn.Module, inputs: dict[str, torch.Tensor], path: Path) -> None:
    import torch

    given = {"input_names": list(inputs), "output_names": ["output"], "opset_version": export.opset}
    if export.exporter == "dynamo":
        batch = torch.export.Dim("batch", min=1, max=64)
        dims = tuple({0: batch} for _ in inputs)
        torch.onnx.export(
            module,
            tuple(inputs.values()),
            path,
            dynamo=True,
            dynamic_shapes=dims,
            external_data=False,
            verbose=False,
            **given,
        )
    else:
        axes = {name: {0: "batch"} for name in inputs}
        torch.onnx.export(module, tuple(inputs.values()), path, dynamo=False, dynamic_axes=axes, **given)


def _tools() -> dict[str, Callable[[Path, Path, dict[str, Any]], None]]:
    """What onnxruntime's tools write: optimized files, and quantized ones."""
    from onnxruntime import GraphOptimizationLevel
    from onnxruntime.quantization import QuantFormat, QuantType

    levels = GraphOptimizationLevel
    return {
        "basic": partial(_optimized, level=levels.ORT_ENABLE_BASIC),
        "extended": partial(_optimized, level=levels.ORT_ENABLE_EXTENDED),
        "all": partial(_optimized, level=levels.ORT_ENABLE_ALL),
        "qdq": partial(_quantized, quant_format=QuantFormat.QDQ, per_channel=True),
        "qoperator": partial(_quantized, quant_format=QuantFormat.QOperator, activation_type=QuantType.QUInt8),
        "dynamic": _dynamic,
    }


def _optimized(path: Path, written: Path, inputs: dict[str, Any], level: Any) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 4
    options.optimized_model_filepath = str(written)
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _quantized(path: Path, written: Path, inputs: dict[str, Any], **options: Any) -> None:
    from onnxruntime.quantization import CalibrationDataReader, quantize_static

    class Reader(CalibrationDataReader):
        """The inputs, some times."""

        left = _CALIBRATED_ON

        def get_next(self) -> dict[str, Any] | None:
            self.left -= 1
            return inputs if self.left >= 0 else None

    quantize_static(path, written, Reader(), **options)


def _dynamic(path: Path, written: Path, inputs: dict[str, Any]) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(path, written)


def main() -> int:
    """Parse arguments, write files, and say what was not written."""
    arguments = _arguments()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    wanted = exports(arguments.words, arguments.opsets)
    counts: Counter[str] = Counter()
    run = partial(write_files, folder=arguments.folder)
    for export, outcome in run_cases(wanted, run, arguments.processes, arguments.time_limit):
        counts[f"{export.exporter}, opset {export.opset}: {outcome.kind}"] += 1
        reasons = {"": outcome.reason} if outcome.kind != PASSED else outcome.values
        for tool, reason in reasons.items():
            print("\t".join(filter(None, (export.name, tool, outcome.kind, reason))), flush=True)
    print("\n".join(f"{key}: {count}" for key, count in sorted(counts.items())))
    return 0 if any(arguments.folder.glob("*.onnx")) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.exporters", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER", help="where the files are written")
    add(
        "-k",
        dest="words",
        nargs="+",
        default=[],
        metavar="WORD",
        help="only networks whose name has one of these words",
    )
    add("--opsets", nargs="+", type=IntRange(7, 99), default=list(_OPSETS), metavar="N", help="default: %(default)s")
    add("--processes", type=IntRange(1, 1024), default=os.cpu_count(), help="exports at a time (default: %(default)s)")
    add("--time-limit", type=IntRange(1, 3600), default=240, help="seconds that one may take (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
