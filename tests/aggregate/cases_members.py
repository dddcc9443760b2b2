"""Cases of new dimensions from attributes or file names, and of presets."""

from typing import Any

import numpy as np

from tests.support.cases import LATS, LONS, Cases, Expected, ExpectedRefusal, Folder, Made, Outcome, Problem, changed, one, tas
from tests.support.netcdf import TAS, cube, field

cases = Cases()
DIMENSIONS = ("time", "lat", "lon")
TEXT = np.dtypes.StringDType()


def _member(times: Any, number: float) -> Made:
    made = cube(times)
    return changed(made, "tas", made["tas"][1] + np.float32(number))


def _ensemble(times: Any, numbers: Any, name: str, labels: Any, **more: Any) -> Expected:
    values = np.stack([field(times, LATS, LONS) + np.float32(n) for n in numbers])
    kind = labels if not isinstance(labels[0], str) else np.array(labels, TEXT)
    coords = {name: kind, "time": times, "lat": LATS, "lon": LONS}
    return Expected(more.pop("values", values), coords, (name, *DIMENSIONS), **more)


@cases
def members_by_an_attribute(f: Folder) -> Outcome:
    """variant_label becomes a dimension in natural order, and is no facet."""
    for number in (10, 1, 2):
        for start in (0, 2):
            label = f"r{number}i1p1f1"
            f(
                f"f{(number * 7 + start) % 5}_{label}",
                _member([start, start + 1], number),
                {"source_id": "A", "variant_label": label},
            )
    labels = ["r1i1p1f1", "r2i1p1f1", "r10i1p1f1"]
    return one(
        _ensemble(range(4), (1, 2, 10), "variant_label", labels, attrs={"source_id": "A"}),
        rules={"new_dimension": "variant_label"},
        problems=[],
    )


@cases
def members_by_a_number(f: Folder) -> Outcome:
    """Whole numbers stay numbers: int32 in one file, text in another."""
    for name, number in (("b", np.int32(1)), ("c", "2"), ("a", np.int16(10))):
        f(name, _member([0, 1], int(number)), {"realization": number})
    return one(_ensemble([0, 1], (1, 2, 10), "realization", [1, 2, 10]), rules={"new_dimension": "realization"})


@cases
def members_by_a_pattern(f: Folder) -> Outcome:
    """A part of the path, the folder or the name."""
    for number in (10, 1, 2):
        for part in (0, 1):
            f(f"run/tas_r{number}i1p1f1_{9 - part}", _member([2 * part, 2 * part + 1], number))
    labels = ["r1i1p1f1", "r2i1p1f1", "r10i1p1f1"]
    return one(_ensemble(range(4), (1, 2, 10), "member", labels), rules={"new_dimension": r"member=_(r\d+i\d+p\d+f\d+)_"})


@cases
def members_by_a_pattern_of_numbers(f: Folder) -> Outcome:
    """Whole numbers in the path are integers, leading zeros and all."""
    for number in (3, 20, 100):
        f(f"mem{number:03}/tas", _member([0, 1], number))
    return one(_ensemble([0, 1], (3, 20, 100), "member", [3, 20, 100]), rules={"new_dimension": r"member=mem(\d+)/"})


@cases
def models_as_a_dimension(f: Folder) -> Outcome:
    """Models on one grid, with equal times."""
    for name, model, number in (("a", "MPI-ESM", 2), ("b", "CESM2", 1)):
        f(name, _member([0, 1], number), {"source_id": model, "experiment_id": "historical"})
    return one(_ensemble([0, 1], (1, 2), "source_id", ["CESM2", "MPI-ESM"]), rules={"new_dimension": "source_id"})


@cases
def members_without_the_dimension(f: Folder) -> Outcome:
    """Without the rule: one array per member."""
    for name, label, number in (("a", "r2i1p1f1", 2), ("b", "r1i1p1f1", 1)):
        f(name, _member([0, 1], number), {"variant_label": label})
    expected = [tas([0, 1], values=field([0, 1], LATS, LONS) + np.float32(n)) for n in (1, 2)]
    return Outcome(expected, [ExpectedRefusal("variant_label", ("r1i1p1f1", "r2i1p1f1", "a.nc", "b.nc"))])


