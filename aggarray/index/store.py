"""Storage of columns, texts and arrays in one group of a netCDF-4 file.

All columns of integers are one variable, all texts another, all values a third. A JSON document records the position of each.
A file of a hundred arrays thus opens as fast as a file of one, and values are read lazily. `Writer` lays items out and `Reader`
reads them; neither knows their meaning.
"""

from __future__ import annotations

import math
import re
from _thread import _local as local
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import numpy as np

from aggarray.errors import LIBRARY_ERRORS, IndexFileError, MissingFileError
from aggarray.index import GROUP, SAVE_AGAIN
from aggarray.index.directory import DTYPES, Column, IndexFile
from aggarray.memory.texts import Texts
from aggarray.storage import relocated
from aggarray.storage.byte_source import open_once
from aggarray.storage.credentials import RemoteAccess, access_in_force, with_access

#: Version of the group: incremented if older readers would misread it (2: ragged arrays; 3: fixes, columns of values).
SCHEMA = 3

#: Columns and lists of texts up to this length are stored in the document.
_SHORT = 24
#: Variables up to this number of elements are read as a whole.
_SMALL = 1 << 24
#: Values up to this number of bytes are read when an index is opened, larger ones, stored separately, on first use.
EAGER = 1 << 16
_CHUNK = 1 << 18
#: Most numbers in arithmetic progressions, which take memory but no space in the index.
MOST_IMPLIED = 1 << 23
#: Largest document in bytes; that of a million files is smaller.
_MAX_DOCUMENT = 1 << 30
#: Spelling of dtypes in NumPy: byte order, kind, size, and units of times.
_DTYPE = r"[<>|=][biufcmMSU][0-9]{1,8}(\[[0-9]*[a-zA-Z]+\])?"

Spec = Mapping[str, Any]


