"""Columns of texts equal those that h5py and netCDF4 read."""

from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
from aggarray.formats.base import Variable
from aggarray.formats.hdf5 import h5py_files
from aggarray.formats.hdf5.handle import HDF5File
from aggarray.memory.texts import Texts
from tests.support.examples import examples

STORAGES: list[dict[str, Any]] = [
    {},
    {"chunks": (3, 2)},
    {"chunks": (2, 5), "compression": "gzip"},
]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12) | st.sampled_from(["", "a" * 300])


def column(path: Path, variable: str, shape: tuple[int, ...]) -> list[str] | None:
    """Return the texts of a variable, read without h5py."""
    file = HDF5File(str(path))
    try:
        texts = file.column(Variable(variable, np.dtypes.StringDType(), shape, (), {}))
        return None if texts is None else list(texts)
    finally:
        file.close()


@settings(max_examples=examples(80), deadline=None)
@given(
    texts=st.lists(TEXT, min_size=30, max_size=30),
    gaps=st.sets(st.integers(0, 29)),
    libver=st.sampled_from(["earliest", "latest"]),
    storage=st.sampled_from(STORAGES),
    order=st.permutations(range(6)),
)
def test_variable_length_texts(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str],
    gaps: set[int],
    libver: str,
    storage: dict[str, Any],
    order: list[int],
) -> None:
    """Null references, several writes in any order, and other objects in the same collections."""
    path = tmp_path_factory.mktemp("texts") / "a.h5"
    expected = np.array([text if i not in gaps else "" for i, text in enumerate(texts)], object).reshape(6, 5)
    with h5py.File(path, "w", libver=libver, userblock_size=512 if libver == "latest" else 0) as file:
        made = file.create_dataset("g/v", (6, 5), h5py.string_dtype(), **storage)
        other = file.create_dataset("w", (6,), h5py.string_dtype())
        for row in order:
            for i in range(5):
                if row * 5 + i not in gaps:
                    made[row, i] = expected[row, i]
            other[row] = "between" * row
            made.attrs[f"a{row}"] = "x" * row
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(h5py_files, "open_file", None)
        assert column(path, "g/v", (6, 5)) == expected.ravel().tolist()
        assert column(path, "w", (6,)) == ["between" * row for row in range(6)]
    with h5py.File(path) as file:
        assert file["g/v"].asstr()[...].ravel().tolist() == expected.ravel().tolist()


@pytest.mark.parametrize("storage", [{}, {"zlib": True, "chunksizes": (700,)}, {"chunksizes": (1000,), "shuffle": True}])
@pytest.mark.parametrize("longest", [3, 60, 3000])
@pytest.mark.parametrize("few", [0, 1 << 14])
def test_many_collections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: dict[str, Any], longest: int, few: int
) -> None:
    """Objects are found one by one, or in all collections at once, some blocks of collections at a time."""
    monkeypatch.setattr("aggarray.formats.hdf5.metadata.heap_texts._FEW", few)
    monkeypatch.setattr("aggarray.formats.hdf5.metadata.heap_texts._BLOCK", few or 1000)
    texts = [f"{i}_" + "é" * (i * 7 % longest) for i in range(5000)]
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 5000)
        for name in ("u", "v"):
            file.createVariable(name, str, ("x",), **storage)[:] = np.array(texts if name == "v" else texts[::-1], object)
    assert column(tmp_path / "a.nc", "v", (5000,)) == texts
    assert column(tmp_path / "a.nc", "u", (5000,)) == texts[::-1]
    with netCDF4.Dataset(tmp_path / "a.nc") as file:
        assert file["v"][:].tolist() == texts


@pytest.mark.parametrize("group", [0, 1 << 14])
def test_many_collections_of_texts_of_one_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int) -> None:
    monkeypatch.setattr("aggarray.formats.hdf5.metadata.heap_texts._GROUP", group)
    texts = [f"{i:05}.nc" for i in range(9000)]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for start in range(0, 9000, 3000):
            file.attrs[f"a{start}"] = np.array(["other"] * 9, object)  # lies among the collections
            file.create_dataset(f"v{start}", data=np.array(texts[start : start + 3000], object), dtype=h5py.string_dtype())
    for start in range(0, 9000, 3000):
        assert column(tmp_path / "a.h5", f"v{start}", (3000,)) == texts[start : start + 3000]


def test_rewritten_texts(tmp_path: Path) -> None:
    """Objects that were removed leave numbers and space to later ones."""
    texts = [f"{i}" * (i % 40) for i in range(2000)]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("v", data=np.array(texts, object), dtype=h5py.string_dtype())
        for i in (5, 3, 1999, 700, *range(1000, 1400, 3)):
            texts[i] = f"new {i}" * (i % 9)
            made[i] = texts[i]
    assert column(tmp_path / "a.h5", "v", (2000,)) == texts


