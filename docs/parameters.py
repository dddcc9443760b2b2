"""Parameter tables of the reference: an extension of Sphinx.

Docstrings describe a parameter in a sentence that begins with its name: "``path``: where to write." This extension moves
these sentences into a table with the type and the default of each parameter, and leaves types, private parameters and long
defaults out of signatures. The fields of a class have rows instead of entries of their own.
"""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

from docutils.nodes import literal
from sphinx.application import Sphinx
from sphinx.domains.python import ObjectEntry
from sphinx.environment import BuildEnvironment
from sphinx.util.inspect import safe_getattr
from sphinx.util.typing import stringify_annotation

#: Longest default that is shown.
LONGEST = 30
#: Meanings of parameters that mean the same everywhere.
COMMON = {
    "P": "the grid of processes",
    "P_x": "the group that sends",
    "P_y": "the group that receives",
    "array": "the array",
    "axes_keep": "axes of the grid that the result keeps",
    "axes_reduce": "axes of the grid to sum over",
    "block": "the memory that holds the elements",
    "block_size": "elements per block",
    "buffer": "the values of the section, padding included",
    "cache_bytes": "bytes of the cache of decoded chunks, at least 0",
    "calendar": "the calendar of reference times",
    "comm": "a communicator of mpi4py, or a ProcessGroup",
    "copy": "True for a native, aligned, writable buffer; None for a view where possible; False for a view or an error",
    "coverage": "the fraction of the matrix that files must cover for holes to be filled",
    "dilation": "the distance between the points of the kernel",
    "dim_data": "one dimension dictionary per dimension",
    "dim_data_of_every_rank": "the dim_data of all processes, by rank",
    "dimensions": "names of the dimensions",
    "directions": "True for each increasing dimension",
    "distribution": "the distribution over processes",
    "dtype": "the type of the elements",
    "embedded": "this is the array that its block was made with",
    "file": "address of the file",
    "fill_value": "the value of missing elements",
    "kernel_size": "points of the kernel",
    "key": "NumPy keys: integers, slices, Ellipsis, one index array or mask per dimension",
    "maps": "one map per dimension",
    "masked": "return a masked array",
    "message": "what is wrong, in one line",
    "name": "the name of the array",
    "nbytes": "size in bytes",
    "nprocs": "number of processes",
    "obj": "any object that NumPy accepts",
    "offset": "the byte at which the array begins",
    "open_files": "files open at once, at least 1",
    "outer": "the meaning of the padding at the ends: boundary or wrap",
    "padding": "elements on each side",
    "path": "where to write",
    "pcalendar": "calendar in the file",
    "pdimensions": "dimensions of the partition in the file",
    "pdirections": "directions of these dimensions in the file",
    "periodic": "the dimension is periodic",
    "problems": "the problems found",
    "punits": "units in the file",
    "rank": "number of the process",
    "reason": "the reason",
    "rows": "one sequence of samples per row",
    "shape": "sizes of the dimensions",
    "size": "size of the dimension",
    "source": "where values are read from",
    "stride": "the step of the kernel",
    "target": "the version to write",
    "threads": "threads that read, at least 1",
    "transpose_dest": "reverse the dimensions of the receiving grid",
    "transpose_src": "reverse the dimensions of the sending grid",
    "units": "the units of the values",
    "values": "the elements",
    "variable": "name of the variable, None for a whole file",
    "version": "the version of the protocol: 0.10.0 or 0.9.0",
    "x_ranks": "ranks of the sending grid, in C order",
    "y_ranks": "ranks of the receiving grid, in C order",
    "y_shape": "shape of the receiving grid",
}
#: Meanings in one place that are others elsewhere.
SPECIAL = {
    "Duplicate.array": "name of the array",
    "Duplicate.file": "address of the copy",
    "Duplicate.kept": "address of the file that is read",
    ".sel.given": "labels as a mapping, for dimensions whose names are no identifiers",
    ".sel.labels": "by dimension: a label, a list of labels or a slice of labels",
    ".sel.method": "nearest, pad or backfill, for labels without an exact match",
    ".sel.tolerance": "the largest distance between a label and its match",
    "ProcessGroup.grid.shape": "number of processes along each dimension",
    "RaggedRepartition.source": "the distribution of the samples before",
    "RaggedRepartition.target": "the distribution of the samples after",
    "Refusal.arrays": "names of the two arrays",
    "Refusal.files": "addresses of a file of each",
    "Refusal.rule": "a short key for the reason: overlap, grid, units, ...",
    "Refusal.reason": "the reason, in one line",
    "Repartition.source": "the distribution before",
    "Repartition.target": "the distribution after",
    "Report.ok": "there is no problem",
    "halo_widths.padding": "elements that the kernel sees beyond each end",
    "local.a": "the array",
    "reading.open.source": "as in aggarray.open",
}
#: Pages and anchors of the classes whose fields are in tables, by the names of the fields.
fields: dict[str, tuple[str, str]] = {}
_NAMES = r"``\w+``(?:(?:,| and) ``\w+``)*"
_START = re.compile(rf"(?:(?<=[.;] )|^){_NAMES}")
_DOTS = re.compile(r"(?<![.])([.]|[.]{3})[.]$")
_MODULE = re.compile(r"(?:[a-z_]+[.])+(?=[A-Za-z])")
_NAME = re.compile(r"``(\w+)``")
#: The end of a sentence, which ends the description of a parameter.
_END = re.compile(r"[.] (?=[A-Z`])")


