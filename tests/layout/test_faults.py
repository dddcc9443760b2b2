"""Archives with one fault: it is found and named with its files, and nothing else is."""

from pathlib import Path

import pytest

import aggarray as aa
from tests.layout.archives import FAULTS, Fault, clean, write


@pytest.mark.parametrize("profile", ["default", "cmip7", "cloud"])
def test_a_clean_archive_has_no_finding(tmp_path: Path, profile: str) -> None:
    report = aa.open(write(tmp_path / "a", clean(profile))).check_layout(profile)
    assert report.ok and report.problems == ()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_once(tmp_path: Path, fault: Fault) -> None:
    files = fault.change(clean(fault.profile))
    folder = write(tmp_path / "a", files)
    report = aa.open(folder).check_layout(None if fault.profile == "default" else fault.profile)
    assert not report.ok
    found = [problem for problem in report.problems if problem.kind == fault.kind]
    assert [problem.kind for problem in report.problems] == [fault.kind] * len(found), report.problems
    assert all(any(word in problem.message for problem in found) for word in fault.words), report.problems
    assert {Path(f).name for f in found[0].files} == {files[n].name for n in fault.files}
    assert found[0].file == found[0].files[0]
