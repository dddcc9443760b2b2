"""Fixes: valid values, the files that they match, and structures compared with files that netCDF-C has modified."""

import shutil
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.formats import scan
from aggarray.scan.fix_files import collect_fixes, fixes_of, read_fixes
from aggarray.scan.fixes import make_fix
from aggarray.scan.repairs import match_counts, repaired
from tests.support.netcdf import write


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "changes nothing"),
        ({"variable": "tas"}, "changes nothing"),
        ({"drop": True}, "give the variable"),
        ({"variable": "tas", "drop": True, "delete": "x"}, "leave out delete"),
        ({"variable": "tas", "drop": 1}, "drop=1"),
        ({"variable": "", "delete": "x"}, "variable=''"),
        ({"variable": 5, "delete": "x"}, "variable=5"),
        ({"rename": "x"}, "give the variable or dimension"),
        ({"rename": {}}, "rename={}"),
        ({"rename": {"a": "x", "b": "x"}}, "same new name"),
        ({"rename": {"a": "x y"}}, "without blanks"),
        ({"rename": {"a": 1}}, "without blanks"),
        ({"rename": {1: "a"}}, "both texts"),
        ({"variable": "a", "rename": "g/b"}, "slashes"),
        ({"variable": "a", "rename": ""}, "rename=''"),
        ({"variable": "a", "rename": 3}, "rename=3"),
        ({"set": {}}, "changes nothing"),
        ({"set": "units"}, "give {attribute: value}"),
        ({"set": {"a": None}}, "delete=[...]"),
        ({"set": {"a": True}}, "give a text, a number"),
        ({"set": {"a": [1, "b"]}}, "give a text, a number"),
        ({"set": {"a": []}}, "give a text, a number"),
        ({"set": {"": 1}}, "give {attribute: value}"),
        ({"set": {"units": 1}}, "give a text"),
        ({"set": {"scale_factor": "2"}}, "one finite number"),
        ({"set": {"add_offset": float("nan")}}, "one finite number"),
        ({"set": {"scale_factor": 0}}, "other than 0"),
        ({"set": {"scale_factor": 0.0}}, "other than 0"),
        ({"set": {"scale_factor": [1.0, 2.0]}}, "one finite number"),
        ({"set": {"calendar": "foo"}}, "give one of standard, proleptic_gregorian, noleap"),
        ({"set": {"units": "furlong per moon"}}, "units that UDUNITS knows"),
        ({"set": {"units": "K K2foo"}}, "units that UDUNITS knows"),
        ({"set": {"units": "days since yesterday"}}, "'yesterday' is not a date"),
        ({"set": {"units": "days since 2001-02-31"}}, "2001-02-31"),
        ({"set": {"units": "moons since 2001-01-01"}}, "not a unit of time"),
        ({"set": {"_FillValue": [1, 2]}}, "missing_value may have several"),
        ({"set": {"valid_range": [2, 1]}}, "the lower one first"),
        ({"set": {"valid_range": 5}}, "two numbers"),
        ({"set": {"valid_min": "0"}}, "give one number"),
        ({"set": {"_Unsigned": "yes"}}, "true or false"),
        ({"set": {"positive": "above"}}, "up or down"),
        ({"set": {"axis": "lat"}}, "x or y or z or t"),
        ({"set": {"scale_factor": 10**400}}, "at most 64 bits"),
        ({"set": {"a": [1, -(10**20)]}}, "at most 64 bits"),
        ({"set": {"calendar": " "}}, "give one of standard"),
        ({"set": {"units": "K\0"}}, "remove the null character"),
        ({"set": {"geometry": 5}}, "give a text"),
        ({"set": {"bounds": 5}}, "give a text"),
        ({"set": {"coordinates": ["lat", "lon"]}}, "give a text"),
        ({"variable": "[b-a]", "delete": "a"}, "correct the pattern"),
        ({"set": {"a": "b"}, "delete": "a"}, "deletes and sets 'a'"),
        ({"delete": [1]}, "give a list of names"),
        ({"delete": 1}, "give a list of names"),
        ({"shift_time": 3}, "such as (12, 'hours')"),
        ({"shift_time": (1, 2, 3)}, "such as (12, 'hours')"),
        ({"shift_time": ("1", "days")}, "such as (12, 'hours')"),
        ({"shift_time": (float("inf"), "days")}, "such as (12, 'hours')"),
        ({"shift_time": (1, "months")}, "give days"),
        ({"shift_time": (1, "metres")}, "not a unit of time"),
        ({"shift_time": (1, "days since 2000-01-01")}, "not a unit of time"),
        ({"shift_time": (10**400, "days")}, "such as (12, 'hours')"),
        ({"where": [], "delete": "a"}, "None for every file"),
        ({"where": "", "delete": "a"}, "give a glob"),
        ({"where": 5, "delete": "a"}, "give a glob"),
        ({"where": "[b-a].nc", "delete": "a"}, "correct the glob"),
        ({"where": {}, "delete": "a"}, "{attribute: value}"),
        ({"where": {"a": None}, "delete": "a"}, "where={'a': None}"),
        ({"note": 1, "delete": "a"}, "note=1"),
        ({"wher": "a", "delete": "a"}, "did you mean 'where'"),
    ],
)
def test_invalid_fixes(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(aa.AggregationError) as caught:
        make_fix(fields)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("where", "matched"),
    [
        (None, True),
        ("tas_*.nc", True),
        ("tas_200[1-3].nc", True),
        ("tas_200[!1-3].nc", False),
        ("r1/tas_2001.nc", True),
        ("r?/*", True),
        ("data/*", False),  # * stays within a name
        ("data/**", True),
        ("/data/**/tas_*.nc", True),
        ("/data/*/tas_*.nc", False),
        ("/data/cmip6/r1/tas_2001.nc", True),
        ("cmip6/r1/tas_2001.nc", True),
        ("mip6/r1/tas_2001.nc", False),
        ("tas_2001", False),
        ("**/cmip6/**/**/*.nc", True),
        (Path("tas_2001.nc"), True),
        ({"source_id": "MIROC6"}, True),
        ({"source_id": "MIROC*"}, True),
        ({"source_id": ["CanESM5", "MIROC6"]}, True),
        ({"source_id": "CanESM5"}, False),
        ({"source": "MIROC6"}, False),
        ({"realization": 3}, True),
        ({"realization": 3.0}, True),
        ({"realization": [1, 2]}, False),
        ({"realization": "3"}, False),
        ({"levels": [1, 2]}, True),
        ({"source_id": "MIROC6", "realization": 4}, False),
        (["tas_*", {"source_id": "MIROC6"}], True),
        (["pr_*", {"source_id": "MIROC6"}], False),
    ],
)
def test_files_that_a_fix_matches(where: Any, matched: bool) -> None:
    attrs = {"source_id": "MIROC6", "realization": np.int32(3), "levels": np.array([1, 2])}
    assert aa.Fix(where=where, delete="x").matches("/data/cmip6/r1/tas_2001.nc", attrs) is matched


