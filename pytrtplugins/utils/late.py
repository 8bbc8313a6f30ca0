"""Imports of other libraries, put off until what they import is used."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

__all__ = ["put_off"]

_leaving = threading.Lock()


@contextmanager
def put_off(*names: str) -> Iterator[None]:
    """Give who imports these modules inside the block something that imports them when an attribute is used.

    A module that is imported already stays as it is. Behind the block nothing stands in for a module any more: whoever imports it gets it.
    """
    given = [_StandIn(name) for name in names]
    for one in given:
        sys.modules.setdefault(one.__name__, one)
    try:
        yield
    finally:
        for one in given:
            one.leave()


class _StandIn(ModuleType):
    """Has a module's name, and its attributes from when the first is used."""

    def leave(self) -> None:
        """Make room for the module itself."""
        with _leaving:
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]

    def __getattr__(self, name: str) -> Any:
        self.leave()
        return getattr(importlib.import_module(self.__name__), name)
