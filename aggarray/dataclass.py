"""Dataclasses and named tuples that are made ten times as fast.

The standard library compiles up to six functions per class, and makes an object per field. Here, classes share most methods
and attributes, which look up the fields when they are used. Only ``__init__`` or ``__new__`` is compiled, and that only for a
class of many instances, for a signature, or to report wrong arguments. ``fields``, ``replace``, signatures and pickles work as
usual.
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable
from functools import cached_property
from operator import attrgetter, itemgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import fields as fields
    from dataclasses import replace as replace
    from typing import NamedTuple as NamedTuple


class _OnDemand:
    """Class attribute whose value a function computes when it is read."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self.function(owner)


def _compile_constructor(cls: Any) -> Callable[..., Any] | None:
    """Return the compiled constructor, None if no module can be imported."""
    try:
        from aggarray.constructors import compile_constructor
    except (ImportError, OSError):  # the interpreter ends, or too many files are open
        return None
    return compile_constructor(cls)


def _signature(owner: Any) -> Any:
    from aggarray.constructors import signature_of

    return signature_of(owner)


_SIGNATURE = _OnDemand(_signature)
#: Attribute of a dataclass with its fields.
_FIELDS = "__dataclass_fields__"
#: Marks a field without a default.
_MISSING: Any = object()
#: Numbers of tuples and of other instances that are created before the constructor is compiled, which takes as long.
_FEW_TUPLES, _FEW = 64, 128


