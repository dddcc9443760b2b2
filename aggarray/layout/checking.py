"""Check of the layout of an aggregation against a profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from aggarray.aggregate.differences import short_paths
from aggarray.aggregate.report import Problem, Report
from aggarray.layout.archives import array_layouts, files_of, scan_layouts
from aggarray.layout.base import Archive, Extract, Finding
from aggarray.layout.checks import checks
from aggarray.layout.profiles import Profile
from aggarray.opening.provenance import Listing
from aggarray.storage.urls import is_remote

if TYPE_CHECKING:
    from aggarray.formats.partial_scan import FileLayout
    from aggarray.opening.aggregation import Aggregation
    from aggarray.scan.progress import Progress

#: Files that a message names.
_NAMED = 3
#: Files that a line names; of more, it names their folder.
_MOST_FILES = 20


def check_layout(
    agg: Aggregation, profile: Profile, source: Sequence[str] | None = None, progress: Progress | None = None
) -> Report:
    """Report what differs from a profile; see `Aggregation.check_layout`.

    ``source``: the paths that were opened, for the lines of the shell, None = the index or the files.
    """
    with agg._provenance.access.reach():
        layouts, problems = scan_layouts(files_of(agg.arrays), progress)
        problems += _unknown(layouts)
        archive = Archive(tuple(layouts.values()), tuple(array_layouts(agg.arrays, layouts)), profile.limits, profile.repack)
        lines: list[str] | None = None
        for name, finding in _merged(archive, profile):
            if isinstance(finding.remedy, Extract) and lines is None:
                lines = _extract_lines(agg, source, list(layouts))
            problems.append(_problem(name, finding, lines or []))
    return Report(not problems, Listing(problems))


def _merged(archive: Archive, profile: Profile) -> Iterator[tuple[str, Finding]]:
    """Yield the findings; those of equal text in several arrays are one."""
    known = checks()
    for name, settings in profile.checks.items():
        merged: dict[tuple[str, str], Finding] = {}
        for finding in known[name].find(archive, settings):
            earlier = merged.get((finding.text, finding.note))
            if earlier is not None:
                files = tuple(dict.fromkeys([*earlier.files, *finding.files]))
                examined = max(len(files), min(len(archive.files), earlier.examined + finding.examined))
                remedy = earlier.remedy
                if not isinstance(remedy, Extract) and not isinstance(finding.remedy, Extract):
                    remedy = {**finding.remedy, **remedy}
                finding = earlier._replace(files=files, examined=examined, remedy=remedy)
            merged[finding.text, finding.note] = finding
        yield from ((name, finding) for finding in merged.values())


def _problem(name: str, finding: Finding, lines: Sequence[str]) -> Problem:
    remedy, notes = finding.remedy, [finding.note]
    remedies: list[str] = []
    if isinstance(remedy, Extract):
        line = lines[remedy.array] if remedy.array < len(lines) else ""
        head, _, output = line.rpartition(" -o ")
        remedies = [" ".join([head, *remedy.options, "-o", output])] if line else []
        notes += [] if line else ["write the files again"]
    elif remedy and is_remote(finding.files[0]):
        # The tools mend local files in place.
        notes.append("fetch the files, mend and upload them")
    else:
        remedies = [remedy[file] for file in finding.files if file in remedy]
    names = ", ".join(short_paths(list(finding.files[:_NAMED])))
    more = ", ..." * (len(finding.files) > _NAMED)
    where = f"{len(finding.files)} of {finding.examined} files ({names}{more})" if finding.examined > 1 else names
    message = "; ".join(filter(None, [f"{finding.text} in {where}", *notes]))
    return Problem(name, finding.files[0], message, finding.files, tuple(remedies))


def _extract_lines(agg: Aggregation, source: Sequence[str] | None, files: Sequence[str]) -> list[str]:
    """Return the line that extracts each array, "" where there is none."""
    from aggarray.display.report.lines import lines_of
    from aggarray.partition.file_names import common_folder

    if source is None and not agg._provenance.saved:
        source = files if len(files) <= _MOST_FILES else [common_folder(list(files))]
    return [line.shell for line in lines_of(agg, source)]


def _unknown(layouts: Mapping[str, FileLayout]) -> list[Problem]:
    """Return the files whose layout their format does not describe."""
    reasons: dict[str, list[str]] = {}
    for uri, layout in layouts.items():
        if layout.reason:
            reasons.setdefault(layout.reason, []).append(uri)
    found = (Finding(f"layout unknown: {reason}", tuple(files), len(layouts)) for reason, files in reasons.items())
    return [_problem("unexamined", finding, []) for finding in found]
