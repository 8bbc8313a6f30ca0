"""Lazy imports in other libraries."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["defer_imports"]

_leaving = threading.Lock()


@contextmanager
def defer_imports(*names: str) -> Iterator[None]:
    """Inside the block, import these modules lazily: at the first use of an attribute.

    With ``module:function`` the module is imported when the function is called, for who takes it out of the module at once.
    A module that is imported already stays as it is. After the block, an import gives the module itself.
    """
    modules = [_LazyModule(name) for name in names]
    for module in modules:
        sys.modules.setdefault(module.__name__, module)
    try:
        yield
    finally:
        for module in modules:
            module.leave()


class _LazyModule(ModuleType):
    """A module that is imported when one of its attributes is first used, except for the function named after a colon."""

    def __init__(self, name: str) -> None:
        module, _, self._function = name.partition(":")
        super().__init__(module)
        if self._function:
            setattr(self, self._function, _late_function(module, self._function))

    def leave(self) -> None:
        """Make room for the module itself."""
        with _leaving:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]

    def __getattr__(self, name: str) -> Any:
        if name == "__path__" and self._function:  # which "from module import function" asks for first
            package, _, last = self.__name__.rpartition(".")
            folders = importlib.import_module(package).__path__ if package else sys.path
            return [str(Path(folder) / last) for folder in folders]
        self.leave()
        return getattr(importlib.import_module(self.__name__), name)


def _late_function(module: str, name: str) -> Callable[..., Any]:
    def function(*arguments: Any, **named: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments, **named)

    function.__name__ = function.__qualname__ = name
    function.__module__ = module
    return function
