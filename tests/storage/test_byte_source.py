"""Byte ranges of files: few calls, and changes, errors, threads and forks."""

import errno
import itertools
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggarray.errors import FormatError, MissingFileError
from aggarray.options import set_options
from aggarray.storage import byte_source as local
from aggarray.storage.byte_source import (
    GAP,
    SPAN,
    close_sources,
    open_once,
    open_source,
    read_into,
    read_ranges,
    shared_source,
)
from aggarray.storage.ranges import merge_ranges

DATA = np.random.default_rng(0).integers(0, 256, 1_000_000, "u1").tobytes()


@pytest.fixture(autouse=True)
def nothing_open() -> Iterator[None]:
    close_sources()
    yield
    close_sources()


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "a").write_bytes(DATA)
    return str(tmp_path / "a")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("source") / "a"
    path.write_bytes(DATA)
    return str(path)


def descriptors(folder: Path) -> int:
    """Return how many files of a folder this process has open."""
    result = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            result += os.readlink(f"/proc/self/fd/{name}").startswith(str(folder))
        except FileNotFoundError:
            continue
    return result


linux = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files by /proc")


@given(st.lists(st.tuples(st.integers(0, len(DATA)), st.integers(0, 200_000)), max_size=20))
def test_any_ranges(shared: str, given_ranges: list[tuple[int, int]]) -> None:
    ranges = [(o, min(n, len(DATA) - o)) for o, n in given_ranges]
    result = read_ranges(shared, ranges)
    assert [bytes(f) for f in result] == [DATA[o : o + n] for o, n in ranges]
    assert all(f.readonly for f in result)
    whole = merge_ranges(ranges, GAP, SPAN)
    assert sorted(i for s in whole for i in s.members) == [i for i, r in enumerate(ranges) if r[1]]
    assert all(b.offset > a.offset + a.size + GAP or b.offset + b.size - a.offset > SPAN for a, b in itertools.pairwise(whole))


@given(st.lists(st.tuples(st.integers(0, 1 << 27), st.integers(0, 1 << 25)), max_size=30))
def test_spans_are_bounded(ranges: list[tuple[int, int]]) -> None:
    for span in merge_ranges(ranges, GAP, SPAN):
        assert span.size <= SPAN or len(span.members) == 1
        for i in span.members:
            assert span.offset <= ranges[i][0] and sum(ranges[i]) <= span.offset + span.size


