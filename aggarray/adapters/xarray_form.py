"""In which form does xarray get the values of an array: as they are stored, for xarray to decode, or as they are read?

Stored values with their packing and missing value say most, and come out of xarray as those of a single file do. They can be
had where all pieces are stored alike. Otherwise values are conformed first, and a missing value stands where one is missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from aggarray.encoding import Encoding, default_fill, encoding
from aggarray.table import used_rows


@dataclass(frozen=True, slots=True)
class Form:
    """How the values of an array are handed over.

    ``stored``: the common encoding of the pieces, where values are handed over as stored; ``dtype`` of what is handed over;
    ``attrs``: what xarray has to be told; ``encoding``: how to write them back.
    """

    dtype: np.dtype[Any]
    stored: Encoding | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    encoding: Mapping[str, Any] = field(default_factory=dict)


def form_of(array: Any, mask_and_scale: bool = True) -> Form:
    """Return the form of an array; ``mask_and_scale``: whether xarray will resolve packing and missing values."""
    common = _common(array)
    floating = array.dtype.kind in "fc"
    if common is not None and array._known is None and (not floating or common.packed or not mask_and_scale):
        return Form(common.stored, common, _packing(array, common))
    fill, limits = _fill(array), _limits(array)
    if fill is None:
        return Form(array.dtype, attrs=limits)
    if floating and mask_and_scale:
        # Missing values are NaN already: xarray need not look for them, only write them back.
        return Form(array.dtype, attrs=limits, encoding={"_FillValue": fill})
    return Form(array.dtype, attrs={**limits, "_FillValue": array.fill_value})


def as_stored(array: Any, common: Encoding) -> Any:
    """Return the array of what is stored: in the order of the master, but neither unpacked nor masked."""
    plain = encoding(common.stored, {})
    references = array._matrix.references
    templates = [replace(t, encoding=plain, units=None, calendar=None) for t in references.templates]
    matrix = replace(array._matrix, references=references.with_templates(templates))
    fill = _stored_fill(common)
    return replace(array, dtype=common.stored, units=None, calendar=None, fill_value=fill, _matrix=matrix)


def _templates(array: Any) -> list[Any]:
    """Return the templates of the pieces that an array uses."""
    matrix = array._matrix
    rows = matrix.refs[matrix.refs >= 0]
    templates = matrix.references.templates
    return [templates[i] for i in used_rows(matrix.references.template[rows], len(templates)).tolist()]


def _common(array: Any) -> Encoding | None:
    """Return how all pieces are stored, if they are stored alike, need no conversion, and xarray decodes them as we do."""
    templates = _templates(array)
    if not templates or any(t.declared or t.steps or t.encoding != templates[0].encoding for t in templates):
        return None
    found = templates[0].encoding
    units = {(t.units, t.calendar) for t in templates}
    numeric = found.stored.kind in "iufc" and found.dtype == array.dtype and units == {(array.units, array.calendar)}
    limited = any(bound is not None for bound in (*found.valid, *found.valid_unpacked))
    simple = len(found.missing) + found.missing_nan <= 1 and not limited
    return found if numeric and simple else None


def _packing(array: Any, common: Encoding) -> dict[str, Any]:
    """Return the attributes by which xarray decodes what is stored."""
    attrs = {"scale_factor": common.scale_factor, "add_offset": common.add_offset}
    found = {key: value for key, value in attrs.items() if value is not None}
    if common.viewed != common.stored:
        found["_Unsigned"] = "true" if common.viewed.kind == "u" else "false"
    if common.may_miss or _has_holes(array):
        found["_FillValue"] = _stored_fill(common)
    return found


def _stored_fill(common: Encoding) -> Any:
    """Return what stands for missing among stored values, holes included."""
    if common.missing:
        return np.asarray(common.missing[0]).view(common.stored)[()]
    return default_fill(common.stored)


def _fill(array: Any) -> Any:
    """Return the missing value to write for an array that is handed over as it is read, None where nothing can be missing."""
    if array.dtype.kind not in "iufc":
        return None
    templates = _templates(array)
    if not _has_holes(array) and not any(t.guessed or t.encoding.may_miss for t in templates):
        return None
    declared = {t.encoding.missing[:1] for t in templates if not t.encoding.packed and t.encoding.dtype == array.dtype}
    return declared.pop()[0] if len(declared) == 1 and () not in declared else array.fill_value


def _limits(array: Any) -> dict[str, Any]:
    """Return the valid limits that all pieces declare: values beyond them are missing already, but a copy shall say so too."""
    templates = _templates(array)
    same = len({(t.encoding.valid, t.encoding.packed, t.units, t.calendar, t.steps) for t in templates}) == 1
    if not same or templates[0].encoding.packed or templates[0].steps or templates[0].units != array.units:
        return {}
    limits = zip(("valid_min", "valid_max"), templates[0].encoding.valid, strict=True)
    return {key: value for key, value in limits if value is not None}


def _has_holes(array: Any) -> bool:
    return bool((array._matrix.refs < 0).any()) or array._access.missing == "fill"
