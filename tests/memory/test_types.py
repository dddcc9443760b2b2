"""Tests of the notation of types: printing, parsing, and the types of arrays."""

from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import aggarray as aa
from aggarray.dap import Distribution, LocalArray
from aggarray.memory import Type, array, parse_type, type_string, view
from aggarray.memory.types import STRIDED, VAR

pytestmark = pytest.mark.quick

TEXT = np.dtypes.StringDType()

EXAMPLES = {
    "12 * 73 * 144 * float32": Type((12, 73, 144), np.dtype("f4")),
    "40 * var * float64": Type((40, VAR), np.dtype("f8")),
    "strided * strided * int32": Type((STRIDED, STRIDED), np.dtype("i4")),
    "12 * string": Type((12,), TEXT),
    "unaligned[byteswap[float64]]": Type((), np.dtype(">f8"), unaligned=True),
    "3 * ?int16": Type((3,), np.dtype("i2"), option=True),
    "?unaligned[byteswap[uint32]]": Type((), np.dtype(">u4"), True, True),
    "bool": Type((), np.dtype("?")),
    "0 * float16": Type((0,), np.dtype("f2")),
    "float128": Type((), np.dtype("g")),
    "complex[float64]": Type((), np.dtype("c16")),
    "byteswap[complex[float32]]": Type((), np.dtype(">c8")),
    "2 * string[10,'A']": Type((2,), np.dtype("S10")),
    "2 * string[10,'U32']": Type((2,), np.dtype("U10")),
    "byteswap[string[1,'U32']]": Type((), np.dtype(">U1")),
    "bytes[4]": Type((), np.dtype("V4")),
    "datetime[unit='ns']": Type((), np.dtype("M8[ns]")),
    "byteswap[timedelta[unit='25s']]": Type((), np.dtype(">m8[25s]")),
    "datetime": Type((), np.dtype("M8")),
    "5 * {x: int32, y: 2 * 3 * byteswap[float64]}": Type((5,), np.dtype([("x", "i4"), ("y", ">f8", (2, 3))])),
    "{'a b': int8, 'it\\'s': {z: string[2,'A']}}": Type((), np.dtype([("a b", "i1"), ("it's", [("z", "S2")])])),
}


@pytest.mark.parametrize("text", EXAMPLES)
def test_printed_and_parsed(text: str) -> None:
    assert str(EXAMPLES[text]) == text
    assert parse_type(text) == EXAMPLES[text]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("  3*  ?  int16 ", "3 * ?int16"),
        ("complex64", "complex[float32]"),
        ("string[ 3 , 'ascii' ]", "string[3,'A']"),
        ("byteswap[byteswap[int16]]", "int16"),
        ("{}", "{}"),
    ],
)
def test_other_ways_to_write(text: str, same: str) -> None:
    assert str(parse_type(text)) == same


@pytest.mark.parametrize(
    "text",
    [
        *("", "3", "3 *", "* int32", "3 int32", "int32 int32", "float31", "3 * var", "? * int32", "-1 * int32", "1.5 * int32"),
        *(
            "unaligned[int32",
            "byteswap[",
            "byteswap[3 * int32]",
            "byteswap[string]",
            "complex[int32]",
            "string[0,'A']",
            "string[3]",
            "string[3,'latin']",
        ),
        *("string[99999999999,'A']", "bytes", "bytes[x]", "datetime[unit='moon']", "datetime[s]", "datetime[x='s']", "'int32'"),
        *("{x int32}", "{x: int32 y: int32}", "{x: string}", "{x: var * int32}", "{x: int32, x: int32}", "{x: ?int32}"),
        *("{a: " * 40 + "int32" + "}" * 40, "{", "{x:", "int32]", "\n", "var", None, 5, b"int32", "object"),
    ],
)
def test_invalid_types(text: Any) -> None:
    with pytest.raises(aa.AggarrayError) as caught:
        parse_type(text)
    assert "\n" not in str(caught.value).replace("\\n", "") or text == "\n"


