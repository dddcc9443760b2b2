"""How does what others have become an array in memory: as a view, as a view where that will do, as a copy?"""

from math import prod
from typing import Any, cast

import numpy as np

from aggarray.errors import MemoryAccessError
from aggarray.memory.arrays import Array, embedded
from aggarray.memory.block import FOREVER, READ_ONLY, READ_WRITE, Access, Block, checked
from aggarray.memory.immutable import ImmutableArray, restorable
from aggarray.memory.interchange import Interchange
from aggarray.memory.mapping import map_file


def view(obj: Any, access: Access | None = None) -> Array:
    """Return an array on the memory of an object, which is never copied.

    ``obj``: an array of this module, a LocalArray, or whatever NumPy views: arrays, buffers (PEP 3118), other things that have
    ``__array_interface__`` or ``__dlpack__``. ``access``: READ makes a read-only view of what may be written; None: all that
    the object allows.
    MemoryAccessError where there is no view, or not with that access: `asarray` copies then.

    >>> a = view(np.zeros((2, 3)), Access.READ)
    >>> np.asarray(a).flags.writeable, a.block.kind
    (False, 'external')
    """
    found = _viewed(obj, _most(access))
    if isinstance(found, str):
        raise MemoryAccessError(f"no view of {type(obj).__name__}: {found}; use asarray, which copies where it must")
    return found if access is None or found.access == checked(access) else found.with_access(access)


def asarray(obj: Any, access: Access | None = None) -> Array:
    """Return an array on the memory of an object where its access permits, else of a copy.

    A copy is read-only for good (immutable) unless ``access`` says otherwise. MemoryAccessError for what is no array at all.

    >>> asarray(b"abc").block.kind, asarray([1, 2]).block.kind, asarray(b"abc", Access.READ | Access.WRITE).block.kind
    ('external', 'array', 'array')
    """
    found = _viewed(obj, _most(access))
    if isinstance(found, str):
        return array(obj, FOREVER if access is None else access)
    if access is None or found.access == checked(access):
        return found
    try:
        return found.with_access(access)
    except MemoryAccessError:
        return array(found, access)


def array(obj: Any, access: Access = FOREVER) -> Array:
    """Return an array of a copy of an object's values, in C order; text in lists becomes strings of any length.

    ``access``: what may be done with the copy; it is its own, so that all is allowed. MemoryAccessError for what is no array.

    >>> print(array(["one", "of these"]).type)
    2 * string
    """
    wanted, found = checked(access), _viewed(obj)
    try:
        values = np.asarray(obj if isinstance(found, str) else found._values)
    except (TypeError, ValueError) as error:
        raise MemoryAccessError(
            f"{type(obj).__name__} is no array: {error}; give numbers, text or times in rows of equal length"
        ) from error
    if (values.dtype.kind == "U" and not isinstance(obj, Interchange | np.ndarray | np.generic)) or _is_text(values):
        values = values.astype(np.dtypes.StringDType())
    return embedded(values, wanted)


def owned(values: np.ndarray) -> np.ndarray:
    """Return NumPy's view of values that were made for whoever gets them: of a block of its own, writable.

    >>> block_of(owned(np.zeros(2))).kind
    'pod'
    """
    return Array(Block("pod", values, READ_WRITE, values.nbytes), values).numpy()


def shared(values: np.ndarray, copy: bool = True) -> np.ndarray:
    """Return NumPy's read-only view of values, which nobody can make writable; text of others is copied for that.

    ``copy`` False: MemoryAccessError instead of a copy.
    """
    if values.dtype.kind == "T":
        return (asarray if copy else view)(values, READ_ONLY).numpy()
    if not values.flags.writeable and _holder(values) is not None and not restorable(values):
        return values
    return array_of(values, READ_ONLY).numpy()


