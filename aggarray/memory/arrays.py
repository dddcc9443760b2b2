"""Arrays in memory: type, position of elements in a block, and access."""

from __future__ import annotations

import operator
from math import prod
from typing import Any, NoReturn, Self

import numpy as np

from aggarray.errors import MemoryAccessError, SelectionError
from aggarray.memory.block import READ_IMMUTABLE, READ_WRITE, Access, Block, check_access, describe_access
from aggarray.memory.immutable import ImmutableArray, immutable, lock, restorable
from aggarray.memory.interchange import Interchange, NoInterfaceError
from aggarray.memory.types import SUPPORTED, Type


class Array(Interchange):
    """Elements of one type in the memory of a block; slices are views.

    `view`, `asarray`, `array` and `Array.over` make arrays. ``access``: the permitted operations on the elements; no view of
    memory that is shared read-only can be made writable. ``numpy.asarray`` accepts an array without a copy.

    >>> from aggarray.memory import array
    >>> a = array([[1, 2, 3], [4, 5, 6]])
    >>> print(a.type, a[1, ::2].type, a[1, ::2].block is a.block)
    2 * 3 * int64 2 * int64 True
    """

    __slots__ = ("__weakref__", "_access", "_values", "block", "embedded")

    block: Block
    #: Whether this is the array that its block was made with.
    embedded: bool

    def __init__(self, block: Block, values: np.ndarray, access: Access | None = None, embedded: bool = False) -> None:
        """Wrap ``values`` in the memory of a block; access None: the block's."""
        access = block.access if access is None else check_access(access)
        if access is READ_WRITE and block.access is not READ_WRITE:
            _refuse("writable", block.access)
        # promise: read-only-memory
        if access is READ_WRITE and not values.flags.writeable:
            # Even if the block claims to be writable: writing to a file that is mapped for reading ends the process.
            what = "the values are read-only"
            raise MemoryAccessError(what, hint="give access READ, or copy it with array(..., Access.READ | Access.WRITE)")
        if values.dtype.hasobject and values.dtype.kind != "T":
            raise MemoryAccessError(f"Python objects ({values.dtype}) have no type in memory", hint=SUPPORTED)
        self._values, self._access, self.embedded = values, access, embedded
        self.block = block
        block.retain()

    def __del__(self) -> None:
        block = getattr(self, "block", None)
        if block is not None:
            block.release()

    def __copy__(self) -> Array:
        return Array(self.block, self._values, self._access)

    def __reduce__(self) -> tuple[Any, ...]:
        # With the dtype: NumPy converts unpickled values to the byte order of the machine.
        return _copied, (np.array(self._values), self.dtype, int(self._access))

    @classmethod
    def over(
        cls, block: Block, dtype: Any, shape: tuple[int, ...], offset: int = 0, strides: tuple[int, ...] | None = None
    ) -> Self:
        """Return an array over the buffer of a block, from byte ``offset`` on.

        ``strides`` in bytes, None: C order. Raises MemoryAccessError if the array exceeds the block or its elements are not
        plain numbers.

        >>> block = Block("external", bytearray(16), Access.READ, 16)
        >>> print(Array.over(block, ">f4", (2,), offset=4, strides=(8,)).type)
        2 * byteswap[float32]
        """
        buffer = block.buffer()
        try:
            if min(shape, default=0) < 0 or np.dtype(dtype).hasobject:
                raise ValueError("negative size, or Python objects")
            values = np.ndarray(shape, dtype, buffer, offset, strides)
        except (TypeError, ValueError) as error:
            text = " ".join(str(error).split())
            what = f"{dtype} of shape {shape} from byte {offset} of {block!r}: {text}"
            raise MemoryAccessError(what, hint="give an array within the block") from error
        return cls(block, values)

    @property
    def memory(self) -> Array:
        """The array itself."""
        return self

    @property
    def access(self) -> Access:
        """The permitted operations on the elements."""
        return self._access

    @property
    def type(self) -> Type:
        """The type of the array, sizes included."""
        return Type.of(self._values)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy dtype of the elements, byte order included."""
        return self._values.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Size along each dimension."""
        return self._values.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Number of bytes from one element to the next along each dimension."""
        return self._values.strides

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._values.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of all elements in bytes, without gaps between them."""
        return self._values.nbytes

    @property
    def pointer(self) -> int:
        """Address of the first element."""
        return int(self._values.__array_interface__["data"][0])

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __getitem__(self, key: Any) -> Array:
        """Return a view; raise SelectionError for keys that need a copy."""
        keys = key if isinstance(key, tuple) else (key,)
        basic = tuple(k if k is Ellipsis or isinstance(k, slice) else _index(k) for k in keys)
        # With an Ellipsis, one element is a view as well, not a scalar.
        basic = basic if any(k is Ellipsis for k in basic) else (*basic, ...)
        try:
            part = self._values[basic]
        except (IndexError, ValueError, TypeError) as error:
            what = f"{key!r} of an array of shape {self.shape}: {error}"
            raise SelectionError(what, hint="give positions within the array") from error
        return Array(self.block, part, self._access)

    def __setitem__(self, key: Any, values: Any) -> None:
        """Write elements, or raise MemoryAccessError if not writable."""
        if self._access is not READ_WRITE:
            _refuse("written to", self._access)
        self[key]._values[...] = values

    def with_access(self, access: Access, asserted: bool = False) -> Array:
        """Return a view of the same memory with other access.

        Writable memory becomes read-only, never the reverse. The result is immutable only if the array is immutable already,
        or if the caller asserts that the memory is no longer written (``asserted``); `freeze` needs no assertion. Raises
        MemoryAccessError otherwise.

        >>> from aggarray.memory import view
        >>> a = view(bytearray(b"abc")).with_access(Access.READ)
        >>> a.with_access(Access.READ | Access.WRITE)
        Traceback (most recent call last):
        aggarray.errors.MemoryAccessError: memory of access read cannot be made writable; copy it with ...
        """
        access = check_access(access)
        if access is READ_WRITE and self._access is not READ_WRITE:
            _refuse("made writable", self._access)
        if access is READ_IMMUTABLE and self._access is not READ_IMMUTABLE and not asserted:
            what = "memory that may be written elsewhere is not immutable"
            raise MemoryAccessError(what, hint="freeze() unshared memory, or pass asserted=True")
        if access is not READ_WRITE and not self.guarded():
            what = f"{self.type} shared read-only could be made writable again"
            raise MemoryAccessError(what, hint="copy it with array(...)")
        return Array(self.block, self._values, access)

    def freeze(self) -> Self:
        """Make the array immutable; raise MemoryAccessError if memory is shared."""
        if self._access is not READ_IMMUTABLE:
            if not self.block.unshared:
                what = f"{self.block!r} is shared"
                raise MemoryAccessError(what, hint="copy it with array(...), or use with_access(..., asserted=True)")
            self.block.freeze()
            self._access = READ_IMMUTABLE
            lock(self._values)
        return self

    def aligned(self) -> Array:
        """Return writable, aligned, native elements in C order; copy if needed."""
        flags, native = self._values.flags, self.dtype.newbyteorder("=")
        if flags.c_contiguous and flags.aligned and self._access is READ_WRITE and self.dtype == native:
            return self
        return embed_copy(self._values.astype(native, copy=False), READ_WRITE)

    def interface(self) -> dict[str, Any]:
        """Return the array interface; raise NoInterfaceError for text and records."""
        dtype = self.dtype
        if dtype.kind == "T" or dtype.names is not None:
            raise NoInterfaceError(f"no array interface of {self.type}", hint="use numpy.asarray")
        writable = self._access is READ_WRITE
        self.block.lent |= writable
        # Always with strides: NumPy computes others for empty arrays.
        data, shape, strides = (self.pointer, not writable), self.shape, self.strides
        return {"version": 3, "typestr": dtype.str, "data": data, "shape": shape, "strides": strides}

    def numpy(self) -> np.ndarray:
        """Return a NumPy view, writable if the array is, which keeps it alive."""
        dtype = self.dtype
        if dtype.kind == "T":
            self.block.lent |= self._access is READ_WRITE
            # Twice: NumPy collapses a chain of bases of the same class.
            between = self._values.view(ImmutableArray).view(ImmutableArray)
            between.holder = self
            values = between.view(np.ndarray)
            if self._access is not READ_WRITE:
                values.flags.writeable = False
            return values
        if dtype.names is not None:
            # The array interface cannot describe all fields: pass opaque bytes.
            opaque = Array(self.block, self._values.view(f"V{dtype.itemsize}"), self._access)
            return np.asarray(opaque).view(dtype)
        return np.asarray(self)

    def guarded(self) -> bool:
        """Return whether no view can be made writable; owners must guard text."""
        return self.dtype.kind != "T" or not restorable(self._values)

    def __repr__(self) -> str:
        return f"<aggarray.memory.Array {self.type}, {self.block.kind}, {describe_access(self._access)}>"


def embed_copy(values: Any, access: Access | int) -> Array:
    """Return an array of a copy of values, in C order, in a block of its own."""
    copy = immutable(values, writable=check_access(access) is READ_WRITE)
    return Array(Block("array", copy, check_access(access), copy.nbytes), copy, embedded=True)


def _copied(values: np.ndarray, dtype: np.dtype[Any], access: int) -> Array:
    return embed_copy(values.astype(dtype, copy=False), access)


def _index(key: Any) -> int:
    if not isinstance(key, bool | np.bool):
        try:
            return operator.index(key)
        except TypeError:
            pass
    what = f"key {key!r} does not select a view: only integers, slices and Ellipsis do"
    raise SelectionError(what, hint="copy it with numpy.asarray(...)[key]")


def _refuse(what: str, access: Access) -> NoReturn:
    hint = "copy it with array(..., Access.READ | Access.WRITE)"
    raise MemoryAccessError(f"memory of access {describe_access(access)} cannot be {what}", hint=hint)
