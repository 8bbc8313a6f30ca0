"""A pytest plugin: the native part that `make test-sanitizers` builds, in place of the installed one."""

import importlib.util
import sys
from pathlib import Path

import pytrtplugins

(_path,) = (Path(__file__).parents[1] / "build" / "sanitized" / "plugins" / "bridge").glob("_native*.so")
_spec = importlib.util.spec_from_file_location("pytrtplugins._native", _path)
assert _spec is not None
assert _spec.loader is not None
_native = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _native
vars(pytrtplugins)["_native"] = _native
_spec.loader.exec_module(_native)
