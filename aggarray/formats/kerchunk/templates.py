"""How are kerchunk references of version 1 expanded that name files through templates, or generate many from one line?

The expressions between double braces are integers, text, names, arithmetic, ``"%03d" % i`` and templates called with text.
Jinja would do more than data should: nothing else is understood, and nothing grows beyond what a file may name.
"""

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

#: So many references at most are generated, from so many characters of an expression to so many of a name.
MOST, _EXPRESSION, _NAME = 1 << 20, 200, 1 << 12
_HOLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_FORMAT = re.compile(r"[^%]*%0?\d{0,2}[ds][^%]*")
_LARGEST = 2**63


def rendered(text: str, names: Mapping[str, Any], templates: Mapping[str, str]) -> str:
    """Return a text with its expressions replaced; ValueError for one that is not understood.

    ``templates``: text, itself with expressions of the names that it is called with.

    >>> rendered("{{u}}/{{f(c='x')}}_{{'%03d' % (i + 1)}}.nc", {"i": 4}, {"u": "/data", "f": "a{{c}}"})
    '/data/ax_005.nc'
    """
    if "{{" not in text:
        return text
    if len(text) > _NAME:
        raise ValueError(f"a text of {len(text)} characters, of which {_NAME} would do")
    made = _HOLE.sub(lambda hole: str(_value(_parsed(hole[1]), names, templates)), text)
    if len(made) > _NAME:
        raise ValueError(f"{text!r:.60} makes a name of {len(made)} characters, of which {_NAME} would do")
    return made


def _parsed(text: str) -> ast.expr:
    text = text.strip()
    if len(text) > _EXPRESSION:
        raise ValueError(f"an expression of {len(text)} characters, of which {_EXPRESSION} would do")
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"the expression {text!r:.60} is not understood") from error


def _value(node: ast.expr, names: Mapping[str, Any], templates: Mapping[str, str]) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) in (int, str):
        return _bounded(node.value)
    if isinstance(node, ast.Name):
        if node.id in names:
            return names[node.id]
        # A template without expressions is a plain text; one with them is called.
        if node.id in templates and "{{" not in templates[node.id]:
            return templates[node.id]
        raise ValueError(f"nothing is called {node.id!r:.60}")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_integer(_value(node.operand, names, templates))
    if isinstance(node, ast.BinOp):
        return _bounded(_operated(node.op, _value(node.left, names, templates), _value(node.right, names, templates)))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in templates and not node.args:
        given = {k.arg: _value(k.value, names, templates) for k in node.keywords if k.arg is not None}
        # What it is called with is all that a template knows: it calls no other.
        return rendered(templates[node.func.id], given, {})
    raise ValueError(f"the expression {ast.unparse(node)!r:.60} is not understood")


def _operated(operator: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(operator, ast.Mod) and isinstance(left, str):
        if _FORMAT.fullmatch(left) is None:
            raise ValueError(f"the format {left!r:.60} is not understood")
        return left % right
    left, right = _integer(left), _integer(right)
    if isinstance(operator, ast.Mod | ast.FloorDiv) and not right:
        raise ValueError("a division by 0")
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Sub):
        return left - right
    if isinstance(operator, ast.Mult):
        return left * right
    if isinstance(operator, ast.FloorDiv):
        return left // right
    if isinstance(operator, ast.Mod):
        return left % right
    raise ValueError(f"the operator {type(operator).__name__} is not understood")


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r:.60} is no whole number")
    return value


def _bounded(value: Any) -> Any:
    if type(value) is int and abs(value) >= _LARGEST:
        raise ValueError(f"{value:.3g} is more than 64 bits hold")
    return value


def generated(entry: Mapping[str, Any], templates: Mapping[str, str], room: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield the keys and references that one entry of ``gen`` stands for; ValueError for more than ``room`` of them.

    >>> entry = {"key": "tas/{{i}}", "url": "{{u}}", "offset": "{{i * 8}}", "length": "8", "dimensions": {"i": {"stop": 2}}}
    >>> list(generated(entry, {"u": "a.nc"}, 10))
    [('tas/0', ['a.nc', 0, 8]), ('tas/1', ['a.nc', 8, 8])]
    """
    texts = {field: entry[field] for field in ("key", "url", "offset", "length") if field in entry}
    if not {"key", "url"} <= set(texts) or ("offset" in texts) != ("length" in texts):
        raise ValueError("an entry has key and url, and both of offset and length or neither")
    if not all(isinstance(text, str) for text in texts.values()) or not isinstance(entry.get("dimensions"), Mapping):
        raise ValueError("an entry has text and dimensions")
    values = {name: _range(given) for name, given in entry["dimensions"].items()}
    if math.prod(map(len, values.values())) > room:
        raise ValueError(f"more than {MOST} references from one file's entries")
    for chosen in product(*values.values()):
        names = dict(zip(values, chosen, strict=True))
        made = {field: rendered(text, names, templates) for field, text in texts.items()}
        place = [int(made["offset"]), int(made["length"])] if "offset" in made else []
        yield made["key"], [made["url"], *place]


def _range(given: Any) -> Sequence[Any]:
    if isinstance(given, list) and all(type(v) in (int, str) for v in given):
        return given
    ends = [given.get("start", 0), given.get("stop"), given.get("step", 1)] if isinstance(given, Mapping) else []
    if not ends or not all(type(v) is int and abs(v) < _LARGEST for v in ends) or not ends[2]:
        raise ValueError(f"{given!r:.60} is neither a list nor a range")
    # An empty range, where it runs the other way.
    return range(*ends) if abs(ends[1] - ends[0]) // abs(ends[2]) <= MOST else range(MOST + 1)
