"""Fuzz target: accepted dimension dictionaries are valid, all others are refused.

An input is ``{"version": ..., "dim_data": [of each process], "shapes": [...] or null, "buffer": ...}``; `trees.unfolded`
describes the notation of tuples, arrays and other values that JSON lacks.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from aggarray.dap import Distribution, LocalArray, Map, convert, num_owned_indices, validate, validate_all
from tests.fuzz.target import Target, check, refusing
from tests.fuzz.trees import dumped, loaded, mutator, unfolded
from tests.support.paths import FIXTURES

_EXAMPLES = FIXTURES / "dap_examples.json"
#: Limits of elements and processes for checks of every single element.
_ELEMENTS, _PROCESSES = 1 << 12, 64
_VERSIONS = ("0.9.0", "0.10.0")
_NAMES = """
    dist_type size proc_grid_size proc_grid_rank start stop padding periodic block_size indices one_to_one b c u n 0.9.0
    0.10.0 1.0.0
"""
_WORDS: tuple[Any, ...] = (
    *_NAMES.split(),
    *(
        {},
        {"$tuple": [{}]},
        [{}],
        {"$scalar": ["i4", 2]},
        {"$scalar": ["f8", 2.0]},
        {"$array": ["i8", [0, 1]]},
    ),
    *(
        {"$array": ["u8", [2**64 - 1]]},
        {"$array": ["f4", [0.5]]},
        {"$array": ["i4", [[0, 1]]]},
    ),
    *(
        {"$array": ["O", [1, "a"]]},
        {"$array": ["M8[s]", [1]]},
        {"$array": ["T", ["a"]]},
        {"$range": [3]},
    ),
    *(
        {"$bytes": "0001"},
        {"$complex": [1, 2]},
        {"$set": [0]},
        {"$keys": [[1, 2]]},
        {"$scalar": ["?", True]},
    ),
    *(
        {"$tuple": [1, 1]},
        [1, 1],
        {"$zeros": ["f8", [2, 3]]},
        {"$zeros": ["O", [2]]},
        {"$bytearray": "000102"},
    ),
)


def run(data: bytes) -> bool:
    """Import the dictionaries of all processes, and the export of one, in every way."""
    result = loaded(data)
    if not isinstance(result, dict):
        return False
    given = unfolded(result)
    version, dim_data, shapes = given.get("version"), given.get("dim_data"), given.get("shapes")
    with refusing() as refused:
        _taken_in(Distribution.from_dim_data(dim_data, version, shapes))
    for one in dim_data[:4] if isinstance(dim_data, list) else ():
        _alone(one, version, shapes, given.get("buffer"))
    exports = [{"__version__": version, "buffer": given.get("buffer"), "dim_data": one} for one in _listed(dim_data)]
    with refusing():
        validate_all(exports)
    return not refused


def _listed(given: Any) -> list[Any]:
    return given[:_PROCESSES] if isinstance(given, list) else []


def _taken_in(found: Distribution) -> None:
    """Check that every element has one owner, and that an export round-trips."""
    if any(m.nprocs > _PROCESSES for m in found.maps) or found.nprocs > _PROCESSES:
        return
    for one in found.maps:
        if one.size <= _ELEMENTS:
            _tiles(one)
    for version in _VERSIONS:
        with refusing():
            ranks = [found.dim_data(rank, version) for rank in range(found.nprocs)]
            # In 0.9.0 the size stated by one process is accepted if no buffer contradicts it.
            again = Distribution.from_dim_data(ranks, version)
            check(again.shape == found.shape and again.grid == found.grid, f"{found!r:.300} reads as {again!r:.300}")
            for a, b in zip(again.maps, found.maps, strict=True):
                if a.size <= _ELEMENTS:
                    check(all((a.indices(r) == b.indices(r)).all() for r in range(a.nprocs)), f"{a!r:.200} was {b!r:.200}")


def _tiles(one: Map) -> None:
    """Check that the processes own every element, without overlap for block and cyclic maps, and agree on the owners."""
    owned = [one.owned(rank) for rank in range(one.nprocs)]
    for rank, elements in enumerate(owned):
        check(len(elements) == one.num_owned(rank), f"{one!r:.200}: {len(elements)} owned, {one.num_owned(rank)} counted")
        check(set(elements.tolist()) <= set(one.indices(rank).tolist()), f"{one!r:.200}: owned, but not held")
    if one.dist_type in ("b", "c"):
        every = np.sort(np.concatenate(owned)) if owned else np.zeros(0, np.int64)
        check(every.tolist() == list(range(one.size)), f"{one!r:.200} does not tile")
        for rank, elements in enumerate(owned):
            check((one.owner(elements) == rank).all(), f"{one!r:.200}: another owner than who owns")
            ranks, local = one.to_local(elements)
            check((ranks == rank).all() and (one.to_global(rank, local) == elements).all(), f"{one!r:.200}: not found again")


def _alone(dim_data: Any, version: Any, shapes: Any, buffer: Any) -> None:
    """Import the dictionaries of one process in every way."""
    shape = shapes[0] if isinstance(shapes, list) and shapes else None
    for target in _VERSIONS:
        with refusing():
            made = convert(dim_data, target, shape, version)
            convert(made, version, shape, target)
    entries: Sequence[Any] = dim_data if isinstance(dim_data, tuple | list) else ()
    for entry in entries[:4]:
        with refusing():
            check(num_owned_indices(entry, version) >= 0, f"{entry!r:.200} owns less than nothing")
    export = {"__version__": version, "buffer": buffer, "dim_data": dim_data}
    with refusing():
        validate(export)
        local = LocalArray.from_distarray(export)
        check(local.shape == local.buffer.shape == local.distribution.local_shape(local.rank), f"{local!r:.200}: another shape")
        again = LocalArray.from_distarray(local.__distarray__())
        check(again.shape == local.shape and again.rank == local.rank, f"{local!r:.200} reads as {again!r:.200}")


def _with_buffer(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a dictionary with its indices as an array, as exporters provide them."""
    return {k: {"$array": ["i8", v]} if k == "indices" else v for k, v in entry.items()}


def seeds() -> dict[str, bytes]:
    """Return the worked examples of both versions of the protocol, and several exports."""
    examples = json.loads(_EXAMPLES.read_text(encoding="utf-8"))
    result = {}
    for name, example in examples.items():
        ranks = [{"$tuple": list(map(_with_buffer, entries))} for entries in example["dim_data"]]
        shapes = example.get("local_shapes")
        buffer = {"$zeros": ["f8", shapes[0]]} if shapes else None
        given = {"version": example["version"], "dim_data": ranks, "shapes": shapes, "buffer": buffer}
        if len(dumped(given)) < 4096:
            result[f"example_{name}"] = dumped(given)
    plain = {"version": "0.10.0", "dim_data": [{"$tuple": [{}, {}]}], "shapes": [[2, 3]], "buffer": {"$zeros": ["f8", [2, 3]]}}
    zero = {"version": "0.10.0", "dim_data": [{"$tuple": []}], "shapes": [[]], "buffer": {"$zeros": ["f8", []]}}
    return {**result, "plain": dumped(plain), "zero_dimensional": dumped(zero)}


TARGETS = (Target("dim_data", run, seeds, mutator(_WORDS), 4096, trees=True),)
