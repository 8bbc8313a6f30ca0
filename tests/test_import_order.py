"""Low layers never import high ones, and heavy packages are imported only where they are used."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = (
    ("version", "errors", "utils", "tensor"),
    ("cuda", "validation"),
    ("plugin", "native", "_native_build"),
    ("model",),
    ("layers", "calibration", "vision"),
    ("passes",),
    ("engines",),
    ("bench", "check", "doctor", "export", "precision", "tensorrt", "testing", "torch"),
    ("models",),
    ("cli",),
    ("__main__",),
)
"""Of the package: each imports from its own row and those before it."""
ENGINE_ROOMS = (("base",), ("host", "registry"), ("calibrate", "weights"), ("selection",), ("unsupported",))
ENGINES = ("reference", "openvino", "onnxruntime", "null", "cuda", "tensorrt")
CUDA_ROOMS = (("operators", "device"), ("lower",), ("plan",), ("conv",), ("run",), ("saved", "engine", "profile"))
"""Of engine ``cuda``."""
LEVEL, ENGINE_LEVEL, CUDA_LEVEL = (
    {name: level for level, names in enumerate(rooms) for name in names} for rooms in (ROOMS, ENGINE_ROOMS, CUDA_ROOMS)
)
BY_NAME = {  # modules whose names are made at run time
    "pytrtplugins/cli/loading.py": "a module that the user names",
    "pytrtplugins/native.py": "the part in C++, which may not be built",
    "pytrtplugins/plugin/registry.py": "the package's own layers, when a model has one: the registry imports none",
    "pytrtplugins/__init__.py": "a public name is imported when it is asked for",
    "pytrtplugins/engines/registry.py": "an engine is imported when it is asked for; the registry imports none",
    "pytrtplugins/utils/late.py": "what packages of others import",
    "pytrtplugins/utils/optional.py": "packages of others",
}
IMPORTERS = ("import_module", "__import__")
NATIVE = {"pytrtplugins.engines.openvino.plugin_op"}  # subclasses a heavy package's class; imported when first used
HEAVY = ["onnx", "onnx_ir", "onnxruntime", "openvino", "cv2", "PIL", "rich", "typer", "matplotlib", "pycocotools", "torch",
         "tqdm", "google.protobuf", "skimage", "cupy", "tensorrt", "tensorrt_lean", "tensorrt_dispatch", "pycuda",
         "drawsvg", "cuda.bindings"]  # fmt: skip


def python_files(package):
    return sorted((ROOT / package).rglob("*.py"))


MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in ("pytrtplugins", "darknet2caffe")
    for path in python_files(package)
}


BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")
"""Where statements have others within them."""


@functools.cache
def parsed(path):
    """A file's syntax tree, which several tests read."""
    return ast.parse(path.read_text())


def statements(tree, types):
    """Those of a file; without ``types`` less those within `if TYPE_CHECKING`."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if types or not isinstance(node, ast.If) or "TYPE_CHECKING" not in ast.dump(node.test):
            yield node
            for block in BLOCKS:
                waiting += getattr(node, block, ())


@functools.cache
def imported(path, types=False):
    """Absolute names of what a file imports, with its line; with ``types``, inside of `if TYPE_CHECKING` too."""
    return list(_imported(path, types))


def _imported(path, types):
    parts = path.relative_to(ROOT).parent.parts
    for node in statements(parsed(path), types):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module or ""]))
            yield module, node.lineno
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)


def imported_by_name(path):
    """Lines on which a file calls ``import_module`` or ``__import__``."""
    if not any(name in path.read_text() for name in IMPORTERS):
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in IMPORTERS:
                yield node.lineno


def room(path, folder):
    """Which part of a folder a file belongs to."""
    return path.relative_to(ROOT / folder).parts[0].removesuffix(".py")


def risen(path, folder, level):
    """Imports of a file from rooms of its folder that stand above its own, with their lines."""
    own, prefix = room(path, folder), folder.replace("/", ".") + "."
    if own in level:
        for name, line in imported(path):
            target = name.removeprefix(prefix).partition(".")[0] if name.startswith(prefix) else ""
            if level.get(target, 0) > level[own]:
                yield f"{path}:{line}: {own} imports {target}, which stands above it"


def chain(rooms):
    """Rooms as docs/design.md shows them."""
    return "  <  ".join(", ".join(names) for names in rooms)


@pytest.mark.parametrize("path", python_files("pytrtplugins"), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_from_its_own_level_or_below(path):
    own = room(path, "pytrtplugins")
    if own == "__init__":
        return
    assert own in LEVEL, f"{own} has no level: add it to ROOMS"
    assert not list(risen(path, "pytrtplugins", LEVEL))
    for name, line in imported(path):
        assert name.partition(".")[0] != "darknet2caffe" or own in ("models", "cli"), f"{path}:{line} imports {name}"


@pytest.mark.parametrize("path", python_files("pytrtplugins/engines"), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_engine_imports_another_or_what_chooses_among_them(path):
    own, folder = room(path, "pytrtplugins/engines"), "pytrtplugins.engines."
    assert own in (*ENGINE_LEVEL, *ENGINES, "__init__"), f"{own} has no level: add it to ENGINE_ROOMS or ENGINES"
    assert not list(risen(path, "pytrtplugins/engines", ENGINE_LEVEL))
    for name, line in imported(path):
        target = name.removeprefix(folder).partition(".")[0] if name.startswith(folder) else ""
        if target in ENGINES:
            assert target == own, f"{path}:{line}: {own} imports engine {target}"
        if own in ENGINES:
            assert target not in ("selection", "weights"), f"{path}:{line}: engine {own} imports {target}"


@pytest.mark.parametrize(
    "path", python_files("pytrtplugins/engines/cuda"), ids=lambda path: str(path.relative_to(ROOT))
)
def test_inside_engine_cuda_data_goes_one_way(path):
    own = room(path, "pytrtplugins/engines/cuda")
    assert own in (*CUDA_LEVEL, "__init__"), f"{own} has no level: add it to CUDA_ROOMS"
    assert not list(risen(path, "pytrtplugins/engines/cuda", CUDA_LEVEL))


def test_no_files_import_each_other_in_a_circle():
    """Imports for types alone count too."""
    needs = {
        name: {
            next((each for each in (target, target.rpartition(".")[0]) if each in MODULES), None)
            for target, _ in imported(path, types=True)
            if target not in ("pytrtplugins._native", "pytrtplugins")
        }
        - {None, name}
        for name, path in MODULES.items()
        if path.name != "__init__.py"
    }
    while free := [name for name, targets in needs.items() if not targets & needs.keys()]:
        for name in free:
            del needs[name]
    assert not needs, f"a circle of files, or what needs one: {sorted(needs)}"


@pytest.mark.parametrize("path", sorted(MODULES.values()), ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_imported_by_a_name_that_cannot_be_read_here(path):
    lines = list(imported_by_name(path))
    assert not lines or path.relative_to(ROOT).as_posix() in BY_NAME, f"{path}:{lines}"


@pytest.mark.parametrize("rooms", [ROOMS, CUDA_ROOMS], ids=["package", "cuda"])
def test_the_page_shows_this_rule(rooms):
    assert f"    {chain(rooms)}\n" in (ROOT / "docs/design.md").read_text("utf-8")


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
