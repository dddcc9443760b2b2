"""Description of the memory of an array, to find copies, byte orders and owners.

`debug_repr` has the layout of DyND's ``nd.debug_repr``: the array, its type, its metadata per dimension, the address of the
data, and the block of memory that holds them.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from aggarray.memory.arrays import Array
from aggarray.memory.block import Access, Block, BlockOwner
from aggarray.memory.creation import view
from aggarray.memory.interchange import Interchange
from aggarray.memory.ragged import Ragged
from aggarray.memory.types import VAR, SupportsDatashape, Type


@runtime_checkable
class HeldObject(SupportsDatashape, Protocol):
    """Object whose values may be in memory."""

    def __memory__(self) -> Array | str:
        """Return the values if that needs neither reading nor a copy, else the reason."""


def type_string(obj: Any) -> str:
    """Return the type of an array, of files the type that reading returns; sizes included.

    ``obj``: a MasterArray, SubArray or LocalArray, an array of this module, or any object that `view` takes.

    >>> type_string(np.zeros((2, 3), ">i2")), type_string(np.array(["a"], np.dtypes.StringDType()))
    ('2 * 3 * byteswap[int16]', '1 * string')
    """
    if isinstance(obj, SupportsDatashape):
        return str(obj.__datashape__())
    return str(
        obj.memory.type if isinstance(obj, Interchange) else Type.of(obj) if isinstance(obj, np.ndarray) else view(obj).type
    )


def debug_repr(obj: Any) -> str:
    """Return the memory of an array, line by line: type, strides, flags, pointer, and the block of memory with its owner.

    ``obj``: as for `type_string`. Nothing is read: the text gives the reason if values are not in memory. A block that is
    part of a file shows file, offset and length.

    >>> from aggarray.memory import array
    >>> print(debug_repr(array([[1, 2, 3], [4, 5, 6]])))
    ------ array
     address: ...
     refcount: 1
     type:
      pointer: ...
      type: strided * strided * int64
     arrmeta:
      flags: 5 (read_access immutable )
      type-specific arrmeta:
       strided_dim arrmeta
        stride: 24
        size: 2
        strided_dim arrmeta
         stride: 8
         size: 3
     data:
       pointer: ...
       reference: 0000000000000000 (embedded in array memory)
    ------
    """
    # Without the references of this call itself.
    count = max(1, sys.getrefcount(obj) - 2)
    array, references = _memory(obj)
    if isinstance(array, str):
        return "\n".join(_absent(obj, count, array))
    if isinstance(obj, Ragged):
        return "\n".join(_ragged(obj, count, array, references))
    block = array.block
    address = id(block) if array.embedded else id(obj)
    lines = ["------ array", f" address: {address:016X}", f" refcount: {references if array.embedded else count}"]
    lines += [*_type(_type_of(obj, array)), " arrmeta:", f"  flags: {int(array.access)} ({_flags(array.access)})"]
    lines += [*_metadata(array), *_data(array, references)]
    return "\n".join([*lines, "------"])


def _memory(obj: Any) -> tuple[Array | str, int]:
    """Return the array in memory, or the reason, and the number of references to its block without this call."""
    if isinstance(obj, Array):
        return obj, obj.block.references
    memory = obj.__memory__() if isinstance(obj, HeldObject) else view(obj)
    return memory, 1 if isinstance(memory, str) else max(1, memory.block.references - 1)


def _type_of(obj: Any, array: Array) -> Type:
    """Return the type in memory; whether values may be missing, only the object knows."""
    return replace(array.type, option=isinstance(obj, SupportsDatashape) and obj.__datashape__().option)


def _type(datashape: Type) -> Iterator[str]:
    yield " type:"
    yield f"  pointer: {id(datashape.dtype):016X}"
    yield f"  type: {datashape.strided()}"


def _flags(access: Access) -> str:
    names = {Access.READ: "read_access ", Access.WRITE: "write_access ", Access.IMMUTABLE: "immutable "}
    return "".join(name for flag, name in names.items() if flag in access)


def _metadata(array: Array) -> Iterator[str]:
    """Yield stride and size of every dimension, nested, and the metadata of the elements."""
    if array.ndim or array.dtype.names is not None or array.dtype.kind == "T":
        yield "  type-specific arrmeta:"
    indent = "   "
    for stride, size in zip(array.strides, array.shape, strict=True):
        yield from _dimension(indent, stride, size)
        indent += " "
    yield from _element(array, indent)


def _dimension(indent: str, stride: int, size: int) -> Iterator[str]:
    yield f"{indent}strided_dim arrmeta"
    yield f"{indent} stride: {stride}"
    yield f"{indent} size: {size}"


def _element(array: Array, indent: str) -> Iterator[str]:
    """Yield the metadata of the elements."""
    names = array.dtype.names
    if names is not None and array.dtype.fields is not None:
        yield f"{indent}struct arrmeta"
        yield f"{indent} field offsets: {', '.join(str(array.dtype.fields[name][1]) for name in names)}"
    if array.dtype.kind == "T":
        # Long strings lie in memory of the dtype.
        yield f"{indent}string arrmeta"
        yield f"{indent} ------ NULL memory block"


def _data(array: Array, references: int) -> Iterator[str]:
    """Yield the address of the data and their block."""
    yield from (" data:", f"   pointer: {array.pointer:016X}")
    if array.embedded:
        yield f"   reference: {0:016X} (embedded in array memory)"
    else:
        yield f"   reference: {id(array.block):016X}"
        yield from (f"    {line}" for line in _block(array.block, references))


def _ragged(rows: Ragged, count: int, samples: Array, references: int) -> Iterator[str]:
    """Yield the lines of a ragged array: its data are the offsets, its samples have a block of their own."""
    offsets = view(rows.offsets)
    yield from ("------ array", f" address: {id(rows):016X}", f" refcount: {count}", *_type(rows.__datashape__()))
    yield from (" arrmeta:", f"  flags: {int(samples.access)} ({_flags(samples.access)})", "  type-specific arrmeta:")
    yield from _dimension("   ", offsets.strides[0], len(rows))
    yield from ("    var_dim arrmeta", f"     stride: {samples.strides[0]}", "     offset: 0")
    yield from (f"     {line}" for line in _block(samples.block, references))
    yield from _element(samples, "     ")
    yield from (*_data(offsets, offsets.block.references), "------")


def _block(block: Block, references: int) -> Iterator[str]:
    yield f"------ memory_block at {id(block):016X}"
    yield f" reference count: {references}"
    yield f" type: {block.kind}"
    owner = block.owner
    if isinstance(owner, BlockOwner):
        yield from (f" {name}: {value}" for name, value in owner.facts())
    elif block.kind == "external":
        yield f" object void pointer: {id(owner):016X} ({type(owner).__name__})"
        yield " free function: Py_DECREF"
    elif block.kind == "array" and isinstance(owner, np.ndarray):
        yield f" type: {Type.of(owner).strided()}"
    else:
        yield f" size: {block.nbytes}"
    yield "------"


def _absent(obj: Any, count: int, reason: str) -> Iterator[str]:
    """Yield the lines of values that are not in memory: they have no strides and no address."""
    datashape = obj.__datashape__()
    yield from ("------ array", f" address: {id(obj):016X}", f" refcount: {count}")
    yield from _type(replace(datashape, unaligned=False))
    yield from (" arrmeta:", f"  flags: {int(Access.READ)} ({_flags(Access.READ)})")
    if datashape.dims:
        yield "  type-specific arrmeta:"
    for depth, size in enumerate(datashape.dims):
        yield f"{' ' * (3 + depth)}{'var' if size == VAR else 'strided'}_dim arrmeta"
        if size != VAR:
            yield f"{' ' * (4 + depth)}size: {size}"
    yield from (" data:", f"   not in memory: {reason}", "------")
