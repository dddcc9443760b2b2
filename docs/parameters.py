"""Parameter tables of the reference: an extension of Sphinx.

Docstrings describe a parameter in a sentence that begins with its name: "``path``: where to write." This extension moves
these sentences into a table with the type and the default of each parameter, and leaves types, private parameters and long
defaults out of signatures. The fields of a class have rows instead of entries of their own.
"""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx
from sphinx.util.inspect import safe_getattr
from sphinx.util.typing import stringify_annotation

#: Longest default that is shown.
LONGEST = 30
_NAMES = r"``\*{0,2}(\w+)``(?:(?:,| and) ``\w+``)*"
_START = re.compile(rf"(?:(?<=[.;] )|^){_NAMES}")
_NAME = re.compile(r"``(\w+)``")
#: Sentences that end the description of a parameter.
_END = re.compile(r"(?<=[.] )(?:Raises|Returns|An error) ")


def public(signature: inspect.Signature) -> list[inspect.Parameter]:
    """Return the parameters that users may give."""
    return [p for p in signature.parameters.values() if not p.name.startswith("_") and p.name not in ("self", "cls")]


def is_made_by_users(obj: Any) -> bool:
    """Return whether users call the object: no class whose parameters are private."""
    private = [p for p in _signature(obj).parameters.values() if p.name.startswith("_")]
    return not (inspect.isclass(obj) and private)


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
            rest += part[end.start() :]
            part = part[: end.start()]
        meaning = part[len(match[0]) :].strip().removesuffix(";")
        for name in _NAME.findall(match[0]):
            result[name] = meaning[1:].strip() if meaning.startswith(":") else part.strip()
    return rest.strip(), {name: meaning if meaning.endswith(".") else f"{meaning}." for name, meaning in result.items()}


def rows(obj: Any, meanings: dict[str, str], names: list[str]) -> Iterator[str]:
    """Yield the lines of a table of parameters, or of the fields of a class that users do not make."""
    signature = _signature(obj)
    is_class = inspect.isclass(obj)
    yield from (".. list-table::", "   :class: parameters", "   :header-rows: 1", "   :widths: 25 75", "")
    yield from (f"   * - {'Attribute' if is_class and not is_made_by_users(obj) else 'Parameter'}", "     - Meaning")
    for p in public(signature):
        if p.name not in names:
            continue
        default = default_of(p, obj) if is_made_by_users(obj) else None
        yield f"   * - ``{p.name}``" + ("" if default is None else f" ``= {default}``")
        kind = "" if p.annotation is p.empty else stringify_annotation(p.annotation, "smart").replace("~", "")
        meaning = meanings.get(p.name, "")
        yield f"     - {meaning[:1].upper()}{meaning[1:]}" if meaning else "     -"
        if kind:
            yield from ("", f"       :type:`{re.sub(r'(?:[a-z_]+[.])+(?=[A-Za-z])', '', kind)}`")
    yield ""


def tabulate(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Replace the descriptions of parameters in a docstring by a table."""
    signature = _signature(obj)
    names = [p.name for p in public(signature)] if signature else []
    if what not in ("class", "function", "method") or not names:
        return
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines).strip())
    meanings: dict[str, str] = {}
    texts = []
    for number, paragraph in enumerate(paragraphs):
        if number and not paragraph.startswith((">>>", "..")) and "\n>>>" not in paragraph:
            paragraph, found = split(" ".join(paragraph.split()), names)
            meanings |= found
        if paragraph:
            texts.append(paragraph)
    if not meanings and not (what == "class" and dataclasses.is_dataclass(obj)):
        return
    table = "\n".join(rows(obj, meanings, names))
    before = next((i for i, text in enumerate(texts) if ">>>" in text), len(texts))
    lines[:] = "\n\n".join([*texts[:before], table, *texts[before:], ""]).split("\n")
    if what == "class" and app.env is not None:
        domain = app.env.domains.python_domain
        for field in names:
            if f"{name}.{field}" in domain.objects:
                continue
            domain.note_object(f"{name}.{field}", "attribute", name, location=(app.env.docname, 0))


def shorten(app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str, result: str) -> tuple[str, str] | None:
    """Return the signature to show, and the type of the result."""
    parsed = _signature(obj)
    if signature is None or what not in ("class", "function", "method") or inspect.isclass(obj) and issubclass(obj, Exception):
        return None
    if what == "class":
        return (short(parsed, obj) if is_made_by_users(obj) else ""), ""
    return short(parsed, obj), result


def _signature(obj: Any) -> inspect.Signature:
    try:
        return inspect.signature(safe_getattr(obj, "__func__", obj))
    except (TypeError, ValueError):
        return inspect.Signature()


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the extension, and the role of types."""
    app.add_generic_role("type", __import__("docutils.nodes", fromlist=["literal"]).literal)
    app.connect("autodoc-process-signature", shorten)
    app.connect("autodoc-process-docstring", tabulate)
    return {"parallel_read_safe": True}