def test_globs_on_paths_with_special_characters_and_addresses() -> None:
    assert aa.Fix(where="/data/a[1].nc", delete="x").matches("/data/a[1].nc", {})  # the path itself
    assert aa.Fix(where="s3://bucket/*/a.nc", delete="x").matches("s3://bucket/x/a.nc", {})
    assert aa.Fix(where="a.nc", delete="x").matches("s3://bucket/x/a.nc", {})


def test_fixes_are_equal_hashable_values() -> None:
    one = aa.Fix(where={"a": [1, 2]}, variable="tas", set={"units": "K", "flags": np.array([1, 2])}, shift_time=[1, "day"])
    two = aa.Fix(where={"a": (1, 2)}, variable="tas", set={"units": "K", "flags": (1, 2)}, shift_time=(1, "day"))
    assert one == two and hash(one) == hash(two)
    assert eval(repr(one), {"Fix": aa.Fix}) == one


UNITS = ["K", "degC", "1", "", "%", "W m-2", "kg m-2 s-1", "1e-3 kg", "m2", "mm day-1", "degrees_north", "level", "s-1", "Pa.s"]
UNITS += ["days since 2000-01-01", "hours since 2001-02-30", "days since 2000-02-30 12:00", "mol m^-2", "dBZ", "common_years"]


@pytest.mark.parametrize("units", UNITS)
def test_valid_units(units: str) -> None:
    assert aa.Fix(variable="x", set={"units": units}).set == {"units": units}


