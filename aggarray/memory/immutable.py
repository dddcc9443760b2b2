"""How does NumPy keep memory that nobody is to make writable again?

`ImmutableArray` owns it, and does not have its flags raised.

NumPy lets whoever has a view reach its owner by ``.base``, raise the owner's flag, and then that of the view. Numbers travel by
an interface that hides their owner; text has none, and copies have an owner that their block shows.
"""

from typing import Any

import numpy as np


class ImmutableArray(np.ndarray):
    """Memory of a copy, or a view of text that knows whose it is (``holder``); its flags are shown, not set."""

    holder: Any = None

    @property
    def flags(self) -> Any:
        """The flags of a view: what is not writable itself has none that could be made so."""
        return self.view(np.ndarray).flags

    def setflags(self, *args: Any, **flags: Any) -> None:
        """Set the flags of a view, with the errors that this has."""
        self.view(np.ndarray).setflags(*args, **flags)


def immutable(values: Any, writable: bool) -> ImmutableArray:
    """Return a copy of values, in C order, in memory that once locked nobody unlocks.

    >>> copied = kept(np.arange(3), writable=False)
    >>> copied.flags.writeable, restorable(copied.view(np.ndarray))
    (False, False)
    """
    given = np.asarray(values)
    found = ImmutableArray(given.shape, given.dtype)
    found[...] = given
    if not writable:
        lock(found)
    return found


def lock(values: np.ndarray) -> None:
    """Make an array read-only, itself."""
    np.ndarray.setflags(values, write=False)


def restorable(values: np.ndarray) -> bool:
    """Tell whether a read-only view of an array, or its owner, could be made writable by setting its flag.

    >>> restorable(np.zeros(2)), restorable(np.frombuffer(b"ab", "u1"))
    (True, False)
    """
    view = values.view(np.ndarray)
    view.flags.writeable = False
    try:
        view.flags.writeable = True
    except ValueError:
        return _raised(view)
    return True


def _raised(view: np.ndarray) -> bool:
    """Tell whether an owner that NumPy shows could be made writable again: one that is locked only by its flag."""
    owner = view
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return owner.flags.owndata and not isinstance(owner, ImmutableArray)
