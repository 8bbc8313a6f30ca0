"""Objects that live as long as the process."""

from __future__ import annotations

import gc

__all__ = ["settle", "settle_again"]


def settle() -> None:
    """Have Python's collector leave alone what there is now, once garbage is gone.

    It looks at all objects from time to time, and all threads wait meanwhile: 0.1 s for those of the libraries that a server imports. What
    is freed when its last reference goes is freed as before.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def settle_again() -> None:
    """The same where `settle` was called, and objects that were there may have become garbage since."""
    if gc.get_freeze_count():
        settle()
