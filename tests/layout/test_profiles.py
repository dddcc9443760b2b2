"""Profiles: those of the package, files of a user, and what is wrong in them."""

from pathlib import Path

import pytest

from aggarray.errors import AggregationError, MissingFileError
from aggarray.layout.checks import checks
from aggarray.layout.profiles import load_profile, profile_names

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("name", profile_names())
def test_every_figure_has_a_source(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name and profile.title
    for check, settings in profile.checks.items():
        assert len(settings["source"]) > 20
        assert set(checks()[check].required) <= settings.keys()
    assert all(number >= 0 for number in profile.limits)


def test_every_check_is_in_a_profile() -> None:
    assert set(checks()) == {check for name in profile_names() for check in load_profile(name).checks}


def test_a_file_changes_a_base(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('title = "ours"\nbase = "cloud"\nformats = false\n[chunk_size]\nleast = 5\n[bounds]\n')
    own, cloud = load_profile(path), load_profile("cloud")
    assert own.title == "ours" and own.limits == (5, cloud.limits[1])
    assert own.checks.keys() == cloud.checks.keys() - {"formats"} | {"bounds"}
    (tmp_path / "next.toml").write_text('base = "own.toml"\n[chunk_size]\nmost = 7\n')
    assert load_profile(tmp_path / "next.toml").limits == (5, 7)
    path.write_text("")
    assert load_profile(path).checks == load_profile(None).checks


def test_a_profile_without_sizes_has_the_usual_limits(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('base = "none"\n[bounds]\n')
    assert load_profile(path).limits == load_profile(None).limits


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("chunk_sizes = {}", ("'chunk_sizes' is not a check", "chunk_size")),
        ("chunk_size = 3", ("chunk_size = 3", "false")),
        ("[chunk_size]\nlest = 3", ("no setting 'lest'", "least")),
        ("[chunk_size]\nleast = -3", ("[chunk_size] least = -3", "at least 0")),
        ("[chunk_size]\nleast = true", ("least = True", "whole number")),
        ("[chunk_padding]\nmost = 'a'", ("most = 'a'", "a number")),
        ("[names]\nvariable = '('", ("variable = '('", "not a regular expression")),
        ("[attributes]\nmay_differ = 'x'", ("may_differ = 'x'", "a list of texts")),
        ("[attributes]\nmay_differ = ['(']", ("may_differ", "not a regular expression")),
        ("[metadata]\npaged = 1", ("paged = 1", "true or false")),
        ("[metadata]\npaged = true", ("[metadata] lacks tiny, scattered",)),
        ("base = 3", ("base = 3", "cmip7")),
        ("base = 'own.toml'", ("base=", "itself")),
        ("base = 'nothing'", ("no profile", "nothing")),
        ("title = 3", ("title = 3",)),
        ("a = ", ("not a valid TOML file",)),
    ],
)
def test_errors_name_what_is_wrong(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(AggregationError) as error:
        load_profile(path)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_unknown_names_and_files(tmp_path: Path) -> None:
    with pytest.raises(AggregationError, match=r"no profile 'cmip8'.*did you mean 'cmip7'"):
        load_profile("cmip8")
    with pytest.raises(MissingFileError, match=r"own\.toml"):
        load_profile(tmp_path / "own.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(AggregationError, match="cannot be read"):
        load_profile(tmp_path / "folder.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(AggregationError, match="not a valid TOML file"):
        load_profile(tmp_path / "bytes.toml")
