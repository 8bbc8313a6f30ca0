"""Objects that cannot be pickled or copied: the error says what to do instead."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from ..errors import CopyError

__all__ = ["NotCopyable"]


class NotCopyable:
    """Base of objects that cannot be pickled or copied, since they hold the state of a library, a device or a thread.

    Attributes:
        instead: What to do in their place, for the message.
    """

    instead: ClassVar[str]

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Called by `pickle`, and by `copy` and `copy.deepcopy`."""
        name = type(self).__name__
        raise CopyError(
            f"{name}: it cannot be pickled or copied, since it holds the state of a library.\nDo: {self.instead}",
            type_name=name,
        )
