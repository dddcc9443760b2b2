"""How do thousands of columns, texts and arrays lie in one group of a netCDF-4 file, found again without reading the rest?

All columns of integers are one variable, all texts another, all values a third; a document in JSON says where in these each
one lies. So a file of a hundred arrays opens as fast as a file of one, and what nobody asks for is never read. `Writer` lays
out, `Reader` finds; neither knows what is stored.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any

import numpy as np

from aggarray.errors import IndexFileError, MissingFileError
from aggarray.formats.base import LIBRARY_ERRORS, LIBRARY_LOCK, error_text
from aggarray.formats.limits import MOST_INFLATED
from aggarray.partition.grid import MAX_CELLS
from aggarray.storage.files import is_file, stat_file
from aggarray.storage.remote import RemoteAccess, current_access, with_access

#: The group of an index file that is ours.
GROUP = "aggarray"
#: The version of what lies in it: the number goes up where an older reader would go wrong.
SCHEMA = 2

_FEW = 24
#: Variables of so many elements are read as a whole, at the first question.
_SMALL = 1 << 24
#: Values up to so many bytes are read when an index is opened, larger ones when somebody asks: they lie elsewhere.
EAGER = 1 << 16
_CHUNK = 1 << 18
#: So many numbers at most may an index imply by even progressions, which take no room in it, but in memory.
MOST_IMPLIED = 1 << 23
#: Bytes of a document: a million files, described one by one, take less.
_LONGEST_DOCUMENT = 1 << 30
#: How NumPy writes dtypes: byte order, kind, size, and units of times.
_DTYPE = re.compile(r"[<>|=][biufcmMSU][0-9]{1,8}(\[[0-9]*[a-zA-Z]+\])?")
_DTYPES = {"document": "u1", "records": "u1", "integers": "i8", "texts": "u1", "values": "u1", "blocks": "u1"}

Spec = Mapping[str, Any]


class Writer:
    """Collects columns, texts and values; ``write`` puts them into a group of an open netCDF-4 dataset."""

    def __init__(self) -> None:
        self._parts: dict[str, list[np.ndarray]] = {"integers": [], "texts": [], "values": [], "blocks": []}
        self._ends = dict.fromkeys(self._parts, 0)
        self._implied = 0
        self._known: dict[tuple[str, tuple[int, ...], bytes], dict[str, Any]] = {}
        #: Whether readers of the schema before this one would go wrong: at ragged arrays.
        self.newer = False

    def _put(self, name: str, part: np.ndarray) -> int:
        self._parts[name].append(part)
        self._ends[name] += len(part)
        return self._ends[name] - len(part)

    def column(self, column: np.ndarray) -> dict[str, Any]:
        """Lay out a column of integers; even progressions and short ones need no room of their own.

        >>> Writer().column(np.arange(1000)), Writer().column(np.array([4, 7]))
        ({'start': 0, 'step': 1, 'count': 1000}, {'is': [4, 7]})
        """
        if len(column) <= _FEW:
            return {"is": column.tolist()}
        step = int(column[1]) - int(column[0])
        if self._implied + len(column) <= MOST_IMPLIED and (np.diff(column) == step).all():
            self._implied += len(column)
            return {"start": int(column[0]), "step": step, "count": len(column)}
        return {"at": self._put("integers", column.astype(np.int64)), "count": len(column)}

    def texts(self, texts: Sequence[str]) -> dict[str, Any]:
        """Lay out texts."""
        if len(texts) <= _FEW:
            return {"is": list(texts)}
        joined = "".join(texts)
        encoded = texts if joined.isascii() else [t.encode("utf-8", "surrogateescape") for t in texts]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        at = self._put("texts", np.frombuffer(joined.encode("utf-8", "surrogateescape"), np.uint8))
        return {"at": at, "lengths": self.column(lengths)}

    def value(self, array: np.ndarray) -> dict[str, Any]:
        """Lay out the values of an array of any shape; equal ones once."""
        if array.dtype.kind == "T":
            return {"texts": self.texts([str(t) for t in array.ravel().tolist()]), "shape": list(array.shape)}
        key = array.dtype.str, array.shape, array.tobytes()
        if key not in self._known:
            at = self._put(_blob_of(array.nbytes), np.frombuffer(key[2], np.uint8))
            self._known[key] = {"dtype": key[0], "shape": list(array.shape), "at": at}
        return self._known[key]

    def write(self, dataset: Any, document: Any, records: Any, generation: int) -> None:
        """Write the group into an open ``netCDF4.Dataset``; in the schema of old where that says it all."""
        group = dataset.createGroup(GROUP)
        schema = SCHEMA if self.newer else 1
        group.setncatts({"schema": np.int32(schema), "generation": np.int64(generation)})
        group.comment = "The same aggregation without loss, for aggarray; other software may pass it over."
        blobs = {name: np.concatenate(parts) for name, parts in self._parts.items() if self._ends[name]}
        for name, found in (("document", document), ("records", records)):
            text = json.dumps(found, separators=(",", ":"), ensure_ascii=False)
            blobs[name] = np.frombuffer(text.encode("utf-8", "surrogateescape"), np.uint8)
        for name, blob in blobs.items():
            group.createDimension(name, len(blob))
            chunk = (min(len(blob), _CHUNK // blob.dtype.itemsize),)
            made = group.createVariable(
                name, blob.dtype, (name,), compression="zlib", complevel=1, chunksizes=chunk, fill_value=False
            )
            made.set_auto_maskandscale(False)
            # CF calls what has this attribute a domain variable: no reader takes it for data (section 5.8).
            made.setncattr("dimensions", "")
            made[:] = blob


class Reader:
    """Finds what a `Writer` laid out. Every size is checked against the file before memory is taken.

    Raises IndexFileError where the file is not what it should be, and, once a ``generation`` is known, where it has been
    saved anew since.
    """

    def __init__(self, path: str, generation: int | None = None, reach: RemoteAccess | None = None) -> None:
        self.path = path
        self.generation = generation
        # Of a remote index more is read later.
        self.reach = current_access() if reach is None else reach
        self._group: Any = None
        self._implied = 0
        self._loaded: dict[str, np.ndarray] = {}
        self._values: dict[tuple[Any, ...], np.ndarray] = {}

    @contextmanager
    def opened(self) -> Iterator["Reader"]:
        """Keep the file open for the length of a block."""
        from aggarray.formats.hdf5.format import opened

        # Under the lock: another thread may have it open, and will close it.
        with with_access(self.reach), LIBRARY_LOCK, self.blaming(), ExitStack() as stack:
            if self._group is not None:
                yield self
                return
            file = stack.enter_context(opened(self.path))
            self._group = _own(file, GROUP)
            try:
                self._check_version()
                yield self
            finally:
                self._group, self._loaded, self._values = None, {}, {}

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """Turn what damaged or hostile content raises inside the block into one line."""
        try:
            yield
        except (IndexFileError, MissingFileError):
            raise
        except FileNotFoundError as error:
            raise MissingFileError(f"{self.path}: no such index; restore it, or make it anew from the data files") from error
        except (*LIBRARY_ERRORS, RecursionError, MemoryError) as error:
            text = " ".join(str(error).split()) or type(error).__name__
            raise IndexFileError(f"{self.path}: a damaged index ({text:.200}); save it anew from the data files") from error

    def _check_version(self) -> None:
        schema, generation = (_number(self._group, name) for name in ("schema", "generation"))
        if schema > SCHEMA:
            raise IndexFileError(
                f"{self.path}: an index of schema {schema}, this aggarray reads up to {SCHEMA}: install a newer one"
            )
        # promise: index-lazy-values
        if self.generation is not None and generation != self.generation:
            raise IndexFileError(
                f"{self.path}: saved anew since it was opened (generation {generation}, then {self.generation}): open it again"
            )
        self.generation = generation

    def _slice(self, name: str, start: int, count: int) -> np.ndarray:
        """Return a stretch of one of our variables."""
        with self.opened():
            dataset = _own(self._group, name)
            if dataset.external or dataset.is_virtual:
                raise ValueError(f"{name} lies in another file")
            if dataset.dtype != np.dtype(_DTYPES[name]) or dataset.ndim != 1:
                raise ValueError(f"{name} is {dataset.dtype} of {dataset.ndim} dimensions")
            if not (isinstance(start, int) and isinstance(count, int) and 0 <= start <= start + count <= len(dataset)):
                raise ValueError(f"{name} has {len(dataset)} elements, not {start} to {start} + {count}")
            if count * dataset.dtype.itemsize > MOST_INFLATED * stat_file(self.path).size:
                raise ValueError(f"{name} claims {count} elements, more than the file can hold")
            if len(dataset) > _SMALL or name == "blocks":
                return np.asarray(dataset[start : start + count])
            # One call of HDF5 costs more than all of a small variable.
            if name not in self._loaded:
                self._loaded[name] = np.asarray(dataset[...])
            return self._loaded[name][start : start + count].copy()

    def document(self, name: str = "document") -> Any:
        """Return one of the two JSON documents: "document", or "records"."""
        with self.opened():
            size = len(self._group[name])
            if size > _LONGEST_DOCUMENT:
                raise ValueError(f"{name} of {size} bytes, more than {_LONGEST_DOCUMENT}")
            data = self._slice(name, 0, size).tobytes()
            return json.loads(data.decode("utf-8", "surrogateescape"))

    def column(self, spec: Spec, dtype: Any = np.int64) -> np.ndarray:
        """Return a column of integers, read-only."""
        column: np.ndarray
        if "is" in spec:
            if not all(type(n) is int for n in spec["is"]):
                raise ValueError("a column of anything but integers")
            column = np.array(spec["is"], dtype)  # an error for numbers beyond it
            column.flags.writeable = False
            return column
        elif "start" in spec:
            count, ends = _count(spec["count"]), (spec["start"], spec["start"] + spec["step"] * spec["count"])
            self._implied += count
            if self._implied > MOST_IMPLIED or not all(type(n) is int and abs(n) < 1 << 62 for n in ends):
                raise ValueError(f"progressions of {self._implied} numbers, or of numbers that are too large")
            column = spec["start"] + spec["step"] * np.arange(count)
        else:
            column = self._slice("integers", spec["at"], _count(spec["count"]))
        limits = np.iinfo(dtype)
        if len(column) and not limits.min <= column.min() <= column.max() <= limits.max:
            raise ValueError(f"a column of numbers beyond {np.dtype(dtype)}")
        column = column.astype(dtype, copy=False)
        column.flags.writeable = False
        return column

    def texts(self, spec: Spec) -> "Texts":
        """Return texts, decoded one by one as they are asked for."""
        if "is" in spec:
            encoded = [t.encode("utf-8", "surrogateescape") for t in spec["is"]]
            return Texts(np.frombuffer(b"".join(encoded), np.uint8), np.array([len(t) for t in encoded], np.int64))
        lengths = self.column(spec["lengths"])
        # As Python's numbers, which do not wrap round.
        if (lengths < 0).any() or sum(lengths.tolist()) > 1 << 40:
            raise ValueError("texts of negative length, or too long")
        return Texts(self._slice("texts", spec["at"], int(lengths.sum())), lengths)

    def value(self, spec: Spec) -> np.ndarray:
        """Return the values of an array, read-only."""
        shape = tuple(_count(n) for n in spec["shape"])
        if "texts" in spec:
            found = np.array(list(self.texts(spec["texts"])), np.dtypes.StringDType()).reshape(shape)
        else:
            dtype, key = plain_dtype(spec["dtype"]), (spec["at"], spec["dtype"], shape)
            if dtype.kind not in "biufcmM":
                raise ValueError(f"values of dtype {dtype}")
            if key in self._values:  # arrays that share values share them in memory too
                return self._values[key]
            size = math.prod(shape) * dtype.itemsize
            # An index without any values has no variable for them.
            data = self._slice(_blob_of(size), spec["at"], size) if size else np.empty(0, np.uint8)
            found = self._values[key] = data.view(dtype).reshape(shape) if size else np.empty(shape, dtype)
        found.flags.writeable = False
        return found


def _blob_of(size: int) -> str:
    """Return the variable in which values of so many bytes lie."""
    return "values" if size <= EAGER else "blocks"


def plain_dtype(text: Any) -> np.dtype[Any]:
    """Return the dtype that a text as NumPy writes it means; ValueError for any other spelling."""
    if not isinstance(text, str) or not _DTYPE.fullmatch(text):
        raise ValueError(f"dtype {text!r:.40}")
    dtype: np.dtype[Any] = np.dtype(text)
    return dtype


def _own(group: Any, name: str) -> Any:
    """Return a member of a group that lies in the same file; links to other files, and to other places, are refused."""
    import h5py

    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise ValueError(f"{name} is not in the file itself")
    return group[name]


def _number(group: Any, name: str) -> int:
    """Return an attribute of one integer; netCDF writes arrays of one."""
    return int(np.asarray(group.attrs[name]).item())


def _count(number: Any) -> int:
    """Return a count that memory can be taken for."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= 1 << 40:
        raise ValueError(f"{number!r} is no count")
    return number


