"""Strategies of maps and distributions, and their properties."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from aggarray.dap import Block, Cyclic, Distribution, Map, Unstructured

VERSIONS = ("0.10.0", "0.9.0")


@st.composite
def blocks(draw: Any, size: int, version: str = "0.10.0") -> Block:
    """Blocks of any widths, with padding up to the neighbours' size."""
    nprocs = draw(st.integers(1, 6))
    cuts = sorted(draw(st.lists(st.integers(0, size), min_size=nprocs - 1, max_size=nprocs - 1)))
    edges = [0, *cuts, size]
    if not draw(st.booleans()):
        return Block(edges, periodic=draw(st.booleans()))
    wrap = version == "0.9.0" and draw(st.booleans())
    counts = np.diff(edges).tolist()
    pads = [[0, 0] for _ in counts]
    for i in range(nprocs - 1):
        most = min(counts[i], counts[i + 1])
        width = draw(st.integers(0, most))
        other = draw(st.integers(0, counts[i])) if version == "0.9.0" else width
        pads[i][1], pads[i + 1][0] = (draw(st.integers(0, counts[i + 1])) if version == "0.9.0" else width), other
    if wrap:
        pads[0][0], pads[-1][1] = draw(st.integers(0, counts[-1])), draw(st.integers(0, counts[0]))
        return Block(edges, pads, True, "wrap")
    left = draw(st.integers(0, counts[0]))
    pads[0][0] = left
    pads[-1][1] = draw(st.integers(0, counts[-1] - (left if nprocs == 1 else 0)))
    return Block(edges, pads, version == "0.10.0" and draw(st.booleans()))


@st.composite
def cyclics(draw: Any, size: int) -> Cyclic:
    """Cyclic maps; blocks may exceed the dimension."""
    return Cyclic(size, draw(st.integers(1, 6)), draw(st.integers(1, size + 2)))


@st.composite
def unstructured(draw: Any, size: int, positions: bool = True) -> Unstructured:
    """Unordered lists, some indices on several processes.

    ``positions``: False for labels out of the range of positions.
    """
    nprocs = draw(st.integers(1, 5))
    labels = list(range(size))
    if not positions:
        labels = draw(st.lists(st.integers(-(2**62), 2**62), min_size=size, max_size=size, unique=True))
    order = draw(st.permutations(labels))
    homes = [draw(st.sets(st.integers(0, nprocs - 1), min_size=1, max_size=2)) for _ in order]
    lists = [[label for label, home in zip(order, homes, strict=True) if rank in home] for rank in range(nprocs)]
    return Unstructured(size, lists, all(len(home) == 1 for home in homes) and draw(st.booleans()))


def maps(size: int, version: str = "0.10.0", positions: bool = True) -> st.SearchStrategy[Any]:
    """Maps of any type over a dimension."""
    return st.one_of(blocks(size, version), cyclics(size), unstructured(size, positions))


@st.composite
def distributions(draw: Any, version: str = "0.10.0", most: int = 3, largest: int = 9) -> Distribution:
    """Distributions of arrays with up to ``most`` dimensions, some of size 0."""
    sizes = draw(st.lists(st.integers(0, largest), max_size=most))
    return Distribution(tuple(draw(maps(size, version)) for size in sizes))


def everywhere(m: Map) -> np.ndarray:
    """Return the global indices of a map, ascending."""
    return np.unique(np.concatenate([m.owned(rank) for rank in range(m.nprocs)]))


def normal(entry: dict[str, Any]) -> dict[str, Any]:
    """Fill in the defaults of a dimension dictionary."""
    defaults = {
        "b": {"padding": (0, 0), "periodic": False},
        "n": {"padding": (0, 0), "periodic": False},
        "c": {"block_size": 1, "periodic": False},
        "u": {"one_to_one": False, "periodic": False},
    }[entry["dist_type"]]
    result = {**defaults, **entry}
    if "padding" in result:
        result["padding"] = tuple(result["padding"])
    if "indices" in result:
        result["indices"] = np.asarray(result["indices"]).tolist()
    return result
