"""Columns of matrices are consistent when collected, selected and pickled."""

import pickle
import tracemalloc

import numpy as np
import pytest

from aggarray.cf.encoding import encoding
from aggarray.errors import AggregationError
from aggarray.partition.matrix import (
    NO_REFERENCES,
    Matrix,
    Parts,
    References,
    Step,
    Template,
    check_matrix,
    single,
)
from aggarray.partition.reference_builder import ReferenceBuilder


def template(*shape: int, directions: tuple[bool, ...] | None = None, dtype: str = "f4") -> Template:
    names = tuple(f"d{i}" for i in range(len(shape)))
    forward = directions or (True,) * len(shape)
    return Template(shape, names, forward, "K", None, encoding(np.dtype(dtype), {}), "netCDF4")


def rows(references: References) -> list[tuple[str | None, object, Template]]:
    """Every sub-array as plain objects."""
    result: list[tuple[str | None, object, Template]] = []
    for row in range(len(references)):
        uri, code = references.uri_of(row), references.variable[row]
        source: object = references.memory[code].tolist() if uri is None else references.variables[code]
        result.append((uri, source, references.template_of(row)))
    return result


def collected() -> References:
    builder = ReferenceBuilder()
    for uri, name in (("/a", "v"), ("/b", "v"), ("/a", "w")):
        builder.add(template(2), uri, name)
    builder.add(template(3), None, np.arange(3))
    builder.add(template(2), "/c", "v")
    return builder.build()


def test_names_and_templates_are_unique() -> None:
    result = collected()
    assert (result.uris, result.variables, len(result.templates), len(result.memory)) == (("/a", "/b", "/c"), ("v", "w"), 2, 1)
    assert [r[:2] for r in rows(result)] == [("/a", "v"), ("/b", "v"), ("/a", "w"), (None, [0, 1, 2]), ("/c", "v")]
    assert all(column.dtype == np.int32 for column in (result.uri, result.variable, result.template))
    assert rows(ReferenceBuilder().build()) == rows(NO_REFERENCES) == []


def test_extend_and_take() -> None:
    builder = ReferenceBuilder()
    assert builder.add(template(1), "/b", "x") == 0
    assert builder.extend(collected()) == 1
    assert builder.extend(single(template(4), None, np.ones(4)).references) == 6
    assert builder.extend(single(template(4), "/d", "v").references) == 7
    assert builder.extend(NO_REFERENCES) == 8
    result = builder.build()
    assert rows(result)[1:6] == rows(collected()) and rows(result)[6][:2] == (None, [1.0] * 4)
    for chosen in ([3, 6, 3], [0, 2], [], [7]):
        taken = result.take(np.array(chosen, np.int64))
        assert rows(taken) == [rows(result)[i] for i in chosen]
        assert len(taken.uris) == len({rows(result)[i][0] for i in chosen} - {None})


def test_pickles_hold_used_references_only() -> None:
    n = 10_000
    uris = np.array([f"/archive/{i}.nc" for i in range(n)])
    zero = np.zeros(n, np.int32)
    references = References(uris, ("v",), (template(1),), (), np.arange(n, dtype=np.int32), zero, zero)
    refs = np.array([7, -1, 9000, 7], np.int32)
    matrix = Matrix(("d0",), (True,), (np.arange(5),), references, refs, Parts({"d0": np.arange(4)}))
    data = pickle.dumps(matrix)
    assert len(data) < 3000
    again = pickle.loads(data)
    assert again.refs.tolist() == [0, -1, 1, 0] and again.references.uris == ("/archive/7.nc", "/archive/9000.nc")
    assert again.parts.starts["d0"].tolist() == [0, 1, 2, 3] and again.shape == (4,)
    whole = single(template(2), "/a", "v")
    assert whole.compact() is whole


def test_parts() -> None:
    parts = Parts({"x": np.array([5, 6])}, {"x": np.array([2, 0]), "y": np.array([1, 3])}, (np.array([1, 4]),))
    assert (parts.at("x", 0), parts.at("x", 1), parts.at("y", 1), parts.at("z", 1)) == ((5, 2), (6, 0), (0, 3), (0, 1))
    assert parts.take(np.array([1, 1, 0])).starts["x"].tolist() == [6, 6, 5]
    assert Parts().take(np.array([3])).starts == {}


def test_matrix() -> None:
    builder = ReferenceBuilder()
    builder.add(template(2, 3), "/a", "v")
    builder.add(template(2, 3, directions=(False, True)), "/b", "v")
    matrix = Matrix(
        ("d0", "d1"), (True, True), (np.array([0, 2, 4, 6]), np.array([0, 3])), builder.build(), np.array([0, 1, -1])
    )
    assert (matrix.shape, matrix.cells, matrix.axis("d1")) == ((6, 3), (3, 1), 1)
    assert matrix.flips(0).tolist() == [False, True, False] and matrix.flips(0, np.array([1, 1])).tolist() == [True, True]
    assert matrix.flips(1).tolist() == [False] * 3
    check_matrix(matrix)
    with pytest.raises(AggregationError, match=r"'z'.*d0, d1"):
        matrix.axis("z")
    for refs, words in (([0, 1], "one per cell"), ([0, 1, 2], "reference 2 is out of range for 2")):
        with pytest.raises(AggregationError, match=words):
            check_matrix(Matrix(matrix.dimensions, matrix.directions, matrix.edges, matrix.references, np.array(refs)))


def test_last_step() -> None:
    plain = template(1)
    assert plain.last_step == Step("K", None, np.dtype("f4"))
    assert hash(plain) == hash(template(1)) and plain == template(1) != template(2)


@pytest.mark.heavy
def test_a_million_partitions_take_little_memory() -> None:
    n = 1_000_000
    tracemalloc.start()
    uris = np.arange(n).astype("U7")
    number, zero = np.arange(n, dtype=np.int32), np.zeros(n, np.int32)
    references = References(uris, ("v",), (template(1),), (), number, zero, zero)
    matrix = Matrix(("d0",), (True,), (np.arange(n + 1),), references, number)
    check_matrix(matrix)
    assert not matrix.flips(0, np.array([5])).any()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000_000 and matrix.references.uri_of(999_999) == "999999"
