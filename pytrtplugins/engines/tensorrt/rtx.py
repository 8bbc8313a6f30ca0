"""TensorRT for RTX's Python package, with the file names that its parser asks for.

For each plugin node the parser opens ``libtensorrt_rtx.so`` beside itself; the wheel has ``libtensorrt_rtx.so.1`` alone, and without the
other name the process ends. The libraries are therefore loaded through links in a folder of this process, under both names.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from ...utils.optional import require

__all__ = ["MODULE", "load_module"]

MODULE = "tensorrt_rtx_bindings"
_LIBRARIES = "tensorrt_rtx_libs"
_ASKED_FOR = "libtensorrt_rtx.so"


def load_module() -> ModuleType:
    """The package's bindings.

    Raises:
        OSError: its libraries cannot be loaded.
    """
    if MODULE not in sys.modules and sys.platform == "linux" and importlib.util.find_spec(MODULE) is not None:
        _load_libraries()
    return require(MODULE, extra="rtx", feature="engine 'tensorrt_rtx'")


def _load_libraries() -> None:
    """Load the wheel's libraries so that the parser finds them; nothing where they come from elsewhere, or have the name."""
    spec = importlib.util.find_spec(_LIBRARIES)
    if spec is None or spec.origin is None:
        return
    folder = Path(spec.origin).parent
    files = sorted(path for path in folder.glob("lib*.so*") if path.is_file())
    if any(path.name == _ASKED_FOR for path in files):
        return
    links = Path(tempfile.mkdtemp(prefix="pytrtplugins-rtx-"))
    atexit.register(shutil.rmtree, links, ignore_errors=True)
    for path in files:
        (links / path.name).symlink_to(path)
        if path.name.startswith(f"{_ASKED_FOR}."):
            (links / _ASKED_FOR).symlink_to(path)
    for path in sorted(files, key=lambda path: not path.name.startswith(_ASKED_FOR)):  # the parser needs the other one
        ctypes.CDLL(str(links / path.name), mode=ctypes.RTLD_GLOBAL)
