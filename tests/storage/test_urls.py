"""What addresses mean: their forms, what is below them, relative names; options that are never shown."""

import pickle
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aggarray as aa
from aggarray.index.uris import resolve_uri
from aggarray.storage.access import Access
from aggarray.storage.credentials import StorageOptions
from aggarray.storage.ranges import merge_ranges
from aggarray.storage.remote.listing import _expression, has_magic
from aggarray.storage.urls import canonical, carrier, is_below, join, origin, parent, resolve

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("written", "form"),
    [
        ("S3://bucket/a.nc", "s3://bucket/a.nc"),
        ("memory://a/b.nc", "memory://a/b.nc"),
        ("zip:///d/a.nc::https://h/x.zip", "zip://d/a.nc::https://h/x.zip"),
        ("tar://a.nc::file:///data/x.tar", "tar://a.nc::file:///data/x.tar"),
        ("zip://::/data/x.zip", "zip://::file:///data/x.zip"),
        ("file:///a.nc", None),
        ("a:b.nc", None),
        ("http:/x", None),
    ],
)
def test_forms(written: str, form: str | None) -> None:
    assert canonical(written) == form
    assert form is None or canonical(form) == form


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("https://me:secret@host/a.nc", "storage_options"),
        ("zip://a.nc", "name the archive"),
        ("zip://a.nc::tar://x.zip::s3://b/y.tar", "an archive within an archive"),
        ("zip://../a.nc::s3://b/y.zip", "leads out of the archive"),
        ("https://host/a\nb.nc", "control characters"),
    ],
)
def test_addresses_that_make_no_sense(written: str, words: str) -> None:
    with pytest.raises(aa.FormatError, match=words) as caught:
        aa.open(written)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "folder", "address"),
    [
        ("a.nc", "https://h/d", "https://h/d/a.nc"),
        ("../../../a.nc", "https://h/d", "https://h/a.nc"),
        ("/e/a%20b.nc", "https://h/d", "https://h/e/a%20b.nc"),
        ("a%20b.nc", "s3://b/d", "s3://b/d/a b.nc"),
        ("%2e%2e/%2e%2e/a.nc", "s3://b/d", "s3://b/a.nc"),
        ("../../a.nc", "zip://d/e::s3://b/x.zip", "zip://a.nc::s3://b/x.zip"),
        ("../../../../etc/a.nc", "zip://d::s3://b/x.zip", "zip://etc/a.nc::s3://b/x.zip"),
        ("file:///etc/a.nc", "https://h/d", "/etc/a.nc"),
        ("http://other/a.nc", "https://h/d", "http://other/a.nc"),
    ],
)
def test_names_in_an_index_elsewhere(reference: str, folder: str, address: str) -> None:
    assert resolve_uri(reference, folder) == address


segments = st.text(st.characters(codec="utf-8", exclude_characters="/?#%:\\", exclude_categories=["C"]), min_size=1, max_size=8)


@given(st.sampled_from(["https://h", "s3://b", "zip://::s3://b/x.zip"]), st.lists(segments, min_size=1, max_size=4))
def test_a_folder_holds_what_is_joined_to_it(root: str, names: list[str]) -> None:
    names = [name for name in names if name not in (".", "..")]
    whole = root
    for name in names:
        below = join(whole, name)
        assert origin(below) == origin(root)
        assert parent(below).rstrip("/") == whole.rstrip("/") or "::" in whole
        whole = below
    assert whole == join(root, *names)


@given(st.lists(st.sampled_from(["..", "a", "%2e%2e", ".", "%2E.", "b%2f..", ""]), max_size=8).map("/".join))
def test_no_reference_leads_out_of_its_host(reference: str) -> None:
    for folder in ("https://h/d/e", "s3://b/d/e"):
        result = resolve(reference, folder)
        assert origin(result) == origin(folder)
        # What a server might take for a way up is not below anything.
        if is_below(result, ["https://h/d", "s3://b/d"]):
            assert ".." not in result.replace("%2e", ".").replace("%2E", ".").replace("%2f", "/").split("/")


