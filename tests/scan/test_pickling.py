"""Structures round-trip through a stream, with equal parts as one object."""

import io
import pickle
from pathlib import Path

import numpy as np
import pytest

from aggarray.errors import MissingFileError
from aggarray.formats import scan
from aggarray.formats.base import Structure, Variable
from aggarray.scan import pickling
from aggarray.scan.pickling import MARK, Interner, Receiver, Sender, skip_to_mark
from tests.support.netcdf import cube, write

pytestmark = pytest.mark.quick


def sent(*items: object) -> list[object]:
    stream = io.BytesIO()
    sender = Sender(stream)
    for item in items:
        sender.send(item)
    stream.seek(0)
    receiver = Receiver(stream)
    result = [receiver.receive() for _ in items]
    with pytest.raises(EOFError):
        receiver.receive()
    return result


def assert_same(a: Structure, b: Structure) -> None:
    assert repr(dict(a.attrs)) == repr(dict(b.attrs))
    for name in ("uri", "format", "groups", "skipped", "sizes", "stamp", "assumed"):
        assert getattr(a, name) == getattr(b, name)
    assert [type(v) for v in a.attrs.values()] == [type(v) for v in b.attrs.values()]
    for x, y in zip(a.variables, b.variables, strict=True):
        assert (x.name, x.dtype, x.shape, x.dimensions) == (y.name, y.dtype, y.shape, y.dimensions)
        assert repr(dict(x.attrs)) == repr(dict(y.attrs)) and [*x.attrs] == [*y.attrs]
        assert (x.values is None) == (y.values is None)
        if x.values is not None and y.values is not None:
            np.testing.assert_array_equal(x.values, y.values)
            assert x.values.dtype == y.values.dtype and not y.values.flags.writeable


def structures(folder: Path) -> list[Structure]:
    attrs = [{"n": np.int32(1), "t": "same"}, {"n": np.float64(1), "t": "same"}, {"n": np.array([1, 2]), "t": ["a", "b"]}]
    names = {"name": (("lat",), np.array(["a", "b", "c"]), {})}
    paths = [write(folder / f"{i}.nc", cube([i], **names), attrs=attrs[i % 3]) for i in range(6)]
    return list(map(scan, paths))


def test_objects_round_trip(tmp_path: Path) -> None:
    given = structures(tmp_path)
    result = sent(*given, MissingFileError("a: gone"), None, [1, 2])
    for a, b in zip(given, result[:-3], strict=True):
        assert isinstance(b, Structure)
        assert_same(a, b)
    assert isinstance(result[-3], MissingFileError) and str(result[-3]) == "a: gone"
    assert result[-2:] == [None, [1, 2]]


def test_equal_parts_are_sent_once(tmp_path: Path) -> None:
    given = structures(tmp_path)
    result = sent(*given)
    lats = {id(next(v for v in s.variables if v.name == "lat")) for s in result if isinstance(s, Structure)}
    assert len(lats) == 1
    stream, lengths = io.BytesIO(), []
    sender = Sender(stream)
    for structure in given:
        before = stream.tell()
        sender.send(structure)
        lengths.append(stream.tell() - before)
    assert max(lengths[3:]) < lengths[0] / 2 and max(lengths[3:]) < len(pickle.dumps(given[3], 5)) / 2


def test_both_ends_clear_their_memos_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickling, "_FORGET", 4)
    given = structures(tmp_path) * 3
    for a, b in zip(given, sent(*given), strict=True):
        assert isinstance(b, Structure)
        assert_same(a, b)


def test_objects_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one, and one long after the last write, do not wait."""
    clock = [0.0]
    monkeypatch.setattr(pickling.time, "monotonic", lambda: clock[0])
    raw = io.BytesIO()
    sender, written = Sender(io.BufferedWriter(raw)), []
    for time, more in ((0.01, True), (0.02, True), (0.03, False), (0.05, True), (0.09, True), (0.2, True)):
        clock[0] = time
        sender.send("text", more)
        written.append(raw.tell())
    assert [a == b for a, b in zip([0, *written], written, strict=False)] == [True, True, False, True, False, False]


def test_type_and_sign_are_compared() -> None:
    share = Interner()
    values = [np.float32(0.0), np.float32(-0.0), np.int32(0), np.float64(0.0), 0, 0.0, False, np.zeros(1), "0", ["0"]]
    for value in values * 2:
        result = share.attrs({"a": value})["a"]
        assert type(result) is type(value) and repr(result) == repr(value)
    one, other = (Variable("v", np.dtype(k), (1,), ("x",), {}, np.zeros(1, k)) for k in ("i4", "u4"))
    assert share.row(one)[5].dtype == np.int32 and share.row(other)[5].dtype == np.uint32


def test_output_before_the_mark_is_skipped() -> None:
    stream = io.BytesIO(b"Welcome!\n\n\x93agg" + MARK + b"rest")
    skip_to_mark(stream)
    assert stream.read() == b"rest"
    with pytest.raises(EOFError):
        skip_to_mark(io.BytesIO(b"no such thing" * 10))
