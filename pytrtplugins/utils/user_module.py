"""Import modules that users name on the command line."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from typing import Any

from ..errors import PytrtpluginsError, UsageError

__all__ = ["import_user_module"]


def import_user_module(name: str) -> Any:
    """Import a module as a user names it: ``package.module``, also of the working directory, or ``path/to/file.py``."""
    if not name.endswith(".py") and not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(
            f"module {name!r}: expected a module's name, or a Python file.\n"
            "Do: name what defines the plugin, such as mylayers or layers/mylayers.py"
        )
    path = Path(name)
    folder = str(path.resolve().parent if name.endswith(".py") else Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as `python mylayers.py` has it: the file may import its neighbours
    try:
        if name.endswith(".py"):
            spec = importlib.util.spec_from_file_location(path.stem, path)
            if spec is None or spec.loader is None or not path.is_file():
                raise ImportError(f"no such file: {path.absolute()}")
            module = importlib.util.module_from_spec(spec)
            sys.modules[path.stem] = module  # typed attributes are looked up through the module's name
            spec.loader.exec_module(module)
            return module
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"module {name!r}: cannot be imported ({error}). Looked in: {folder} and sys.path") from error
    except PytrtpluginsError:
        raise
    except SyntaxError as error:
        raise UsageError(f"module {name!r}: {error.msg} in {error.filename}, line {error.lineno}.") from error
    except Exception as error:  # whatever the user's own file does when it is imported
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise UsageError(
            f"module {name!r}: {type(error).__name__}: {error} in {place.filename}, line {place.lineno}."
        ) from error
