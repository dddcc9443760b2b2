"""Pauses of Python's garbage collection."""

import gc
from collections.abc import Iterator

import pytest

from aggarray.garbage import pause_garbage_collection

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


@pytest.mark.parametrize("lasting", [False, True])
def test_the_search_is_paused_and_resumed(lasting: bool) -> None:
    with pause_garbage_collection(lasting=lasting):
        assert not gc.isenabled()
        with pause_garbage_collection(lasting=lasting):
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="inside"), pause_garbage_collection(lasting=lasting):
        raise ValueError("inside")
    assert gc.isenabled()
    gc.disable()
    with pause_garbage_collection(lasting=lasting):
        pass
    assert not gc.isenabled()


@pytest.mark.parametrize("lasting", [False, True])
def test_lasting_objects_count_as_old(lasting: bool) -> None:
    with pause_garbage_collection(lasting=lasting):
        node = Node()
    assert is_old(node) == lasting
    assert not gc.get_freeze_count()


def test_objects_that_the_caller_froze_stay_frozen() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    with pause_garbage_collection(lasting=True):
        node = Node()
    assert gc.get_freeze_count() >= frozen - 100  # some were used up meanwhile
    assert not is_old(node)


def test_garbage_of_the_block_is_found_later() -> None:
    with pause_garbage_collection(lasting=True):
        Node()
    gc.collect()
    assert not any(type(item) is Node for item in gc.get_objects())
