"""HTML of a master array for notebooks."""

from __future__ import annotations

from typing import Any

from aggarray.arrays.ragged import flat_of
from aggarray.cf.units import is_reference_time
from aggarray.display.cells import coordinate_of
from aggarray.display.html import details, words, wrapped
from aggarray.display.markup import breakable, escaped, shortened
from aggarray.display.matrix import partition_words, svg
from aggarray.display.timeline import Timeline, timeline
from aggarray.errors import AggarrayError
from aggarray.partition.stored_sizes import stored_chunk_shape
from aggarray.scan.progress import amount

#: The most gaps that are named.
_MOST_GAPS = 3


def array_html(array: Any) -> str:
    """Return the HTML of a master array without reading a file."""
    line = timeline(flat_of(array))
    facts = "".join(f"<tr><th>{escaped(name)}</th><td>{breakable(text)}</td></tr>" for name, text in facts_of(array, line))
    lines = [
        f"<b>{escaped(array.name or 'array')}</b> {escaped(words(array))}",
        f"<table><tbody>{facts}</tbody></table>",
        svg(array, gaps=[] if line is None else [(gap.begin, gap.end) for gap in line.steps]),
        details(f"Coordinates ({len(array.coords)})", [(n, words(c)) for n, c in array.coords.items()]),
        details(f"Attributes ({len(array.attrs)})", list(array.attrs.items())),
        details(f"Attributes of the files ({len(array.file_attrs)})", list(array.file_attrs.items())),
    ]
    return wrapped(lines)


def facts_of(array: Any, line: Timeline | None) -> list[tuple[str, str]]:
    """Return time range, coordinates, chunks, gaps and size as named texts.

    ``line``: the timeline of the array. No file is read: what is not known is left out.
    """
    facts = []
    if line is not None:
        facts.append(("time", " to ".join(dict.fromkeys(line.dates))))
    facts.append(("coordinates", ", ".join(filter(None, (_extent(array, d) for d in array.dimensions)))))
    facts.append(("partitions", partition_words(array).removeprefix("partitions: ").removeprefix("1, ")))
    chunk = stored_chunk(array)
    if chunk is not None:
        facts.append(("stored chunks", f"({', '.join(f'{d}: {n}' for d, n in chunk)})"))
    if line is not None and line.dimension is not None:
        more = [f"{len(line.steps) - _MOST_GAPS} more"] * (len(line.steps) > _MOST_GAPS)
        facts.append(("gaps", "; ".join([*(gap.text for gap in line.steps[:_MOST_GAPS]), *more]) or "none"))
    facts.append(("size", amount(int(array.nbytes), "bytes")))
    return [(name, text) for name, text in facts if text]


def _extent(array: Any, dimension: str) -> str:
    """Return the first and last value of a coordinate that is no time, or ""."""
    coordinate = coordinate_of(array, dimension)
    if coordinate is None or not coordinate.size or is_reference_time(coordinate.units):
        return ""
    try:
        first, last = coordinate[[0, -1]].tolist()
    except AggarrayError:
        return ""
    ends = [f"{v:.6g}" if isinstance(v, int | float) else shortened(v, 20) for v in (first, last)]
    units = {"degrees_north": "°N", "degrees_east": "°E"}.get(str(coordinate.units), f" {coordinate.units or ''}").rstrip()
    return f"{dimension} {' to '.join(dict.fromkeys(ends))}{units}"


def stored_chunk(array: Any) -> list[tuple[str, int]] | None:
    """Return the chunk shape of the first file, None unless an index has it."""
    references, refs = array._matrix.references, array._matrix.refs
    row = next(iter(refs[refs >= 0][:1].tolist()), None)
    if row is None or references.tables is None or references.stamp_of(row) is None:
        return None
    names, chunk = references.template_of(row).dimensions, stored_chunk_shape(references, row)
    return None if chunk is None or len(chunk) != len(names) else list(zip(names, chunk, strict=True))


#: What `aggarray.display.notebook.array_html` calls.
ARRAY_HTML = array_html
