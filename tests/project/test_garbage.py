"""Pauses of Python's garbage collection."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import aggarray as aa
from aggarray.garbage import lasting_objects, pause_garbage_collection
from tests.support.netcdf import cube, write

pytestmark = pytest.mark.quick


class Node:
    """Object of a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _searching() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.unfreeze()
    gc.enable()


def is_old(node: Node) -> bool:
    return any(node is item for item in gc.get_objects(generation=2))


@pytest.mark.parametrize("pause", [pause_garbage_collection, lasting_objects])
def test_collection_is_paused_and_resumed(pause: Callable[[], AbstractContextManager[None]]) -> None:
    with pause():
        assert not gc.isenabled()
        with pause():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="inside"), pause():
        raise ValueError("inside")
    assert gc.isenabled()
    gc.disable()
    with pause():
        pass
    assert not gc.isenabled()


def test_the_last_thread_resumes_collection() -> None:
    second = pause_garbage_collection()
    with pause_garbage_collection():
        second.__enter__()
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_a_finalizer_may_pause_collection_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_enabled() -> bool:  # garbage may be collected whenever objects are created
        monkeypatch.undo()
        with pause_garbage_collection():
            return True

    monkeypatch.setattr(gc, "isenabled", is_enabled)
    with pause_garbage_collection():
        pass
    assert gc.isenabled()


def test_a_forked_process_collects_garbage() -> None:
    with pause_garbage_collection():
        process = os.fork()
        if process == 0:
            os._exit(not gc.isenabled())
        assert os.waitpid(process, 0)[1] == 0 and not gc.isenabled()
    assert gc.isenabled()


def test_lasting_objects_count_as_old() -> None:
    with pause_garbage_collection():
        young = Node()
    with lasting_objects():
        old = Node()
    assert is_old(old) and is_old(young) and not is_old(Node())
    assert not gc.get_freeze_count()


def test_objects_that_the_caller_froze_stay_frozen() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    with lasting_objects():
        node = Node()
    assert gc.get_freeze_count() >= frozen - 100  # some were used up meanwhile
    assert not is_old(node)


def test_garbage_of_the_block_is_found_later() -> None:
    with lasting_objects():
        Node()
    gc.collect()
    assert not any(type(item) is Node for item in gc.get_objects())


def test_garbage_between_opened_files_is_collected(tmp_path: Path) -> None:
    path = write(tmp_path / "a.nc", cube([1]))
    for source in (path, [path]):
        for _ in range(200):
            aa.open(source)
            for _ in range(10):
                Node()
        assert sum(type(item) is Node for item in gc.get_objects()) < 1000