def _named_tuple(name: str, content: dict[str, Any]) -> Any:
    annotate = content.get("__annotate_func__")  # from Python 3.14 on, annotations are evaluated on demand
    names = tuple(content.get("__annotations__", {}) if annotate is None else annotate(1))
    defaults = {item: content[item] for item in names if item in content}
    content["__doc__"] = content.get("__doc__") or f"{name}({', '.join(names)})"
    content |= {item: _getter(number, f"Alias for field number {number}") for number, item in enumerate(names)}
    content = _TUPLE_METHODS | content
    content |= {"__slots__": (), "_fields": names, "_field_defaults": defaults, "__match_args__": names}
    count = 0

    def construct(cls: Any, /, *arguments: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        present, more = {**defaults, **named}, names[len(arguments) :]
        fits = len(arguments) <= len(names) and named.keys() <= {*more} <= present.keys()
        compiled = _compile_constructor(made) if count > _FEW_TUPLES or not fits else None
        if compiled is not None:
            if made.__new__ is construct:
                made.__new__ = staticmethod(compiled)
            return compiled(cls, *arguments, **named)  # reports wrong arguments
        if not fits:
            raise TypeError(f"wrong arguments of {name}")
        return tuple.__new__(cls, [*arguments, *[present[item] for item in more]])

    content["__new__"] = construct
    made: Any = type(name, (tuple,), content)
    return made


def _make_tuple(cls: Any, items: Any) -> Any:
    """Return a value with these items."""
    made = tuple.__new__(cls, items)
    if len(made) != len(cls._fields):
        raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
    return made


def _replace_items(self: Any, /, **changes: Any) -> Any:
    """Return the value with other items of some names."""
    items = [changes.pop(name, item) for name, item in zip(self._fields, self, strict=True)]
    if changes:
        error = TypeError if sys.version_info >= (3, 13) else ValueError
        raise error(f"Got unexpected field names: {list(changes)!r}")
    return self._make(items)


def _represent_tuple(self: Any) -> str:
    return f"{type(self).__name__}({', '.join(f'{name}={item!r}' for name, item in zip(self._fields, self, strict=True))})"


#: The standard library's property of an item is in C, where it has one.
_getter: Any = getattr(collections, "_tuplegetter", lambda number, doc: property(itemgetter(number), doc=doc))
_TUPLE_METHODS = {
    "_make": classmethod(_make_tuple),
    "_replace": _replace_items,
    "_asdict": lambda self: dict(zip(self._fields, self, strict=True)),
    "__repr__": _represent_tuple,
    "__getnewargs__": lambda self: (*self,),
    "__signature__": _SIGNATURE,
}


if not TYPE_CHECKING:

    class _NamedTupleMaker(type):
        """Type of `NamedTuple`, whose subclasses are tuples with named items."""

        def __new__(cls, name: str, bases: tuple[type, ...], content: dict[str, Any]) -> type:
            return _named_tuple(name, content) if bases else super().__new__(cls, name, bases, content)

    class NamedTuple(metaclass=_NamedTupleMaker):
        """Base of tuples with named items, as `typing.NamedTuple`.

        >>> class Pair(NamedTuple):
        ...     first: int
        ...     second: int = 2
        >>> Pair(1), Pair(second=1, first=0)._replace(first=5), Pair(1) == (1, 2)
        (Pair(first=1, second=2), Pair(first=5, second=1), True)
        """


if not TYPE_CHECKING:

    def dataclass(*, frozen: bool = False, slots: bool = False, eq: bool = True, repr: bool = True) -> Callable[[type], type]:
        """Return a class decorator as of `dataclasses.dataclass`.

        Fields given by keyword only, ``InitVar`` and the other options are not supported.

        >>> @dataclass(frozen=True, slots=True)
        ... class Span:
        ...     start: int
        ...     stop: int = 9
        >>> Span(1), Span(1) == Span(1, 9), replace(Span(1), stop=3)
        (Span(start=1, stop=9), True, Span(start=1, stop=3))
        """

        def decorate(plain: Any) -> type:
            declaration = _Declaration(plain, frozen)
            content: dict[str, Any] = {_FIELDS: declaration, **_ATTRIBUTES}
            if "__init__" not in plain.__dict__:
                content |= {"__init__": _constructor(declaration), "__signature__": _SIGNATURE}
            content |= {"__repr__": _represent} if repr else {}
            content |= _comparison(declaration) if eq else {}
            content |= _FROZEN if frozen else {}
            content |= {"__getstate__": _state, "__setstate__": _restore} if frozen and slots else {}
            content |= plain.__dict__.copy()
            content["__doc__"] = content["__doc__"] or plain.__name__
            declaration.cls = (_with_slots if slots else _extended)(plain, declaration, content)
            return declaration.cls

        return decorate

    def replace(value: Any, /, **changes: Any) -> Any:
        """Return a value with other fields, as `dataclasses.replace`."""
        all_fields = fields(value)
        made = {field.name for field in all_fields if not field.init}
        if not made.isdisjoint(changes):
            raise TypeError(f"fields without an argument: {', '.join(sorted(made & changes.keys()))}")
        return type(value)(**{f.name: getattr(value, f.name) for f in all_fields if f.init} | changes)

    def fields(value: Any) -> tuple[Any, ...]:
        """Return the fields, with the main attributes of `dataclasses.Field`."""
        own = _declaration_of(value if isinstance(value, type) else type(value))
        if isinstance(own, _Declaration):
            return (*own.fields.values(),)
        import dataclasses

        return dataclasses.fields(value)


class _Field(NamedTuple):
    """Field of a class; `_Declaration` adds the name and the type."""

    default: Any = _MISSING
    default_factory: Any = _MISSING
    init: bool = True
    repr: bool = True
    compare: bool = True
    name: str = ""
    type: Any = None

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of `dataclasses.field` that declare this field."""
        return {name: value for name, value in zip(self._fields[:5], self, strict=False) if value is not _MISSING}


#: Options of a field that only has a default.
_OPTIONS = _Field()[1:5]

if not TYPE_CHECKING:

    def field(*, default=_MISSING, default_factory=_MISSING, **options: bool) -> _Field:
        """Return the declaration of a field; ``options``: init, repr, compare."""
        if default is not _MISSING and default_factory is not _MISSING:
            raise ValueError("cannot specify both default and default_factory")
        return _Field(default, default_factory, **options)


class _Declaration:
    """Declared fields and options of a dataclass.

    ``types`` and ``defaults``: annotations, and default values or `field` declarations, by name; ``compared``: whether values
    are compared by a field, also by inherited ones. As a descriptor, it returns the fields as `dataclasses.Field` objects.
    """

    def __init__(self, plain: Any, frozen: bool) -> None:
        self.cls, self.frozen = plain, frozen
        bases = [base.__dict__.get(_FIELDS) for base in plain.__mro__[-1:0:-1]]
        self.bases = [base for base in bases if isinstance(base, _Declaration)]
        # Annotations are texts where `annotations` is imported from `__future__`.
        self.types = {n: a for n, a in plain.__annotations__.items() if not str(a).startswith(("ClassVar", "typing.ClassVar"))}
        self.defaults: dict[str, Any] = {}
        self.compared: dict[str, bool] = {name: compared for base in self.bases for name, compared in base.compared.items()}
        for name in self.types:
            default = plain.__dict__.get(name, _MISSING)
            if type(default).__module__ == "dataclasses":
                raise TypeError(f"{name} of {plain.__name__} is declared by dataclasses.field, not the one here")
            if default is not _MISSING:
                self.defaults[name] = default
            self.compared[name] = type(default) is not _Field or default.compare

    @cached_property
    def fields(self) -> dict[str, _Field]:
        """The fields by name, inherited ones first."""
        fields = {name: field for base in self.bases for name, field in base.fields.items()}
        for name, annotation in self.types.items():
            default = self.defaults.get(name, _MISSING)
            facts = default[:5] if type(default) is _Field else (default, *_OPTIONS)
            fields[name] = tuple.__new__(_Field, (*facts, name, annotation))
        return fields

    @cached_property
    def construct(self) -> Callable[..., None]:
        """The present constructor."""
        return _interpreter(self)

    @cached_property
    def standard(self) -> Any:
        """The standard dataclass with the same fields."""
        from aggarray.constructors import standard_class

        return standard_class(self.fields.values())

    def __get__(self, instance: Any, owner: Any) -> Any:
        return getattr(self.standard, _FIELDS)


def _declaration_of(cls: Any) -> Any:
    """Return ``__dataclass_fields__`` of the nearest class, unbound, or None."""
    for base in cls.__mro__:
        if _FIELDS in base.__dict__:
            return base.__dict__[_FIELDS]
    return None


def _extended(plain: Any, declaration: _Declaration, content: dict[str, Any]) -> Any:
    """Return the class itself with this content."""
    for name, value in content.items():
        if name in declaration.defaults and isinstance(value, _Field):
            delattr(plain, name)
            value = value.default
        if value is not _MISSING and plain.__dict__.get(name, _MISSING) is not value:
            setattr(plain, name, value)
    return plain


def _with_slots(plain: Any, declaration: _Declaration, content: dict[str, Any]) -> Any:
    """Return a class with slots for the fields, and this content."""
    for name in (*declaration.compared, "__dict__", "__weakref__"):
        content.pop(name, None)
    inherited = {name for base in plain.__mro__[1:-1] for name in base.__dict__.get("__slots__", ())}
    content["__slots__"] = tuple(name for name in declaration.compared if name not in inherited)
    return type(plain)(plain.__name__, plain.__bases__, {**content, "__qualname__": plain.__qualname__})


def _constructor(declaration: _Declaration) -> Callable[..., None]:
    def construct(self: Any, *arguments: Any, **named: Any) -> None:
        if (cls := declaration.cls).__init__ is construct:
            cls.__init__ = declaration.construct
        declaration.construct(self, *arguments, **named)

    return construct


def _interpreter(declaration: _Declaration) -> Callable[..., None]:
    """Return an ``__init__`` that replaces itself with a compiled one."""
    cls, fields = declaration.cls, declaration.fields.values()
    put: Callable[..., None] = object.__setattr__ if declaration.frozen else setattr
    completes, count = hasattr(cls, "__post_init__"), 0
    names = tuple(field.name for field in fields if field.init)
    defaults = {field.name: field.default for field in fields if field.default is not _MISSING}
    factories = {field.name: field.default_factory for field in fields if field.default_factory is not _MISSING}
    required = (every := {*names}).difference(defaults, factories)
    order = tuple(name for name in declaration.fields if name in every or name in defaults or name in factories)

    def construct(self: Any, *arguments: Any, **named: Any) -> None:
        nonlocal count
        count += 1
        given = dict(zip(names, arguments)) | named  # noqa: B905 - too many are refused below
        fits = len(given) == len(arguments) + len(named) and required <= given.keys() <= every
        compiled = _compile_constructor(cls) if count > _FEW or not fits else None
        if compiled is not None:
            declaration.construct = compiled
            if cls.__init__ is construct:
                cls.__init__ = compiled
            compiled(self, *arguments, **named)  # reports wrong arguments
            return
        if not fits:
            raise TypeError(f"wrong arguments of {cls.__name__}")
        for name in order:
            if name in given:
                put(self, name, given[name])
            elif name in defaults:
                put(self, name, defaults[name])
            else:
                put(self, name, factories[name]())
        if completes:
            self.__post_init__()

    return construct


@recursive_repr("...")
def _represent(self: Any) -> str:
    from aggarray.errors import without_credentials

    values = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
    return without_credentials(f"{type(self).__qualname__}({', '.join(values)})")


def _comparison(declaration: _Declaration) -> dict[str, Any]:
    compared = [name for name, is_compared in declaration.compared.items() if is_compared]
    key: Callable[[Any], Any] = attrgetter(*compared) if compared else type

    def equals(self: Any, other: Any) -> bool:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(key(self))

    return {"__eq__": equals, "__hash__": hashed if declaration.frozen else None}


def _refusing(change: Callable[..., None], words: str) -> Callable[..., None]:
    def refuse(self: Any, name: str, *value: Any) -> None:
        # A subclass that is not a dataclass may have its own attributes.
        if _FIELDS in type(self).__dict__ or name in {field.name for field in fields(self)}:
            from dataclasses import FrozenInstanceError

            raise FrozenInstanceError(f"cannot {words} field {name!r}")
        change(self, name, *value)

    return refuse


_FROZEN = {"__setattr__": _refusing(object.__setattr__, "assign to"), "__delattr__": _refusing(object.__delattr__, "delete")}


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    """Restore the fields, with defaults for those of later releases."""
    own: Any = fields(self)
    for field, value in zip(own, state, strict=False):
        object.__setattr__(self, field.name, value)
    for field in own[len(state) :]:
        value = field.default if field.default_factory is _MISSING else field.default_factory()
        if value is _MISSING:
            raise TypeError(f"the pickled {type(self).__name__} lacks {field.name!r}")
        object.__setattr__(self, field.name, value)


#: Attributes of all dataclasses.
_ATTRIBUTES = {
    "__match_args__": _OnDemand(lambda owner: tuple(field.name for field in fields(owner) if field.init)),
    "__dataclass_params__": _OnDemand(lambda owner: _declaration_of(owner).standard.__dataclass_params__),
}
