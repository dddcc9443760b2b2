"""What is an array in memory? A type, where its elements lie in a block, and what may be done with them."""

import operator
from math import prod
from typing import Any, NoReturn, Self

import numpy as np

from aggarray.errors import MemoryAccessError, SelectionError
from aggarray.memory.block import FOREVER, READ_WRITE, Access, Block, checked, words
from aggarray.memory.immutable import ImmutableArray, immutable, lock, restorable
from aggarray.memory.interchange import Interchange, NoInterfaceError
from aggarray.memory.types import Type


class Array(Interchange):
    """Elements of one type in the memory of a block; slices of it are views of the same block, never copies.

    Made by `view`, `asarray`, `array`, or `Array.over` a block. ``access``: what may be done with the elements; of memory
    that is shared read-only, no view can be made writable. NumPy takes it by ``numpy.asarray``, without a copy.

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
        """Take ``values``, which lie in the memory of a block; ``access`` None: all that the block allows."""
        wanted = block.access if access is None else checked(access)
        if wanted is READ_WRITE and block.access is not READ_WRITE:
            _refuse("writable", block.access)
        # promise: read-only-memory
        if wanted is READ_WRITE and not values.flags.writeable:
            # Whatever is said of the block: writing to a file that is mapped for reading ends the process.
            raise MemoryAccessError(
                "the values are read-only: give access READ, or a copy, array(..., Access.READ | Access.WRITE)"
            )
        if values.dtype.hasobject and values.dtype.kind != "T":
            raise MemoryAccessError(f"{values.dtype}: Python objects have no type in memory; give numbers, text or times")
        self._values, self._access, self.embedded = values, wanted, embedded
        self.block = block
        block.retain()

    def __del__(self) -> None:
        block = getattr(self, "block", None)
        if block is not None:
            block.release()

    def __copy__(self) -> "Array":
        return Array(self.block, self._values, self._access)

    def __reduce__(self) -> tuple[Any, ...]:
        # The type beside the values: NumPy brings pickled ones into the order of the machine that takes them.
        return _copied, (np.array(self._values), self.dtype, int(self._access))

    @classmethod
    def over(
        cls, block: Block, dtype: Any, shape: tuple[int, ...], offset: int = 0, strides: tuple[int, ...] | None = None
    ) -> Self:
        """Lay an array over the buffer of a block, from byte ``offset`` on; ``strides`` in bytes, None: C order.

        MemoryAccessError where it would reach beyond the block, or elements would lie there that are no plain numbers.

        >>> block = Block("external", bytearray(16), Access.READ, 16)
        >>> print(Array.over(block, ">f4", (2,), offset=4, strides=(8,)).type)
        2 * byteswap[float32]
        """
        buffer = block.buffer()
        try:
            if min(shape, default=0) < 0 or np.dtype(dtype).hasobject:
                raise ValueError("sizes below 0, or Python objects")
            values = np.ndarray(shape, dtype, buffer, offset, strides)
        except (TypeError, ValueError) as error:
            text = " ".join(str(error).split())
            raise MemoryAccessError(
                f"{dtype} of shape {shape} from byte {offset} of {block!r}: {text}; give what lies in it"
            ) from error
        return cls(block, values)

    @property
    def memory(self) -> "Array":
        """The array itself."""
        return self

    @property
    def access(self) -> Access:
        """What may be done with the elements."""
        return self._access

    @property
    def type(self) -> Type:
        """What the array holds, sizes included."""
        return Type.of(self._values)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type of the elements, byte order included."""
        return self._values.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Size per dimension."""
        return self._values.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each dimension."""
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
        """Bytes of all elements, gaps between them not counted."""
        return self._values.nbytes

    @property
    def pointer(self) -> int:
        """Address of the first element."""
        return int(self._values.__array_interface__["data"][0])

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __getitem__(self, key: Any) -> "Array":
        """Return a view: integers, slices and Ellipsis. SelectionError for other keys, which would need a copy."""
        keys = key if isinstance(key, tuple) else (key,)
        basic = tuple(one if one is Ellipsis or isinstance(one, slice) else _index(one) for one in keys)
        # With an Ellipsis, one element is a view as well, not a scalar.
        whole = basic if any(one is Ellipsis for one in basic) else (*basic, ...)
        try:
            part = self._values[whole]
        except (IndexError, ValueError, TypeError) as error:
            raise SelectionError(
                f"{key!r} of an array of shape {self.shape}: {error}; give positions that are there"
            ) from error
        return Array(self.block, part, self._access)

    def __setitem__(self, key: Any, values: Any) -> None:
        """Write to elements, keys as in reading; MemoryAccessError where the array is not to be written to."""
        if self._access is not READ_WRITE:
            _refuse("written to", self._access)
        self[key]._values[...] = values

    def with_access(self, access: Access, asserted: bool = False) -> "Array":
        """Return a view of the same memory with other access.

        What may be written becomes read-only; never the other way round. Immutable is only what is so already, or what the
        caller asserts that nobody writes to any more (``asserted``); `freeze` needs no such word. MemoryAccessError otherwise.

        >>> from aggarray.memory import view
        >>> a = view(bytearray(b"abc")).with_access(Access.READ)
        >>> a.with_access(Access.READ | Access.WRITE)
        Traceback (most recent call last):
        aggarray.errors.MemoryAccessError: memory of access read cannot be made writable: copy it, ...
        """
        wanted = checked(access)
        if wanted is READ_WRITE and self._access is not READ_WRITE:
            _refuse("made writable", self._access)
        if wanted is FOREVER and self._access is not FOREVER and not asserted:
            raise MemoryAccessError(
                "memory that others may write to is not immutable: freeze() what is yours alone, or say asserted=True"
            )
        if wanted is not READ_WRITE and not self.guarded():
            raise MemoryAccessError(f"{self.type} shared read-only could be made writable again: copy it, array(...)")
        return Array(self.block, self._values, wanted)

    def freeze(self) -> Self:
        """Make the array immutable for good, itself; MemoryAccessError unless nobody else can reach its memory."""
        if self._access is not FOREVER:
            if not self.block.unshared:
                raise MemoryAccessError(
                    f"{self.block!r} is not this array's alone: copy it, array(...), or with_access(..., asserted=True)"
                )
            self.block.freeze()
            self._access = FOREVER
            lock(self._values)
        return self

    def aligned(self) -> "Array":
        """Return the elements native, aligned, writable and in C order: the array itself where they are, else a copy."""
        flags, native = self._values.flags, self.dtype.newbyteorder("=")
        if flags.c_contiguous and flags.aligned and self._access is READ_WRITE and self.dtype == native:
            return self
        return embedded(self._values.astype(native, copy=False), READ_WRITE)

    def interface(self) -> dict[str, Any]:
        """Return NumPy's array interface; NoInterfaceError for text and records, which NumPy asks for in another way."""
        dtype = self.dtype
        if dtype.kind == "T" or dtype.names is not None:
            raise NoInterfaceError(f"no array interface of {self.type}: use numpy.asarray")
        writable = self._access is READ_WRITE
        self.block.lent |= writable
        # Always with strides: left to itself, NumPy makes up others for arrays without elements.
        data, shape, strides = (self.pointer, not writable), self.shape, self.strides
        return {"version": 3, "typestr": dtype.str, "data": data, "shape": shape, "strides": strides}

    def numpy(self) -> np.ndarray:
        """Return NumPy's view of the memory, which keeps the array alive, and which is as writable as the array is."""
        dtype = self.dtype
        if dtype.kind == "T":
            self.block.lent |= self._access is READ_WRITE
            # Twice: of a chain of bases, NumPy leaves out those between two arrays of the same class.
            between = self._values.view(ImmutableArray).view(ImmutableArray)
            between.holder = self
            found = between.view(np.ndarray)
            if self._access is not READ_WRITE:
                found.flags.writeable = False
            return found
        if dtype.names is not None:
            # Opaque bytes keep what an interface cannot say of fields.
            bare = Array(self.block, self._values.view(f"V{dtype.itemsize}"), self._access)
            return np.asarray(bare).view(dtype)
        return np.asarray(self)

    def guarded(self) -> bool:
        """Tell whether no view can be made writable; of text, which has no array interface, only its owner can prevent that."""
        return self.dtype.kind != "T" or not restorable(self._values)

    def __repr__(self) -> str:
        return f"<aggarray.memory.Array {self.type}, {self.block.kind}, {words(self._access)}>"


def embedded(values: Any, access: Access | int) -> Array:
    """Return an array of a copy of values, in C order, which is made for it."""
    own = immutable(values, writable=checked(access) is READ_WRITE)
    return Array(Block("array", own, checked(access), own.nbytes), own, embedded=True)


def _copied(values: np.ndarray, dtype: np.dtype[Any], access: int) -> Array:
    return embedded(values.astype(dtype, copy=False), access)


def _index(key: Any) -> int:
    """Return an integer of a key; SelectionError for anything else."""
    if not isinstance(key, bool | np.bool):
        try:
            return operator.index(key)
        except TypeError:
            pass
    raise SelectionError(
        f"key {key!r}: views are had by integers, slices and Ellipsis; for others copy, numpy.asarray(...)[key]"
    )


def _refuse(what: str, access: Access) -> NoReturn:
    raise MemoryAccessError(
        f"memory of access {words(access)} cannot be {what}: copy it, array(..., Access.READ | Access.WRITE)"
    )