@cases
def a_single_member(f: Folder) -> Outcome:
    """One member gives a dimension of size 1."""
    f("b", _member([0, 1], 3), {"variant_label": "r3i1p1f1"})
    f("a", _member([2, 3], 3), {"variant_label": "r3i1p1f1"})
    return one(_ensemble(range(4), (3,), "variant_label", ["r3i1p1f1"]), rules={"new_dimension": "variant_label"})


@cases
def a_member_that_ends_early(f: Folder) -> Outcome:
    """A quarter is missing: joined, and the hole is reported."""
    for name, label, start in (("a", "r2i1p1f1", 0), ("c", "r1i1p1f1", 0), ("b", "r1i1p1f1", 2)):
        f(name, _member([start, start + 1], int(label[1])), {"variant_label": label})
    labels = ["r1i1p1f1", "r2i1p1f1"]
    values = np.stack([field(range(4), LATS, LONS) + np.float32(n) for n in (1, 2)])
    values[1, 2:] = np.nan
    expected = _ensemble(range(4), (1, 2), "variant_label", labels, values=values)
    return one(expected, rules={"new_dimension": "variant_label"}, problems=[Problem("hole", ("tas",))])


@cases
def members_that_never_meet(f: Folder) -> Outcome:
    """Two members of different times cover half: separate ensembles of one."""
    for name, label, start in (("a", "r2i1p1f1", 2), ("b", "r1i1p1f1", 0)):
        f(name, _member([start, start + 1], int(label[1])), {"variant_label": label})
    expected = [_ensemble([n * 2 - 2, n * 2 - 1], (n,), "variant_label", [f"r{n}i1p1f1"]) for n in (1, 2)]
    return Outcome(expected, [ExpectedRefusal("coverage", ("50%", "a.nc", "b.nc"))], rules={"new_dimension": "variant_label"})


@cases
def a_member_on_another_grid(f: Folder) -> Outcome:
    """One member on another grid stays separate."""
    for name, number in (("c", 1), ("a", 2)):
        f(name, _member([0, 1], number), {"variant_label": f"r{number}"})
    f("b", cube([0, 1], [10.0, 20.01, 30.0]), {"variant_label": "r3"})
    odd = np.asarray(field([0, 1], [10.0, 20.01, 30.0], LONS))[None]
    expected = [
        _ensemble([0, 1], (1, 2), "variant_label", ["r1", "r2"]),
        Expected(odd, {"lat": [10.0, 20.01, 30.0]}, ("variant_label", *DIMENSIONS)),
    ]
    return Outcome(
        expected, [ExpectedRefusal("coordinate_values", ("lat", "20.01", "b.nc"))], rules={"new_dimension": "variant_label"}
    )


@cases
def a_file_without_the_attribute(f: Folder) -> Outcome:
    """A file without the member attribute stays separate."""
    for name, number in (("c", 1), ("a", 2)):
        f(name, _member([0, 1], number), {"variant_label": f"r{number}"})
    f("b", cube([0, 1]))
    expected = [_ensemble([0, 1], (1, 2), "variant_label", ["r1", "r2"]), tas([0, 1])]
    return Outcome(expected, [ExpectedRefusal("", ("variant_label", "b.nc"))], rules={"new_dimension": "variant_label"})


@cases
def members_and_other_facets(f: Folder) -> Outcome:
    """Other facets separate as usual: two models of two members each."""
    for model, offset in (("B", 100), ("A", 0)):
        for number in (2, 1):
            f(
                f"{model}{9 - number}",
                _member([0, 1], offset + number),
                {"source_id": model, "variant_label": f"r{number}i1p1f1"},
            )
    labels = ["r1i1p1f1", "r2i1p1f1"]
    expected = [
        _ensemble([0, 1], (o + 1, o + 2), "variant_label", labels, attrs={"source_id": m}) for m, o in (("A", 0), ("B", 100))
    ]
    return Outcome(expected, [ExpectedRefusal("source_id", ("'A'", "'B'"))], rules={"new_dimension": "variant_label"})


