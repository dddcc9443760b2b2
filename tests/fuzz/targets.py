"""The fuzz targets by name."""

from tests.fuzz import chunks, dimdata, files, foreign, index, stores
from tests.fuzz.target import Target

#: All targets.
TARGETS: dict[str, Target] = {t.name: t for module in (chunks, dimdata, files, foreign, index, stores) for t in module.TARGETS}
