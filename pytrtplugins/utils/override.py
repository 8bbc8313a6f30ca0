"""`typing.override`, which Python has from 3.12 on: type checkers require that a base class has the method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import override
else:

    def override(method: Any) -> Any:
        """Mark a method that a base class has, and documents."""
        return method


__all__ = ["override"]
