"""Cases of signatures that differ: separate arrays with reasons."""

from typing import Any

import numpy as np

from tests.support.cases import (
    LATS,
    LONS,
    Cases,
    Expected,
    ExpectedRefusal,
    Folder,
    Made,
    Outcome,
    changed,
    one,
    tas,
    with_bounds,
)
from tests.support.netcdf import TAS, cube, field

cases = Cases()
CMIP6 = {"mip_era": "CMIP6", "source_id": "A", "experiment_id": "historical", "variant_label": "r1i1p1f1", "table_id": "Amon"}
DIMENSIONS = ("time", "lat", "lon")


def _plus(made: Made, number: float) -> Made:
    """Return a file with all values of `tas` increased by a number."""
    return changed(made, "tas", made["tas"][1] + np.float32(number))


def _tas(times: Any, number: float, **more: Any) -> Expected:
    return tas(times, values=field(times, LATS, LONS) + np.float32(number), **more)


def _odd_one(f: Folder, change: Any) -> list[Expected]:
    """Write two equal files and an odd one; return the expected arrays."""
    f("c", cube([0, 1]))
    f("a", cube([2, 3]))
    f("odd", change(cube([4, 5])))
    return [tas(range(4)), tas([4, 5], units=None)]


@cases
def two_models_in_one_folder(f: Folder) -> Outcome:
    """Facets separate models, even where their times would fit."""
    for name, start, model in (("d", 0, "A"), ("b", 2, "A"), ("c", 4, "B"), ("a", 6, "B")):
        f(name, _plus(cube([start, start + 1]), "AB".index(model)), {**CMIP6, "source_id": model})
    expected = [_tas(range(4), 0, attrs={"source_id": "A"}), _tas(range(4, 8), 1, attrs={"source_id": "B"})]
    return Outcome(expected, [ExpectedRefusal("source_id", ("'A'", "'B'"))])


@cases
def two_models_of_equal_times(f: Folder) -> Outcome:
    """Different models are neither duplicates nor overlaps."""
    for name, model in (("b", "A"), ("a", "B")):
        f(name, cube([0, 1]), {**CMIP6, "source_id": model})
    expected = [tas([0, 1], attrs={"source_id": m}) for m in "AB"]
    return Outcome(expected, [ExpectedRefusal("source_id", ("'A'", "'B'", "a.nc", "b.nc"))])


@cases
def a_whole_tree(f: Folder) -> Outcome:
    """Models, experiments and members in folders: one array each.

    There is one refusal less than arrays.
    """
    expected, number = [], 0
    for model in "AB":
        for experiment in ("historical", "ssp585"):
            for member in ("r1i1p1f1", "r2i1p1f1"):
                attrs = {**CMIP6, "source_id": model, "experiment_id": experiment, "variant_label": member}
                for part in (1, 0):
                    f(f"{model}/{experiment}/{member}/{1 - part}", _plus(cube([2 * part, 2 * part + 1]), number), attrs)
                expected.append(_tas(range(4), number, attrs=attrs))
                number += 1
    return Outcome(expected, [ExpectedRefusal("source_id|experiment_id|variant_label")] * 7, problems=[])


@cases
def a_whole_tree_by_the_preset(f: Folder) -> Outcome:
    """The CMIP preset does the same."""
    for name, start, model in (("d", 0, "A"), ("b", 2, "A"), ("c", 0, "B"), ("a", 2, "B")):
        f(name, _plus(cube([start, start + 1]), "AB".index(model)), {**CMIP6, "source_id": model})
    expected = [_tas(range(4), n, attrs={"source_id": m}) for n, m in enumerate("AB")]
    return Outcome(expected, [ExpectedRefusal("source_id", ("'A'", "'B'"))], rules="cmip")


@cases
def cmip5_tables(f: Folder) -> Outcome:
    """CMIP5 writes date and hash of its tables: only the table name counts."""
    tables = ("Table Amon (26 July 2011) 25bb94", "Table Amon (27 April 2011) 9aeaf6", "Table day (26 July 2011) 25bb94")
    for n, (name, table) in enumerate(zip("cab", tables, strict=True)):
        f(name, cube([2 * n, 2 * n + 1]), {"model_id": "M", "table_id": table, "realization": np.int32(1)})
    return Outcome([tas(range(4)), tas([4, 5])], [ExpectedRefusal("table_id", ("Amon", "day", "b.nc"))])


