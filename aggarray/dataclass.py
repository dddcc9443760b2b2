"""Dataclasses that are made eight times as fast, for a quick import.

The decorator of the standard library compiles up to six functions per class. This one has it collect the fields and make the
slots, and compiles only ``__init__``, and that only for a class of many values; the other methods are closures. ``fields``,
``replace``, signatures and pickles work as usual.
"""

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

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

        def decorate(plain: type) -> type:
            # Without a docstring, the decorator would compute the signature.
            plain.__doc__ = plain.__doc__ or plain.__name__
            cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(plain)
            methods = {} if "__init__" in plain.__dict__ else _construction(cls, frozen)
            if repr:
                methods["__repr__"] = _repr(cls)
            if eq:
                methods |= _comparison(cls, frozen)
            if frozen:
                methods |= _refusal(cls)
            if frozen and slots:
                methods |= {"__getstate__": _state, "__setstate__": _restore}
            for name, method in methods.items():
                if name not in plain.__dict__:
                    setattr(cls, name, method)
            return cls

        return decorate


class _Signature:
    """Signature of a class whose ``__init__`` may not be compiled yet."""

    def __init__(self, cls: Any, frozen: bool) -> None:
        self.cls, self.frozen = cls, frozen

    def __get__(self, instance: Any, owner: Any) -> Any:
        if owner.__init__ is not self.cls.__init__:
            raise AttributeError("__signature__")  # of a subclass with its own ``__init__``
        import inspect

        signature = inspect.signature(_init(self.cls, self.frozen))
        return signature.replace(parameters=list(signature.parameters.values())[1:])


#: Values of a class before ``__init__`` is compiled, which takes as long as to make these without.
_FEW = 32


def _construction(cls: Any, frozen: bool) -> dict[str, Any]:
    fields = dataclasses.fields(cls)
    put: Callable[..., None] = object.__setattr__ if frozen else setattr
    count = 0

    def construct(self: Any, *arguments: Any, **named: Any) -> None:
        nonlocal count
        count += 1
        if count <= _FEW and _fill(self, fields, arguments, named, put):
            if hasattr(cls, "__post_init__"):
                self.__post_init__()
            return
        # The compiled function reports wrong arguments.
        if cls.__init__ is construct:
            cls.__init__ = _init(cls, frozen)
        cls.__init__(self, *arguments, **named)

    return {"__init__": construct, "__signature__": _Signature(cls, frozen)}


def _fill(self: Any, fields: Sequence[Any], arguments: tuple[Any, ...], named: dict[str, Any], put: Callable[..., None]) -> bool:
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


def _repr(cls: type) -> Callable[[Any], str]:
    names = [field.name for field in dataclasses.fields(cls) if field.repr]

    def represent(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return recursive_repr("...")(represent)


def _comparison(cls: type, frozen: bool) -> dict[str, Any]:
    compared = [field.name for field in dataclasses.fields(cls) if field.compare]
    key: Callable[[Any], Any] = attrgetter(*compared) if compared else type

    def equals(self: Any, other: Any) -> bool:
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(key(self))

    return {"__eq__": equals, "__hash__": hashed if frozen else None}


def _refusal(cls: Any) -> dict[str, Any]:
    names = frozenset(field.name for field in dataclasses.fields(cls))

    def refuse_assignment(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def refuse_deletion(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": refuse_assignment, "__delattr__": refuse_deletion}


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