def public(signature: inspect.Signature) -> list[inspect.Parameter]:
    """Return the parameters that users may give."""
    return [p for p in signature.parameters.values() if not p.name.startswith("_") and p.name not in ("self", "cls")]


def is_made_by_users(obj: Any) -> bool:
    """Return whether users call the object: no class whose parameters are private."""
    private = [p for p in _signature(obj).parameters.values() if p.name.startswith("_")]
    return not (inspect.isclass(obj) and (private or issubclass(obj, Enum)))


def default_of(parameter: inspect.Parameter, obj: Any) -> str | None:
    """Return a default as code, shortened; None if there is none."""
    if parameter.default is inspect.Parameter.empty:
        return None
    value = parameter.default
    if dataclasses.is_dataclass(obj):
        for field in dataclasses.fields(obj):
            if field.name == parameter.name and field.default_factory is not dataclasses.MISSING:
                value = field.default_factory()
    if dataclasses.is_dataclass(type(value)) and value == type(value)():
        return f"{type(value).__name__}()"
    return text if len(text := repr(value)) <= LONGEST else "..."


def short(signature: inspect.Signature, obj: Any) -> str:
    """Return a signature without types and private parameters."""
    words, keywords_begin = [], True
    for p in public(signature):
        if p.kind is p.KEYWORD_ONLY and keywords_begin and not any(w.startswith("*") for w in words):
            words.append("*")
            keywords_begin = False
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = default_of(p, obj)
        words.append(f"{stars}{p.name}" if default is None else f"{stars}{p.name}={default}")
    return f"({', '.join(words)})"


def split(text: str, names: list[str]) -> tuple[str, dict[str, str]]:
    """Return a paragraph without the descriptions of parameters, and these by name.

    >>> split("It writes. ``a``: one. ``b``, ``c``: two; three. Raises ValueError.", ["a", "b", "c"])
    ('It writes. Raises ValueError.', {'a': 'one.', 'b': 'two; three.', 'c': 'two; three.'})
    """
    starts = [m for m in _START.finditer(text) if set(_NAME.findall(m[0])) & set(names)]
    rest, result = text[: starts[0].start()] if starts else text, {}
    for number, match in enumerate(starts):
        stop = starts[number + 1].start() if number + 1 < len(starts) else len(text)
        part = text[match.start() : stop]
        if end := _END.search(part):
            rest += f"{part[end.end() :].rstrip()} "
            part = part[: end.start()]
        meaning = part[len(match[0]) :] if part[len(match[0]) :].startswith((":", " None:")) else part
        for name in _NAME.findall(match[0]):
            result[name] = _DOTS.sub(r"\1", f"{meaning.lstrip(': ').rstrip('; ')}.")
    return rest.strip(), result