PIECES = (*"[]{}*?:,='0123 ", "var", "int32", "string", "byteswap", "unaligned", "datetime")


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_parser_raises_only_its_own_errors(text: str) -> None:
    try:
        result = parse_type(text)
    except aa.AggarrayError:
        return
    assert parse_type(str(result)) == result


@given(
    st.lists(st.one_of(st.integers(0, 10**6), st.sampled_from([VAR, STRIDED])), max_size=4),
    st.one_of(hnp.scalar_dtypes(), hnp.array_dtypes(allow_subarrays=True)),
    st.booleans(),
    st.booleans(),
)
def test_types_round_trip(dims: list[Any], dtype: np.dtype[Any], option: bool, unaligned: bool) -> None:
    fields = (dtype.fields or {}).values()
    if any(part.itemsize == 0 for part in (dtype, *(field[0] for field in fields))) or any(len(field) > 2 for field in fields):
        return  # text of no length has no notation, nor have fields of two names
    kind = Type(tuple(dims), dtype, option, unaligned)
    assert parse_type(str(kind)) == kind


def test_arrays_in_memory() -> None:
    big = np.zeros((3, 4), ">f8")
    assert type_string(big) == type_string(view(big)) == "3 * 4 * byteswap[float64]"
    assert type_string(view(big)[1, ::2]) == "2 * byteswap[float64]"
    assert type_string(np.zeros(17, "i1")[1:].view(">f8")) == "2 * unaligned[byteswap[float64]]"
    assert type_string(array(["a", "b"])) == "2 * string" and type_string(b"abc") == "3 * uint8"
    assert type_string(np.float32(1)) == "float32"
    with pytest.raises(aa.AggarrayError, match="Python objects"):
        type_string(np.array([None]))


def test_sub_arrays_and_master_arrays() -> None:
    plain = aa.SubArray.from_array(np.zeros(2, "i2"))
    holed = aa.SubArray.from_array(np.zeros(2, ">i2"), fill_value=-1)
    assert type_string(plain) == "2 * int16" and type_string(holed) == "2 * ?int16"
    assert type_string(aa.SubArray.from_array(["a"])) == "1 * string"

    def joined(*pieces: aa.SubArray, shape: int | None = None) -> aa.MasterArray:
        placed = [([(2 * n, 2 * n + 2)], piece) for n, piece in enumerate(pieces)]
        return aa.MasterArray.from_subarrays(placed, dimensions=("x",), shape=None if shape is None else (shape,))

    assert type_string(joined(plain, plain)) == "4 * int16"
    both = joined(plain, holed)
    assert type_string(both) == "4 * ?int16"
    assert type_string(both.lazy[:2]) == "2 * int16" and type_string(both.lazy[1:3]) == "2 * ?int16"
    assert type_string(joined(plain, shape=3)) == "3 * ?int16", "the last element is not covered"
    assert type_string(both.astype("f4")) == "4 * ?float32"
    dist = Distribution.regular((4,), "b", (2,))
    local = both.local(dist, 1)
    assert type_string(local) == "2 * ?int16"
    local.buffer  # noqa: B018
    assert type_string(local) == "2 * ?int16"
    assert type_string(LocalArray.from_distarray(local.__distarray__())) == "2 * int16"


def test_variables_of_files(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
        file.createDimension("t", None)
        packed = file.createVariable("packed", "i2", ("t",), fill_value=-1)
        packed.scale_factor = np.float32(0.5)
        file.createVariable("plain", "f8", ("t",))
        packed[:] = [1, 2, 3]
    assert type_string(aa.SubArray.from_file(path, "packed")) == "3 * ?float32"
    assert type_string(aa.SubArray.from_file(path, "plain")).endswith("float64")
    assert type_string(aa.SubArray.from_file(path, "plain").read(copy=None)).endswith("byteswap[float64]]")


def test_the_sample_archive(sample_archive: Path) -> None:
    assert type_string(aa.open(sample_archive)["tas"]).startswith("365 * 18 * 36 * ")
