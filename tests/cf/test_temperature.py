"""Tests of temperature differences, which convert without an offset (CF 3.1.2)."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import cf_units
import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.aggregate.concat import concat
from aggarray.cf.units.compatibility import conversion
from aggarray.cf.units.temperature import combined, temperature_difference, temperature_of
from aggarray.dap import Distribution
from aggarray.errors import AggregationError, IndexFileError, UnitsError
from aggarray.export.extract import extract
from aggarray.mpi import ProcessGroup, reduce
from aggarray.mpi.metadata import metadata_of
from tests.support.index_files import changed
from tests.support.netcdf import cube, one_array, write

pytestmark = pytest.mark.quick

PURE = ("K", "degC", "degF", "degR", "mK", "kelvin", "celsius", "0.1 degC")
DERIVED = ("K m-1", "degC/km", "degF/day", "K2", "degC2", "W m-2 K-1", "W/m2/degC")
DIFFERENCE = {"units_metadata": "temperature: difference"}
DEVIATION = {"cell_methods": "time: standard_deviation"}

METADATA = (None, "temperature: on_scale", "temperature: difference", "temperature: unknown", "temperature: both")
NAMES = (
    *(None, "air_temperature", "air_temperature standard_error", "air_temperature detection_minimum"),
    *("air_temperature_anomaly", "change_over_time_in_sea_water_temperature", "dew_point_depression"),
)
METHODS = (
    *(None, "time: mean", "time: standard_deviation", "time: range within days time: mean over days", "range: mean"),
    *("time: mean (comment: range)", "time: sum", "time: anomaly_wrt"),
)


def by_cf_units(values: np.ndarray, a: str, b: str, difference: bool) -> np.ndarray:
    """Convert by UDUNITS, differences without the offset."""
    converted = np.asarray(cf_units.Unit(a).convert(values, cf_units.Unit(b)))
    return converted - cf_units.Unit(a).convert(0.0, cf_units.Unit(b)) if difference else converted


def wanted_kind(metadata: str | None, name: str | None, methods: str | None) -> str | None:
    """Return the kind of a pure temperature according to CF."""
    implied = name in NAMES[4:] or name == NAMES[2] or methods in (METHODS[2], METHODS[3], METHODS[7])
    stated = (metadata or "").removeprefix("temperature: ") or None
    if stated not in (None, "on_scale", "difference"):
        return "unknown"
    if stated == "on_scale" and implied:
        return "unknown"
    if stated == "difference" or implied:
        return "difference"
    return "unknown" if methods == METHODS[6] else stated


@given(
    st.sampled_from([*itertools.product(PURE, PURE), *((a, b) for a, b in itertools.product(DERIVED, DERIVED))]),
    st.sampled_from(METADATA),
    st.sampled_from(NAMES),
    st.sampled_from(METHODS),
    st.floats(-1e4, 1e4),
)
def test_conversions_of_every_kind(pair: tuple[str, str], metadata: Any, name: Any, methods: Any, value: float) -> None:
    a, b = pair
    attrs = {"units_metadata": metadata, "standard_name": name, "cell_methods": methods}
    kind = temperature_of(a, {k: v for k, v in attrs.items() if v is not None})
    if a in PURE:
        assert kind == wanted_kind(metadata, name, methods)
    if not cf_units.Unit(a).is_convertible(b):
        with pytest.raises(UnitsError):
            conversion(a, None, b, None, kind)
        return
    of = np.array([value])
    moved = a in PURE and cf_units.Unit(a).convert(0.0, b) != 0.0
    shifted = any(("degC" in u or "degF" in u) for u in pair) and {("degC" in a, "degF" in a)} != {("degC" in b, "degF" in b)}
    if a != b and (
        (kind == "unknown" and (moved or (a in DERIVED and shifted))) or (kind == "on_scale" and a in DERIVED and shifted)
    ):
        with pytest.raises(UnitsError, match=r"CF 3\.1\.2"):
            conversion(a, None, b, None, kind)
        return
    result = conversion(a, None, b, None, kind)(of)
    expected = by_cf_units(of, a, b, difference=kind in ("difference", "unknown"))
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-9)


def test_words_of_attributes() -> None:
    assert temperature_of("m", DIFFERENCE) is None and temperature_of(None, DIFFERENCE) is None
    assert temperature_of("days since 2000-01-01", DEVIATION) is None
    assert temperature_of("K", {"units_metadata": "leap_seconds: none temperature: difference"}) == "difference"
    assert temperature_of("K", {"cell_methods": "time:standard_deviation"}) == "difference"
    assert temperature_of("K", {"units_metadata": "Temperature: Difference"}) == "difference"
    assert temperature_of("K", {"cell_methods": "T: Standard_Deviation"}) == "difference"
    assert temperature_of("K", {"cell_methods": np.array([1, 2]), "standard_name": 3}) is None
    assert temperature_of("K s-1", {"standard_name": "tendency_of_air_temperature"}) == "difference"
    assert "contradicts" in temperature_difference("K", {"units_metadata": "temperature: on_scale", **DEVIATION})
    assert combined("on_scale", "difference") == "mixed" and combined(None, "difference") == "difference"
    assert combined("unknown", "difference") == "unknown"
    with pytest.raises(UnitsError, match="one is a temperature difference"):
        conversion("K", None, "degC", None, "mixed")
    with pytest.raises(UnitsError, match="logarithm"):
        conversion("lg(re 1 K)", None, "K", None, "difference")


def deviations(folder: Path, **attrs: Any) -> list[str]:
    """Write two files of temperature differences, in K and in degC."""
    attrs = attrs or DEVIATION
    paths = []
    for name, days, units in (("a", [0, 1], "K"), ("b", [2, 3], "degC")):
        made = cube(days)
        made["tas"] = (made["tas"][0], np.full((2, 3, 2), days[0] + 1.0, "f4"), {"units": units, **attrs})
        paths.append(write(folder / f"{name}.nc", made))
    return paths


WANTED = np.repeat([1.0, 1.0, 3.0, 3.0], 6).reshape(4, 3, 2)


def check(array: Any) -> None:
    """Compare an array of deviations in K and in other units."""
    assert array.units == "K" and array.attrs["units_metadata"] == "temperature: difference"
    assert np.array_equal(array[:], WANTED) and np.array_equal(array.to_units("degC")[:], WANTED)
    np.testing.assert_allclose(array.to_units("degF").to_units("degC").lazy[::-1][:], WANTED[::-1], rtol=1e-6)


def test_views_of_differences(tmp_path: Path) -> None:
    array = one_array(aa.open(deviations(tmp_path)))
    check(array)
    check(array.flip("lat").transpose("time", "lat", "lon"))
    assert np.array_equal(array.sel(time=slice("2000-01-03", None))[:], WANTED[2:])
    assert one_array(aa.open(deviations(tmp_path), rules=aa.Rules(units={"tas": "degC"}))).read().max() == 3
    assert array.to_dask().compute().max() == 3
    result = array.to_xarray()
    assert result.attrs["units_metadata"] == "temperature: difference" and np.array_equal(result.values, WANTED)


@pytest.mark.parametrize("convention", ["CF-1.13", "CFA-0.4"])
def test_indexes_of_differences(tmp_path: Path, convention: str) -> None:
    agg = aa.open(deviations(tmp_path))
    agg.save(tmp_path / "index.nca", convention=convention)
    check(one_array(aa.open(tmp_path / "index.nca")))
    one_array(agg).to_units("degF")
    piece = one_array(aa.open(tmp_path / "index.nca")).partitions[1].data
    again = aa.MasterArray.from_subarrays([([(0, 2), (0, 3), (0, 2)], piece)], dimensions=("time", "lat", "lon"), units="K")
    assert np.array_equal(again[:], WANTED[2:]) and again.attrs == DIFFERENCE


def test_append_to_index_of_differences(tmp_path: Path) -> None:
    (first, second), path = deviations(tmp_path), tmp_path / "index.nca"
    aa.open(first).save(path)
    grown = aa.open(path).append(second)
    check(one_array(grown))
    grown.save(path)
    check(one_array(aa.open(path)))


def test_index_without_kinds(tmp_path: Path) -> None:
    """Indexes of earlier versions have neither the attribute nor the kinds of sub-arrays."""
    path = tmp_path / "index.nca"
    aa.open(deviations(tmp_path)).save(path)

    def older(document: Any) -> None:
        for template in document["templates"]:
            template.pop("temperature", None)
        document["attributes"] = [[p for p in pairs if p[0] != "units_metadata"] for pairs in document["attributes"]]

    changed(path, older)
    result = one_array(aa.open(path))
    assert "units_metadata" not in result.attrs and np.array_equal(result[:], WANTED)
    assert np.array_equal(result.to_units("degC")[:], WANTED)


def test_index_of_unknown_kind(tmp_path: Path) -> None:
    path = tmp_path / "index.nca"
    aa.open(deviations(tmp_path)).save(path)
    changed(path, lambda document: [t.update(temperature="warm") for t in document["templates"] if "temperature" in t] and None)
    with pytest.raises(IndexFileError, match="kind of temperature"):
        aa.open(path)


@pytest.mark.parametrize("convention", ["CF-1.13", "CFA-0.4"])
def test_indexes_of_other_programs(tmp_path: Path, convention: str) -> None:
    """Indexes without the group that only this package reads."""
    aa.open(deviations(tmp_path)).save(tmp_path / "index.nca", convention=convention)
    with netCDF4.Dataset(tmp_path / "index.nca", "a") as file:
        assert file["tas"].units_metadata == "temperature: difference"
        for group in list(file.groups):
            file.renameGroup(group, "of_another_program")
    check(aa.open(tmp_path / "index.nca")["tas"])


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_extracts_of_differences(tmp_path: Path, suffix: str) -> None:
    out = tmp_path / "out" / f"x.{suffix}"
    out.parent.mkdir()
    extract(one_array(aa.open(deviations(tmp_path))), out)
    check(one_array(aa.open(out)))
    with (
        xr.open_dataset(out, engine="zarr" if suffix == "zarr" else "netcdf4", consolidated=False)
        if suffix == "zarr"
        else (xr.open_dataset(out)) as there
    ):
        assert there["tas"].attrs["units_metadata"] == "temperature: difference"


def test_references_to_differences(tmp_path: Path) -> None:
    """A difference of one degC is one K: the chunks of both files need no conversion."""
    out = tmp_path / "refs" / "refs.json"
    out.parent.mkdir()
    aa.open(deviations(tmp_path)).to_kerchunk(out)
    check(one_array(aa.open(out)))


def test_joins_by_hand(tmp_path: Path) -> None:
    a, b = (one_array(aa.open(path)) for path in deviations(tmp_path))
    check(concat([a, b], "time"))
    pieces = [aa.SubArray.from_file(p, "tas") for p in deviations(tmp_path)]
    placed = [([(2 * n, 2 * n + 2), (0, 3), (0, 2)], piece) for n, piece in enumerate(pieces)]
    check(aa.MasterArray.from_subarrays(placed, dimensions=("time", "lat", "lon"), name="tas"))
    (other, _) = deviations(tmp_path / "other", units_metadata="temperature: on_scale")
    with pytest.raises(AggregationError, match=r"on its scale.*CF 3\.1\.2"):
        concat([one_array(aa.open(other)), b], "time")
    placed[0] = (placed[0][0], aa.SubArray.from_file(other, "tas"))
    with pytest.raises(UnitsError, match="do not join"):
        aa.MasterArray.from_subarrays(placed, dimensions=("time", "lat", "lon"))


def test_packed_differences(tmp_path: Path) -> None:
    """``add_offset`` unpacks values of any units."""
    made = cube([0])
    made["tas"] = (
        made["tas"][0],
        np.full((1, 3, 2), 4, "i2"),
        {"units": "degC", "add_offset": 10.0, "scale_factor": 0.5, **DEVIATION},
    )
    array = one_array(aa.open(write(tmp_path / "a.nc", made)))
    assert (array.to_units("K")[:] == 12).all()


def test_units_asked_for_of_what_does_not_convert(tmp_path: Path) -> None:
    (path, _) = deviations(tmp_path, units_metadata="temperature: unknown")
    agg = aa.open(path, rules=aa.Rules(units={"tas": "degC"}))
    assert agg["tas"].units == "K" and "units_metadata" in agg.refusals[0].reason
    with pytest.raises(UnitsError, match="units_metadata"):
        agg["tas"].to_units("degC")
    assert agg["tas"].to_units("mK")[:].max() == 1000


@pytest.mark.parametrize("in_mpi", [False, True])
def test_deviations_of_a_reduction_are_differences(in_mpi: bool) -> None:
    piece = aa.SubArray.from_array(np.ones((3, 2)), dimensions=("time", "lat"), units="K")
    array = aa.MasterArray.from_subarrays([([(0, 3), (0, 2)], piece)], dimensions=("time", "lat"), name="tas")
    array = replace(array, attrs={"units_metadata": "temperature: on_scale"})

    def attrs_of(operation: str) -> Any:
        if not in_mpi:
            return array.reduce(operation, "time").attrs
        with ProcessGroup.serial() as group:
            return metadata_of(
                reduce(array.local(Distribution.regular(array.shape, "bb", (1, 1)), 0), operation, "time", group)
            ).attrs

    assert attrs_of("std")["cell_methods"] == "time: standard_deviation"
    assert attrs_of("std").items() >= DIFFERENCE.items()
    assert attrs_of("mean")["units_metadata"] == "temperature: on_scale"
    assert "units_metadata" not in attrs_of("count")
