"""Descriptions of arrays' memory, to find copies, byte orders and owners.

`debug_repr` has the layout of DyND's ``nd.debug_repr``: the array, its type, its metadata per dimension, the address of the
data, and the block of memory that holds them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from aggarray.dataclass import replace
from aggarray.memory.arrays import Array
from aggarray.memory.block import Access, Block, BlockOwner
from aggarray.memory.creation import view
from aggarray.memory.interchange import Interchange
from aggarray.memory.ragged import Ragged
from aggarray.memory.types import VAR, SupportsDatashape, Type


def type_string(obj: Any) -> str:
    """Return the type of an array, with sizes; of files, the type when read.

    ``obj``: a MasterArray, SubArray or LocalArray, an array of this module, or any object that `view` accepts.

    >>> type_string(np.zeros((2, 3), ">i2")), type_string(np.array(["a"], np.dtypes.StringDType()))
    ('2 * 3 * byteswap[int16]', '1 * string')
    """
    if isinstance(obj, SupportsDatashape):
        return str(obj.__datashape__())
    if isinstance(obj, np.ndarray):
        return str(Type.of(obj))
    return str(obj.memory.type if isinstance(obj, Interchange) else view(obj).type)


def debug_repr(obj: Any) -> str:
    """Describe an array's memory: type, strides, flags, pointer and block.

    ``obj``: as for `type_string`. Nothing is read: the text gives the reason if values are not in memory. The block is shown
    with its owner; part of a file also with file, offset and length.

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
    return "\n".join(_lines(obj, count))


def _lines(obj: Any, count: int) -> Iterator[str]:
    """Yield the lines of an array; ``count``: the references to it."""
    array, references = _memory(obj)
    address, access = id(obj), Access.READ if isinstance(array, str) else array.access
    if isinstance(array, str):
        datashape = replace(obj.__datashape__(), unaligned=False)
        metadata, data = list[str](), [f"   not in memory: {array}"]
        for depth, size in enumerate(datashape.dims, 3):  # there are no strides and no address
            metadata.append(f"{' ' * depth}{'var' if size == VAR else 'strided'}_dim arrmeta")
            metadata += [f"{' ' * depth} size: {size}"] if size != VAR else []
    elif isinstance(obj, Ragged):  # the data are the offsets, the samples have a block of their own
        datashape, offsets = obj.__datashape__(), view(obj.offsets)
        metadata = [*_dimension("   ", offsets.strides[0], len(obj)), "    var_dim arrmeta"]
        metadata += [f"     stride: {array.strides[0]}", "     offset: 0"]
        metadata += [*(f"     {line}" for line in _block(array.block, references)), *_element(array, "     ")]
        data = [*_data(offsets, offsets.block.references)]
    else:
        # Whether values may be missing, only the object knows.
        datashape = replace(array.type, option=isinstance(obj, SupportsDatashape) and obj.__datashape__().option)
        address, count = (id(array.block), references) if array.embedded else (address, count)
        axes = enumerate(zip(array.strides, array.shape, strict=True), 3)
        metadata = [line for depth, axis in axes for line in _dimension(" " * depth, *axis)]
        metadata += _element(array, " " * (3 + array.ndim))
        data = [*_data(array, references)]
    yield from ("------ array", f" address: {address:016X}", f" refcount: {count}", " type:")
    yield from (f"  pointer: {id(datashape.dtype):016X}", f"  type: {datashape.strided()}", " arrmeta:")
    names = {Access.READ: "read_access ", Access.WRITE: "write_access ", Access.IMMUTABLE: "immutable "}
    yield f"  flags: {int(access)} ({''.join(name for flag, name in names.items() if flag in access)})"
    if metadata:
        yield from ("  type-specific arrmeta:", *metadata)
    yield from (" data:", *data, "------")


def _memory(obj: Any) -> tuple[Array | str, int]:
    """Return the array in memory, or the reason, and its block's references."""
    if isinstance(obj, Array):
        return obj, obj.block.references
    memory = obj.__memory__() if hasattr(obj, "__memory__") else view(obj)
    return memory, 1 if isinstance(memory, str) else max(1, memory.block.references - 1)


def _dimension(indent: str, stride: int, size: int) -> Iterator[str]:
    yield from (f"{indent}strided_dim arrmeta", f"{indent} stride: {stride}", f"{indent} size: {size}")


def _element(array: Array, indent: str) -> Iterator[str]:
    fields = array.dtype.fields
    if fields is not None and array.dtype.names is not None:
        offsets = ", ".join(str(fields[name][1]) for name in array.dtype.names)
        yield from (f"{indent}struct arrmeta", f"{indent} field offsets: {offsets}")
    if array.dtype.kind == "T":
        # Long strings lie in memory of the dtype.
        yield from (f"{indent}string arrmeta", f"{indent} ------ NULL memory block")


def _data(array: Array, references: int) -> Iterator[str]:
    yield f"   pointer: {array.pointer:016X}"
    if array.embedded:
        yield f"   reference: {0:016X} (embedded in array memory)"
    else:
        yield f"   reference: {id(array.block):016X}"
        yield from (f"    {line}" for line in _block(array.block, references))


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