@cases
def the_same_member_twice(f: Folder) -> Outcome:
    """Two files of one member that overlap with other values are separate."""
    for name, number, label in (("b", 1, "r1"), ("a", 2, "r1"), ("c", 2, "r2")):
        f(name, _member([0, 1], number), {"variant_label": label})
    twin = _ensemble([0, 1], (1,), "variant_label", ["r1"])
    expected = [_ensemble([0, 1], (2, 2), "variant_label", ["r1", "r2"]), twin]
    return Outcome(expected, [ExpectedRefusal("overlap", ("a.nc", "b.nc"))], rules={"new_dimension": "variant_label"})


# ERA5: final data (expver 1) and preliminary data (expver 5)

EXPVER = {"long_name": "experiment version"}


def _era5(times: Any, final: int, number: float = 0.0) -> Made:
    """Return a file of final data up to step ``final``, then preliminary.

    Preliminary values are higher by 0.5.
    """
    made = cube(times)
    values = np.full((len(times), 2, 3, 2), np.nan, "f4")
    values[:final, 0] = made["tas"][1][:final]
    values[final:, 1] = made["tas"][1][final:] + np.float32(0.5)
    made["expver"] = (("expver",), np.array([1, 5], "i4"), EXPVER)
    made["tas"] = (("time", "expver", "lat", "lon"), values, {**TAS, "_FillValue": np.float32(np.nan)})
    return made


@cases
def era5_mixed_as_a_dimension(f: Folder) -> Outcome:
    """expver as a dimension of two: final data where available."""
    f("a", _era5(range(4), 3))
    values = field(range(4), LATS, LONS)
    values[3] += 0.5
    return one(tas(range(4), values=values, coords={"expver": [1, 1, 1, 5]}), rules="era5")


@cases
def era5_final_files_and_a_mixed_one(f: Folder) -> Outcome:
    """Earlier files have no expver at all: they are final."""
    f("c", cube([0, 1]))
    f("b", cube([2, 3]))
    f("a", _era5([4, 5], 1))
    values = field(range(6), LATS, LONS)
    values[5] += 0.5
    return one(tas(range(6), values=values, coords={"expver": [1, 1, 1, 1, 1, 5]}), rules="era5")


@cases
def era5_along_time(f: Folder) -> Outcome:
    """expver as text along time is kept."""
    for name, start, versions in (("b", 0, ["0001", "0001"]), ("a", 2, ["0001", "0005"])):
        made = cube([start, start + 1])
        made["expver"] = (("time",), np.array(versions), EXPVER)
        f(name, changed(made, "tas", coordinates="expver"))
    return one(tas(range(4), coords={"expver": np.array(["0001", "0001", "0001", "0005"])}), rules="era5")


@cases
def era5_preliminary_and_final_overlap(f: Folder) -> Outcome:
    """Preliminary and final data of the same days: the final ones serve."""
    for name, version, add in (("a", 5, 0.5), ("b", 1, 0.0)):
        made = _member([0, 1], add)
        made["expver"] = (("time",), np.array([version] * 2, "i4"), EXPVER)
        f(name, changed(made, "tas", coordinates="expver"))
    return one(tas([0, 1], coords={"expver": [1, 1]}), rules="era5")


@cases
def era5_missing_in_both(f: Folder) -> Outcome:
    """Values missing in both versions are missing.

    A step with any final value is final.
    """
    made = _era5(range(3), 2)
    made["tas"][1][:, :, 1, 0] = np.nan
    f("a", made)
    values = field(range(3), LATS, LONS)
    values[2] += 0.5
    values[:, 1, 0] = np.nan
    return one(tas(range(3), values=values, coords={"expver": [1, 1, 5]}), rules="era5")


@cases
def era5_without_the_preset(f: Folder) -> Outcome:
    """Without the preset, expver is an ordinary dimension."""
    made = _era5(range(4), 3)
    f("a", made)
    return one(Expected(made["tas"][1], {"expver": [1, 5]}, ("time", "expver", "lat", "lon")))


@cases
def era5_files_of_months(f: Folder) -> Outcome:
    """The preset does not change files without versions."""
    for name, start in (("c", 0), ("a", 2), ("b", 4)):
        f(name, cube([start, start + 1]))
    return one(tas(range(6)), rules="era5")
