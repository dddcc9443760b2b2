"""Constructors and signatures of `aggarray.dataclass`, made on demand.

A constructor is compiled for a class of many instances, for a signature, or to report wrong arguments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

#: Attribute of a dataclass with its fields.
_FIELDS = "__dataclass_fields__"


class _Factory:
    """Shown as the default of an argument whose value a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


def compile_constructor(cls: Any) -> Callable[..., Any]:
    """Return ``__init__`` of a dataclass or ``__new__`` of a named tuple."""
    declaration = cls.__dict__.get(_FIELDS)
    return _new(cls) if declaration is None else _init(cls, declaration.fields.values(), declaration.frozen)


def _init(cls: Any, fields: Iterable[Any], frozen: bool) -> Callable[..., None]:
    names: dict[str, Any] = {"_set": object.__setattr__, "_factory": _Factory()}
    parameters, lines = ["self"], []
    for field in fields:
        name = value = field.name
        default, arguments = "", field.arguments
        if "default" in arguments:
            names[default := f"_default_{name}"] = arguments["default"]
        elif "default_factory" in arguments:
            names[f"_make_{name}"] = arguments["default_factory"]
            default, value = "_factory", f"_make_{name}() if {name} is _factory else {name}"
        if field.init:
            parameters.append(f"{name}={default}" if default else name)
        else:
            value = f"_make_{name}()" if default == "_factory" else default
        if value:
            lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "\n  ".join(lines or ["pass"])
    made: dict[str, Any] = {}
    exec(
        f"def make({', '.join(names)}):\n def __init__({', '.join(parameters)}):\n  {body}\n return __init__",
        _names_in(cls.__module__),
        made,
    )
    init: Callable[..., None] = made["make"](**names)
    init.__annotations__ = {f.name: f.type for f in fields if f.init} | {"return": None}
    init.__module__, init.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
    return init


def _new(cls: Any) -> Callable[..., Any]:
    names, defaults = cls._fields, cls._field_defaults
    arguments = ", ".join(f"{item}=_defaults[{item!r}]" if item in defaults else item for item in names)
    text = f"lambda _make, _defaults: lambda _cls, {arguments}: _make(_cls, ({', '.join(names)},))"
    new: Callable[..., Any] = eval(text, _names_in(cls.__module__))(tuple.__new__, defaults)
    new.__name__, new.__qualname__, new.__annotations__ = "__new__", f"{cls.__name__}.__new__", cls.__annotations__
    return new


def _names_in(module: str) -> dict[str, Any]:
    """Return the names of a module, in which annotations are looked up."""
    return sys.modules[module].__dict__ if module in sys.modules else {}


def signature_of(owner: Any) -> Any:
    """Return the signature of a class, or of a subclass that inherits it.

    Raises AttributeError for a subclass with a constructor of its own.
    """
    cls = next(base for base in owner.__mro__ if "__signature__" in base.__dict__)
    constructor = "__init__" if _FIELDS in cls.__dict__ else "__new__"
    if getattr(owner, constructor) is not getattr(cls, constructor):
        raise AttributeError("__signature__")
    import inspect

    signature = inspect.signature(compile_constructor(cls))
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def standard_class(fields: Iterable[Any]) -> Any:
    """Return a class made by `dataclasses.dataclass` with these fields."""
    import dataclasses

    content = {field.name: dataclasses.field(**field.arguments) for field in fields}
    # Without a docstring, the decorator would compute the signature.
    content |= {"__doc__": "_", "__annotations__": {field.name: field.type for field in fields}}
    return dataclasses.dataclass(init=False, repr=False, eq=False)(type("_", (), content))
