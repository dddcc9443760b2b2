"""Tests of kerchunk references against the referenced files, zarr-python and NumPy."""

import base64
import json
import os
import pickle
import shutil
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.formats import open_file, scan
from aggarray.read.chunk_index import find_chunk_index
from tests.support.kerchunk import FOLDER, KINDS, values
from tests.support.messages import says

TABLES = [f"both.{kind}.parq" for kind in KINDS]
BOTH = [f"both.{kind}.json" for kind in KINDS]


def expected() -> dict[str, np.ndarray]:
    """Return the values of `tas` and `pr` in both years."""
    tas, pr = (np.concatenate(parts) for parts in zip(*map(values, range(2)), strict=True))
    return {
        "tas": np.where(tas == np.float32(1e20), np.float32(np.nan), tas),
        "pr": np.where(pr == -1, np.nan, pr * 0.5),
    }


def reference(path: Path, refs: Mapping[str, Any], **more: Any) -> str:
    """Write references of version 1 and return their path."""
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps({"version": 1, "refs": dict(refs), **more}))
    return str(path)


def array(shape: list[int], chunks: list[int], dtype: str = "<f8", **more: Any) -> str:
    """Return the metadata of an array of version 2."""
    meta = {"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": dtype, "order": "C", "fill_value": None}
    return json.dumps({**meta, "filters": None, "compressor": None, **more})


def named(*dimensions: str, **more: Any) -> str:
    return json.dumps({"_ARRAY_DIMENSIONS": list(dimensions), **more})


def simple(chunks: Mapping[str, Any], meta: str | None = None) -> dict[str, Any]:
    """Return references to an array `x` of four doubles in two chunks."""
    refs = {".zgroup": '{"zarr_format": 2}', "x/.zarray": meta or array([4], [2]), "x/.zattrs": named("n")}
    return {**refs, **{f"x/{key}": value for key, value in chunks.items()}}


