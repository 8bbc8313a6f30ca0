"""Low layers never import high ones, and heavy packages are imported only where they are used."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = (
    ("version", "errors", "utils", "tensor"),
    ("cuda", "validation"),
    ("plugin", "native", "_native_build"),
    ("model",),
    ("layers", "calibration", "vision", "mxnet"),
    ("passes",),
    ("engines",),
    ("bench", "check", "doctor", "export", "precision", "tensorrt", "testing", "torch"),
    ("models",),
    ("serving",),
    ("cli",),
    ("mlops",),
    ("__main__",),
)
"""Of the package: each imports from its own row and those before it."""
ENGINE_ROOMS = (
    ("base",),
    ("host", "registry"),
    ("calibrate", "weights"),
    ("quantized",),
    ("selection",),
    ("unsupported", "contract"),
)
ENGINES = ("reference", "openvino", "onnxruntime", "null", "cuda", "tensorrt")
CUDA_ROOMS = (
    ("elementwise", "operators", "device", "naming"),
    ("lower",),
    ("plan",),
    ("conv",),
    ("run",),
    ("saved", "engine", "int8_choice", "profile", "settings"),
)
"""Of engine ``cuda``."""
SERVING_ROOMS = (
    ("urls", "scale"),
    ("model",),
    ("batching", "http", "shared"),
    ("access",),
    ("backends",),
    ("page", "protocol"),
    ("processes",),
    ("run", "server_load"),
    ("config", "ray"),
    ("export", "__main__"),
)
"""Of ``serving``."""
MLOPS_ROOMS = (("drift", "registry", "shards"), ("tables",), ("pipeline",), ("cli",))
"""Of ``mlops``."""
LEVEL, ENGINE_LEVEL, CUDA_LEVEL, SERVING_LEVEL, MLOPS_LEVEL = (
    {name: level for level, names in enumerate(rooms) for name in names}
    for rooms in (ROOMS, ENGINE_ROOMS, CUDA_ROOMS, SERVING_ROOMS, MLOPS_ROOMS)
)
BY_NAME = {  # modules whose names are made at run time
    "pytrtplugins/utils/user_module.py": "a module that the user names",
    "pytrtplugins/native.py": "the part in C++, which may not be built",
    "pytrtplugins/plugin/registry.py": "the package's own layers, when a model has one: the registry imports none",
    "pytrtplugins/__init__.py": "a public name is imported when it is asked for",
    "pytrtplugins/engines/registry.py": "an engine is imported when it is asked for; the registry imports none",
    "pytrtplugins/cli/app.py": "the files of the command that runs",
    "pytrtplugins/utils/lazy_imports.py": "what packages of others import",
    "pytrtplugins/utils/optional.py": "packages of others",
}
IMPORTERS = ("import_module", "__import__")
NATIVE = {"pytrtplugins.engines.openvino.plugin_op"}  # subclasses a heavy package's class; imported when first used
HEAVY = ["onnx", "onnx_ir", "onnxruntime", "openvino", "cv2", "PIL", "rich", "typer", "matplotlib", "pycocotools", "torch",
         "tqdm", "google.protobuf", "skimage", "cupy", "tensorrt", "tensorrt_rtx_bindings", "tensorrt_lean", "tensorrt_dispatch", "pycuda",
         "drawsvg", "cuda.bindings", "starlette", "uvicorn", "httptools", "uvloop", "grpc"]  # fmt: skip


def python_files(package):
    return sorted((ROOT / package).rglob("*.py"))


MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in ("pytrtplugins", "darknet2caffe")
    for path in python_files(package)
}


BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")
"""Where statements have others within them."""


def statements(tree):
    """Those of a file, each with whether it stands within `if TYPE_CHECKING`."""
    waiting = [(tree, False)]
    while waiting:
        node, types = waiting.pop()
        yield node, types
        types = types or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        for block in BLOCKS:
            waiting += ((each, types) for each in getattr(node, block, ()))


@functools.cache
def all_imported(path):
    """Absolute names of what a file imports, each with its line, and whether it is imported for types alone."""
    found, parts = [], path.relative_to(ROOT).parent.parts
    for node, types in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno, types) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module or ""]))
            found += [
                (name, node.lineno, types) for name in (module, *(f"{module}.{alias.name}" for alias in node.names))
            ]
    return found


def imported(path):
    """Absolute names of what a file imports when it runs, each with its line."""
    return [(name, line) for name, line, types in all_imported(path) if not types]


def imported_by_name(path):
    """Lines on which a file calls ``import_module`` or ``__import__``."""
    text = path.read_text()
    if not any(name in text for name in IMPORTERS):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in IMPORTERS:
                yield node.lineno


def room(path, folder):
    """Which part of a folder a file belongs to."""
    return path.relative_to(ROOT / folder).parts[0].removesuffix(".py")


def risen(paths, folder, level):
    """Imports of files from rooms of their folder that stand above their own, with their lines."""
    prefix = folder.replace("/", ".") + "."
    for path in paths:
        own = room(path, folder)
        for name, line in imported(path) if own in level else ():
            target = name.removeprefix(prefix).partition(".")[0] if name.startswith(prefix) else ""
            if level.get(target, 0) > level[own]:
                yield f"{path}:{line}: {own} imports {target}, which stands above it"


def importing(paths, names):
    """Imports of files from these modules and packages, with their lines."""
    for path in paths:
        for name, line in imported(path):
            if any(f"{name}.".startswith(f"{each}.") for each in names):
                yield f"{path}:{line} imports {name}"


def shown(rooms):
    """Rooms as docs/explanation/rooms.md shows them."""
    return "  <  ".join(", ".join(names) for names in rooms)


def by_room(folder):
    """A test for each room of a folder, with its files."""
    files: dict[str, list[Path]] = {}
    for path in python_files(folder):
        files.setdefault(room(path, folder), []).append(path)
    return pytest.mark.parametrize(("own", "paths"), files.items(), ids=list(files))


def refuse(*broken):
    """Fail with all lines that break a rule, if there are any."""
    lines = dict.fromkeys(chain.from_iterable(broken))
    assert not lines, "\n".join(lines)


@by_room("pytrtplugins")
def test_a_module_imports_only_from_its_own_level_or_below(own, paths):
    assert own in (*LEVEL, "__init__"), f"{own} has no level: add it to ROOMS"
    converter = [] if own in ("__init__", "models", "cli") else ["darknet2caffe"]
    refuse(risen(paths, "pytrtplugins", LEVEL), importing(paths, converter))


@by_room("pytrtplugins/engines")
def test_no_engine_imports_another_or_what_chooses_among_them(own, paths):
    assert own in (*ENGINE_LEVEL, *ENGINES, "__init__"), f"{own} has no level: add it to ENGINE_ROOMS or ENGINES"
    others = {*ENGINES, "selection", "weights"} if own in ENGINES else set(ENGINES)
    names = [f"pytrtplugins.engines.{name}" for name in others - {own}]
    refuse(risen(paths, "pytrtplugins/engines", ENGINE_LEVEL), importing(paths, names))


@by_room("pytrtplugins/engines/cuda")
def test_inside_engine_cuda_data_goes_one_way(own, paths):
    assert own in (*CUDA_LEVEL, "__init__"), f"{own} has no level: add it to CUDA_ROOMS"
    refuse(risen(paths, "pytrtplugins/engines/cuda", CUDA_LEVEL))


@by_room("pytrtplugins/serving")
def test_inside_serving_rooms_import_only_lower_ones(own, paths):
    assert own in (*SERVING_LEVEL, "__init__"), f"{own} has no level: add it to SERVING_ROOMS"
    refuse(risen(paths, "pytrtplugins/serving", SERVING_LEVEL))


@by_room("pytrtplugins/mlops")
def test_inside_mlops_rooms_import_only_lower_ones(own, paths):
    assert own in (*MLOPS_LEVEL, "__init__"), f"{own} has no level: add it to MLOPS_ROOMS"
    refuse(risen(paths, "pytrtplugins/mlops", MLOPS_LEVEL))


def test_nothing_else_imports_mlops():
    """The table of commands names its modules, and pyproject.toml the one that serving reads."""
    others = [path for path in python_files("pytrtplugins") if "mlops" not in path.relative_to(ROOT).parts]
    refuse(importing([*others, *python_files("darknet2caffe")], ["pytrtplugins.mlops"]))


def test_no_files_import_each_other_in_a_circle():
    """Imports for types alone count too."""
    needs = {
        name: {
            next((each for each in (target, target.rpartition(".")[0]) if each in MODULES), None)
            for target, *_ in all_imported(path)
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


@pytest.mark.parametrize("package", ["pytrtplugins", "darknet2caffe"])
def test_nothing_is_imported_by_a_name_that_cannot_be_read_here(package):
    refuse(
        f"{path}:{line}"
        for path in python_files(package)
        if path.relative_to(ROOT).as_posix() not in BY_NAME
        for line in imported_by_name(path)
    )


@pytest.mark.parametrize(
    "rooms", [ROOMS, CUDA_ROOMS, SERVING_ROOMS, MLOPS_ROOMS], ids=["package", "cuda", "serving", "mlops"]
)
def test_the_page_shows_this_rule(rooms):
    assert f"    {shown(rooms)}\n" in (ROOT / "docs/explanation/rooms.md").read_text("utf-8")


def test_the_converter_uses_only_low_layers():
    high = [f"pytrtplugins.{name}" for name, level in LEVEL.items() if level > LEVEL["vision"]]
    refuse(importing(python_files("darknet2caffe"), high))


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


MACHINE = "from pytrtplugins import doctor; import pytrtplugins.mlops.cli.pipeline; doctor.machine()"


@pytest.mark.parametrize(("code", "unused"), [("import pytrtplugins", HEAVY), (MACHINE, ["pytrtplugins.engines"])])
def test_what_is_not_used_is_not_imported(code, unused):
    code += f"; import sys; print([name for name in {unused!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
