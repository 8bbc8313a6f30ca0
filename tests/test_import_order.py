"""Low layers never import high ones, and heavy packages are imported only where they are used."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = [
    [
        "errors",
        "_ahead",
        "_optional",
        "_signal_stack",
        "_files",
        "_numbers",
        "_text_formats",
        "_array_files",
        "_envelope",
        "_terminal",
        "_uncopied",
        "tensor",
    ],
    ["fields", "cuda"],
    [
        "plugin",
        "_outputs",
        "registry",
        "onnx_node",
        "_dataflow",
        "_proto",
        "_validation",
        "decompose",
        "native",
        "_native_build",
    ],
    ["graph"],
    ["layers", "calibration", "vision"],
    ["passes"],
    ["engines"],
    ["check", "export", "precision", "tensorrt", "testing"],
    ["models"],
    ["cli"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
ENGINES = {"reference", "cpu", "onnxruntime", "null", "cudnn", "tensorrt"}
NATIVE = {"pytrtplugins.engines.cpu.plugin_op"}  # subclasses a heavy package's class; imported when first used
HEAVY = ["onnx", "onnx_ir", "onnxruntime", "openvino", "cv2", "PIL", "rich", "typer", "matplotlib", "pycocotools", "pooch", "torch",
         "tqdm", "google.protobuf", "skimage", "cupy", "tensorrt", "tensorrt_lean", "tensorrt_dispatch", "pycuda",
         "drawsvg"]  # fmt: skip


def python_files(package):
    return sorted((ROOT / package).rglob("*.py"))


def outside_type_checking(tree):
    """The statements of a file, less those within `if TYPE_CHECKING`."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, ast.If) or "TYPE_CHECKING" not in ast.dump(node.test):
            yield node
            waiting += (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))


@functools.cache  # two tests read the files of engines
def imported(path):
    """Absolute names of what a file imports outside `if TYPE_CHECKING`, with its line."""
    return list(_imported(path))


def _imported(path):
    parts = path.relative_to(ROOT).parent.parts
    for node in outside_type_checking(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module or ""]))
            yield module, node.lineno
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)


@pytest.mark.parametrize("path", python_files("pytrtplugins"), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_from_its_own_level_or_below(path):
    own = path.relative_to(ROOT / "pytrtplugins").parts[0].removesuffix(".py")
    if own == "__init__":
        return
    assert own in LEVEL, f"{own} has no level: add it to LAYERS"
    for name, line in imported(path):
        head, _, rest = name.partition(".")
        assert head != "darknet2caffe" or own in ("models", "cli"), f"{path}:{line} imports {name}"
        if head == "pytrtplugins" and rest:
            target = rest.partition(".")[0]
            if target in LEVEL:
                assert LEVEL[target] <= LEVEL[own], f"{path}:{line}: {own} imports {target}, which stands above it"


@pytest.mark.parametrize("path", python_files("pytrtplugins/engines"), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_engine_imports_another(path):
    own = path.relative_to(ROOT / "pytrtplugins" / "engines").parts[0].removesuffix(".py")
    for name, line in imported(path):
        target = (
            name.removeprefix("pytrtplugins.engines.").partition(".")[0]
            if name.startswith("pytrtplugins.engines.")
            else ""
        )
        if own in ENGINES and target in ENGINES:
            assert target == own, f"{path}:{line}: engine {own} imports engine {target}"


@pytest.mark.parametrize("path", python_files("darknet2caffe"), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_converter_uses_only_low_layers(path):
    for name, line in imported(path):
        if name.startswith("pytrtplugins."):
            target = name.split(".")[1]
            assert LEVEL.get(target, 0) <= LEVEL["vision"], f"{path}:{line} imports {name}"


def test_every_module_imports_without_optional_packages():
    code = f"""
import importlib, pkgutil, sys
for name in {HEAVY!r}: sys.modules[name] = None
import pytrtplugins, darknet2caffe
for package in (pytrtplugins, darknet2caffe):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if module.name not in {NATIVE!r} and module.name.split(".")[-1] not in ("cli", "__main__") and ".cli" not in module.name:
            importlib.import_module(module.name)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_importing_the_package_loads_no_optional_package():
    code = f"import sys, pytrtplugins; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