def test_collections_far_apart(tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(600)]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("v", (600,), h5py.string_dtype())
        for start in range(0, 600, 200):
            made[start : start + 200] = np.array(texts[start : start + 200], object)
            file[f"numbers{start}"] = np.full(1 << 16, -1)
    assert column(tmp_path / "a.h5", "v", (600,)) == texts


@pytest.mark.parametrize("storage", [{}, {"zlib": True, "chunksizes": (10, 12)}])
def test_characters(tmp_path: Path, storage: dict[str, Any]) -> None:
    texts = ["", "a", "b  ", " c", "éé", "123456789012", *(f"{i}.nc" for i in range(94))]
    padded = np.array([text.encode() for text in texts], "S12")
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 100)
        file.createDimension("length", 12)
        file.createVariable("v", "S1", ("x", "length"), **storage)[:] = padded.view("S1").reshape(100, 12)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = padded
        file["w"] = np.array([b"a\0b", b"c"], "S4")
        file.create_dataset("z", data=padded.astype(h5py.string_dtype("utf-8", 12)))
    expected = [text.rstrip() for text in texts]
    assert column(tmp_path / "a.nc", "v", (100,)) == expected
    assert column(tmp_path / "a.h5", "v", (100,)) == column(tmp_path / "a.h5", "z", (100,)) == expected
    assert column(tmp_path / "a.h5", "w", (2,)) == ["a\0b", "c"]