class Texts(Sequence[str]):
    """Many texts in one buffer, each decoded when it is asked for.

    >>> Texts(np.frombuffer(b"abc", np.uint8), np.array([1, 2]))[1]
    'bc'
    """

    __slots__ = ("_buffer", "_ends")

    def __init__(self, buffer: np.ndarray, lengths: np.ndarray) -> None:
        self._buffer = buffer.tobytes()
        self._ends = np.concatenate([[0], np.cumsum(lengths)])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, slice):
            return [self[i] for i in range(len(self))[item]]
        number = range(len(self))[item]
        return self._buffer[self._ends[number] : self._ends[number + 1]].decode("utf-8", "surrogateescape")

    def text(self) -> str:
        """Return all texts as one."""
        return self._buffer.decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        ends = self._ends.tolist()
        buffer = self._buffer
        for start, stop in pairwise(ends):
            yield buffer[start:stop].decode("utf-8", "surrogateescape")


def stored_generation(path: str) -> int | None:
    """Return the generation of an index of ours, None of any other file and where there is none."""
    from aggarray.formats.hdf5.format import holds_group, opened

    if not is_file(path):  # opening a pipe would wait for its other end
        return None
    try:
        if not holds_group(path, GROUP):
            return None
        with LIBRARY_LOCK, opened(path) as file:
            if file.get(GROUP, getlink=True) is None:
                return None
            return _number(file[GROUP], "generation") if "schema" in file[GROUP].attrs else None
    except KeyError as error:
        # promise: index-damaged
        raise IndexFileError(f"{path}: damaged: {error_text(error)}; restore the index or save it again") from error
    except LIBRARY_ERRORS:
        return None


def check_cells(count: int, path: str) -> None:
    """Raise IndexFileError for a matrix of more cells than any can have."""
    if count > MAX_CELLS:
        raise IndexFileError(f"{path}: an array of {count} partitions, more than {MAX_CELLS}: not an index that aggarray wrote")