@cases
def cmip5_members(f: Folder) -> Outcome:
    """Numbers of any dtype are facets too."""
    for name, start, number in (("c", 0, np.int32(1)), ("b", 2, np.int64(1)), ("a", 4, np.int32(2))):
        f(name, cube([start, start + 1]), {"model_id": "M", "realization": number})
    return Outcome([tas(range(4)), tas([4, 5])], [ExpectedRefusal("realization", ("1", "2", "a.nc"))])


@cases
def cordex_domains(f: Folder) -> Outcome:
    """CORDEX: domain and driving model."""
    base = {"CORDEX_domain": "EUR-11", "driving_model_id": "X", "rcm_version_id": "v1"}
    f("c", cube([0, 1]), base)
    f("b", cube([2, 3]), base)
    f("a", cube([4, 5]), {**base, "CORDEX_domain": "EUR-44"})
    f("d", cube([6, 7]), {**base, "driving_model_id": "Y"})
    refusals = [
        ExpectedRefusal("CORDEX_domain", ("EUR-11", "EUR-44", "a.nc")),
        ExpectedRefusal("driving_model_id", ("'X'", "'Y'", "d.nc")),
    ]
    return Outcome([tas(range(4)), tas([4, 5]), tas([6, 7])], refusals)


@cases
def a_facet_that_one_file_lacks(f: Folder) -> Outcome:
    """A file without the facet stays separate."""
    f("b", cube([0, 1]), CMIP6)
    f("a", cube([2, 3]), {k: v for k, v in CMIP6.items() if k != "source_id"})
    return Outcome([tas([0, 1]), tas([2, 3])], [ExpectedRefusal("source_id", ("'A'", "None", "a.nc", "b.nc"))])


@cases
def histories_are_no_facets(f: Folder) -> Outcome:
    """History, creation date and tracking identifier differ in every file."""
    for n, name in enumerate("cab"):
        attrs = {**CMIP6, "history": f"at {n}", "creation_date": f"2020-01-0{n + 1}", "tracking_id": f"hdl:{n}"}
        f(name, cube([2 * n, 2 * n + 1]), attrs)
    return one(tas(range(6), attrs={**CMIP6, "history": None}))


@cases
def no_facets_wanted(f: Folder) -> Outcome:
    """separate_by=() joins what fits: two models one after the other."""
    for name, start, model in (("b", 0, "A"), ("a", 2, "B")):
        f(name, cube([start, start + 1]), {**CMIP6, "source_id": model})
    return one(tas(range(4), attrs={"source_id": None}), rules={"separate_by": []})


@cases
def a_facet_of_ones_own(f: Folder) -> Outcome:
    """separate_by names any attribute and replaces the default facets."""
    for name, start, run, model in (("c", 0, "x", "A"), ("b", 2, "x", "B"), ("a", 4, "y", "B")):
        f(name, cube([start, start + 1]), {"run": run, "source_id": model})
    return Outcome(
        [tas(range(4)), tas([4, 5])], [ExpectedRefusal("run", ("'x'", "'y'", "a.nc"))], rules={"separate_by": ["run"]}
    )


@cases
def cell_methods_differ_in_blanks(f: Folder) -> Outcome:
    """Blanks are ignored."""
    f("b", changed(cube([0, 1]), "tas", cell_methods="time: mean  area:  mean"))
    f("a", changed(cube([2, 3]), "tas", cell_methods=" time: mean area: mean "))
    return one(tas(range(4)))


@cases
def cell_methods_differ(f: Folder) -> Outcome:
    """Means and maxima are never mixed."""
    expected = _odd_one(f, lambda m: changed(m, "tas", cell_methods="time: maximum"))
    return Outcome(expected, [ExpectedRefusal("cell_methods", ("time: mean", "time: maximum", "odd.nc"))])


