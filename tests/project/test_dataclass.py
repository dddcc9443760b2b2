"""Dataclasses and named tuples of `aggarray.dataclass` behave as those of the standard library, with less compiled."""

import builtins
import copy
import dataclasses
import inspect
import pickle
import re
import sys
import typing
from itertools import product
from typing import Any

import pytest

from aggarray.dataclass import NamedTuple, dataclass, fields, replace
from aggarray.dataclass import field as own_field
from tests.support.paths import ROOT
from tests.support.starting import run_script

pytestmark = pytest.mark.quick

OPTIONS = [dict(zip(("frozen", "slots", "eq", "repr"), given, strict=True)) for given in product((False, True), repeat=4)]


def make(decorator: Any, **options: bool) -> type:
    """Return a class with each kind of field."""
    field = own_field if decorator is dataclass else dataclasses.field

    class Sample:
        """A sample."""

        first: int
        second: str = "b"
        third: tuple[int, ...] = field(default_factory=tuple)
        fourth: int = field(default=4, compare=False)
        fifth: int = field(default=5, repr=False)
        sixth: int = field(default=6, init=False)
        seventh: tuple[int, ...] = field(default_factory=tuple, init=False)

        def __post_init__(self) -> None:
            if self.first < 0:
                raise ValueError("negative")

    return decorator(**options)(Sample)


@pytest.mark.parametrize("values", [0, 200])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_matches_the_standard_library(options: dict[str, bool], values: int) -> None:
    own, standard = make(dataclass, **options), make(dataclasses.dataclass, **options)
    for number in range(values):
        own(number)
    kept = "name", "default", "default_factory", "init", "repr", "compare"
    stated = [[getattr(f, name) for name in kept] for f in dataclasses.fields(standard)]
    assert [[getattr(f, name) for name in kept] for f in dataclasses.fields(own)] == stated
    same = "name", "init", "repr", "compare"
    assert [[getattr(f, name) for name in same] for f in fields(own(1))] == [[s[kept.index(n)] for n in same] for s in stated]
    assert str(inspect.signature(own)) == str(inspect.signature(standard))
    assert own.__doc__ == standard.__doc__
    assert (own.__slots__ if options["slots"] else None) == getattr(standard, "__slots__", None)
    assert (own.__hash__ is None) == (standard.__hash__ is None)
    for cls, results in ((own, ours := []), (standard, theirs := [])):
        one, other = cls(1), cls(1, "b", (), 9)
        results += [one == other, one != other, one == cls(2), one == 1]
        results += [dataclasses.asdict(one), dataclasses.asdict(dataclasses.replace(other, first=3))]
        results.append(repr(one).partition(" at 0x")[0])
        results.append(hash(one) == hash(other) if options["frozen"] and options["eq"] else None)
        results.append(cls.__match_args__)
        for change in (lambda item: setattr(item, "first", 2), lambda item: delattr(item, "first")):
            try:
                change(cls(1))
                results.append(None)
            except AttributeError as error:
                results.append((type(error), str(error)))
        for arguments in ((), (1, 2, 3, 4, 5, 6), (-1,)):
            with pytest.raises((TypeError, ValueError)) as caught:
                cls(*arguments)
            results.append(str(caught.value).partition(".")[2])
        for named in ({"first": 2}, {"third": (2,), "first": 3}):
            results.append(dataclasses.asdict(cls(**named)))
        for arguments, named in (((1,), {"first": 1}), ((), {"second": "c"}), ((1,), {"sixth": 1}), ((1,), {"other": 1})):
            with pytest.raises(TypeError) as caught:
                cls(*arguments, **named)
            results.append(str(caught.value).partition(".")[2])
    assert ours == theirs


def test_own_methods_are_kept() -> None:
    @dataclass(frozen=True, slots=True)
    class Own:
        """A class with methods of its own."""

        value: int

        def __repr__(self) -> str:
            return "own"

        def __hash__(self) -> int:
            return 7

        def __getstate__(self) -> list[Any]:
            return [3]

    assert (repr(Own(1)), hash(Own(1)), copy.copy(Own(1)).value) == ("own", 7, 3)


@dataclass(frozen=True, slots=True)
class Node:
    """A value with a reference to another."""

    name: str
    others: list["Node"] = own_field(default_factory=list)


class Leaf(Node):
    """A subclass with attributes of its own."""

    colour: str


def test_pickles_and_copies() -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(Node("a", [Node("b")]), protocol)) == Node("a", [Node("b")])
    assert copy.deepcopy(Node("a")) == Node("a")
    assert Node("a").__getstate__() == ["a", []]  # the form of the standard library


def test_recursive_values_have_a_repr() -> None:
    node = Node("a")
    node.others.append(node)
    assert repr(node) == "Node(name='a', others=[...])"


def test_subclasses_may_have_attributes() -> None:
    leaf = Leaf("a")
    leaf.colour = "green"
    assert leaf.colour == "green"
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'name'"):
        leaf.name = "b"