@pytest.mark.parametrize(
    "calendar", ["standard", "Gregorian", "proleptic_gregorian", "365_day", "366_day", "360_day", "julian"]
)
def test_valid_calendars(calendar: str) -> None:
    assert aa.Fix(variable="time", set={"calendar": calendar}).set == {"calendar": calendar}


@pytest.mark.parametrize(
    ("variable", "matched"),
    [
        ("*", {"tas", "tas_flag", "g/tas", "g/pr_flag"}),
        ("tas", {"tas", "g/tas"}),
        ("tas*", {"tas", "tas_flag", "g/tas"}),
        ("*_flag", {"tas_flag", "g/pr_flag"}),
        ("[!t]*", {"g/pr_flag"}),
        ("/tas*", {"tas", "tas_flag"}),
        ("g/*", {"g/tas", "g/pr_flag"}),
        ("/g/tas", {"g/tas"}),
        ("/**", {"tas", "tas_flag", "g/tas", "g/pr_flag"}),
        ("g", set()),
    ],
)
def test_variables_that_a_fix_matches(variable: str, matched: set[str]) -> None:
    names = ("tas", "tas_flag", "g/tas", "g/pr_flag")
    assert {name for name in names if aa.Fix(variable=variable, delete="a").concerns(name)} == matched
    assert aa.Fix(variable="t[K]", delete="a").concerns("t[K]")  # the name itself


# Structures

NAMES = st.sampled_from(["time", "lat", "lon", "tas", "pr", "new", "other"])
TEXTS = st.text("abc", min_size=1, max_size=3)
VALUES = TEXTS | st.integers(-100, 100) | st.floats(-100, 100) | st.lists(st.integers(0, 9), min_size=1, max_size=3)


@st.composite
def fixes(draw: st.DrawFn) -> aa.Fix:
    variable = draw(st.none() | NAMES)
    kind = draw(st.sampled_from(["set", "delete", "rename", "drop", "attribute"]))
    if kind == "drop":
        return aa.Fix(variable=variable or "pr", drop=True)
    if kind == "rename":
        names = draw(st.permutations(["time", "lat", "lon", "tas", "pr", "new"]))
        return aa.Fix(rename={names[0]: names[1], names[1]: names[0]})
    if kind == "attribute":
        return aa.Fix(variable=variable or "tas", rename={"a": "aa"})
    if kind == "delete":
        return aa.Fix(variable=variable, delete=draw(st.lists(st.sampled_from("abc"), min_size=1)))
    return aa.Fix(variable=variable, set=draw(st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1)))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    variables = {name: ((name,), np.arange(n, dtype="f8"), {"a": name}) for name, n in (("time", 2), ("lat", 3), ("lon", 4))}
    variables["tas"] = ("time", "lat", "lon"), np.zeros((2, 3, 4), "f4"), {"a": 1, "b": "x"}
    variables["pr"] = ("time", "lat"), np.zeros((2, 3), "i4"), {"c": [1, 2]}
    path = tmp_path_factory.mktemp("original") / "a.nc"
    write(path, variables, {"a": "file", "c": 2.5}, format="NETCDF3_64BIT")
    return path


def modified(path: Path, fix: aa.Fix) -> bool:
    """Apply a fix with netCDF-C; False if it does not apply."""
    with netCDF4.Dataset(path, "a") as file:
        owner: Any = file if fix.variable is None else file.variables.get(fix.variable)
        if fix.variable is None and isinstance(fix.rename, dict):
            (a, b), _ = fix.rename.items()
            for kind, rename in ((file.variables, file.renameVariable), (file.dimensions, file.renameDimension)):
                present = [name for name in (a, b) if name in kind]
                for name in present:
                    rename(name, f"{name}_")
                for name in present:
                    rename(f"{name}_", fix.rename[name])
            return True
        if owner is None:
            return False
        for name in fix.delete:
            if name in owner.ncattrs():
                owner.delncattr(name)
        if isinstance(fix.rename, dict) and "a" in owner.ncattrs():
            file._redef()
            owner.renameAttribute("a", "aa")
        owner.setncatts({name: np.array(v) if isinstance(v, tuple) else v for name, v in (fix.set or {}).items()})
    return True


