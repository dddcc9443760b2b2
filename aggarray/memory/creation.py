"""Creation of arrays in memory: as a view, as a view or a copy, as a copy."""

from __future__ import annotations

from math import prod
from typing import Any, cast

import numpy as np

from aggarray.errors import MemoryAccessError
from aggarray.memory.arrays import Array, embed_copy
from aggarray.memory.block import READ_IMMUTABLE, READ_ONLY, READ_WRITE, Access, Block, check_access
from aggarray.memory.immutable import ImmutableArray, restorable
from aggarray.memory.interchange import Interchange
from aggarray.memory.mapping import map_file


def view(obj: Any, access: Access | None = None) -> Array:
    """Return an array on the memory of an object, without a copy.

    ``obj``: an array of this module, a LocalArray, or an object that NumPy can view: arrays, buffers (PEP 3118), objects with
    ``__array_interface__`` or ``__dlpack__``. ``access``: READ makes a read-only view of writable memory; None: the access of
    the object.
    Raises MemoryAccessError if there is no view, or none with that access: `asarray` copies then.

    >>> a = view(np.zeros((2, 3)), Access.READ)
    >>> np.asarray(a).flags.writeable, a.block.kind
    (False, 'external')
    """
    viewed = _try_view(obj, _block_access(access))
    if isinstance(viewed, str):
        raise MemoryAccessError(f"no view of {type(obj).__name__}: {viewed}", hint="use asarray, which copies where it must")
    return viewed if access is None or viewed.access == check_access(access) else viewed.with_access(access)


def asarray(obj: Any, access: Access | None = None) -> Array:
    """Return an array on an object's memory if permitted, else on a copy.

    A copy is immutable unless ``access`` says otherwise. Raises MemoryAccessError if the object is not an array.

    >>> asarray(b"abc").block.kind, asarray([1, 2]).block.kind, asarray(b"abc", Access.READ | Access.WRITE).block.kind
    ('external', 'array', 'array')
    """
    viewed = _try_view(obj, _block_access(access))
    if isinstance(viewed, str):
        return array(obj, READ_IMMUTABLE if access is None else access)
    if access is None or viewed.access == check_access(access):
        return viewed
    try:
        return viewed.with_access(access)
    except MemoryAccessError:
        return array(viewed, access)


def array(obj: Any, access: Access = READ_IMMUTABLE) -> Array:
    """Return an array on a copy of an object's values, in C order.

    Text in lists becomes strings of any length. ``access``: the permitted operations on the copy; any combination is allowed.
    Raises MemoryAccessError if the object is not an array.

    >>> print(array(["one", "of these"]).type)
    2 * string
    """
    access, viewed = check_access(access), _try_view(obj)
    try:
        values = np.asarray(obj if isinstance(viewed, str) else viewed._values)
    except (TypeError, ValueError) as error:
        hint = "give numbers, text or times in rows of equal length"
        raise MemoryAccessError(f"{type(obj).__name__} is not an array: {error}", hint=hint) from error
    is_text = values.dtype.kind == "U" and not isinstance(obj, Interchange | np.ndarray | np.generic)
    # The netCDF library returns text as Python objects.
    if is_text or (values.dtype.kind == "O" and values.size > 0 and all(isinstance(v, str) for v in values.ravel())):
        values = values.astype(np.dtypes.StringDType())
    return embed_copy(values, access)


def owned(values: np.ndarray) -> np.ndarray:
    """Return a writable NumPy view of new values, in a block of its own.

    >>> array_of(owned(np.zeros(2))).block.kind
    'pod'
    """
    return Array(Block("pod", values, READ_WRITE, values.nbytes), values).numpy()


def shared(values: np.ndarray, copy: bool = True) -> np.ndarray:
    """Return a read-only NumPy view of values that cannot be made writable.

    Text of another owner is copied for that. ``copy`` False: raises MemoryAccessError instead of copying.
    """
    if values.dtype.kind == "T":
        return (asarray if copy else view)(values, READ_ONLY).numpy()
    if not values.flags.writeable and _holder(values) is not None and not restorable(values):
        return values
    return array_of(values, READ_ONLY).numpy()


def mapped(
    path: str, begin: int, dtype: np.dtype[Any], shape: tuple[int, ...], strides: tuple[int, ...] | None = None
) -> Array:
    """Return values of a file, mapped into memory, as a read-only array.

    At least one value, from byte ``begin`` on. ``strides``: in bytes, not negative; None: C order. Raises OSError or ValueError
    if the file does not open or is too short.
    """
    if strides is None:
        span = dtype.itemsize * prod(shape)
    else:
        span = dtype.itemsize + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    return Array.over(map_file(path, begin, span), dtype, shape, strides=strides)


def array_of(values: np.ndarray, most: Access = READ_WRITE) -> Array:
    """Return a NumPy array as an array on its block, or on one of its owner.

    ``most``: the most that the result permits.
    """
    holder = _holder(values)
    access = most if values.flags.writeable else READ_ONLY
    if holder is None:
        return Array(Block("external", values, access, _span(values)), values)
    return Array(holder.block, values, READ_IMMUTABLE if holder.access is READ_IMMUTABLE else access)


def _holder(values: np.ndarray) -> Array | None:
    base: Any = values
    while isinstance(base, np.ndarray | memoryview):
        if isinstance(base, ImmutableArray) and isinstance(base.holder, Array):
            return base.holder
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base.memory if isinstance(base, Interchange) else None


def _block_access(access: Access | None) -> Access:
    """Return the access of a view's block, which its receiver reaches too."""
    return READ_ONLY if access == READ_ONLY else READ_WRITE


def _try_view(obj: Any, most: Access = READ_WRITE) -> Array | str:
    """Return an array on an object's memory, or why there is none."""
    if isinstance(obj, Interchange):
        memory = obj.memory
        return Array(memory.block, memory._values, memory.access)
    if np.ma.isMaskedArray(obj):
        raise MemoryAccessError("a masked array has no single buffer", hint="give its data and its mask separately")
    try:
        values = _buffer(obj)
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        return f"it has no memory of numbers, text or times ({str(error).split('.')[0].split(chr(10))[0]})"
    if values.dtype.hasobject and values.dtype.kind != "T":
        return "Python objects have no type in memory"
    if isinstance(obj, np.ndarray):
        viewed = array_of(values, most)
        shareable = viewed.access is READ_WRITE or viewed.guarded()
        return viewed if shareable else "text shared read-only could be made writable again"
    access = READ_IMMUTABLE if type(obj) is bytes else most if values.flags.writeable else READ_ONLY
    return Array(Block("external", obj, access, _span(values)), values)


def _buffer(obj: Any) -> np.ndarray:
    """Return a NumPy array on an object's memory, or raise ValueError."""
    if isinstance(obj, np.ndarray):
        return np.asarray(obj)
    if isinstance(obj, np.generic) and obj.dtype.kind in "mMS":
        # Their buffer has the bytes without the dtype.
        return np.asarray(memoryview(cast(Any, obj))).view("u1").view(obj.dtype).reshape(())
    try:
        # Through a memoryview, because NumPy interprets bytes as text.
        return np.asarray(memoryview(obj))
    except (TypeError, ValueError, BufferError):
        if hasattr(obj, "__dlpack__") and not hasattr(obj, "__array__"):
            return np.from_dlpack(obj)
        return np.array(obj, copy=False)


def _span(values: np.ndarray) -> int:
    """Return the bytes from the first to the last of an array, gaps included."""
    if values.flags.c_contiguous:
        return values.nbytes
    low, high = np.lib.array_utils.byte_bounds(values)
    return int(high) - int(low)
