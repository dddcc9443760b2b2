"""Lines of Python and of the shell that open each array of a page."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from aggarray.aggregate.rules import Rules
from aggarray.arrays.master import MasterArray
from aggarray.arrays.ragged import RaggedMasterArray, flat_of
from aggarray.dataclass import NamedTuple, fields
from aggarray.display.facets import facet_columns
from aggarray.display.markup import printable
from aggarray.display.overview import arrays_by_file
from aggarray.opening.provenance import Selection
from aggarray.opening.where import TextSelection

if TYPE_CHECKING:
    from aggarray.opening.aggregation import Aggregation

#: Rules that are options of commands.
_OPTIONS = ("along", "order", "new_dimension", "separate_by", "overlap", "holes", "units", "trust")
#: The longest name of an output, without its suffix.
_LONGEST_NAME = 80
#: The most files that a line names.
_MOST_FILES = 20


class Lines(NamedTuple):
    """What opens one array: a line of Python, and one of the shell ("": none)."""

    python: str = ""
    shell: str = ""


def lines_of(agg: Aggregation, source: Sequence[str] | None) -> list[Lines]:
    """Return the lines for each array; empty ones where no line can be given.

    ``source``: the paths that `open` took, None = the index that the aggregation was opened from.
    """
    paths = [p if "://" in p else os.path.abspath(p) for p in source or list(agg._provenance.saved)[:1]]
    if not paths or not all(printable(p) == p for p in paths):
        return [Lines()] * len(agg)
    changed = {} if agg._provenance.saved else _changed(agg._provenance.rules)
    rules = f", rules=aa.Rules({', '.join(f'{name}={value!r}' for name, value in changed.items())})" if changed else ""
    options = _options(changed)
    names, cells = facet_columns(agg.arrays)
    # The file or folder is no attribute.
    kept = [n for n, name in enumerate(names) if any(_conditions(array, [name]) for array in agg)]
    names, cells = [names[n] for n in kept], [tuple(own[n] for n in kept) for own in cells]
    selected = [name for s in agg._provenance.selections for name in _attributes(s)]
    names_count = Counter(array.name for array in agg)
    equal = Counter((array.name, own) for array, own in zip(agg, cells, strict=True))
    lines = []
    for array, own, own_files in zip(agg, cells, _own_files(agg), strict=True):
        needed = names if names_count[array.name] > 1 else []
        conditions = _conditions(array, [*needed, *selected])
        is_alone = equal[array.name, own] == 1
        if not conditions.keys() >= set(needed):
            # Attributes that are missing, or have another name in the file.
            is_alone = sum(other.name == array.name and Selection(None, conditions).fits(other) for other in agg) == 1
        files = [] if is_alone else own_files
        chosen, given = ({}, files) if files else (conditions, paths)
        shell = "" if options is None else _shell(array, chosen, shlex.join([*given, *options]), files)
        python = _python(array, chosen, f"aa.open({(given[0] if len(given) == 1 else given)!r}{rules})")
        lines.append(Lines(python, shell) if array.name and (is_alone or files) else Lines())
    return lines


def _own_files(agg: Aggregation) -> list[list[str]]:
    """Return the files that make each array without others of its name, or []."""
    tables = [(array.name, flat_of(array)._matrix.references.uris) for array in agg]
    files = [(name, sorted(map(str, uris)) if len(uris) <= _MOST_FILES else []) for name, uris in tables]
    by_file = arrays_by_file(agg.arrays, {file for _, own in files for file in own})
    serving = Counter((agg.arrays[n].name, file) for file, numbers in by_file.items() for n in numbers)
    # References name files that are no source of their own.
    sources = set() if agg._provenance.saved else {s.uri for s in agg._provenance.structures() if printable(s.uri) == s.uri}
    return [own if sources.issuperset(own) and all(serving[name, f] == 1 for f in own) else [] for name, own in files]


def _changed(rules: Rules) -> dict[str, Any]:
    """Return the fields of rules that are not the default ones."""
    values = {f.name: getattr(rules, f.name) for f in fields(rules)}
    return {n: dict(v) if isinstance(v, Mapping) else v for n, v in values.items() if v != getattr(Rules(), n)}


def _options(changed: Mapping[str, Any]) -> list[str] | None:
    """Return rules as options of commands, None where one has no option."""
    options = []
    for name, value in changed.items():
        if name not in _OPTIONS or value is None or value == ():
            return None
        items = value.items() if isinstance(value, dict) else value if isinstance(value, tuple | list) else [value]
        texts = ["=".join(item) if isinstance(item, tuple) else str(item) for item in items]
        options += [word for text in texts for word in (f"--{name.replace('_', '-')}", text)]
    return options


def _attributes(selection: Selection | TextSelection) -> Iterable[str]:
    """Return the names of the attributes of a selection, of text or values."""
    return selection.attributes if isinstance(selection, Selection) else selection.patterns


def _conditions(array: MasterArray, names: Sequence[str]) -> dict[str, Any]:
    """Return attributes by which an array is selected, those that it has."""
    own = {"units": array.units, "calendar": array.calendar, **array.file_attrs, **array.attrs}
    present = {name: value for name in names if (value := own.get(name)) is not None}
    return {name: value.item() if getattr(value, "size", 0) == 1 else value for name, value in present.items()}


def _python(array: MasterArray, conditions: Mapping[str, Any], opened: str) -> str:
    name = array.name or ""
    if all(key.isidentifier() and not iskeyword(key) and key not in ("name", "self") for key in conditions):
        chosen = ", ".join(f"{key}={value!r}" for key, value in conditions.items())
    else:
        chosen = f"**{dict(conditions)!r}"
    select = f".select({name!r}, {chosen})" if conditions else ""
    variable = name if name.isidentifier() and name.isascii() and not iskeyword(name) and name != "aa" else "array"
    line = f"import aggarray as aa; {variable} = {opened}{select}[{name!r}]"
    return line if printable(line) == line else ""


def _shell(array: MasterArray, conditions: Mapping[str, Any], source: str, files: Sequence[str]) -> str:
    """Return the line that extracts an array, "" without.

    ``files``: the first one names the output, as no attribute distinguishes the array.
    """
    texts = {key: str(value) for key, value in conditions.items()}
    if isinstance(array, RaggedMasterArray) or any("=" in key or not text for key, text in texts.items()):
        return ""
    stem = re.sub(
        r"[^\w.+-]+",
        "-",
        "_".join([array.name or "", *texts.values(), *(os.path.splitext(os.path.basename(f))[0] for f in files[:1])]),
        flags=re.ASCII,
    ).strip("-._")
    words = ["-v", array.name or "", *(word for key, text in texts.items() for word in ("--where", f"{key}={text}"))]
    line = f"aggarray extract {source} {shlex.join(words)} -o {stem[:_LONGEST_NAME] or 'array'}.nc"
    return line if printable(line) == line and not (array.name or "").startswith("-") else ""