@given(st.lists(fixes(), min_size=1, max_size=4))
def test_structures_equal_those_of_modified_files(original: Path, tmp_path_factory: Any, chosen: list[aa.Fix]) -> None:
    path = tmp_path_factory.mktemp("copy") / "a.nc"
    shutil.copy(original, path)
    dropped: set[str] = set()
    for fix in chosen:
        if fix.drop:
            dropped.add(str(fix.variable))
        elif isinstance(fix.rename, dict) and fix.variable is None:
            if dropped & {*fix.rename}:
                return
            modified(path, fix)
        elif fix.variable not in dropped:
            try:
                modified(path, fix)
            except (RuntimeError, OSError):  # an attribute "aa" exists
                with pytest.raises(aa.AggregationError, match="which exists"):
                    repaired(scan(str(original)), chosen)
                return
    ours, theirs = repaired(scan(str(original)), chosen)[0], scan(str(path))
    assert {v.name for v in ours.variables} == {v.name for v in theirs.variables} - dropped
    assert _attributes(ours.attrs) == _attributes(theirs.attrs)
    for v in ours.variables:
        other = next(o for o in theirs.variables if o.name == v.name)
        assert (v.dtype, v.shape, v.dimensions) == (other.dtype, other.shape, other.dimensions)
        assert _attributes(v.attrs) == _attributes(other.attrs)
    assert ours.sizes == theirs.sizes


def _attributes(attrs: Any) -> dict[str, Any]:
    return {name: np.asarray(value).reshape(-1).tolist() for name, value in attrs.items()}


def test_references_follow_names(tmp_path: Path) -> None:
    made = {
        "tas": (
            ("time", "lev"),
            np.zeros((2, 3)),
            {
                "coordinates": "orog height /g/p",
                "cell_methods": "time: lev: mean (interval: 1 lev: x) area: mean where land",
                "cell_measures": "area: area volume: vol",
                "formula_terms": "a: orog b:height",
                "grid_mapping": "crs: orog height",
                "ancillary_variables": "orog_flag orog",
                "note": "orog and time",
            },
        ),
        "time": (("time",), np.arange(2.0), {"bounds": "time_bnds"}),
        **{n: ((), 1.0, {}) for n in ("orog", "height", "area", "vol", "crs", "orog_flag", "g/p")},
    }
    names = {n: f"{n}_2" for n in ("time", "lev", "orog", "height", "area", "vol", "crs", "p", "time_bnds")}
    (structure, _) = repaired(scan(write(tmp_path / "a.nc", made)), [aa.Fix(rename=names)])
    attrs = next(v.attrs for v in structure.variables if v.name == "tas")
    assert attrs == {
        "coordinates": "orog_2 height_2 /g/p_2",
        "cell_methods": "time_2: lev_2: mean (interval: 1 lev: x) area: mean where land",
        "cell_measures": "area: area_2 volume: vol_2",
        "formula_terms": "a: orog_2 b:height_2",
        "grid_mapping": "crs_2: orog_2 height_2",
        "ancillary_variables": "orog_flag orog_2",
        "note": "orog and time",
    }
    assert {v.name for v in structure.variables} >= {"time_2", "g/p_2", "crs_2", "orog_flag"}


def test_names_in_groups(tmp_path: Path) -> None:
    made = {f"{g}/{n}": (("x",), np.arange(3.0), {"a": 1}) for g in ("one", "two/deep") for n in ("p", "q")}
    source = scan(write(tmp_path / "a.nc", made))

    def names(fix: aa.Fix) -> list[str]:
        return sorted(v.name for v in repaired(source, [fix])[0].variables)

    assert names(aa.Fix(variable="p", rename="r")) == ["one/q", "one/r", "two/deep/q", "two/deep/r"]
    assert names(aa.Fix(variable="/one/p", rename="r")) == ["one/q", "one/r", "two/deep/p", "two/deep/q"]
    assert names(aa.Fix(variable="two/deep/q", drop=True)) == ["one/p", "one/q", "two/deep/p"]
    assert names(aa.Fix(variable="/p", drop=True)) == sorted(made)