def test_one_function_is_compiled_for_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    execute = builtins.exec
    monkeypatch.setattr(builtins, "exec", lambda text, *names: (compiled.append(text), execute(text, *names))[1])
    monkeypatch.setattr(inspect, "signature", None)

    @dataclass(frozen=True, slots=True)
    class Plain:
        value: int

    assert Plain(1) == Plain(1) and Plain(2).value == 2
    assert not compiled
    assert [Plain(number).value for number in range(200)] == list(range(200))
    assert len(compiled) == 1


def test_subclasses_share_or_replace_the_constructor() -> None:
    @dataclass(frozen=True, slots=True)
    class Parent:
        value: int

    class Child(Parent):
        pass

    class Other(Parent):
        def __init__(self, text: str) -> None:
            super().__init__(int(text))

    @dataclass(frozen=True, slots=True)
    class Wider(Parent):
        more: int = 0

    @dataclass(frozen=True)
    class Own:
        value: int

        def __init__(self, text: str) -> None:
            object.__setattr__(self, "value", int(text))

    def signatures() -> list[str]:
        return [str(inspect.signature(cls)) for cls in (Parent, Child, Other, Wider, Own)]

    expected = ["(value: int) -> None"] * 2 + [
        "(text: str) -> None",
        "(value: int, more: int = 0) -> None",
        "(text: str) -> None",
    ]
    assert signatures() == expected
    assert (Other("3").value, Child(4).value, Wider(5, 6).more, Own("7").value, Parent(8).value) == (3, 4, 6, 7, 8)
    assert signatures() == expected


class Pair(NamedTuple):
    """Two items."""

    first: int
    second: str = "b"

    @property
    def doubled(self) -> int:
        return 2 * self.first


def make_tuple(base: Any) -> Any:
    """Return a class of named tuples with defaults."""

    class Sample(base):
        first: int
        second: str = "b"
        third: tuple[int, ...] = ()

        def length(self) -> int:
            return len(self.third)

    return Sample


@pytest.mark.parametrize("values", [0, 200])
def test_named_tuples_match_the_standard_library(values: int) -> None:
    own, standard = make_tuple(NamedTuple), make_tuple(typing.NamedTuple)
    for number in range(values):
        assert own(number) == (number, "b", ())
    for cls, results in ((own, ours := []), (standard, theirs := [])):
        one = cls(1, third=(2, 3))
        results += [one, repr(one), one.length(), one.second, one == (1, "b", (2, 3)), hash(one), one._asdict(), [*one]]
        results += [cls._fields, cls._field_defaults, cls.__match_args__, cls.__doc__, str(inspect.signature(cls))]
        results += [cls.first.__doc__, cls.__name__, cls.__qualname__, cls.__module__, cls.__annotations__, cls.__slots__]
        results += [one._replace(first=4), cls._make([1, 2, 3]), cls(second=1, first=2), copy.copy(one), isinstance(one, tuple)]
        for arguments, named in (((), {}), ((1, 2, 3, 4), {}), ((1,), {"first": 1}), ((1,), {"other": 1}), ((), {"third": ()})):
            with pytest.raises(TypeError) as caught:
                cls(*arguments, **named)
            results.append(str(caught.value).rpartition(".")[2])
        for wrong in (lambda one: one._replace(other=1), lambda one: one._make([1]), lambda one: setattr(one, "first", 1)):
            with pytest.raises((ValueError, TypeError, AttributeError)) as caught:
                wrong(one)
            results.append((type(caught.value), str(caught.value)))
    assert ours == theirs


def test_annotations_of_compiled_constructors_are_evaluated() -> None:
    script = """
import typing
import aggarray as aa
from aggarray.storage.state import FileState
for _ in range(200):
    aa.Rules(), FileState(1, 2, 3)
print(typing.get_type_hints(aa.Rules.__init__)["order"], typing.get_type_hints(FileState.__new__)["size"])
"""
    assert run_script(script) == "collections.abc.Mapping[str, str] <class 'int'>\n"


def test_named_tuples_pickle_and_have_subclasses() -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(Pair(1), protocol)) == Pair(1, "b")
        assert type(pickle.loads(pickle.dumps(Pair(1), protocol))) is Pair

    class Longer(Pair):
        def __new__(cls, first: int) -> "Longer":
            return super().__new__(cls, first, "c")

    assert (Longer(2), Longer(2).doubled, Pair(3).doubled) == ((2, "c"), 4, 6)
    assert str(inspect.signature(Longer)) == "(first: int) -> 'Longer'"
    assert [Longer(number).first for number in range(200)] == list(range(200))


def test_named_tuples_compile_for_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    evaluate = builtins.eval
    monkeypatch.setattr(builtins, "eval", lambda text, *names: (compiled.append(text), evaluate(text, *names))[1])
    cls = make_tuple(NamedTuple)
    assert cls(1) == cls(first=1)
    assert not compiled
    assert [cls(number).first for number in range(200)] == list(range(200))
    assert len(compiled) == 1