class Writer:
    """Collects columns, texts and values for a group of a netCDF-4 file."""

    def __init__(self) -> None:
        self._parts: dict[str, list[np.ndarray]] = {"integers": [], "texts": [], "values": [], "blocks": []}
        self._ends = dict.fromkeys(self._parts, 0)
        self._implied = 0
        #: Latest columns and their places by length, first and last element.
        self._columns: dict[tuple[int, int, int], tuple[np.ndarray, int]] = {}
        self._known: dict[tuple[str, tuple[int, ...], bytes], dict[str, Any]] = {}
        #: The oldest schema whose readers read the index: see `SCHEMA`.
        self.schema = 1

    def require(self, schema: int) -> None:
        """Record that readers of older schemas would misread the index."""
        self.schema = max(self.schema, schema)

    def _put(self, name: str, part: np.ndarray) -> int:
        self._parts[name].append(part)
        self._ends[name] += len(part)
        return self._ends[name] - len(part)

    def column(self, column: np.ndarray) -> dict[str, Any]:
        """Store integers, or refer to an equal column that was stored.

        It is found if no other column of its length, first and last element was stored after it. Few integers and arithmetic
        progressions are stored in the document.

        >>> writer, squares = Writer(), np.arange(30) ** 2
        >>> writer.column(squares), writer.column(-squares), writer.column(squares.copy())
        ({'at': 0, 'count': 30}, {'at': 30, 'count': 30}, {'at': 0, 'count': 30})
        >>> Writer().column(np.arange(1000)), Writer().column(np.array([4, 7]))
        ({'start': 0, 'step': 1, 'count': 1000}, {'is': [4, 7]})
        """
        if len(column) <= _SHORT:
            return {"is": column.tolist()}
        step = int(column[1]) - int(column[0])
        if self._implied + len(column) <= MOST_IMPLIED and (np.diff(column) == step).all():
            self._implied += len(column)
            return {"start": int(column[0]), "step": step, "count": len(column)}
        key = len(column), int(column[0]), int(column[-1])
        known, at = self._columns.get(key, (None, 0))
        if known is None or not np.array_equal(known, column):
            column = column.astype(np.int64, copy=False)
            self._columns[key] = column, (at := self._put("integers", column))
        return {"at": at, "count": len(column)}

    def texts(self, texts: Sequence[str]) -> dict[str, Any]:
        """Store texts."""
        if len(texts) <= _SHORT:
            return {"is": list(texts)}
        if isinstance(texts, Texts):
            return {"at": self._put("texts", texts.buffer), "lengths": self.column(texts.lengths)}
        joined = "".join(texts)
        encoded = texts if joined.isascii() else [t.encode("utf-8", "surrogateescape") for t in texts]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        at = self._put("texts", np.frombuffer(joined.encode("utf-8", "surrogateescape"), np.uint8))
        return {"at": at, "lengths": self.column(lengths)}

    def value(self, array: np.ndarray) -> dict[str, Any]:
        """Store the values of an array of any shape; equal values are stored once."""
        if array.dtype.kind == "T":
            return {"texts": self.texts([str(t) for t in array.ravel().tolist()]), "shape": list(array.shape)}
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._known:
            at = self._put(_blob_of(array.nbytes), np.frombuffer(key[2], np.uint8))
            self._known[key] = {"dtype": key[0], "shape": list(array.shape), "at": at}
        return self._known[key]

    def values_of(self, rows: np.ndarray) -> np.ndarray:
        """Store rows of bytes, uint8 (rows, bytes); return the position of each."""
        first, (count, size) = self._put("values", np.ascontiguousarray(rows).reshape(-1)), rows.shape
        return np.arange(first, first + count * size, size)

    def write(self, dataset: Any, document: Any, records: Any, generation: int) -> None:
        """Write the group into a ``netCDF4.Dataset``, in the oldest usable schema."""
        import json

        group = dataset.createGroup(GROUP)
        group.setncatts({"schema": np.int32(self.schema), "generation": np.int64(generation)})
        group.comment = "The same aggregation without loss, for aggarray; other software may pass it over."
        self._columns.clear()
        variables = {name: parts for name, parts in self._parts.items() if self._ends[name]}
        for name, content in (("document", document), ("records", records)):
            encoded = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
            variables[name] = [np.frombuffer(encoded.encode("utf-8", "surrogateescape"), np.uint8)]
        # What opening reads lies at the end, beside the directory.
        for name in filter(variables.__contains__, reversed(DTYPES)):
            dtype, length = variables[name][0].dtype, sum(map(len, variables[name]))
            group.createDimension(name, length)
            chunk = min(length, _CHUNK // dtype.itemsize)
            packing = {"compression": "zlib", "complevel": 1, "chunksizes": (chunk,), "fill_value": False}
            packing["shuffle"] = dtype.itemsize > 1
            variable = group.createVariable(name, dtype, (name,), **packing)
            variable.set_auto_maskandscale(False)
            # The attribute makes it a domain variable, which readers do not take for data (CF section 5.8).
            variable.setncattr("dimensions", "")
            start = 0
            for values in _merged(variables.pop(name)):
                variable[start : start + len(values)] = values
                start += len(values)


def _merged(parts: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield consecutive arrays, short ones joined.

    The list is emptied, so that long ones are not held twice.
    """
    parts.reverse()
    held: list[np.ndarray] = []
    while parts:
        held.append(parts.pop())
        if not parts or len(parts[-1]) >= _CHUNK or len(held[-1]) >= _CHUNK:
            yield np.concatenate(held) if len(held) > 1 else held[0]
            held.clear()


class _OpenIndex:
    """Open index: where its columns lie, and those that were read.

    ``loaded``: small columns; ``values``: arrays by their position and shape.
    """

    def __init__(self, path: str) -> None:
        self.loaded: dict[str, np.ndarray] = {}
        self.values: dict[tuple[Any, ...], np.ndarray] = {}
        self._columns: dict[str, Column] = {}
        with ExitStack() as stack:
            # The columns and their places are of one file, even if another process saves the index meanwhile.
            stack.enter_context(open_once(path))
            self._file = stack.enter_context(closing(IndexFile(path)))
            self._directory: Any = self._file.directory
            if self._directory is None:
                from aggarray.index.hdf5_columns import HDF5Columns

                self._directory = stack.enter_context(closing(HDF5Columns(path, GROUP)))
            self.schema, self.generation = self._directory.schema, self._directory.generation
            self.close = stack.pop_all().close

    def column(self, name: str) -> Column:
        """Return a column; raise ValueError or LookupError if it has none."""
        if name not in self._columns:
            self._columns[name] = self._directory.column(name)
        return self._columns[name]

    def read(self, name: str, start: int, stop: int) -> np.ndarray:
        """Return elements of a column."""
        return self._file.read(self.column(name), np.dtype(DTYPES[name]), start, stop)


class Reader:
    """Reader of the items of a `Writer`; checks sizes before allocation.

    Raises IndexFileError if the file is damaged, or was modified since ``generation``.
    """

    def __init__(self, path: str, generation: int | None = None, reach: RemoteAccess | None = None) -> None:
        self.path, self.generation = path, generation
        # Kept for later reads of a remote index.
        self.reach = access_in_force.get() if reach is None else reach
        self._implied = 0
        #: The open file of each thread: threads do not wait for each other, and a fork needs no lock.
        self._thread = local()

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "generation": self.generation, "reach": self.reach}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(relocated(state["path"]), state["generation"], state["reach"])  # type: ignore[misc]

    @property
    def _open(self) -> _OpenIndex:
        current: _OpenIndex = self._thread.current
        return current

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Keep the file open in this thread for the length of a block."""
        if getattr(self._thread, "current", None) is not None:
            yield self
            return
        with with_access(self.reach), self.index_errors(), closing(_OpenIndex(self.path)) as current:
            self._check_version(current.schema, current.generation)
            self._thread.current = current
            try:
                yield self
            finally:
                self._thread.current = None

    @contextmanager
    def index_errors(self) -> Iterator[None]:
        """Convert the errors of damaged content in a block to IndexFileError."""
        try:
            yield
        except IndexFileError:
            raise
        except FileNotFoundError as error:
            hint = "restore it, make it again, or set AGGARRAY_RELOCATE if this process sees it under another path"
            raise MissingFileError("no such index", path=self.path, hint=hint) from error
        except (*LIBRARY_ERRORS, MemoryError) as error:
            text = " ".join(str(error).split()) or type(error).__name__
            raise IndexFileError(f"damaged index ({text:.200})", path=self.path, hint=SAVE_AGAIN) from error

    def _check_version(self, schema: int, generation: int) -> None:
        if schema > SCHEMA:
            what = f"index of schema {schema}; this aggarray reads schemas up to {SCHEMA}"
            raise IndexFileError(what, path=self.path, hint="install a newer one")
        # promise: index-lazy-values
        if self.generation is not None and generation != self.generation:
            what = f"modified by another process since it was opened (generation {generation} now, {self.generation} then)"
            raise IndexFileError(what, path=self.path, hint="open it again")
        self.generation = generation

    def _length(self, name: str) -> int:
        return self._open.column(name).length

    def _slice(self, name: str, start: int, count: int) -> np.ndarray:
        with self.opened():
            length, loaded = self._length(name), self._open.loaded
            if not (isinstance(start, int) and isinstance(count, int) and 0 <= start <= start + count <= length):
                raise ValueError(f"{start} to {start} + {count} of {name} is out of range for {length} elements")
            if length > _SMALL or name == "blocks":
                return self._stored(name, start, start + count)
            if name not in loaded:  # all of a small variable is read at once
                loaded[name] = self._stored(name, 0, length)
            return loaded[name][start : start + count].copy()

    def _stored(self, name: str, start: int, stop: int) -> np.ndarray:
        return self._open.read(name, start, stop)

    def document(self, name: str = "document") -> Any:
        """Return a JSON document: "document", or "records"."""
        import json

        with self.opened():
            size = self._length(name)
            if size > _MAX_DOCUMENT:
                raise ValueError(f"{name} of {size} bytes, more than {_MAX_DOCUMENT}")
            return json.loads(self._slice(name, 0, size).tobytes().decode("utf-8", "surrogateescape"))

    def column(self, spec: Spec, dtype: Any = np.int64) -> np.ndarray:
        """Return a column of integers, read-only."""
        column: np.ndarray
        if "is" in spec:
            if not all(type(n) is int for n in spec["is"]):
                raise ValueError("column of other values than integers")
            column = np.array(spec["is"], dtype)  # raises for numbers that are out of range
        elif "start" in spec:
            count, ends = _count(spec["count"]), (spec["start"], spec["start"] + spec["step"] * spec["count"])
            self._implied += count
            if self._implied > MOST_IMPLIED or not all(type(n) is int and abs(n) < 1 << 62 for n in ends):
                raise ValueError(f"progressions of {self._implied} numbers, or numbers out of range")
            start, step = spec["start"], spec["step"]
            column = _narrowed(np.arange(*ends, step)[:count] if step else np.full(count, start), dtype)
        else:
            column = _narrowed(self._slice("integers", spec["at"], _count(spec["count"])), dtype)
        column.flags.writeable = False
        return column

    def texts(self, spec: Spec) -> Texts:
        """Return texts, decoded lazily."""
        if "is" in spec:
            encoded = [t.encode("utf-8", "surrogateescape") for t in spec["is"]]
            return Texts(np.frombuffer(b"".join(encoded), np.uint8), np.array([len(t) for t in encoded], np.int64))
        lengths = self.column(spec["lengths"])
        # Numbers of floating point do not overflow.
        if (lengths < 0).any() or lengths.sum(dtype=np.float64) > 1 << 40:
            raise ValueError("length of a text out of range")
        return Texts(self._slice("texts", spec["at"], int(lengths.sum())), lengths)

    def value(self, spec: Spec) -> np.ndarray:
        """Return the values of an array, read-only."""
        shape = tuple(map(_count, spec["shape"]))
        if "texts" in spec:
            values = np.array(list(self.texts(spec["texts"])), np.dtypes.StringDType()).reshape(shape)
        else:
            dtype, key = plain_dtype(spec["dtype"]), (spec["at"], spec["dtype"], shape)
            if dtype.kind not in "biufcmM":
                raise ValueError(f"values of dtype {dtype}")
            shared = self._open.values
            if key in shared:  # equal values are shared in memory
                return shared[key]
            size = math.prod(shape) * dtype.itemsize
            # An index without values lacks the variable.
            values = self._slice(_blob_of(size), spec["at"], size).view(dtype) if size else np.empty(0, dtype)
            values = shared[key] = values.reshape(shape)
        values.flags.writeable = False
        return values

    def gathered(self, places: np.ndarray, size: int) -> np.ndarray:
        """Return small values of equal size as bytes, uint8 (values, size)."""
        with self.opened():
            length = self._length("values") if len(places) else 0
            # Equal values are stored once, so that they do not overlap.
            if len(places) and (not 0 <= places.min() <= places.max() <= length - size or len(places) * size > length):
                raise ValueError(f"values out of range for {length} bytes")
            steps = np.diff(places)
            if len(places) and (steps == size).all():
                return self._slice("values", int(places[0]), len(places) * size).reshape(-1, size)
            content = self._slice("values", 0, length) if len(places) else np.zeros(0, np.uint8)
            return np.asarray(content[places[:, None] + np.arange(size)])


def _narrowed(column: np.ndarray, dtype: Any) -> np.ndarray:
    """Return int64 as other integers; ValueError if one is out of range."""
    if dtype is np.int64 or not len(column):
        return column.astype(dtype, copy=False)
    limits = np.iinfo(dtype)
    if not limits.min <= column.min() <= column.max() <= limits.max:
        raise ValueError(f"column out of range for {np.dtype(dtype)}")
    return column.astype(dtype)


def _blob_of(size: int) -> str:
    return "values" if size <= EAGER else "blocks"


def plain_dtype(text: Any) -> np.dtype[Any]:
    """Return the dtype of a text in NumPy's spelling, or raise ValueError."""
    if not isinstance(text, str) or not re.fullmatch(_DTYPE, text):
        raise ValueError(f"dtype {text!r:.40}")
    dtype: np.dtype[Any] = np.dtype(text)
    return dtype


def _count(number: Any) -> int:
    if type(number) is not int or not 0 <= number <= 1 << 40:
        raise ValueError(f"{number!r} is not a count")
    return number