def test_contradictions_name_the_file(tmp_path: Path) -> None:
    made = {n: (("x", "y"), np.zeros((2, 3), "i2"), {"a": 1, "b": 2}) for n in ("p", "q")}
    path = write(tmp_path / "a.nc", made)
    for fix, words in (
        (aa.Fix(variable="p", rename="q"), "which 'q' has"),
        (aa.Fix(variable="x", rename="y"), "the same name"),
        (aa.Fix(variable="p", rename={"x": "y"}), "rename both"),
        (aa.Fix(variable="p", rename={"a": "b"}), "which exists"),
        (aa.Fix(variable="p", set={"_FillValue": 1e20}), "which int16 cannot hold"),
        (aa.Fix(variable="p", set={"missing_value": 70000}), "which int16 cannot hold"),
    ):
        with pytest.raises(aa.AggregationError) as caught:
            aa.open(path, fixes=[fix])
        assert words in str(caught.value) and caught.value.path == path
        assert aa.open(path, fixes=[aa.Fix(where="b.nc", **fix.plain())])  # not in other files


def test_dimensions_of_different_sizes_are_not_joined(tmp_path: Path) -> None:
    made = {"p": (("x",), np.zeros(2)), "q": (("y",), np.zeros(3))}
    with pytest.raises(aa.AggregationError, match="sizes 2 and 3"):
        aa.open(write(tmp_path / "a.nc", made), fixes=[aa.Fix(variable="y", rename="x")])


@pytest.mark.parametrize(
    ("dtype", "value", "stored"), [("i2", 5, "i2"), ("f4", 1e20, "f4"), ("i1", 255, "i1"), ("u1", 255, "u1")]
)
def test_missing_values_have_the_dtype_of_the_variable(tmp_path: Path, dtype: str, value: float, stored: str) -> None:
    path = write(tmp_path / "a.nc", {"p": (("x",), np.zeros(2, dtype))})
    structure, _ = repaired(scan(path), [aa.Fix(variable="p", set={"_FillValue": value})])
    assert structure.variables[0].attrs["_FillValue"].dtype == dtype