def test_all_modules_use_this_module() -> None:
    modules = [path for path in (ROOT / "aggarray").rglob("*.py") if path != ROOT / "aggarray" / "dataclass.py"]
    standard = re.compile(r"^from (dataclasses import .*\b(dataclass|fields?|replace)\b|typing import .*\bNamedTuple\b)", re.M)
    assert not [path for path in modules if standard.search(path.read_text("utf-8"))]


def test_declarations_that_contradict_or_are_of_the_standard_library() -> None:
    with pytest.raises(ValueError, match="both default and default_factory"):
        own_field(default=1, default_factory=list)
    with pytest.raises(TypeError):
        own_field(3)
    with pytest.raises(TypeError, match=r"items of Wrong is declared by dataclasses\.field"):

        @dataclass()
        class Wrong:
            items: list[int] = dataclasses.field(default_factory=list)


def test_replace_is_that_of_the_standard_library() -> None:
    @dataclass(frozen=True, slots=True)
    class Range:
        start: int
        stop: int = 9
        size: int = own_field(default=0, init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "size", self.stop - self.start)

    assert replace(Range(1), stop=3) == dataclasses.replace(Range(1), stop=3)
    assert (replace(Range(1), start=4).stop, replace(Range(1), stop=3).size) == (9, 2)
    for changes in ({"size": 1}, {"step": 1}):
        with pytest.raises((TypeError, ValueError)):  # Python 3.11 raises ValueError for a field without an argument
            dataclasses.replace(Range(1), **changes)
        with pytest.raises(TypeError):
            replace(Range(1), **changes)


BOTH = pytest.mark.parametrize("decorator", [dataclass, dataclasses.dataclass], ids=["own", "standard"])


@BOTH
def test_methods_of_a_base_compare_its_fields(decorator: Any) -> None:
    @decorator(frozen=True)
    class Base:
        first: int

    @decorator(frozen=True)
    class Child(Base):
        second: int = 0

        def __eq__(self, other: object) -> bool:
            return super().__eq__(other)

        def __hash__(self) -> int:
            return super().__hash__()

    assert Child(1, 2) == Child(1, 3) != Child(2, 2)
    assert hash(Child(1, 2)) == hash(Child(1, 3))


@BOTH
def test_constructors_may_be_wrapped(decorator: Any) -> None:
    @decorator()
    class Sample:
        first: int

    original, calls = Sample.__init__, []

    def wrapped(self: Any, *arguments: Any) -> None:
        calls.append(arguments)
        original(self, *arguments)

    Sample.__init__ = wrapped
    assert [Sample(number).first for number in range(300)] == list(range(300))
    assert len(calls) == 300
    pair = make_tuple(NamedTuple if decorator is dataclass else typing.NamedTuple)
    new = pair.__new__
    pair.__new__ = staticmethod(lambda cls, *arguments: new(cls, *arguments))
    assert [pair(number).first for number in range(300)] == list(range(300))


@BOTH
def test_fields_are_set_in_order_or_not_at_all(decorator: Any) -> None:
    field = own_field if decorator is dataclass else dataclasses.field

    class Sample:
        first: int
        second: list[int] = field(default_factory=list, init=False)
        third: int = 3

    cls = decorator()(Sample)
    for value in [cls(1) for _ in range(300)]:
        assert list(vars(value)) == ["first", "second", "third"]
    with pytest.raises(TypeError):
        value.__init__(9, other=1)
    assert value.first == 1


@BOTH
def test_slots_of_inherited_fields(decorator: Any) -> None:
    @decorator(slots=True)
    class Base:
        first: int = 1
        kept: "MyClassVar" = 5  # noqa: F821

    @decorator(slots=True)
    class Child(Base):
        first = 5
        second: int = 2

    assert Child(7).first == 7
    assert Child.__slots__ == ("second",)
    assert [f.name for f in dataclasses.fields(Child)] == ["first", "kept", "second"]


def test_classes_without_free_file_descriptors_are_constructed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deterministic: the module that compiles constructors cannot be read."""
    monkeypatch.setitem(sys.modules, "aggarray.constructors", None)

    @dataclass(frozen=True, slots=True)
    class Sample:
        first: int
        second: int = 2

    pair = make_tuple(NamedTuple)
    for number in range(300):
        assert (Sample(number).first, Sample(number).second, pair(number).first) == (number, 2, number)
    for wrong in (Sample, pair):
        with pytest.raises(TypeError, match="wrong arguments of Sample"):
            wrong(1, 2, 3, 4)
    monkeypatch.undo()
    assert (Sample(3).first, pair(3).first) == (3, 3)
    with pytest.raises(TypeError, match="positional arguments"):
        Sample(1, 2, 3, 4)