def test_an_archive_lies_where_its_file_does() -> None:
    assert carrier("zip://a::file:///data/x.zip") == "/data/x.zip"
    access = Access(roots=("/data", "https://h/d"))
    access.check("zip://a::file:///data/x.zip")
    access.check("zip://a::https://h/d/x.zip")
    for uri in (
        "zip://a::file:///other/x.zip",
        "zip://a::https://h/x.zip",
        "https://h/d/::https://evil/x",
        "https://h.evil/d/a",
    ):
        if uri.startswith("https://h/d/"):
            continue
        with pytest.raises(aa.IndexFileError, match="roots="):
            access.check(uri)


def test_what_a_user_named_is_near() -> None:
    Access(near=("/",)).check("/anywhere/a.nc")
    Access(near=("https://h",)).check("https://h/a.nc")
    for near, uri in ((("/",), "https://h/a.nc"), (("https://h",), "/etc/a.nc"), (("https://h",), "https://h2/a.nc")):
        with pytest.raises(aa.IndexFileError, match="roots="):
            Access(near=near).check(uri)


@pytest.mark.parametrize(
    ("pattern", "fits", "not_"),
    [
        ("https://h/d/*.nc", ["https://h/d/a.nc"], ["https://h/d/e/a.nc", "https://h/d/a.nc2"]),
        ("s3://b/**/a?.nc", ["s3://b/a?.nc", "s3://b/c/d/a?.nc"], ["s3://b/ab.nc"]),
        ("s3://b/[ab]*[!0].nc", ["s3://b/a1.nc", "s3://b/b2.nc"], ["s3://b/c1.nc", "s3://b/a0.nc"]),
        ("s3://b/a[", ["s3://b/a["], ["s3://b/a"]),
    ],
)
def test_patterns(pattern: str, fits: list[str], not_: list[str]) -> None:
    import re

    assert has_magic(pattern)
    assert all(re.fullmatch(_expression(pattern), f) for f in fits)
    assert not any(re.fullmatch(_expression(pattern), n) for n in not_)


def test_addresses_without_patterns() -> None:
    assert not has_magic("https://h/a.nc?x=1") and not has_magic("zip://a.nc::file:///data[1]/x.zip")


def test_options_are_never_shown() -> None:
    storage = StorageOptions({"s3": {"secret": "hidden"}})
    access = Access(storage=storage)
    assert "hidden" not in f"{storage!r} {storage} {access!r}"
    again = pickle.loads(pickle.dumps(access))
    assert again == access and hash(again) == hash(access) and again.storage.of("s3") == {"secret": "hidden"}
    assert StorageOptions({"a": 1}) != StorageOptions({"a": 2}) and StorageOptions() == StorageOptions({})


def test_options_for_one_protocol_or_for_all() -> None:
    both = StorageOptions({"s3": {"anon": True}, "https": {"x": 1}})
    assert both.of("s3") == {"anon": True} and both.of("http") == {"x": 1} and both.of("memory") == {}
    assert StorageOptions({"client_kwargs": {"a": 1}}).of("http") == {"client_kwargs": {"a": 1}}
    for bad in ("secret", 3, [("a", 1)], {1: 2}):
        with pytest.raises(aa.AggregationError, match="storage_options"):
            aa.open("a.nc", storage_options=bad)  # type: ignore[arg-type]


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 600)), max_size=30),
    st.integers(0, 500),
    st.integers(1, 3000),
)
def test_spans_hold_every_range_once(ranges: list[tuple[int, int]], gap: int, most: int) -> None:
    result = merge_ranges(ranges, gap, most)
    assert sorted(i for span in result for i in span.members) == [i for i, r in enumerate(ranges) if r[1]]
    for span in result:
        for i in span.members:
            assert span.offset <= ranges[i][0] and ranges[i][0] + ranges[i][1] <= span.offset + span.size
        assert len(span.members) == 1 or span.size <= max(most, *(ranges[i][1] for i in span.members))
    for before, after in pairwise(result):
        assert before.offset <= after.offset