def test_matches_are_counted(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{n}.nc", {n: (("x",), np.zeros(2), {"units": "1"})}) for n in ("p", "q")]
    chosen = [
        aa.Fix(variable="p", set={"a": 1}),
        aa.Fix(set={"a": 1}),
        aa.Fix(delete="nothing"),
        aa.Fix(variable="x", rename="y"),
        aa.Fix(shift_time=(1, "day")),
        aa.Fix(variable="y", rename="z", where="q.nc"),
    ]
    assert match_counts(list(map(scan, paths)), chosen) == [1, 2, 0, 2, 0, 1]


# Files of fixes


def test_files_of_fixes(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        """
        [[fix]]
        where = ["tas_*.nc", { source_id = ["A", "B"] }]
        variable = "time"
        shift_time = [12, "hours"]
        note = "why"

        [[fix]]
        variable = "tas"
        set = { units = "K", scale_factor = 0.5 }
        delete = ["comment"]
        rename = "t2m"
        """
    )
    expected = (
        aa.Fix(where=["tas_*.nc", {"source_id": ["A", "B"]}], variable="time", shift_time=(12, "hours"), note="why"),
        aa.Fix(variable="tas", set={"units": "K", "scale_factor": 0.5}, delete=["comment"], rename="t2m"),
    )
    assert collect_fixes(path) == collect_fixes(str(path)) == collect_fixes([str(path)]) == expected
    assert collect_fixes([expected[0], path]) == (expected[0], *expected)
    path.write_text("optional = true\n[[fix]]\ndelete = 'x'\n[[fix]]\ndelete = 'y'\noptional = false")
    assert [fix.optional for fix in read_fixes(str(path))] == [True, False]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[fix]", "not TOML"),
        ("[fix]\ndelete = 'a'", "tables [[fix]]"),
        ("fix = 3", "tables [[fix]]"),
        ("[[fixes]]\ndelete = 'a'", "unknown key 'fixes'"),
        ("[[fix]]\ndelete = 'a'\n[[fix]]\nvaraible = 'a'", "[[fix]] 2: unknown key 'varaible' (...); did you mean 'variable'?"),
        ("[[fix]]\nset = { units = 3 }", "[[fix]] 1"),
        ("optional = 3\n[[fix]]\ndelete = 'a'", "optional=3"),
    ],
)
def test_invalid_files_of_fixes(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(aa.AggregationError) as caught:
        aa.open("/nowhere", fixes=str(path))
    assert words.partition(" (...)")[0] in str(caught.value) and caught.value.path == str(path)


def test_other_sources_of_fixes() -> None:
    for given_fixes in (5, {"variable": "tas"}, [3], b"cmip6", [None]):
        with pytest.raises(aa.AggregationError, match=r"aggarray\.Fix"):
            aa.open("/nowhere", fixes=given_fixes)
    with pytest.raises(aa.AggregationError, match="did you mean 'cmip6'"):
        aa.open("/nowhere", fixes="cmip7")
    with pytest.raises(aa.AggregationError, match="cannot be read"):
        aa.open("/nowhere", fixes="own.toml")
    assert fixes_of({}, "x") == []


@pytest.mark.parametrize(
    ("variable", "attrs", "words"),
    [
        ("count", {"missing_value": "none"}, "missing_value='none' of a variable of int16"),
        ("count", {"_FillValue": "-1"}, "_FillValue='-1' of a variable of int16"),
        ("count", {"flag_values": ["a", "b"]}, "flag_values=['a', 'b'] of a variable of int16"),
        ("count", {"missing_value": 70000}, "int16 cannot hold"),
        ("count", {"flag_values": [1, 70000]}, "int16 cannot hold"),
        ("count", {"flag_masks": [0.5, 1.0]}, "int16 cannot hold"),
        ("count", {"valid_min": -70000}, "int16 cannot hold"),
        ("count", {"valid_range": [0, 70000]}, "int16 cannot hold"),
        ("count", {"valid_max": 40000}, "int16 cannot hold"),
        ("count", {"valid_max": 70000, "_Unsigned": "true"}, "int16 cannot hold"),
        ("label", {"missing_value": 0}, "missing_value=0 of a variable of text"),
        ("label", {"scale_factor": 2.0}, "scale_factor=2.0 of a variable of text"),
        ("time", {"units": "days since 2001-02-30"}, "2001-02-30"),
        ("time", {"units": "days since 2001-02-29", "calendar": "noleap"}, "2001-02-29"),
    ],
)
def test_values_that_a_variable_cannot_have(variable: str, attrs: dict[str, Any], words: str, tmp_path: Path) -> None:
    """The error names the file: its variable tells the type."""
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("time", 2)
        file.createVariable("time", "f8", ("time",)).units = "days since 2001-01-01"
        file.createVariable("count", "i2", ("time",))
        file.createVariable("label", str, ("time",))
    with pytest.raises((aa.AggregationError, aa.UnitsError)) as caught:
        aa.open(tmp_path, fixes=aa.Fix(variable=variable, set=attrs))
    text = str(caught.value)
    assert words in text and "a.nc" in text and caught.value.variable == variable and caught.value.hint is not None


@pytest.mark.parametrize("limit", [{"valid_max": 200}, {"valid_range": [0, 200]}])
@pytest.mark.parametrize("fixed", [True, False])
def test_limits_of_values_seen_as_unsigned(limit: dict[str, Any], fixed: bool, tmp_path: Path) -> None:
    attrs = {} if fixed else {"_Unsigned": "true"}
    write(tmp_path / "a.nc", {"v": (("x",), np.array([1, 200, 250], "u1").view("i1"), attrs)})
    fix = aa.Fix(variable="v", set={**limit, **({"_Unsigned": "true"} if fixed else {})})
    values = aa.open(tmp_path, fixes=fix)["v"].read(masked=True)
    assert values.mask.tolist() == [False, False, True] and values[:2].tolist() == [1, 200]


def test_a_calendar_may_follow_the_units(tmp_path: Path) -> None:
    """Only what all fixes make together must be valid."""
    write(tmp_path / "a.nc", {"time": (("time",), np.arange(2.0), {"units": "days since 2001-01-01"})})
    fixes = [
        aa.Fix(variable="time", set={"units": "days since 2001-02-30"}),
        aa.Fix(variable="t*", set={"calendar": "360_day"}),
    ]
    structure, used = repaired(scan(str(tmp_path / "a.nc")), fixes)
    assert used == [0, 1] and structure.variables[0].attrs["units"] == "days since 2001-02-30"