@cases
def bounds_absent_in_one(f: Folder) -> Outcome:
    """A file without bounds stays separate from those with bounds."""
    f("c", with_bounds(cube([0, 1]), "time", 0.5))
    f("b", with_bounds(cube([2, 3]), "time", 0.5))
    f("a", cube([4, 5]))
    return Outcome([tas(range(4)), tas([4, 5])], [ExpectedRefusal("coordinate", ("time", "bounds", "no bounds", "a.nc"))])


def _mapped(made: Made, latitude: float, name: str = "crs", **attrs: Any) -> Made:
    parameters = {"grid_mapping_name": "rotated_latitude_longitude", "grid_north_pole_latitude": latitude, **attrs}
    return {**changed(made, "tas", grid_mapping=name), name: ((), np.int32(0), parameters)}


@cases
def grid_mapping_parameter_differs(f: Folder) -> Outcome:
    """Another pole is another grid."""
    f("c", _mapped(cube([0, 1]), 39.25))
    f("b", _mapped(cube([2, 3]), 39.25))
    f("a", _mapped(cube([4, 5]), 39.5))
    texts = ("grid_north_pole_latitude", "39.25", "39.5", "a.nc")
    return Outcome([tas(range(4)), tas([4, 5])], [ExpectedRefusal("grid_mapping", texts)])


@cases
def grid_mapping_of_another_name(f: Folder) -> Outcome:
    """Names and comments of grid mapping variables are ignored."""
    f("b", _mapped(cube([0, 1]), 39.25))
    f("a", _mapped(cube([2, 3]), 39.25, "rotated_pole", long_name="the rotated pole"))
    return one(tas(range(4)))


@cases
def grid_mapping_parameter_of_another_type(f: Folder) -> Outcome:
    """A parameter is equal as float32 and as float64."""
    f("b", _mapped(cube([0, 1]), 39.25))
    f("a", _mapped(cube([2, 3]), np.float32(39.25)))
    return one(tas(range(4)))


@cases
def units_that_do_not_convert(f: Folder) -> Outcome:
    """Kelvin and metres."""
    expected = _odd_one(f, lambda m: changed(m, "tas", units="m"))
    return Outcome(expected, [ExpectedRefusal("units", ("'K'", "'m'", "odd.nc"))])


@cases
def flags_differ(f: Folder) -> Outcome:
    """Flags with other meanings stay separate."""

    def flagged(made: Made, meanings: str) -> Made:
        return changed(made, "tas", made["tas"][1].astype("i2"), flag_values=np.array([1, 2], "i2"), flag_meanings=meanings)

    f("c", flagged(cube([0, 1]), "land sea"))
    f("b", flagged(cube([2, 3]), "land  sea"))
    f("a", flagged(cube([4, 5]), "sea land"))
    expected = [tas(t, values=field(t, LATS, LONS).astype("i2")) for t in (range(4), [4, 5])]
    return Outcome(expected, [ExpectedRefusal("flag_meanings", ("land sea", "sea land", "a.nc"))])


@cases
def an_auxiliary_coordinate_is_absent(f: Folder) -> Outcome:
    """A height in one file only: separate."""
    height = ((), np.float64(2), {"standard_name": "height", "units": "m"})
    expected = _odd_one(f, lambda m: {**changed(m, "tas", coordinates="height"), "height": height})
    return Outcome(expected, [ExpectedRefusal("dimensions|coordinates", ("height", "odd.nc"))])


@cases
def cell_measures_differ(f: Folder) -> Outcome:
    """Different cell areas are different grids, even with equal coordinates."""
    for name, start, area in (("c", 0, 1.0), ("b", 2, 1.0), ("a", 4, 2.0)):
        made = changed(cube([start, start + 1]), "tas", cell_measures="area: areacella")
        made["areacella"] = (("lat", "lon"), np.full((3, 2), area), {"standard_name": "cell_area", "units": "m2"})
        f(name, made)
    expected = [tas(t, coords={"areacella": np.full((3, 2), a)}) for t, a in ((range(4), 1.0), ([4, 5], 2.0))]
    return Outcome(expected, [ExpectedRefusal("coordinate|cell_measures", ("areacella", "a.nc"))])


