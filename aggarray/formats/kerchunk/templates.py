"""Templates and generators of kerchunk references, version 1.

Expressions between double braces are integers, text, names, arithmetic, ``"%03d" % i`` and calls of templates with text.
Jinja is not used because it runs code. Any other expression raises ValueError. The number and length of the results are
bounded.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

#: Largest number of generated references, length of an expression and length of a name.
MOST, _EXPRESSION, _NAME = 1 << 20, 200, 1 << 12
_HOLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_FORMAT = re.compile(r"[^%]*%0?\d{0,2}[ds][^%]*")
_LARGEST = 2**63
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul},
    **{ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod},
}


def render(text: str, names: Mapping[str, Any], templates: Mapping[str, str]) -> str:
    """Return a text with its expressions replaced.

    Raises ValueError for an unsupported expression. ``templates``: texts by name, with expressions of their arguments.

    >>> render("{{u}}/{{f(c='x')}}_{{'%03d' % (i + 1)}}.nc", {"i": 4}, {"u": "/data", "f": "a{{c}}"})
    '/data/ax_005.nc'
    """
    if "{{" not in text:
        return text
    if len(text) > _NAME:
        raise ValueError(f"a text of {len(text)} characters exceeds the limit of {_NAME}")
    result = _HOLE.sub(lambda hole: str(_evaluate(_parse(hole[1]), names, templates)), text)
    if len(result) > _NAME:
        raise ValueError(f"{text!r:.60} gives a name of {len(result)} characters, more than {_NAME}")
    return result


def _parse(text: str) -> ast.expr:
    text = text.strip()
    if len(text) > _EXPRESSION:
        raise ValueError(f"an expression of {len(text)} characters exceeds the limit of {_EXPRESSION}")
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"invalid expression {text!r:.60}") from error


def _evaluate(node: ast.expr, names: Mapping[str, Any], templates: Mapping[str, str]) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) in (int, str):
        return _bounded(node.value)
    if isinstance(node, ast.Name):
        if node.id in names:
            return names[node.id]
        # A template without expressions is a text. A template with expressions is called.
        if node.id in templates and "{{" not in templates[node.id]:
            return templates[node.id]
        raise ValueError(f"unknown name {node.id!r:.60}")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_integer(_evaluate(node.operand, names, templates))
    if isinstance(node, ast.BinOp):
        return _bounded(_operate(node.op, _evaluate(node.left, names, templates), _evaluate(node.right, names, templates)))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in templates and not node.args:
        arguments = {k.arg: _evaluate(k.value, names, templates) for k in node.keywords if k.arg is not None}
        # A template sees only its arguments and cannot call another template.
        return render(templates[node.func.id], arguments, {})
    raise ValueError(f"unsupported expression {ast.unparse(node)!r:.60}")


def _operate(operation: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(operation, ast.Mod) and isinstance(left, str):
        if _FORMAT.fullmatch(left) is None:
            raise ValueError(f"unsupported format {left!r:.60}")
        return left % right
    left, right = _integer(left), _integer(right)
    if type(operation) not in _OPERATORS:
        raise ValueError(f"unsupported operator {type(operation).__name__}")
    if isinstance(operation, ast.Mod | ast.FloorDiv) and not right:
        raise ValueError("division by 0")
    return _OPERATORS[type(operation)](left, right)


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r:.60} is not an integer")
    return value


def _bounded(value: Any) -> Any:
    if type(value) is int and abs(value) >= _LARGEST:
        raise ValueError(f"{value:.3g} is out of range for 64 bits")
    return value


def generate(entry: Mapping[str, Any], templates: Mapping[str, str], limit: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield the keys and references of one entry of ``gen``.

    Raises ValueError for more than ``limit`` references.

    >>> entry = {"key": "tas/{{i}}", "url": "{{u}}", "offset": "{{i * 8}}", "length": "8", "dimensions": {"i": {"stop": 2}}}
    >>> list(generate(entry, {"u": "a.nc"}, 10))
    [('tas/0', ['a.nc', 0, 8]), ('tas/1', ['a.nc', 8, 8])]
    """
    texts = {field: entry[field] for field in ("key", "url", "offset", "length") if field in entry}
    if not {"key", "url"} <= set(texts) or ("offset" in texts) != ("length" in texts):
        raise ValueError("an entry needs key and url, and offset and length both or neither")
    if not all(isinstance(text, str) for text in texts.values()) or not isinstance(entry.get("dimensions"), Mapping):
        raise ValueError("an entry needs fields of text and an object of dimensions")
    values = {name: _range(stated) for name, stated in entry["dimensions"].items()}
    if math.prod(map(len, values.values())) > limit:
        raise ValueError(f"more than {MOST} references are generated")
    for combination in product(*values.values()):
        names = dict(zip(values, combination, strict=True))
        fields = {field: render(text, names, templates) for field, text in texts.items()}
        byte_range = [int(fields["offset"]), int(fields["length"])] if "offset" in fields else []
        yield fields["key"], [fields["url"], *byte_range]


def _range(stated: Any) -> Sequence[Any]:
    if isinstance(stated, list) and all(type(v) in (int, str) for v in stated):
        return stated
    ends = [stated.get("start", 0), stated.get("stop"), stated.get("step", 1)] if isinstance(stated, Mapping) else []
    if not ends or not all(type(v) is int and abs(v) < _LARGEST for v in ends) or not ends[2]:
        raise ValueError(f"{stated!r:.60} is neither a list nor a range")
    # A range too long to generate gives one that exceeds the limit.
    return range(*ends) if abs(ends[1] - ends[0]) // abs(ends[2]) <= MOST else range(MOST + 1)