def encoded(*numbers: float) -> str:
    return "base64:" + base64.b64encode(np.array(numbers, "<f8").tobytes()).decode()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A file of ten doubles, 0.0 to 9.0."""
    path = tmp_path / "data.bin"
    path.write_bytes(np.arange(10, dtype="<f8").tobytes())
    return path


# References of kerchunk and VirtualiZarr


@pytest.mark.parametrize("name", [*BOTH, *TABLES, "virtualizarr.json"])
def test_references_of_other_programs(name: str) -> None:
    if name.endswith(".parq"):
        pytest.importorskip("pyarrow")
    agg = aa.open(FOLDER / name)
    assert (sorted(agg.names), agg.skipped, agg.refusals) == (["pr", "tas"], (), ())
    files = aa.open(str(FOLDER / f"y*.{'nc3' if 'nc3' in name else 'nc4'}"))
    for variable, truth in expected().items():
        a, b = agg[variable], files[variable]
        np.testing.assert_array_equal(a[...], truth)
        np.testing.assert_array_equal(a[1::3, [0, 3], ::-1], truth[1::3, [0, 3], ::-1])
        assert (a.dtype, a.units, a.directions) == (b.dtype, b.units, b.directions)
        np.testing.assert_array_equal(a.read(masked=True).mask, np.isnan(truth))
        assert a.file_attrs["title"] == "sample"
        for coordinate in ("time", "lat", "lon"):
            np.testing.assert_array_equal(a.coords[coordinate][...], b.coords[coordinate][...])
        assert find_chunk_index(a._matrix.references, 0, a._access) is not None, "read through zarr-python"


@pytest.mark.parametrize("kind", KINDS)
def test_several_references_join(kind: str) -> None:
    agg = aa.open(str(FOLDER / f"y*.{kind}.json"))
    assert agg["tas"].pmshape == (2,)
    for variable, truth in expected().items():
        np.testing.assert_array_equal(agg[variable][...], truth)
    mixed = aa.open([FOLDER / f"y0.{kind}.json", FOLDER / f"y1.{kind}"])
    np.testing.assert_array_equal(mixed["pr"][...], expected()["pr"])


def test_references_beside_data_are_skipped_unless_named(tmp_path: Path) -> None:
    for name in ("y0.nc4", "y0.nc4.json"):
        shutil.copy(FOLDER / name, tmp_path)
    agg = aa.open(tmp_path)
    assert [s.file for s in agg.skipped] == [str(tmp_path / "y0.nc4.json")]
    assert "an index of files" in agg.skipped[0].reason
    assert agg.duplicates == ()
    assert aa.open([tmp_path / "y0.nc4", tmp_path / "y0.nc4.json"]).skipped == ()


def test_save_and_append_index_of_references(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "refs")
    first = aa.open(tmp_path / "refs" / "y0.nc4.json")
    first.save(tmp_path / "index.nca")
    again = aa.open(tmp_path / "index.nca")
    np.testing.assert_array_equal(again["tas"][...], expected()["tas"][:4])
    more = again.append(tmp_path / "refs" / "y1.nc4.json")
    np.testing.assert_array_equal(more["tas"][...], expected()["tas"])
    assert more.check().ok
    travelled = pickle.loads(pickle.dumps(more["pr"]))
    np.testing.assert_array_equal(travelled[...], expected()["pr"])


def test_chunk_index_is_pickled() -> None:
    table = open_file(FOLDER / "both.nc4.json").chunks("pr")
    assert table is not None
    again = pickle.loads(pickle.dumps(table))
    assert again.names is not None and table.names is not None
    stored = [n for n in range(len(table.offsets)) if n not in (table.inline or {})]
    assert [again.names(n) for n in stored] == [table.names(n) for n in stored]


# Versions of JSON, forms of chunks


def test_version_0_is_a_plain_mapping(tmp_path: Path, data: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(json.dumps(simple({"0": ["data.bin", 8, 16], "1": encoded(-1, -2)})))
    assert aa.open(path)["x"][...].tolist() == [1.0, 2.0, -1.0, -2.0]


def test_inline_text(tmp_path: Path) -> None:
    path = reference(tmp_path / "t.json", simple({"0": "ab"}, array([2], [2], "|u1")))
    assert aa.open(path)["x"][...].tolist() == [97, 98]


def test_metadata_may_be_objects(tmp_path: Path, data: Path) -> None:
    refs = {k: json.loads(v) if k.rpartition("/")[2][0] == "." else v for k, v in simple({"0": encoded(5, 6)}).items()}
    assert aa.open(reference(tmp_path / "o.json", refs))["x"][:2].tolist() == [5.0, 6.0]


def test_templates_and_generators_are_expanded(tmp_path: Path, data: Path) -> None:
    gen = {
        "key": "x/{{i}}",
        "url": "{{folder}}/{{f(name='data')}}",
        "offset": "{{i * 16 + 8}}",
        "length": "{{2 * 8}}",
        "dimensions": {"i": {"stop": 2}},
    }
    templates = {"folder": str(tmp_path), "f": "{{name}}.bin"}
    path = reference(tmp_path / "g.json", simple({}), templates=templates, gen=[gen])
    assert aa.open(path)["x"][...].tolist() == [1.0, 2.0, 3.0, 4.0]
    path = reference(tmp_path / "t.json", simple({"0": ["{{folder}}/data.bin", 0, 16]}), templates=templates)
    assert aa.open(path)["x"][:2].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("name", ["data.bin", "./data.bin", "file://{folder}/data.bin", "{folder}/data.bin"])
def test_relative_and_absolute_file_names(tmp_path: Path, data: Path, name: str) -> None:
    path = reference(tmp_path / "r.json", simple({"1": [name.format(folder=tmp_path), 16, 16]}))
    assert aa.open(path)["x"][2:].tolist() == [2.0, 3.0]


def test_references_to_entire_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(np.array([1, 2], "<f8").tobytes())
    import zlib

    (tmp_path / "b").write_bytes(zlib.compress(np.array([3, 4], "<f8").tobytes()))
    assert aa.open(reference(tmp_path / "a.json", simple({"0": ["a"]}, array([2], [2]))))["x"][...].tolist() == [1.0, 2.0]
    meta = array([4], [2], filters=[{"id": "zlib", "level": 1}], fill_value=-1.0)
    assert aa.open(reference(tmp_path / "b.json", simple({"1": ["b"]}, meta)))["x"].read().tolist()[2:] == [3.0, 4.0]


def test_chunks_without_reference_are_missing(tmp_path: Path, data: Path) -> None:
    path = reference(tmp_path / "r.json", simple({"1": ["data.bin", 0, 16]}, array([4], [2], fill_value=-5.0)))
    assert aa.open(path)["x"].read(masked=True).tolist() == [None, None, 0.0, 1.0]


def test_missing_files(tmp_path: Path) -> None:
    meta = array([4], [2], filters=[{"id": "zlib", "level": 1}])
    for number, form in enumerate((None, meta)):
        path = reference(tmp_path / f"{number}.json", simple({"0": ["gone.bin", 0, 16], "1": encoded(1, 2)}, form))
        with pytest.raises(aa.MissingFileError, match=r"no such file.*gone\.bin"):
            aa.open(path)["x"][:2]
        assert np.isnan(aa.open(path, missing="fill")["x"][:2]).all()
    entire = reference(tmp_path / "w.json", simple({"0": ["gone.bin"]}, array([2], [2], filters=[{"id": "zlib", "level": 1}])))
    with pytest.raises(aa.MissingFileError, match=r"gone\.bin"):
        aa.open(entire)["x"][...]


def test_large_chunks_without_codecs_are_read_in_part(tmp_path: Path) -> None:
    truth = np.arange(3 * 200 * 200, dtype=">f4").reshape(3, 200, 200)
    for number in range(3):
        (tmp_path / f"{number}.bin").write_bytes(b"head" + truth[number].tobytes())
    refs = {str(n) + ".0.0": [f"{n}.bin", 4, 160000] for n in range(3)}
    meta = array([3, 200, 200], [1, 200, 200], ">f4")
    path = reference(tmp_path / "r.json", {**simple(refs, meta), "x/.zattrs": named("t", "y", "z")})
    a = aa.open(path)["x"]
    np.testing.assert_array_equal(a[...], truth)
    np.testing.assert_array_equal(a[::2, 7:90:3, [1, 199]], truth[::2, 7:90:3][..., [1, 199]])


def test_text_and_scalars(tmp_path: Path) -> None:
    characters = base64.b64encode(b"ab\0cde").decode()
    refs = {
        **simple({"0": encoded(1, 2)}, array([2], [2])),
        "name/.zarray": array([2, 3], [2, 3], "|S1"),
        "name/.zattrs": named("n", "length"),
        "name/0.0": f"base64:{characters}",
        "one/.zarray": array([], [], "<i4"),
        "one/.zattrs": named(),
        "one/0": "base64:" + base64.b64encode(np.int32(7).tobytes()).decode(),
    }
    refs["x/.zattrs"] = named("n", coordinates="name")
    agg = aa.open(reference(tmp_path / "t.json", refs))
    assert agg["x"].coords["name"][...].tolist() == ["ab", "cde"]
    assert agg["one"][...] == 7


# Against zarr-python


@pytest.mark.parametrize("version", [2, 3])
@given(data=st.data())
def test_stores_of_zarr_python_by_reference(
    tmp_path_factory: pytest.TempPathFactory, version: int, data: st.DataObject
) -> None:
    import numcodecs

    folder = tmp_path_factory.mktemp("store")
    shape = data.draw(st.lists(st.integers(0, 7), min_size=0, max_size=3), "shape")
    chunks = [data.draw(st.integers(1, 4), "chunk") for _ in shape]
    dtype = data.draw(st.sampled_from(["<f8", ">f4", "<i2", "|u1"] if version == 2 else ["<f8", "<i2"]), "dtype")
    truth = (np.arange(np.prod(shape, dtype=int)) % 100 + 1).reshape(shape).astype(dtype)
    more: dict[str, Any] = {}
    if version == 2:
        filters = data.draw(st.sampled_from([None, [numcodecs.Shuffle(truth.itemsize)], [numcodecs.Delta(dtype)]]), "filters")
        more = {"filters": filters, "compressors": data.draw(st.sampled_from([None, numcodecs.Zlib(1)]), "compressor")}
    elif shape and data.draw(st.booleans(), "shards"):
        more = {"shards": [2 * c for c in chunks]}
    made = zarr.create_array(
        folder / "s" / "x", data=truth, chunks=tuple(chunks) if shape else "auto", zarr_format=version, **more
    )
    made.attrs["_ARRAY_DIMENSIONS"] = [f"d{n}" for n in range(len(shape))]
    refs: dict[str, Any] = {} if version == 3 else {".zgroup": '{"zarr_format": 2}'}
    single = b"padding"
    for path in sorted(p for p in (folder / "s").rglob("*") if p.is_file()):
        key = str(path.relative_to(folder / "s"))
        if path.name in (".zarray", ".zattrs", "zarr.json"):
            refs[key] = path.read_text()
        elif data.draw(st.booleans(), "inline"):
            refs[key] = "base64:" + base64.b64encode(path.read_bytes()).decode()
        elif data.draw(st.booleans(), "whole"):
            refs[key] = [str(path)]
        else:
            refs[key] = ["all.bin", len(single), path.stat().st_size]
            single += path.read_bytes()
    (folder / "all.bin").write_bytes(single)
    x = aa.open(reference(folder / "r.json", refs))["x"]
    np.testing.assert_array_equal(x.read(masked=True).data, truth)
    if truth.size:
        key = tuple(slice(n - 1, None, -2) for n in shape)
        np.testing.assert_array_equal(x.read(key), truth[key])


# Roots


def test_roots_of_referenced_files(tmp_path: Path, data: Path) -> None:
    refs = tmp_path / "refs"
    path = reference(refs / "r.json", simple({"0": ["../data.bin", 0, 16], "1": encoded(1, 2)}))
    assert aa.open(path)["x"][0] == 0
    assert aa.open(path, roots=[tmp_path])["x"][0] == 0
    with pytest.raises(aa.IndexFileError, match=r"lies outside the folders.*data\.bin"):
        aa.open(path, roots=[refs])["x"][0]


def test_roots_of_links(tmp_path: Path, data: Path) -> None:
    refs = tmp_path / "refs"
    path = reference(refs / "r.json", simple({"0": ["link", 0, 16]}))
    os.symlink(data, refs / "link")
    with pytest.raises(aa.IndexFileError, match=r"lies outside the folders"):
        aa.open(path, roots=[refs])["x"][0]


def test_scan_reads_no_coordinate_outside_roots(tmp_path: Path, data: Path) -> None:
    refs = {**simple({"0": encoded(1, 2), "1": encoded(3, 4)}), "n/.zarray": array([4], [4]), "n/.zattrs": named("n")}
    path = reference(tmp_path / "refs" / "r.json", {**refs, "n/0": ["../data.bin", 0, 32]})
    assert {v.name: v.values for v in scan(path).variables}["n"] is None
    assert aa.open(path)["x"].coords["n"][...].tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(aa.IndexFileError, match=r"lies outside the folders.*data\.bin"):
        aa.open(path, roots=[tmp_path / "refs"])


def test_decreasing_coordinates_in_other_files(tmp_path: Path) -> None:
    (tmp_path / "n.bin").write_bytes(np.array([4.0, 3, 2, 1]).tobytes())
    refs = {**simple({"0": encoded(1, 2), "1": encoded(3, 4)}), "n/.zarray": array([4], [4]), "n/.zattrs": named("n")}
    assert aa.open(reference(tmp_path / "r.json", {**refs, "n/0": ["n.bin", 0, 32]}))["x"].directions == (False,)


def test_remote_files_in_local_references_need_roots(tmp_path: Path) -> None:
    path = reference(tmp_path / "r.json", simple({"0": ["s3://bucket/a.nc", 0, 16]}))
    message = r"refers to s3://bucket/a\.nc, which lies on another host .*r\.json; name its address in roots="
    with pytest.raises(aa.ForbiddenPathError, match=message):
        aa.open(path)["x"][:2]


# Invalid references

HOSTILE: dict[str, tuple[Any, str]] = {
    "negative offset": (simple({"0": ["data.bin", -8, 16]}), r"key 'x/0': 16 bytes at offset -8"),
    "negative size": (simple({"0": ["data.bin", 8, -16]}), r"key 'x/0': -16 bytes at offset 8"),
    "beyond 64 bits": (simple({"0": ["data.bin", 2**63, 16]}), r"key 'x/0': 16 bytes at offset"),
    "beyond the file": (simple({"0": ["data.bin", 72, 16]}), r"16 bytes at offset 72.*data\.bin.*variable 'x'"),
    "a huge size": (
        simple({"0": ["data.bin", 0, 2**40]}, array([4], [2], filters=[{"id": "zlib", "level": 1}])),
        r"key 'x': chunk 0 has 1099511627776 bytes",
    ),
    "a cut chunk": (simple({"0": ["data.bin", 0, 9]}), r"variable 'x'"),
    "base64 garbage": (simple({"0": "base64:@@@"}), r"key 'x/0': damaged base64"),
    "no reference": (simple({"0": ["data.bin", 8]}), r"key 'x/0': .* is not a reference"),
    "a number": (simple({"0": 5}), r"key 'x/0': 5 is not a reference"),
    "text for an offset": (simple({"0": ["data.bin", "8", 16]}), r"key 'x/0'"),
    "no name": (simple({"0": ["", 0, 16]}), r"key 'x/0': '' is not a file name"),
    "a null character": (simple({"0": ["a\0b", 0, 16]}), r"key 'x/0'"),
    "damaged metadata": (simple({}, "{"), r"key 'x/\.zarray': damaged JSON"),
    "metadata in a file": ({"x/.zarray": ["data.bin", 0, 8]}, r"key 'x/\.zarray': metadata must be objects"),
    "chunks of nothing": (simple({}, array([4], [0])), says("variable 'x'", "chunks")),
    "chunks of terabytes": (simple({"0": "a"}, array([4], [2**40])), r"key 'x/\.zarray': chunks of"),
    "no arrays": ({".zattrs": "{}"}, r"not kerchunk references"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_invalid_references_raise_errors_with_file_and_key(tmp_path: Path, data: Path, case: str) -> None:
    refs, message = HOSTILE[case]
    path = reference(tmp_path / "bad.json", refs)
    with pytest.raises(aa.AggarrayError, match=message) as caught:
        aa.open(path)["x"][...]
    assert isinstance(caught.value, aa.FormatError | aa.IndexFileError)
    assert "bad.json" in str(caught.value)


GENERATORS: dict[str, tuple[dict[str, Any], str]] = {
    "too many": ({"dimensions": {"i": {"stop": 10**7}}}, "more than 1048576"),
    "far too many": ({"dimensions": {"i": {"stop": 2**62}, "j": {"stop": 2**62}}}, "more than 1048576"),
    "a power": ({"offset": "{{9 ** 9 ** 9}}"}, "unsupported operator Pow"),
    "a product": ({"offset": "{{" + " * ".join(["999999999"] * 9) + "}}"}, "64 bits"),
    "a wide format": ({"url": "{{'%9999999999d' % i}}"}, "unsupported format"),
    "code": ({"url": "{{().__class__}}"}, "unsupported expression"),
    "recursion": ({"url": "{{f(c=1)}}"}, "unsupported expression"),
    "deep nesting": ({"offset": "{{" + "(" * 90 + "1" + ")" * 90 + "}}"}, ""),
    "deeper nesting": ({"offset": "{{" + "-" * 5000 + "1}}"}, "characters"),
    "an unknown name": ({"url": "{{who}}"}, "unknown name 'who'"),
    "a division by 0": ({"offset": "{{i // 0}}"}, "division by 0"),
    "no length": ({"length": None}, "text|both"),
    "a step of 0": ({"dimensions": {"i": {"stop": 3, "step": 0}}}, "neither a list nor a range"),
}


@pytest.mark.parametrize("case", GENERATORS)
def test_generators_are_bounded(tmp_path: Path, data: Path, case: str) -> None:
    changes, message = GENERATORS[case]
    entry = {"key": "x/{{i}}", "url": "data.bin", "offset": "0", "length": "16", "dimensions": {"i": {"stop": 2}}, **changes}
    path = reference(tmp_path / "bad.json", simple({}), gen=[entry], templates={"f": "{{f(c=1)}}"})
    if not message:
        aa.open(path)
        return
    with pytest.raises(aa.FormatError, match=rf"key 'gen\[0\]': .*({message}).*bad\.json"):
        aa.open(path)


def test_huge_chunks_without_codecs_are_read_in_part(tmp_path: Path) -> None:
    size = 5 << 30
    with open(tmp_path / "sparse.bin", "wb") as file:
        file.truncate(size)
        file.seek(size - 8)
        file.write(np.float64(3).tobytes())
    shape = [size >> 13, 1 << 10]
    refs = {**simple({"0.0": ["sparse.bin", 0, size]}, array(shape, shape)), "x/.zattrs": named("n", "m")}
    path = reference(tmp_path / "r.json", refs)
    assert aa.open(path)["x"][-1, -2:].tolist() == [0.0, 3.0]


def test_huge_sparse_array_takes_no_memory(tmp_path: Path) -> None:
    n = 10**7
    meta = array([n, n], [1, 2], fill_value=-1.0)
    refs = {**simple({f"{n - 1}.{n // 2 - 1}": encoded(8, 9)}, meta), "x/.zattrs": named("n", "m")}
    a = aa.open(reference(tmp_path / "huge.json", refs))["x"]
    assert a[-1, -2:].tolist() == [8.0, 9.0]
    assert np.isnan(a[5:8, 3]).all()
    meta = array([10**12], [2], fill_value=-1.0)
    with pytest.raises(aa.FormatError, match=r"key 'x/\.zarray': shape .* of which 1 chunks are stored"):
        aa.open(reference(tmp_path / "long.json", simple({"0": encoded(8, 9)}, meta)))


def test_declared_huge_chunk_takes_no_memory(tmp_path: Path) -> None:
    n = 10**9
    meta = array([n], [n], fill_value=None)
    path = reference(tmp_path / "one.json", simple({"0": ["data.bin", 0, 8]}, meta))
    reference(tmp_path / "two.json", simple({"0": ["data.bin", 0, 8]}, array([n - 1], [n - 1], fill_value=None)))
    tracemalloc.start()
    try:
        assert aa.open(path)["x"].shape == (n,)
        assert len(aa.open([path, tmp_path / "two.json"])) == 2
        assert tracemalloc.get_traced_memory()[1] < 1 << 26
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", ['{"a": 1}', "{}", "[1]", '{"refs": 5}', '{"refs": {}', "{" * 3000 + '"refs":'])
def test_other_json_raises_format_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(aa.FormatError, match=r"other\.json"):
        aa.open(path)


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        (array([4], [2]), r"^damaged: chunk 0 has 8 bytes, 16 expected \(variable 'x' in .*\); fetch or write it again$"),
        (array([4], [2], compressor={"id": "odd"}), r"^no decoder for the codec 'odd': variable 'x' in .*; install"),
    ],
)
def test_errors_of_libraries_are_not_repeated(tmp_path: Path, meta: str, message: str) -> None:
    path = reference(tmp_path / "a.json", simple({"0": encoded(1.0), "1": encoded(1.0, 2.0)}, meta))
    with pytest.raises(aa.FormatError, match=message):
        aa.open(path)["x"][:]


def test_unknown_version(tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    path.write_text(json.dumps({"version": 7, "refs": simple({})}))
    with pytest.raises(aa.FormatError, match="version 7"):
        aa.open(path)


def test_pickled_objects_are_never_decoded(tmp_path: Path) -> None:
    meta = array([2], [2], "|O", filters=[{"id": "pickle", "protocol": 4}])
    agg = aa.open(reference(tmp_path / "p.json", {**simple({"0": "x"}, meta), "y/.zarray": array([1], [1]), "y/0": encoded(1)}))
    assert "foreign code" in agg.skipped[0].reason


# Parquet


def tables(folder: Path, columns: Mapping[str, list[Any]], size: int = 2, meta: str | None = None) -> str:
    """Write a folder of one table of references to one array."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    (folder / "x").mkdir(parents=True)
    entries = {".zgroup": {"zarr_format": 2}, "x/.zarray": json.loads(meta or array([4], [2])), "x/.zattrs": {}}
    (folder / ".zmetadata").write_text(json.dumps({"metadata": entries, "record_size": size}))
    parquet.write_table(pyarrow.table(dict(columns)), folder / "x" / "refs.0.parq")
    return str(folder)


