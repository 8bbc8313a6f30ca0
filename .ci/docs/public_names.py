"""Write docs/reference/public_names.md: the public names, what each is, and how stable it is.

``python .ci/docs/public_names.py`` writes the page; tests/test_public_api.py fails while it is out of date.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import typing
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "public_names.md"
RELEASES = ROOT / "docs" / "reference" / "releases.md"
MODULES = (
    *("plugin", "layers", "check", "testing", "errors", "engines", "model", "passes", "calibration", "precision"),
    *("vision", "vision.faces", "vision.labels", "vision.video", "models", "models.faces", "mxnet", "bench"),
    *("cuda", "native", "torch", "tensorrt", "export.plugin", "export.triton", "export.typed_model"),
    *("serving", "serving.export", "serving.ray", "serving.scale"),
    *("mlops.shards", "mlops.registry", "mlops.drift", "mlops.tables", "mlops.pipeline", "mlops.pipeline.argo"),
)
"""Public modules in the order of the pages; the names of each are its ``__all__``."""
HEAD = """# Public names

This page says which names of the package your code may import, and how stable each is. [API](api.md) has their arguments, and
[Releases](releases.md#stability) says what *stable* and *provisional* promise.

Every other name is internal and may change in any version: names that begin with `_`, and modules that are not listed here. No name on
this page is deprecated.

`python .ci/docs/public_names.py` writes this page from the modules' `__all__`."""


def page() -> str:
    """Return the text of the page."""
    package = importlib.import_module("pytrtplugins")
    states = _states(RELEASES.read_text("utf-8"))
    parts = [HEAD, _section("pytrtplugins", package, {name: states[name] for name in package.__all__})]
    for name in MODULES:
        module = importlib.import_module(f"pytrtplugins.{name}")
        state = states[name.partition(".")[0]]
        parts.append(_section(f"pytrtplugins.{name}", module, dict.fromkeys(module.__all__, state)))
    return "\n\n".join(parts) + "\n"


def _states(releases: str) -> dict[str, str]:
    """Read the table of stability: name → state."""
    rows = re.findall(r"^\| (.*?) \| ([\w ]+) \|", releases, re.MULTILINE)
    return {name: state for names, state in rows for name in re.findall(r"`(\w+)`", names)}


def _section(title: str, module: ModuleType, states: dict[str, str]) -> str:
    rows = [f"| `{name}` | {_summary(module, name)} | {state} |" for name, state in states.items()]
    return "\n".join(
        [f"## {title}", "", _first_line(module), "", "| name | what it is | state |", "|---|---|---|", *rows]
    )


def _summary(module: ModuleType, name: str) -> str:
    """Return the first docstring line of a name; a constant's docstring is the text below its assignment."""
    value = getattr(module, name)
    has_docstring = inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)
    if has_docstring and typing.get_origin(value) is None:
        return _first_line(value)
    return _constant_docstring(module.__name__, name).partition("\n")[0].replace("``", "`")


def _first_line(value: object) -> str:
    return (inspect.getdoc(value) or "").partition("\n")[0].replace("``", "`").replace("|", "\\|")


def _constant_docstring(module: str, name: str) -> str:
    """Return the text below a constant's assignment, in the module that assigns it."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            package = module if _is_package(module) else module.rpartition(".")[0]
            source = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            return _constant_docstring(source, name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        is_assigned = any(isinstance(target, ast.Name) and target.id == name for target in targets)
        if is_assigned and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            return inspect.cleandoc(str(following.value.value))
    return ""


def _is_package(module: str) -> bool:
    return hasattr(importlib.import_module(module), "__path__")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