def described(obj: Any, docstring: str) -> tuple[list[str], dict[str, str]]:
    """Return the paragraphs of a docstring without the descriptions of parameters, and these by name."""
    names = [p.name for p in public(_signature(obj))]
    texts, meanings = [], {}
    for number, paragraph in enumerate(re.split(r"\n\s*\n", docstring.strip())):
        text = paragraph
        if number and ">>>" not in paragraph and not paragraph.startswith(".."):
            text, found = split(" ".join(paragraph.split()), names)
            meanings |= found
        texts += [text] if text else []
    return texts, meanings


def table(obj: Any, meanings: dict[str, str]) -> dict[str, str]:
    """Return the rows of the table of an object: meanings by name; none if its docstring says it all."""
    parameters = public(_signature(obj))
    if inspect.isclass(obj) and not is_made_by_users(obj):
        return {p.name: meanings[p.name] for p in parameters if p.name in meanings}
    if not meanings and len(parameters) < 3 and not dataclasses.is_dataclass(obj):
        return {}
    special = {
        name: text
        for name, text in SPECIAL.items()
        if f"{obj.__module__}.{obj.__qualname__}.".endswith(f"{name.rpartition('.')[0]}.")
    }
    special = {name.rpartition(".")[2]: f"{text}." for name, text in special.items()}
    common = {name: f"{text}." for name, text in COMMON.items()} | special
    return {p.name: meanings.get(p.name) or common.get(p.name, "") for p in parameters}


def rows(obj: Any, meanings: dict[str, str]) -> Iterator[str]:
    """Yield the lines of a table of parameters, or of the fields of a class that users do not make."""
    is_call = is_made_by_users(obj)
    yield from (".. list-table::", "   :class: parameters", "   :header-rows: 1", "   :widths: auto", "")
    yield from (f"   * - {'Parameter' if is_call else 'Attribute'}", "     - Meaning")
    for p in public(_signature(obj)):
        if p.name in meanings:
            default = default_of(p, obj) if is_call else None
            kind = (
                "" if p.annotation is p.empty else _MODULE.sub("", stringify_annotation(p.annotation, "smart").replace("~", ""))
            )
            meaning = meanings[p.name]
            yield f"   * - ``{p.name}``" + ("" if default is None else f" ``= {default}``")
            yield f"     - {meaning[:1].upper()}{meaning[1:]}"
            if kind and kind != "Any":
                yield from ("", f"       :type:`{kind}`")
    yield ""


def tabulate(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Replace the descriptions of parameters in a docstring by a table."""
    if what not in ("class", "function", "method"):
        return
    if what == "class":
        attributes = [*(p.name for p in public(_signature(obj))), *(field for field in vars(obj) if not field.startswith("_"))]
        fields.update({f"{name}.{field}": (app.env.docname, name) for field in attributes})
    texts, meanings = described(obj, "\n".join(lines))
    if found := table(obj, meanings):
        before = next((i for i, text in enumerate(texts) if ">>>" in text), len(texts))
        lines[:] = "\n\n".join([*texts[:before], "\n".join(rows(obj, found)), *texts[before:], ""]).split("\n")


def register(app: Sphinx, env: BuildEnvironment) -> None:
    """Let names of fields in tables resolve to their class."""
    objects = env.domains.python_domain.objects
    for name, (page, anchor) in fields.items():
        objects.setdefault(name, ObjectEntry(page, anchor, "attribute", False))


def shorten(app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str, result: str) -> tuple[str, str] | None:
    """Return the signature to show: without types where a table has them."""
    if signature is None or what not in ("class", "function", "method"):
        return None
    if not is_made_by_users(obj):
        return "", ""
    if not table(obj, described(obj, inspect.getdoc(obj) or "")[1]):
        return None
    return short(_signature(obj), obj), result


def _signature(obj: Any) -> inspect.Signature:
    try:
        return inspect.signature(safe_getattr(obj, "__func__", obj))
    except (TypeError, ValueError):
        return inspect.Signature()


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the extension, and the role of types."""
    app.add_generic_role("type", literal)
    app.connect("autodoc-process-signature", shorten)
    app.connect("autodoc-process-docstring", tabulate)
    app.connect("env-updated", register)
    return {"parallel_read_safe": True}
