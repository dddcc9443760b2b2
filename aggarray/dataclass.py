"""Dataclasses and named tuples that are made ten times as fast.

The standard library compiles up to six functions per class, and makes an object per field. Here, the objects are made when they
are asked for, and only ``__init__`` or ``__new__`` is compiled, and that only for a class of many values; the other methods are
closures. ``fields``, ``replace``, signatures and pickles work as usual.
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable
from operator import attrgetter, itemgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import fields as fields
    from dataclasses import replace as replace
    from typing import NamedTuple as NamedTuple


class _Signature:
    """Signature of a class whose constructor may not be compiled yet."""

    def __init__(self, cls: Callable[[], Any], constructor: str, compiled: Callable[[], Callable[..., Any]]) -> None:
        self.cls, self.constructor, self.compiled = cls, constructor, compiled

    def __get__(self, instance: Any, owner: Any) -> Any:
        if getattr(owner, self.constructor) is not getattr(self.cls(), self.constructor):
            raise AttributeError("__signature__")  # of a subclass with its own constructor
        import inspect

        signature = inspect.signature(self.compiled())
        return signature.replace(parameters=list(signature.parameters.values())[1:])


#: Attribute of a dataclass with its fields.
_FIELDS = "__dataclass_fields__"
#: Marks a field without a default.
_MISSING: Any = object()
#: Instances of a class before its constructor is compiled, which takes as long as to create these without.
_FEW = 64


def _named_tuple(name: str, content: dict[str, Any]) -> Any:
    annotate = content.get("__annotate_func__")  # from Python 3.14 on, annotations are evaluated on demand
    types = content.get("__annotations__", {}) if annotate is None else annotate(1)
    names = tuple(types)
    defaults = {item: content[item] for item in names if item in content}
    content["__doc__"] = content.get("__doc__") or f"{name}({', '.join(names)})"
    content |= {item: _getter(number, f"Alias for field number {number}") for number, item in enumerate(names)}
    content = _TUPLE_METHODS | content
    content |= {"__slots__": (), "_fields": names, "_field_defaults": defaults, "__match_args__": names}
    count = 0

    def compiled() -> Callable[..., Any]:
        arguments = ", ".join(f"{item}=_defaults[{item!r}]" if item in defaults else item for item in names)
        text = f"lambda _make, _defaults: lambda _cls, {arguments}: _make(_cls, ({', '.join(names)},))"
        new: Callable[..., Any] = eval(text, _names_in(str(content["__module__"])))(tuple.__new__, defaults)
        new.__name__, new.__qualname__, new.__annotations__ = "__new__", f"{name}.__new__", types
        return new

    def construct(cls: Any, /, *arguments: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        if count <= _FEW:
            if len(arguments) < len(names):
                present, more = {**defaults, **named}, names[len(arguments) :]
                if named.keys() <= set(more) <= present.keys():
                    return tuple.__new__(cls, [*arguments, *[present[item] for item in more]])
            elif len(arguments) == len(names) and not named:
                return tuple.__new__(cls, arguments)
        # The compiled function reports wrong arguments.
        if made.__new__ is construct:
            made.__new__ = staticmethod(compiled())
        return made.__new__(cls, *arguments, **named)

    content["__new__"] = construct
    content["__signature__"] = _Signature(lambda: made, "__new__", compiled)
    made: Any = type(name, (tuple,), content)
    return made


def _names_in(module: str) -> dict[str, Any]:
    """Return the names of a module, in which annotations are looked up."""
    return sys.modules[module].__dict__ if module in sys.modules else {}


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
            plain.__doc__ = plain.__doc__ or plain.__name__
            fields = [*(by_name := _fields(plain)).values()]
            methods = _construction(lambda: cls, plain, fields, frozen)
            methods |= {"__repr__": _represent} if repr else {}
            methods |= _comparison(fields, frozen) if eq else {}
            methods |= _FROZEN if frozen else {}
            methods |= {"__getstate__": _state, "__setstate__": _restore} if frozen and slots else {}
            own = {name: method for name, method in methods.items() if name not in plain.__dict__}
            own["__match_args__"] = tuple(field.name for field in fields if field.init)
            own |= {name: _Standard(name, by_name) for name in (_FIELDS, "__dataclass_params__")}
            return (cls := _with_slots(plain, [*by_name], own) if slots else _extended(plain, fields, own))

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
        cls = value if isinstance(value, type) else type(value)
        own = next((base.__dict__[_FIELDS] for base in cls.__mro__ if _FIELDS in base.__dict__), None)
        if isinstance(own, _Standard):
            return (*own.fields.values(),)
        import dataclasses

        return dataclasses.fields(value)


class _Field(NamedTuple):
    """Field of a class; `_fields` adds the name and the type."""

    default: Any = _MISSING
    default_factory: Any = _MISSING
    init: bool = True
    repr: bool = True
    compare: bool = True
    name: str = ""
    type: Any = None


#: Options of a field that only has a default.
_OPTIONS = _Field()[1:5]

if not TYPE_CHECKING:

    def field(*, default=_MISSING, default_factory=_MISSING, **options: bool) -> _Field:
        """Return the declaration of a field; ``options``: init, repr, compare."""
        if default is not _MISSING and default_factory is not _MISSING:
            raise ValueError("cannot specify both default and default_factory")
        return _Field(default, default_factory, **options)


def _fields(plain: Any) -> dict[str, _Field]:
    """Return the fields of a class by name, inherited ones first."""
    fields: dict[str, _Field] = {}
    for base in plain.__mro__[-1:0:-1]:
        if isinstance(inherited := base.__dict__.get(_FIELDS), _Standard):
            fields |= inherited.fields
    # Those of the class itself, without inherited ones.
    for name, annotation in plain.__annotations__.items():
        # Annotations are texts where `annotations` is imported from `__future__`.
        if str(annotation).removeprefix("typing.").startswith("ClassVar"):
            continue
        declared = plain.__dict__.get(name, _MISSING)
        if type(declared).__module__ == "dataclasses":
            raise TypeError(f"{name} of {plain.__name__} is declared by dataclasses.field, not the one here")
        facts = declared[:5] if type(declared) is _Field else (declared, *_OPTIONS)
        fields[name] = tuple.__new__(_Field, (*facts, name, annotation))
    return fields


class _Standard:
    """Attribute of a class as the standard decorator makes it, on demand."""

    def __init__(self, name: str, fields: dict[str, _Field]) -> None:
        self.name, self.fields = name, fields
        self.value: Any = None

    def __get__(self, instance: Any, owner: Any) -> Any:
        if self.value is None:
            import dataclasses

            types = {name: field.type for name, field in self.fields.items()}
            pairs = {name: zip(_Field._fields[:5], field[:5], strict=True) for name, field in self.fields.items()}
            declared = {n: dataclasses.field(**{key: o for key, o in own if o is not _MISSING}) for n, own in pairs.items()}
            # Without a docstring, the decorator would compute the signature.
            plain = type("_", (), {"__doc__": "_", "__annotations__": types, **declared})
            self.value = getattr(dataclasses.dataclass(init=False, repr=False, eq=False)(plain), self.name)
        return self.value


def _extended(plain: Any, fields: list[_Field], methods: dict[str, Any]) -> Any:
    """Return the class itself with further methods."""
    for field in fields:
        if isinstance(plain.__dict__.get(field.name), _Field):
            delattr(plain, field.name)
            if field.default is not _MISSING:
                setattr(plain, field.name, field.default)
    for name, method in methods.items():
        setattr(plain, name, method)
    return plain


def _with_slots(plain: Any, names: list[str], methods: dict[str, Any]) -> Any:
    """Return a class with slots for the fields, and further methods."""
    inherited = {name for base in plain.__mro__[1:] for name in base.__dict__.get("__slots__", ())}
    content = dict(plain.__dict__)
    for name in (*names, "__dict__", "__weakref__"):
        content.pop(name, None)
    content |= {**methods, "__slots__": tuple(name for name in names if name not in inherited)}
    return type(plain)(plain.__name__, plain.__bases__, {**content, "__qualname__": plain.__qualname__})


def _construction(owner: Callable[[], Any], plain: Any, fields: list[_Field], frozen: bool) -> dict[str, Any]:
    if "__init__" in plain.__dict__:
        return {}
    put: Callable[..., None] = object.__setattr__ if frozen else setattr
    completes, count = hasattr(plain, "__post_init__"), 0
    names = tuple(field.name for field in fields if field.init)
    order = tuple(field.name for field in fields)
    others = (every := set(order)).difference(names)
    defaults = {field.name: field.default for field in fields if field.default is not _MISSING}
    factories = {field.name: field.default_factory for field in fields if field.default_factory is not _MISSING}

    def compiled() -> Callable[..., None]:
        return _init(owner(), fields, frozen)

    def construct(self: Any, *arguments: Any, **named: Any) -> None:
        nonlocal count
        count += 1
        given = dict(zip(names, arguments)) | named  # noqa: B905 - too many are refused below
        if count <= _FEW and len(given) == len(arguments) + len(named) and others.isdisjoint(named):
            made = {name: factories[name]() for name in factories if name not in given}
            values = defaults | made | given
            if values.keys() == every:
                for name in order:
                    put(self, name, values[name])
                if completes:
                    self.__post_init__()
                return
        # The compiled function reports wrong arguments.
        if (cls := owner()).__init__ is construct:
            cls.__init__ = compiled()
        cls.__init__(self, *arguments, **named)

    return {"__init__": construct, "__signature__": _Signature(owner, "__init__", compiled)}


class _Factory:
    """Default of arguments whose default is made by a factory."""

    def __repr__(self) -> str:
        return "<factory>"


def _init(cls: type, fields: list[_Field], frozen: bool) -> Callable[..., None]:
    names: dict[str, Any] = {"_set": object.__setattr__, "_factory": _Factory()}
    parameters, lines = ["self"], []
    for field in fields:
        name = value = field.name
        default = ""
        if field.default is not _MISSING:
            names[default := f"_default_{name}"] = field.default
        elif field.default_factory is not _MISSING:
            names[f"_make_{name}"] = field.default_factory
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


@recursive_repr("...")
def _represent(self: Any) -> str:
    from aggarray.errors import without_credentials

    values = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.repr)
    return without_credentials(f"{type(self).__qualname__}({', '.join(values)})")


def _comparison(fields: list[_Field], frozen: bool) -> dict[str, Any]:
    compared = [field.name for field in fields if field.compare]
    key: Callable[[Any], Any] = attrgetter(*compared) if compared else type

    def equals(self: Any, other: Any) -> bool:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(key(self))

    return {"__eq__": equals, "__hash__": hashed if frozen else None}


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
