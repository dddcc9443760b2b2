"""Catalogues as sources: rows of dictionaries, pandas, intake-esm and STAC give attributes that count as those of files."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aggarray as aa
from aggarray.opening.catalogue import Row, kept_attributes, source_items
from tests.support.calls import calls_of
from tests.support.examples import examples
from tests.support.netcdf import cube, write

MEMBERS = aa.Rules(new_dimension="variant_label")


def _file(path: Path, day: float = 0.0, **attrs: Any) -> str:
    return write(path, cube([day, day + 1.0]), attrs)


@pytest.fixture
def two(tmp_path: Path) -> list[str]:
    """Files of two members whose headers do not tell which: the first has a wrong label, the second none."""
    return [
        _file(tmp_path / "a.nc", source_id="HEADER", variant_label="r9i9p9f9"),
        _file(tmp_path / "b.nc", source_id="HEADER"),
    ]


def _rows(two: list[str]) -> list[dict[str, Any]]:
    return [
        {"path": two[0], "source_id": "X", "variant_label": "r1i1p1f1", "version": None},
        {"path": two[1], "source_id": "X", "variant_label": "r2i1p1f1", "version": float("nan")},
    ]


def _check(agg: aa.Aggregation) -> None:
    tas = agg["tas"]
    assert tas.dimensions[0] == "variant_label" and tas.shape == (2, 2, 3, 2)
    assert tas.coords["variant_label"][:].tolist() == ["r1i1p1f1", "r2i1p1f1"]
    assert tas.file_attrs["source_id"] == "X" and "version" not in tas.file_attrs


def _dictionaries(two: list[str]) -> Any:
    return _rows(two)


def _pairs(two: list[str]) -> Any:
    return [(row.pop("path"), row) for row in _rows(two)]


def _generator(two: list[str]) -> Any:
    return (row for row in _rows(two))


def _pandas(two: list[str]) -> Any:
    return pytest.importorskip("pandas").DataFrame(_rows(two))


def _polars(two: list[str]) -> Any:
    return pytest.importorskip("polars").DataFrame(_rows(two), strict=False)


def _mixed(two: list[str]) -> Any:
    first, second = _rows(two)
    return [pytest.importorskip("pandas").DataFrame([first]), (second.pop("path"), second)]


def _item(path: str, row: dict[str, Any], **asset: Any) -> dict[str, Any]:
    fields = {"cmip6:source_id": row["source_id"], "variant_label": row["variant_label"], "version": None}
    item: dict[str, Any] = {"type": "Feature", "stac_version": "1.0.0", "id": Path(path).stem, "geometry": None, "links": []}
    data = {"href": path, "type": "application/netcdf", "roles": ["data"], **asset}
    picture = {"href": "quicklook.png", "type": "image/png", "roles": ["thumbnail"]}
    properties = {"datetime": "2000-01-01T00:00:00Z", **fields}
    return {**item, "properties": properties, "assets": {"picture": picture, "tas": data}}


def _stac(two: list[str]) -> Any:
    return [_item(row["path"], row) for row in _rows(two)]


def _feature_collection(two: list[str]) -> Any:
    return {"type": "FeatureCollection", "features": _stac(two)}


def _pystac(two: list[str]) -> Any:
    return list(map(pytest.importorskip("pystac").Item.from_dict, _stac(two)))


def _item_collection(two: list[str]) -> Any:
    return pytest.importorskip("pystac").ItemCollection(_pystac(two))


def _esm(two: list[str], folder: Path) -> Any:
    """Return a datastore of intake-esm: a collection in JSON, its rows in CSV."""
    intake = pytest.importorskip("intake_esm", reason="intake-esm is not installed: pip install intake-esm")
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame([{**row, "location": row["path"]} for row in _rows(two)]).drop(columns="path")
    table.assign(kind="netcdf").to_csv(folder / "rows.csv", index=False)
    collection = {
        "esmcat_version": "0.1.0",
        "id": "test",
        "description": "",
        "catalog_file": "rows.csv",
        "attributes": [{"column_name": "source_id", "vocabulary": ""}],
        "assets": {"column_name": "location", "format_column_name": "kind"},
    }
    (folder / "collection.json").write_text(json.dumps(collection), encoding="utf-8")
    return intake.esm_datastore(str(folder / "collection.json"))


FORMS = [_dictionaries, _pairs, _generator, _pandas, _polars, _mixed, _stac, _feature_collection, _pystac, _item_collection]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_rows(form: Callable[[list[str]], Any], two: list[str]) -> None:
    _check(aa.open(form(two), rules=MEMBERS))


@pytest.mark.filterwarnings("ignore")
def test_intake_esm(two: list[str], tmp_path: Path) -> None:
    store = _esm(two, tmp_path)
    agg = aa.open(store, rules=MEMBERS)
    _check(agg)
    assert "kind" not in agg["tas"].file_attrs
    assert aa.open(store.search(variant_label="r2i1p1f1"))["tas"].shape == (2, 3, 2)
    with pytest.raises(aa.AggregationError, match="no column of addresses: its columns are source_id, variant_label"):
        aa.open(store.df)


def test_facets_separate(tmp_path: Path) -> None:
    files = [_file(tmp_path / f"{n}.nc", day=2.0 * n, source_id="HEADER") for n in range(4)]
    agg = aa.open([(path, {"source_id": "XY"[n % 2]}) for n, path in enumerate(files)])
    assert [a.file_attrs["source_id"] for a in agg] == ["X", "Y"]
    assert [a.shape[0] for a in agg] == [4, 4]
    assert aa.open(files)["tas"].shape[0] == 8


@pytest.mark.parametrize("trust", ["verify", "assume"])
def test_kept_in_an_index(trust: Any, tmp_path: Path) -> None:
    files = [[_file(tmp_path / f"r{m}" / f"{n}.nc", day=2.0 * n, variant_label="wrong") for n in range(8)] for m in range(2)]
    rules = aa.Rules(new_dimension="variant_label", trust=trust)
    rows = [(path, {"variant_label": f"r{m}", "number": n}) for m, own in enumerate(files) for n, path in enumerate(own)]
    agg = aa.open(rows, rules=rules)
    assert agg["tas"].shape == (2, 16, 3, 2)
    values = agg["tas"][:]
    for again in (pickle.loads(pickle.dumps(agg)), _saved(agg, tmp_path)):
        assert again["tas"].coords["variant_label"][:].tolist() == ["r0", "r1"]
        np.testing.assert_array_equal(again["tas"][:], values)
    again = aa.open(tmp_path / "x.nca", rules=aa.Rules(separate_by=("variant_label",)))
    assert [a.file_attrs["variant_label"] for a in again] == ["r0", "r1"]


def _saved(agg: aa.Aggregation, folder: Path) -> aa.Aggregation:
    agg.save(folder / "x.nca")
    return aa.open(folder / "x.nca")


def test_append_rows(tmp_path: Path) -> None:
    files = [_file(tmp_path / f"{n}.nc", variant_label="wrong") for n in range(3)]
    rows = [{"uri": path, "variant_label": f"r{n}"} for n, path in enumerate(files)]
    agg = _saved(aa.open(rows[:2], rules=MEMBERS), tmp_path).append(rows)
    assert agg["tas"].coords["variant_label"][:].tolist() == ["r0", "r1", "r2"]
    np.testing.assert_array_equal(agg["tas"][:], aa.open(rows, rules=MEMBERS)["tas"][:])


def test_a_changed_file_keeps_what_was_given(tmp_path: Path) -> None:
    files = [_file(tmp_path / f"{n}.nc", variant_label="wrong") for n in range(2)]
    agg = _saved(aa.open([(p, {"variant_label": f"r{n}"}) for n, p in enumerate(files)], rules=MEMBERS), tmp_path)
    write(files[1], cube([0.0, 1.0], title=None), {"variant_label": "wrong", "title": "corrected"})
    os.utime(files[1], (1, 1))
    agg = agg.append(files)
    assert agg["tas"].coords["variant_label"][:].tolist() == ["r0", "r1"]
    changed = next(s for s in agg._provenance.structures() if s.uri == files[1])
    assert changed.attrs["title"] == "corrected" and kept_attributes(changed) == {"variant_label": "r1"}


def test_other_attributes_for_the_same_file(tmp_path: Path) -> None:
    path = _file(tmp_path / "a.nc", source_id="HEADER")
    agg = _saved(aa.open([(path, {"source_id": "X", "note": "old"})]), tmp_path)
    assert agg.append(path)["tas"].file_attrs == {"source_id": "X", "note": "old"}
    assert agg.append([(path, {"note": "new"})])["tas"].file_attrs == {"source_id": "HEADER", "note": "new"}


def test_folders_and_patterns_give_to_all_their_files(tmp_path: Path) -> None:
    for member in ("one", "two"):
        for n in range(2):
            _file(tmp_path / member / f"{n}.nc", day=2.0 * n)
    rows = [(tmp_path / "one", {"variant_label": "r1"}), (f"{tmp_path}/two/*.nc", {"variant_label": "r2"})]
    assert aa.open(rows, rules=MEMBERS)["tas"].shape == (2, 4, 3, 2)


def test_groups_do_not_hide_given_attributes(tmp_path: Path) -> None:
    values = {f"g/{name}": value for name, value in cube([0.0, 1.0]).items()}
    path = write(tmp_path / "a.nc", values)
    import netCDF4

    with netCDF4.Dataset(path, "a") as file:
        file["g"].source_id = "GROUP"
    assert aa.open([(path, {"source_id": "X"})]).arrays[0].file_attrs["source_id"] == "X"


def test_values_of_attributes(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rows = {
        "path": ["a", "b"],
        "realization": [1, None],
        "time": [pandas.Timestamp("2001-02-03"), pandas.NaT],
        "level": [0.5, 1.5],
        "tags": [["x", "y"], ["z"]],
        "box": [[1.0, 2.0], [3.0, 4.0]],
        "more": [{"k": 1}, None],
        "good": [True, False],
    }
    first, second = source_items(pandas.DataFrame(rows))[1]
    assert first.address == "a" and first.attrs["realization"] == 1 and isinstance(first.attrs["realization"], int)
    assert first.attrs["time"] == "2001-02-03 00:00:00" and first.attrs["tags"] == ["x", "y"]
    assert first.attrs["box"].tolist() == [1.0, 2.0] and first.attrs["more"] == '{"k": 1}' and first.attrs["good"] == "true"
    assert second.attrs.keys() == {"level", "tags", "box", "good"} and second.attrs["good"] == "false"
    flags = source_items([("a", {"one": np.True_, "several": [True, False], "array": np.array([False, True])})])[1][0].attrs
    assert flags == {"one": "true", "several": ["true", "false"], "array": ["false", "true"]}
    path = _file(tmp_path / "a.nc")
    agg = _saved(aa.open([(path, dict(first.attrs))]), tmp_path)
    assert agg["tas"].file_attrs["box"].tolist() == [1.0, 2.0] and agg["tas"].file_attrs["realization"] == 1


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([{"path": "a.nc"}, {"source_id": "X", "member": 1}], "row 1 has no address: its keys are source_id, member"),
        ([{"path": "a.nc"}, {"path": None, "member": 1}], "row 1 has no address: its keys are path, member"),
        ([{"path": 3}], r"row 0 has no address: path is 3 \(int\)"),
        ([("a.nc", {"x": 1}), 7], r"row 1 is 7 \(int\)"),
        ({"source_id": "X"}, "row 0 has no address: its keys are source_id"),
        ([{"type": "Feature", "id": "i", "assets": {}}], "item 'i' has no asset"),
    ],
)
def test_rows_without_an_address(source: Any, message: str) -> None:
    with pytest.raises(aa.AggregationError, match=message):
        aa.open(source)


def test_tables_without_addresses() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(aa.AggregationError, match="no column of addresses: its columns are file, source_id") as wrong:
        aa.open(pandas.DataFrame({"file": ["a.nc"], "source_id": ["X"]}))
    assert "'path' or 'uri'" in str(wrong.value.hint)
    with pytest.raises(aa.AggregationError, match="row 1 has no address: path is empty; its other keys are source_id"):
        aa.open(pandas.DataFrame({"path": ["a.nc", None], "source_id": ["X", "Y"], "note": ["n", None]}))


def test_contradicting_rows(tmp_path: Path) -> None:
    path = _file(tmp_path / "a.nc")
    with pytest.raises(aa.AggregationError, match=r"rows 0 and 1 give different attributes to one file .*'X' and 'Y'"):
        aa.open([(path, {"source_id": "X"}), (path, {"source_id": "Y"})])
    assert aa.open([(path, {"source_id": "X"}), (path, {"source_id": "X"}), path])["tas"].file_attrs == {"source_id": "X"}


def test_attributes_of_an_index_are_refused(tmp_path: Path) -> None:
    aa.open(_file(tmp_path / "a.nc")).save(tmp_path / "x.nca")
    for source in ([(tmp_path / "x.nca", {"a": 1})], [(tmp_path / "x.nca", {"a": 1}), _file(tmp_path / "b.nc", day=2)]):
        with pytest.raises(aa.AggregationError, match="gives attributes to an index"):
            aa.open(source)


def test_assets_of_items(tmp_path: Path) -> None:
    def item(**assets: Any) -> Any:
        return {"type": "Feature", "id": "i", "properties": {"a": 1}, "assets": assets}

    def chosen(**assets: Any) -> list[Any]:
        return [row.address for row in source_items(item(**assets))[1]]

    zarr = {"href": "s3://b/x.zarr", "type": "application/vnd+zarr"}
    tiff = {"href": "a.tif", "type": "image/tiff; application=geotiff", "roles": ["data"]}
    netcdf = {"href": "a.nc", "type": "application/x-netcdf", "roles": ["data"]}
    assert chosen(one=zarr, other={"href": "a.json", "type": "application/json"}) == ["s3://b/x.zarr"]
    assert chosen(tiff=tiff, netcdf=netcdf) == ["a.nc"]
    assert chosen(netcdf=netcdf, untyped={"href": "b.nc", "roles": ["data"]}) == ["a.nc", "b.nc"]
    assert chosen(only={"href": "b.nc"}) == ["b.nc"]
    mask = {"href": "mask.nc", "type": "application/netcdf", "roles": ["mask"]}
    assert chosen(mask=mask) == ["mask.nc"] and chosen(mask=mask, netcdf=netcdf) == ["a.nc"]
    assert chosen(only={"href": "b.hdf5", "type": "application/octet-stream", "roles": ["data"]}) == ["b.hdf5"]
    linked = {**item(one={"href": "./c.nc", "roles": ["data"]}), "links": [{"rel": "self", "href": "s3://b/items/i.json"}]}
    assert source_items(linked)[1][0].address == "s3://b/items/c.nc"


@pytest.mark.parametrize(
    ("asset", "reason"),
    [
        ({"href": "a.png", "type": "image/png", "roles": ["thumbnail"]}, "role thumbnail"),
        ({"href": "a.nc", "type": "application/netcdf", "roles": ["overview"]}, "role overview"),
        ({"href": "a.nc", "roles": ["metadata"]}, "role metadata"),
        ({"href": "a.tif", "type": "image/tiff; application=geotiff", "roles": ["data"]}, "image/tiff"),
        ({"href": "a.grib2", "type": "application/wmo-GRIB2", "roles": ["data"]}, "application/wmo-GRIB2"),
        ({"href": "a.json", "type": "application/json"}, "application/json"),
        ({"href": "a.nc", "roles": ["mask"]}, "no media type, role mask"),
        ({"href": "a.txt"}, "neither media type nor role"),
        ({"href": "a.png", "roles": "Thumbnail"}, "role thumbnail"),
    ],
)
def test_items_without_arrays(asset: dict[str, Any], reason: str) -> None:
    with pytest.raises(aa.AggregationError, match=r"item 'i' has no asset of arrays: its assets are one \(") as caught:
        aa.open([{"type": "Feature", "id": "i", "properties": {}, "assets": {"one": asset}}])
    assert reason in str(caught.value) and "give rows" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"assets": None}, "no asset of arrays: its assets are none"),
        ({"assets": ["a.nc"]}, r"not a valid STAC item: its assets are \['a.nc'\]"),
        ({"assets": {"one": "a.nc"}}, "not a valid STAC item: its assets are {'one': 'a.nc'}"),
        ({"assets": {}, "properties": [1]}, r"not a valid STAC item: its properties are \[1\]"),
    ],
)
def test_invalid_items(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(aa.AggregationError, match=f"item 'i' (is|has) {words}"):
        aa.open([{"type": "Feature", "id": "i", **fields}])


def test_items_of_pystac_have_absolute_addresses(two: list[str], tmp_path: Path) -> None:
    pystac = pytest.importorskip("pystac")
    item = pystac.Item.from_dict(_item("./a.nc", _rows(two)[0]))
    item.set_self_href(str(tmp_path / "item.json"))
    assert aa.open(item)["tas"].file_attrs["variant_label"] == "r1i1p1f1"


TEXT = st.text("abcdefgh_", min_size=1, max_size=6)
VALUES = st.one_of(TEXT, st.integers(-100, 100), st.none(), st.floats(allow_nan=True, allow_infinity=False, width=32))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.dictionaries(TEXT, VALUES, max_size=4), min_size=1, max_size=4))
def test_dictionaries_and_pairs_are_the_same(rows: list[dict[str, Any]]) -> None:
    rows = [{k: v for k, v in row.items() if k not in ("path", "href")} for row in rows]
    pairs = source_items([(f"/{n}.nc", row) for n, row in enumerate(rows)])[1]
    expected = [Row(f"/{n}.nc", {k: v for k, v in row.items() if v is not None and v == v}) for n, row in enumerate(rows)]
    assert pairs == expected == source_items([{"path": f"/{n}.nc", **row} for n, row in enumerate(rows)])[1]


def test_the_cost_of_a_row_is_bounded() -> None:
    rows = [{"path": f"/data/{n}.nc", "source_id": "X", "variant_label": f"r{n}", "version": None} for n in range(2000)]
    assert calls_of(lambda: source_items(rows), builtin=True) < 60 * len(rows)
    assert len(source_items(rows)[1]) == len(rows)
