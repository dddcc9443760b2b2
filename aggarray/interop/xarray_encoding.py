"""Form in which xarray gets the values of an array: as stored, or as read.

Stored values, with their packing and missing value, keep the most information: xarray decodes them as those of a single
file. They require that all pieces are stored alike. Otherwise values are conformed first and missing values are marked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from aggarray.cf.encoding import Encoding, default_fill, encoding
from aggarray.cf.units import is_reference_time
from aggarray.cf.units.compatibility import conversion_between
from aggarray.dataclass import dataclass, field, replace
from aggarray.partition.file_names import file_codes, files_at
from aggarray.storage.urls import is_remote


@dataclass(frozen=True, slots=True)
class XarrayForm:
    """How the values of an array are passed to xarray.

    ``dtype``: of the values; ``stored``: the common encoding of the pieces if the values are passed as stored; ``attrs``: the
    attributes that xarray needs; ``encoding``: how xarray writes the values back; ``whole``: every file existed, and no value
    can mark those of a file that disappears.
    """

    dtype: np.dtype[Any]
    stored: Encoding | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    encoding: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = False


def form_of(array: Any, mask_and_scale: bool = True) -> XarrayForm:
    """Return the form of an array; ``mask_and_scale``: xarray decodes it."""
    holes = _has_holes(array)
    form = _form(array, mask_and_scale, holes)
    return replace(form, whole=array._access.missing == "fill" and not holes and form.dtype.kind not in "fc")


def _form(array: Any, mask_and_scale: bool, holes: bool) -> XarrayForm:
    common = _common(array)
    floating = array.dtype.kind in "fc"
    as_stored_fits = array._known is None and (not floating or not mask_and_scale or (common is not None and common.packed))
    if common is not None and as_stored_fits and _decodes_equally(common, holes):
        return XarrayForm(common.stored, common, _packing(common, holes))
    limits = _limits(array)
    # xarray encodes times itself; an integer dtype would make it round them to whole units.
    repacking = _repacking(common, holes) if mask_and_scale and not is_reference_time(array.units) else {}
    if array.dtype.kind not in "iufc" or not (holes or any(t.unresolved or t.may_miss for t in _templates(array))):
        return XarrayForm(array.dtype, attrs=limits, encoding=repacking)
    if floating and mask_and_scale:
        # Missing values are NaN already: xarray only needs the fill value to write them back.
        return XarrayForm(array.dtype, attrs=limits, encoding=repacking or {"_FillValue": _fill(array)})
    if floating or not mask_and_scale or _unambiguous(array, array.fill_value):
        return XarrayForm(array.dtype, attrs={**limits, "_FillValue": array.fill_value})
    # A real value may equal the fill value of the integers: masked here, and promoted as xarray does.
    return XarrayForm(np.dtype("f4" if array.dtype.itemsize <= 2 else "f8"), attrs=limits, encoding={"_FillValue": np.nan})


def in_form(array: Any, form: XarrayForm) -> Any:
    """Return the array that reads the values in a form."""
    if form.whole:
        array = replace(array, _access=replace(array._access, missing="raise"))
    if form.stored is not None:
        return as_stored(array, form.stored)
    return array if form.dtype == array.dtype else array.astype(form.dtype)


def as_stored(array: Any, common: Encoding) -> Any:
    """Return the array of stored values, neither unpacked nor masked."""
    plain = encoding(common.stored, {})
    references = array._matrix.references
    templates = [replace(t, encoding=plain, units=None, calendar=None, temperature=None) for t in references.templates]
    matrix = replace(array._matrix, references=references.with_templates(templates))
    fill = _stored_fill(common)
    return replace(array, dtype=common.stored, units=None, calendar=None, fill_value=fill, _matrix=matrix)


def _templates(array: Any) -> list[Any]:
    used: list[Any] = array._matrix.used_templates
    return used


def _common(array: Any) -> Encoding | None:
    """Return the common encoding of the pieces, None if there is none."""
    templates = _templates(array)
    if not templates or any(t.declared or t.steps or t.encoding != templates[0].encoding for t in templates):
        return None
    shared = templates[0].encoding
    units = {(t.units, t.calendar) for t in templates}
    numeric = shared.stored.kind in "iufc" and shared.dtype == array.dtype and units == {(array.units, array.calendar)}
    return shared if numeric else None


def _decodes_equally(common: Encoding, holes: bool) -> bool:
    """Return whether xarray finds the same values missing."""
    # Any undeclared value may be a real value of some piece.
    if holes and common.stored.kind in "iu" and not common.missing:
        return False
    limited = any(bound is not None for bound in (*common.valid, *common.valid_unpacked))
    return len(common.missing) + common.missing_nan <= 1 and not limited


def _repacking(common: Encoding | None, holes: bool) -> dict[str, Any]:
    """Return the encoding that packs values as pieces do, empty if lossy."""
    if common is None or not common.packed or ((holes or common.may_miss) and not common.missing):
        return {}
    return {"dtype": common.stored, **_packing(common, holes)}


def _packing(common: Encoding, holes: bool) -> dict[str, Any]:
    """Return the attributes from which xarray decodes the stored values."""
    attrs = {"scale_factor": common.scale_factor, "add_offset": common.add_offset}
    packing = {key: value for key, value in attrs.items() if value is not None}
    if common.viewed != common.stored:
        packing["_Unsigned"] = "true" if common.viewed.kind == "u" else "false"
    if common.may_miss or holes:
        packing["_FillValue"] = _stored_fill(common)
    return packing


def _stored_fill(common: Encoding) -> Any:
    if common.missing:
        return np.asarray(common.missing[0]).view(common.stored)[()]
    return default_fill(common.stored)


def _fill(array: Any) -> Any:
    templates = _templates(array)
    declared = {t.encoding.missing[:1] for t in templates}
    if len(declared) == 1 and () not in declared and all(t.encoding.dtype == array.dtype for t in templates):
        ((fill,),) = declared
        return fill if _unambiguous(array, fill) else array.fill_value
    return array.fill_value


def _unambiguous(array: Any, fill: Any) -> bool:
    """Return whether a value means missing in every piece, and only that."""
    if array._known is not None:
        values, mask = array._known
        matches = values == fill
        return not bool((matches if mask is None else matches & ~mask).any())
    for template in _templates(array):
        stored = template.encoding
        exact = stored.dtype == array.dtype or (stored.dtype.kind in "iu" and array.dtype.kind in "iu")
        converted = not exact or template.declared or template.steps or stored.packed
        if converted or not conversion_between(template, array._step).identity:
            return False
        if stored.dtype.kind in "iu" and not np.iinfo(stored.dtype).min <= fill <= np.iinfo(stored.dtype).max:
            continue
        _, mask = stored.decode(np.asarray([fill], stored.dtype).view(stored.stored))
        if mask is None:
            return False
    return True


def _limits(array: Any) -> dict[str, Any]:
    """Return the valid limits of all pieces, for a written copy."""
    templates = _templates(array)
    same = len({(t.encoding.valid, t.encoding.packed, t.units, t.calendar, t.steps) for t in templates}) == 1
    if not same or templates[0].encoding.packed or templates[0].steps or templates[0].units != array.units:
        return {}
    limits = zip(("valid_min", "valid_max"), templates[0].encoding.valid, strict=True)
    return {key: value for key, value in limits if value is not None}


def _has_holes(array: Any) -> bool:
    """Return whether some values are in no file."""
    matrix = array._matrix
    if bool((matrix.refs < 0).any()):
        return True
    if array._access.missing != "fill" or array._known is not None:
        return False
    uris = files_at(matrix.references.uris, file_codes(matrix))
    return any(is_remote(uri) or not os.path.exists(uri) for uri in uris)
