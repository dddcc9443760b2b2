"""Which readers are fuzzed? `TARGETS`, by name: one function each, in the module of its kind of input."""

from tests.fuzz import chunks, dimdata, files, foreign, index, stores
from tests.fuzz.target import Target

#: All there are.
TARGETS: dict[str, Target] = {t.name: t for module in (chunks, dimdata, files, foreign, index, stores) for t in module.TARGETS}
