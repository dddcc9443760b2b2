"""NumPy arrays whose memory cannot be made writable again.

With NumPy, the receiver of a view can reach its owner by ``.base``, set the owner's writeable flag, and then that of the view.
Numbers are handed out through an interface that hides their owner. Text has no such interface, and the block of a copy shows
its owner: `ImmutableArray` owns these, and its flags cannot be set.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class ImmutableArray(np.ndarray):
    """Memory of a copy, or view of text with its ``holder``; read-only flags."""

    holder: Any = None

    @property
    def flags(self) -> Any:
        """The flags of a view: setting them leaves the array unchanged."""
        return self.view(np.ndarray).flags

    def setflags(self, *args: Any, **flags: Any) -> None:
        """Set the flags of a view: errors are raised, the array is unchanged."""
        self.view(np.ndarray).setflags(*args, **flags)


def immutable(values: Any, writable: bool) -> ImmutableArray:
    """Return a copy in C order, whose memory cannot be unlocked once locked.

    >>> copied = immutable(np.arange(3), writable=False)
    >>> copied.flags.writeable, restorable(copied.view(np.ndarray))
    (False, False)
    """
    values = np.asarray(values)
    copied = ImmutableArray(values.shape, values.dtype)
    copied[...] = values
    if not writable:
        lock(copied)
    return copied


def lock(values: np.ndarray) -> None:
    """Make an array read-only in place."""
    np.ndarray.setflags(values, write=False)


def restorable(values: np.ndarray) -> bool:
    """Return whether setting a flag makes a view or its owner writable.

    >>> restorable(np.zeros(2)), restorable(np.frombuffer(b"ab", "u1"))
    (True, False)
    """
    view = values.view(np.ndarray)
    view.flags.writeable = False
    try:
        view.flags.writeable = True
    except ValueError:
        pass
    else:
        return True
    # An owner that NumPy shows, and that is locked only by its flag, can be made writable first.
    owner = view
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return owner.flags.owndata and not isinstance(owner, ImmutableArray)