def mapped(
    path: str, begin: int, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...] | None = None
) -> Array:
    """Return the read-only array of some values of a file, mapped into memory; at least one, from byte ``begin`` on.

    ``strides``: in bytes, not negative, None: C order. Raises OSError or ValueError where the file does not open, or is too
    short.
    """
    if strides is None:
        span = dtype.itemsize * prod(shape)
    else:
        span = dtype.itemsize + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    return Array.over(map_file(path, begin, span), dtype, shape, strides=strides)


def block_of(values: np.ndarray) -> Block | None:
    """Return the block that the memory of NumPy's array belongs to, None where it is no view of any."""
    held = _holder(values)
    return None if held is None else held.block


def array_of(values: np.ndarray, most: Access = READ_WRITE) -> Array:
    """Return NumPy's array as one in memory: on the block that it is a view of, else on that of its owner.

    ``most``: what may be done with it at most.
    """
    held = _holder(values)
    access = READ_WRITE if values.flags.writeable else READ_ONLY
    access = most if access is READ_WRITE else access
    if held is None:
        return Array(Block("external", values, access, _span(values)), values)
    return Array(held.block, values, FOREVER if held.access is FOREVER else access)


def _holder(values: np.ndarray) -> Array | None:
    """Follow a view to whom the memory belongs."""
    base: Any = values
    while isinstance(base, np.ndarray | memoryview):
        if isinstance(base, ImmutableArray) and isinstance(base.holder, Array):
            return base.holder
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base.memory if isinstance(base, Interchange) else None


def _most(access: Access | None) -> Access:
    """Return what a block that is made for such a view may allow: whoever has the view has the block too."""
    return READ_ONLY if access == READ_ONLY else READ_WRITE


def _viewed(obj: Any, most: Access = READ_WRITE) -> Array | str:
    """Return an array on the memory of an object, or why there is none; a block made for it allows ``most`` at most."""
    if isinstance(obj, Interchange):
        held = obj.memory
        return Array(held.block, held._values, held.access)
    if np.ma.isMaskedArray(obj):
        raise MemoryAccessError("a masked array is two arrays: give its data and its mask, each for itself")
    try:
        values = _buffer(obj)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        return f"NumPy finds no memory of numbers, text or times in it ({str(error).split('.')[0].split(chr(10))[0]})"
    if values.dtype.hasobject and values.dtype.kind != "T":
        return "Python objects have no type in memory: give numbers, text or times"
    if isinstance(obj, np.ndarray):
        found = array_of(values, most)
        shareable = found.access is READ_WRITE or found.guarded()
        return found if shareable else "text shared read-only could be made writable again"
    access = FOREVER if type(obj) is bytes else most if values.flags.writeable else READ_ONLY
    return Array(Block("external", obj, access, _span(values)), values)


def _buffer(obj: Any) -> np.ndarray:
    """Return NumPy's array on the memory of an object; ValueError where it would have to copy."""
    if isinstance(obj, np.ndarray):
        return np.asarray(obj)
    if isinstance(obj, np.generic) and obj.dtype.kind in "mMS":
        # Their buffer has the bytes, not what they mean.
        return np.asarray(memoryview(cast(Any, obj))).view("u1").view(obj.dtype).reshape(())
    try:
        # By way of a memoryview: NumPy takes bytes for text.
        return np.asarray(memoryview(obj))
    except (TypeError, ValueError, BufferError):
        if hasattr(obj, "__dlpack__") and not hasattr(obj, "__array__"):
            return np.from_dlpack(obj)
        return np.array(obj, copy=False)


def _is_text(values: np.ndarray) -> bool:
    """Tell whether Python objects are text, as the netCDF library gives it."""
    return values.dtype.kind == "O" and values.size > 0 and all(isinstance(one, str) for one in values.ravel())


def _span(values: np.ndarray) -> int:
    """Return how many bytes lie between the first and the last of an array, gaps included."""
    if values.flags.c_contiguous:
        return values.nbytes
    low, high = np.lib.array_utils.byte_bounds(values)
    return int(high) - int(low)