def test_what_is_read_otherwise(tmp_path: Path) -> None:
    """Other encodings, texts that are not UTF-8, huge texts, extended variables, texts that end within, numbers."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["latin"] = np.array([b"\xe9", b"a"], object)
        file["fixed"] = np.array([b"\xe9", b"a"], "S2")
        file["declared"] = np.array(["a"], object)
        file["declared"].attrs["_Encoding"] = "latin-1"
        file["huge"] = np.array(["a" * 200_000, "b"], object)
        file["number"] = np.arange(2)
        kind = h5py.h5t.C_S1.copy()
        kind.set_size(4)
        kind.set_strpad(h5py.h5t.STR_NULLTERM)
        h5py.h5d.create(file.id, b"terminated", kind, h5py.h5s.create_simple((2,)))
        file["nul"] = np.array(["ab", "c"], object)
    for name in ("latin", "fixed", "huge", "number", "terminated"):
        assert column(tmp_path / "a.h5", name, (2,)) is None
    assert column(tmp_path / "a.h5", "declared", (1,)) is None and column(tmp_path / "a.h5", "absent", (1,)) is None
    assert column(tmp_path / "a.h5", "nul", (3,)) is None and column(tmp_path / "a.h5", "nul", (2,)) == ["ab", "c"]
    # The NUL ends a text.
    data = (tmp_path / "a.h5").read_bytes()
    at = data.index(b"ab\0\0\0\0\0\0")
    (tmp_path / "a.h5").write_bytes(data[:at] + b"\0" + data[at + 1 :])
    assert column(tmp_path / "a.h5", "nul", (2,)) == ["", "c"]


@settings(max_examples=examples(60), deadline=None)
@given(
    count=st.sampled_from([40, 300]),
    size=st.sampled_from([1, 13, 16, 40]),
    block=st.sampled_from([7, 1 << 14]),
    group=st.sampled_from([0, 1 << 14]),
    special=st.dictionaries(st.integers(0, 39), st.sampled_from(["\x01", "é", ":", " ", "\x7f"]), max_size=2),
    repeated=st.booleans(),
    others=st.booleans(),
    permuted=st.booleans(),
)
def test_texts_of_one_length(
    tmp_path_factory: pytest.TempPathFactory,
    count: int,
    size: int,
    block: int,
    group: int,
    special: dict[int, str],
    repeated: bool,
    others: bool,
    permuted: bool,
) -> None:
    """Characters that need checks are found among texts whose places follow from their numbers."""
    texts = [f"{i:040}"[-size:] for i in range(count)]
    for i, character in special.items():
        texts[i] = (character + texts[i].encode()[len(character.encode()) :].decode()) if size > 1 else texts[i]
    path = tmp_path_factory.mktemp("texts") / "a.h5"
    order = np.random.default_rng(size).permutation(count) if permuted else np.arange(count)
    with h5py.File(path, "w") as file:
        if others:
            file.attrs["other"] = np.array(["other", "texts"], object)
            file["w"] = np.array(["between"] * 50, object)
        made = file.create_dataset("v", (count,), h5py.string_dtype())
        made[:] = np.array([texts[i] for i in order], object)
    data = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        at = file["v"].id.get_offset()
    elements = np.frombuffer(data, "V16", count, at)
    stored = elements[np.argsort(order)] if not repeated else elements[np.argsort(order)][[0, *range(count - 1)]]
    data[at : at + 16 * count] = stored.tobytes()
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("aggarray.formats.hdf5.metadata.heap_texts._BLOCK", block)
        patched.setattr("aggarray.formats.hdf5.metadata.heap_texts._GROUP", group)
        assert column(path, "v", (count,)) == (texts if not repeated else [texts[0], *texts[:-1]])
    file = HDF5File(str(path))
    found = file.column(Variable("v", np.dtypes.StringDType(), (count,), (), {}))
    file.close()
    assert isinstance(found, Texts)
    assert found.fingerprints().unusual.tolist() == [not t.isascii() or min(t) < " " for t in found]
    facts = found.fingerprints()
    assert not found.is_plain() or not (facts.unusual | facts.colons).any()
    if not special and not repeated and size > 13 and count == 300 and not others:
        assert found.is_plain()


@pytest.mark.parametrize("group", [0, 1 << 14])
def test_objects_used_twice_hide_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int) -> None:
    """As many references as objects, but one object twice, and one of another length never."""
    monkeypatch.setattr("aggarray.formats.hdf5.metadata.heap_texts._GROUP", group)
    path, texts = tmp_path / "a.h5", [f"{i:04}" for i in range(40)]
    last = 0
    for _ in range(2):  # the longer text is the last object of its collection
        texts[last] = "a longer text" if path.exists() else texts[last]
        with h5py.File(path, "w") as file:
            file["v"] = np.array(texts, object)
            at = file["v"].id.get_offset()
        elements = np.frombuffer(path.read_bytes(), "V12, <u4", len(texts), at)
        last = int(elements["f1"].argmax())
    data = bytearray(path.read_bytes())
    data[at + 16 * last : at + 16 * last + 16] = elements[7].tobytes()
    path.write_bytes(data)
    texts[last] = texts[7]
    assert column(path, "v", (len(texts),)) == texts


def damaged(path: Path, form: str = "text {}") -> bytes:
    with h5py.File(path, "w") as file:
        file["v"] = np.array([form.format(i) for i in range(40)], object)
    return path.read_bytes()


@pytest.mark.parametrize("form", ["text {}", "text {:02}"])
@pytest.mark.parametrize(("few", "group"), [(0, 0), (16, 0), (0, 1 << 14)])
def test_damaged_collections_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, group: int, form: str) -> None:
    """Each changed byte gives an error, or the values that are read one by one."""
    path = tmp_path / "a.h5"
    data = damaged(path, form)
    at = data.index(b"GCOL")
    monkeypatch.setattr("aggarray.formats.hdf5.metadata.heap_texts._FEW", few)
    monkeypatch.setattr("aggarray.formats.hdf5.metadata.heap_texts._GROUP", group)
    for place in [*range(at, at + 120), data.index(b"text 39") - 16, data.index(b"text 39") + 8]:
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        texts = column(path, "v", (40,))
        if texts is not None:
            file = HDF5File(str(path))
            assert file.read("v", (slice(0, 40, 1),)).tolist() == texts
            file.close()
    path.write_bytes(data[:at] + b"GCOW" + data[at + 4 :])
    assert column(path, "v", (40,)) is None
    file = HDF5File(str(path))
    with pytest.raises(aa.FormatError, match=r"a\.h5"):
        file.read("v", (slice(0, 40, 1),))
    file.close()


def test_overlapping_collections_are_not_read(tmp_path: Path) -> None:
    """A text of the first collection that looks like a collection itself."""
    path = tmp_path / "a.h5"
    inner = (
        b"GCOL\1\0\0\0" + (64).to_bytes(8, "little") + (1).to_bytes(8, "little") + (1).to_bytes(8, "little") + b"x" + b"\0" * 7
    )
    with h5py.File(path, "w") as file:
        file["v"] = np.array(["first", "y" * 56], object)
    data = path.read_bytes()
    at = data.index(b"GCOL")
    element = data.index((5).to_bytes(4, "little") + at.to_bytes(8, "little"))
    within = data.index(b"y" * 56)
    data = data[:within] + inner + (0).to_bytes(8, "little") + (24).to_bytes(8, "little") + data[within + 56 :]
    second = (1).to_bytes(4, "little") + within.to_bytes(8, "little") + (1).to_bytes(4, "little")
    path.write_bytes(data[: element + 16] + second + data[element + 32 :])
    assert column(path, "v", (2,)) is None