def test_tables_without_some_columns(tmp_path: Path, data: Path) -> None:
    path = tables(tmp_path / "r.parq", {"path": ["data.bin", None], "offset": [8, 0], "size": [16, 0]})
    assert aa.open(path)["x"][:2].tolist() == [1.0, 2.0]
    raw = tables(tmp_path / "raw.parq", {"raw": [np.array([7.0, 8.0]).tobytes(), encoded(1, 2).encode()]})
    assert aa.open(raw)["x"][...].tolist() == [7.0, 8.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"path": ["data.bin"], "offset": [-8], "size": [16]}, "16 bytes at offset -8"),
        ({"path": ["data.bin"] * 3, "offset": [0] * 3, "size": [16] * 3}, "3 rows"),
        ({"path": ["data.bin"], "offset": ["a"], "size": [16]}, "damaged table"),
    ],
)
def test_damaged_tables_raise_format_error(tmp_path: Path, data: Path, columns: dict[str, Any], message: str) -> None:
    path = tables(tmp_path / "r.parq", columns)
    with pytest.raises(aa.FormatError, match=says(message, r"refs\.0\.parq")):
        aa.open(path)["x"][...]


def test_damaged_folders_raise_format_error(tmp_path: Path) -> None:
    path = Path(tables(tmp_path / "r.parq", {"path": ["a"], "offset": [0], "size": [8]}))
    (path / "x" / "refs.0.parq").write_bytes(b"no table")
    with pytest.raises(aa.FormatError, match=r"damaged table.*refs\.0\.parq"):
        aa.open(path)["x"][...]
    (path / ".zmetadata").write_text(json.dumps({"metadata": {}, "record_size": 0}))
    with pytest.raises(aa.FormatError, match="record_size 0"):
        aa.open(path)