@cases
def cell_measures_in_files_of_their_own(f: Folder) -> Outcome:
    """A named measure that is absent is not a difference."""
    f("b", changed(cube([0, 1]), "tas", cell_measures="area: areacella"))
    f("a", changed(cube([2, 3]), "tas", cell_measures="area: areacella"))
    return one(tas(range(4)))


@cases
def a_level_more(f: Folder) -> Outcome:
    """Air temperature on levels and near the surface: two arrays."""
    plev = (("plev",), np.array([1000.0, 500.0]), {"standard_name": "air_pressure", "units": "hPa"})
    made = {**cube([0, 1]), "plev": plev}
    values = np.stack([made["tas"][1]] * 2, axis=1)
    f("a", {**made, "tas": (("time", "plev", "lat", "lon"), values, TAS)})
    f("b", cube([2, 3]))
    expected = [tas([2, 3]), tas([0, 1], values=values, dimensions=("time", "plev", "lat", "lon"))]
    return Outcome(expected, [ExpectedRefusal("dimensions", ("air_pressure", "a.nc", "b.nc"))])


@cases
def two_variables_of_one_standard_name(f: Folder) -> Outcome:
    """One file has both: names separate them in all files."""
    for name, start in (("b", 0), ("a", 2)):
        made = cube([start, start + 1])
        f(name, {**made, "tasmin": (DIMENSIONS, made["tas"][1] - np.float32(1), TAS)})
    return Outcome([tas(range(4)), _tas(range(4), -1, name="tasmin")], [ExpectedRefusal("name", ("tas", "tasmin"))])


@cases
def one_name_two_standard_names(f: Folder) -> Outcome:
    """Sea surface temperature under the name of air temperature."""
    expected = _odd_one(f, lambda m: changed(m, "tas", standard_name="sea_surface_temperature"))
    return Outcome(expected, [ExpectedRefusal("identity", ("air_temperature", "sea_surface_temperature", "odd.nc"))])


@cases
def a_damaged_file(f: Folder) -> Outcome:
    """A damaged file is skipped; the others are joined."""
    f("b", cube([0, 1]))
    f("a", cube([2, 3]))
    f.raw("c.nc", b"\x89HDF\r\n\x1a\n" + b"\x00" * 100)
    return one(tas(range(4)), skipped=("c.nc",))


@cases
def three_odd_ones(f: Folder) -> Outcome:
    """Every odd file stays separate with its own reason."""
    for n, name in enumerate("dcba"):
        f(name, cube([n]))
    f("odd1", changed(cube([4]), "tas", units="m"))
    f("odd2", changed(cube([5]), "tas", cell_methods="time: maximum"))
    f("odd3", cube([6], [10.0, 20.01, 30.0]))
    expected = [tas(range(4)), tas([4], units="m"), tas([5]), tas([6], [10.0, 20.01, 30.0])]
    reasons = [
        ExpectedRefusal("units", ("odd1",)),
        ExpectedRefusal("cell_methods", ("odd2",)),
        ExpectedRefusal("coordinate_values", ("odd3", "20.01")),
    ]
    return Outcome(expected, reasons)


@cases
def hybrid_coefficients_differ(f: Folder) -> Outcome:
    """Auxiliary coordinates along an equal level number differ in one value."""
    expected = []
    for name, start, shift in (("c", 0, 0.0), ("b", 2, 0.0), ("a", 4, 0.5)):
        made = cube([start, start + 1])
        made["lat"] = (("lat",), np.arange(3), {"standard_name": "model_level_number", "units": "1"})
        made["ap"] = (("lat",), np.array([0.0, 10.0 + shift, 20.0]), {"long_name": "coefficient", "units": "Pa"})
        f(name, changed(made, "tas", coordinates="ap"))
        expected.append(made["tas"][1])
    joined = Expected(np.concatenate(expected[:2]), {"ap": [0.0, 10.0, 20.0]})
    texts = ("ap", r"\b1\b", "10.5", "a.nc")
    return Outcome([joined, Expected(expected[2], {"ap": [0.0, 10.5, 20.0]})], [ExpectedRefusal("coordinate", texts)])