def test_neighbours_are_read_in_one_call(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    pread = os.pread

    def counted(descriptor: int, size: int, offset: int) -> bytes:
        calls.append((offset, size))
        return pread(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", counted)
    ranges = [(i * 1000, 900) for i in range(100)]
    random.Random(1).shuffle(ranges)
    assert [bytes(f) for f in read_ranges(file, ranges)] == [DATA[o : o + n] for o, n in ranges]
    assert calls == [(0, 99_900)]
    calls.clear()
    read_ranges(file, [(0, 10), (10 + GAP, 5), (10 + GAP + 5 + GAP + 1, 5)])
    assert calls == [(0, 15 + GAP), (16 + 2 * GAP, 5)]
    calls.clear()
    monkeypatch.setattr(local, "SPAN", 1000)
    read_ranges(file, [(0, 400), (400, 600), (1000, 1)])
    assert calls == [(0, 1000), (1000, 1)]
    calls.clear()
    assert bytes(read_ranges(file, [(7, 5000)])[0]) == DATA[7:5007]
    assert calls == []


def test_numpy_numbers(file: str) -> None:
    ranges = np.array([[5, 10], [2, 4]], np.uint64)
    assert [bytes(f) for f in read_ranges(file, [(r[0], r[1]) for r in ranges])] == [DATA[5:15], DATA[2:6]]


def test_empty_ranges(file: str) -> None:
    assert read_ranges(file, []) == []
    assert [bytes(f) for f in read_ranges(file, [(0, 0), (len(DATA), 0), (1 << 80, 0)])] == [b""] * 3
    read_into(file, 10, np.empty((3, 0)))
    read_into(file, 10, bytearray())


@pytest.mark.parametrize("offset", [len(DATA) - 9, len(DATA), 1 << 40, (1 << 63) - 1, 1 << 63, 1 << 70])
def test_beyond_the_end(file: str, offset: int) -> None:
    words = rf"truncated: 10 bytes at offset {offset} requested of {len(DATA)} bytes \({file}\)"
    with pytest.raises(FormatError, match=words):
        read_ranges(file, [(0, 5), (offset, 10)])
    with pytest.raises(FormatError, match=words):
        read_into(file, offset, bytearray(10))


def test_sizes_that_no_memory_holds(file: str) -> None:
    with pytest.raises(FormatError, match="truncated: 1125899906842624 bytes at offset 3"):
        read_ranges(file, [(3, 1 << 50)])


@pytest.mark.parametrize("wrong", [(-1, 5), (5, -1), (-5, 0)])
def test_negative(file: str, wrong: tuple[int, int]) -> None:
    with pytest.raises(FormatError, match="no such range"):
        read_ranges(file, [wrong])


@pytest.mark.parametrize("dtype", ["u1", "<f4", ">f8", "c16", "M8[s]", "S3", [("a", "<i2"), ("b", "u1")]], ids=str)
def test_into_arrays(file: str, dtype: Any) -> None:
    array = np.zeros((10, 7), dtype)
    read_into(file, 33, array[2:5])
    assert array[2:5].tobytes() == DATA[33 : 33 + array[2:5].nbytes]
    assert not array[:2].tobytes().strip(b"\0") and not array[5:].tobytes().strip(b"\0")
    memory = bytearray(20)
    read_into(file, 1, memoryview(memory)[5:10])
    assert memory == bytes(5) + DATA[1:6] + bytes(10)


@pytest.mark.parametrize("wrong", [np.zeros((4, 4))[:, 1], np.zeros((4, 4)).T, np.broadcast_to(np.zeros(1), 4), b"abc"])
def test_into_other_buffers(file: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match="writable and contiguous"):
        read_into(file, 0, wrong)


@pytest.mark.parametrize("preadv", [True, False])
def test_calls_that_read_less(file: str, preadv: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pread = os.pread
    if preadv:
        monkeypatch.setattr(os, "preadv", lambda d, views, offset: _few(pread, d, views[0], offset), raising=False)
    else:
        monkeypatch.delattr(os, "preadv", raising=False)
    monkeypatch.setattr(os, "pread", lambda d, size, offset: pread(d, min(size, 1000), offset))
    assert bytes(read_ranges(file, [(7, 20_000)])[0]) == DATA[7:20_007]
    out = np.zeros(5000, "u1")
    read_into(file, 3, out)
    assert out.tobytes() == DATA[3:5003]


@pytest.mark.parametrize(("threads", "expected"), [(1, 1), (3, 3), (50, 12)])
def test_large_buffers_are_filled_by_several_threads(
    file: str, threads: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_SHARE", 1000)
    fillers, read_at = set(), local._read_at

    def noted(descriptor: int, view: memoryview, offset: int) -> int:
        fillers.add(threading.get_ident() if threads == 1 else offset)
        return read_at(descriptor, view, offset)

    monkeypatch.setattr(local, "_read_at", noted)
    out = np.zeros(12_345, "u1")
    with set_options(threads=threads):
        read_into(file, 3, out)
    assert out.tobytes() == DATA[3:12_348] and len(fillers) == expected


def test_an_error_in_any_thread_is_raised(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_SHARE", 1000)
    read_at = local._read_at

    def fails(descriptor: int, view: memoryview, offset: int) -> int:
        if offset > 2000:
            raise OSError(errno.EIO, "I/O error")
        return read_at(descriptor, view, offset)

    monkeypatch.setattr(local, "_read_at", fails)
    with set_options(threads=4), pytest.raises(FormatError, match="cannot be read: I/O error"):
        read_into(file, 0, bytearray(4000))


def test_without_more_threads(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_SHARE", 1000)
    start, started = threading.Thread.start, []

    def refuses(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuses)
    out = np.zeros(5000, "u1")
    with set_options(threads=4):
        read_into(file, 3, out)
    assert out.tobytes() == DATA[3:5003] and len(started) == 1 and not started[0].is_alive()


def _few(pread: Any, descriptor: int, view: memoryview, offset: int) -> int:
    data = pread(descriptor, min(len(view), 777), offset)
    view[: len(data)] = data
    return len(data)


def test_missing(tmp_path: Path, file: str) -> None:
    for path in (tmp_path / "none", Path(file) / "below"):
        with pytest.raises(MissingFileError, match=f"no such file or folder: {path}"):
            read_ranges(str(path), [(0, 1)])
    read_ranges(file, [(0, 1)])
    os.remove(file)
    with pytest.raises(MissingFileError, match="no such file"):
        read_ranges(file, [(0, 1)])


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(FormatError, match="not a file"):
            read_ranges(str(path), [(0, 1)])
    with pytest.raises(FormatError, match="cannot be opened"):
        read_ranges("a\0b", [(0, 1)])
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(FormatError, match="cannot be opened"):
        read_ranges(str(tmp_path / "loop"), [(0, 1)])
    with pytest.raises(FormatError, match=r"cannot be opened.*nobody://h/a\.nc"):
        read_ranges("nobody://h/a.nc", [(0, 1)])


def test_errors_of_the_disk(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    monkeypatch.setattr(os, "preadv", broken, raising=False)
    with pytest.raises(FormatError, match=rf"cannot be read: Input/output error \({file}\)"):
        read_ranges(file, [(0, 1)])
    with pytest.raises(FormatError, match="cannot be read"):
        read_into(file, 0, bytearray(3))


def test_replaced(file: str, tmp_path: Path) -> None:
    status = os.stat(file)
    with shared_source(file) as before:
        (tmp_path / "b").write_bytes(b"z" * len(DATA))
        os.utime(tmp_path / "b", ns=(status.st_mtime_ns, status.st_mtime_ns))
        os.replace(tmp_path / "b", file)
        with shared_source(file) as after:
            assert after.state[:2] == before.state[:2] and after.state[2] != before.state[2]
            assert bytes(after.read_ranges([(0, 3)])[0]) == b"zzz"
        # Who began before goes on reading what there was.
        assert bytes(before.read_ranges([(0, 3)])[0]) == DATA[:3]
    assert bytes(read_ranges(file, [(5, 2)])[0]) == b"zz"


def test_changed_and_truncated(file: str) -> None:
    assert bytes(read_ranges(file, [(0, 3)])[0]) == DATA[:3]
    with open(file, "r+b") as handle:
        handle.write(b"new")
        handle.truncate(500)
    assert bytes(read_ranges(file, [(0, 3)])[0]) == b"new"
    with pytest.raises(FormatError, match="truncated: 3 bytes at offset 498 requested of 500 bytes"):
        read_ranges(file, [(498, 3)])
    with open(file, "ab") as handle:
        handle.write(b"more")
    assert bytes(read_ranges(file, [(500, 4)])[0]) == b"more"


def test_truncated_while_it_is_read(file: str) -> None:
    with shared_source(file) as there:
        os.truncate(file, 100)
        for read in (lambda: there.read_ranges([(50, 100)]), lambda: there.read_into(50, bytearray(100))):
            with pytest.raises(FormatError, match="truncated: 100 bytes at offset 50 requested of 100 bytes"):
                read()


@linux
def test_many_files_with_few_descriptors(tmp_path: Path) -> None:
    paths = [tmp_path / str(i) for i in range(50)]
    for i, path in enumerate(paths):
        path.write_bytes(bytes([i]) * 100)
    with set_options(open_files=4):
        for path in paths * 2:
            assert read_ranges(str(path), [(0, 1)])[0][0] == int(path.name)
            assert descriptors(tmp_path) <= 4
        with shared_source(str(paths[0])) as first:
            # One in use is not closed, however many others are read.
            for path in paths[1:]:
                read_ranges(str(path), [(0, 1)])
            assert first.read_ranges([(99, 1)])[0][0] == 0
            assert descriptors(tmp_path) <= 4
            close_sources()
            assert descriptors(tmp_path) == 1 and first.read_ranges([(9, 1)])[0][0] == 0
        del first  # the last reference
    assert descriptors(tmp_path) == 0


@linux
def test_threads(tmp_path: Path) -> None:
    paths = [tmp_path / str(i) for i in range(12)]
    for i, path in enumerate(paths):
        path.write_bytes(bytes([i]) * 1000)
    wrong: list[str] = []
    stop = time.monotonic() + 1

    def work(seed: int) -> None:
        choice = random.Random(seed)
        while time.monotonic() < stop:
            path = choice.choice(paths)
            if choice.random() < 0.1:
                beside = path.with_suffix(f".{seed}")
                beside.write_bytes(bytes([int(path.name)]) * 1000)
                os.replace(beside, path)
            result = bytes(read_ranges(str(path), [(choice.randrange(900), 100)])[0])
            if result != bytes([int(path.name)]) * 100:
                wrong.append(path.name)

    with set_options(open_files=3):
        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == [] and descriptors(tmp_path) <= 3
    close_sources()
    assert descriptors(tmp_path) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_forks(file: str) -> None:
    cache = local._sources
    with shared_source(file) as there:
        # A thread that holds the lock while another forks does not exist in the child.
        with cache._lock:
            child = os.fork()
            if not child:
                done = 1
                try:
                    fine = (
                        bytes(read_ranges(file, [(9, 9)])[0]) == DATA[9:18]
                        and bytes(there.read_ranges([(1, 2)])[0]) == DATA[1:3]
                    )
                    close_sources()
                    fine = fine and bytes(there.read_ranges([(1, 2)])[0]) == DATA[1:3]
                    done = 0 if fine and not cache._items else 2
                finally:
                    os._exit(done)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert bytes(there.read_ranges([(9, 9)])[0]) == DATA[9:18]


def test_a_file_replaced_between_looking_and_opening(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b").write_bytes(b"other")
    real = os.open

    def late(path: str, flags: int) -> int:
        if os.path.exists(tmp_path / "b"):
            os.replace(tmp_path / "b", file)
        return real(path, flags)

    monkeypatch.setattr(os, "open", late)
    with shared_source(file) as source:
        assert source.state.size == 5


def test_a_file_is_opened_once_during_a_block(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    with open_once(str(path)):
        with open_source(str(path)) as first, open_once(str(path)):
            descriptor = first.descriptor  # type: ignore[attr-defined]
            with open_source(str(path)) as second:
                assert second.descriptor == descriptor and second.pread(2, 1) == b"bc"  # type: ignore[attr-defined]
        os.fstat(descriptor)  # still open
        with open_source(str(tmp_path / "a")) as third:
            assert third.state == first.state and third.size == 3
    with pytest.raises(OSError):
        os.fstat(descriptor)
    with open_source(str(path)) as alone:
        assert alone.pread(3, 0) == b"abc"


def test_a_file_that_is_missing_within_a_block(tmp_path: Path) -> None:
    with open_once(str(tmp_path / "a")), pytest.raises(MissingFileError, match="no such file or folder"):
        open_source(str(tmp_path / "a"))
