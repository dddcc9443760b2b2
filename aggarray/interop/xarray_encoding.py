"""In which form does xarray get the values of an array: as they are stored, for xarray to decode, or as they are read?

Stored values with their packing and missing value say most, and come out of xarray as those of a single file do. They can be
had where all pieces are stored alike. Otherwise values are conformed first, and a missing value stands where one is missing.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from aggarray.cf.encoding import Encoding, default_fill, encoding
from aggarray.cf.units import conversion_between, is_reference_time
from aggarray.partition.matrix import used_rows
from aggarray.storage.remote import is_remote


@dataclass(frozen=True, slots=True)
class XarrayForm:
    """How the values of an array are handed over.

    ``stored``: the common encoding of the pieces, where values are handed over as stored; ``dtype`` of what is handed over;
    ``attrs``: what xarray has to be told; ``encoding``: how to write them back; ``whole``: every file was there, and nothing
    can stand for values of one that goes.
    """

    dtype: np.dtype[Any]
    stored: Encoding | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    encoding: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = False


def form_of(array: Any, mask_and_scale: bool = True) -> XarrayForm:
    """Return the form of an array; ``mask_and_scale``: whether xarray will resolve packing and missing values."""
    holes = _has_holes(array)
    form = _form(array, mask_and_scale, holes)
    return replace(form, whole=array._access.missing == "fill" and not holes and form.dtype.kind not in "fc")


def _form(array: Any, mask_and_scale: bool, holes: bool) -> XarrayForm:
    common = _common(array)
    floating = array.dtype.kind in "fc"
    wanted = array._known is None and (not floating or not mask_and_scale or (common is not None and common.packed))
    if common is not None and wanted and _simple(common, holes):
        return XarrayForm(common.stored, common, _packing(common, holes))
    limits = _limits(array)
    # Times are encoded by xarray, which takes an integer type for one of whole units.
    again = _packing_again(common, holes) if mask_and_scale and not is_reference_time(array.units) else {}
    if array.dtype.kind not in "iufc" or not (holes or any(t.unresolved or t.may_miss for t in _templates(array))):
        return XarrayForm(array.dtype, attrs=limits, encoding=again)
    if floating and mask_and_scale:
        # Missing values are NaN already: xarray need not look for them, only write them back.
        return XarrayForm(array.dtype, attrs=limits, encoding=again or {"_FillValue": _fill(array)})
    if floating or not mask_and_scale or _unambiguous(array, array.fill_value):
        return XarrayForm(array.dtype, attrs={**limits, "_FillValue": array.fill_value})
    # A real value may equal the one fill value that integers have: masked here, and promoted as xarray does.
    return XarrayForm(np.dtype("f4" if array.dtype.itemsize <= 2 else "f8"), attrs=limits, encoding={"_FillValue": np.nan})


def in_form(array: Any, form: XarrayForm) -> Any:
    """Return the array whose values are those that are handed over."""
    if form.whole:
        array = replace(array, _access=replace(array._access, missing="raise"))
    if form.stored is not None:
        return as_stored(array, form.stored)
    return array if form.dtype == array.dtype else array.astype(form.dtype)


def as_stored(array: Any, common: Encoding) -> Any:
    """Return the array of what is stored: in the order of the master, but neither unpacked nor masked."""
    plain = encoding(common.stored, {})
    references = array._matrix.references
    templates = [replace(t, encoding=plain, units=None, calendar=None, temperature=None) for t in references.templates]
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
    """Return how all pieces are stored, if they are numbers that are stored alike and need no conversion."""
    templates = _templates(array)
    if not templates or any(t.declared or t.steps or t.encoding != templates[0].encoding for t in templates):
        return None
    found = templates[0].encoding
    units = {(t.units, t.calendar) for t in templates}
    numeric = found.stored.kind in "iufc" and found.dtype == array.dtype and units == {(array.units, array.calendar)}
    return found if numeric else None


def _simple(found: Encoding, holes: bool) -> bool:
    """Tell whether xarray finds the same values missing: those equal to one at most, within no limits.

    Holes need that one: what no piece says to be missing may be a real value of any of them.
    """
    if holes and found.stored.kind in "iu" and not found.missing:
        return False
    limited = any(bound is not None for bound in (*found.valid, *found.valid_unpacked))
    return len(found.missing) + found.missing_nan <= 1 and not limited


def _packing_again(common: Encoding | None, holes: bool) -> dict[str, Any]:
    """Return how to pack values that were unpacked here, as all pieces were packed; nothing where that would lose some."""
    if common is None or not common.packed or ((holes or common.may_miss) and not common.missing):
        return {}
    return {"dtype": common.stored, **_packing(common, holes)}


def _packing(common: Encoding, holes: bool) -> dict[str, Any]:
    """Return the attributes by which xarray decodes what is stored."""
    attrs = {"scale_factor": common.scale_factor, "add_offset": common.add_offset}
    found = {key: value for key, value in attrs.items() if value is not None}
    if common.viewed != common.stored:
        found["_Unsigned"] = "true" if common.viewed.kind == "u" else "false"
    if common.may_miss or holes:
        found["_FillValue"] = _stored_fill(common)
    return found


def _stored_fill(common: Encoding) -> Any:
    """Return what stands for missing among stored values, holes included."""
    if common.missing:
        return np.asarray(common.missing[0]).view(common.stored)[()]
    return default_fill(common.stored)


def _fill(array: Any) -> Any:
    """Return the missing value to write for floating values that are handed over as they are read."""
    templates = _templates(array)
    declared = {t.encoding.missing[:1] for t in templates}
    if len(declared) == 1 and () not in declared and all(t.encoding.dtype == array.dtype for t in templates):
        ((found,),) = declared
        return found if _unambiguous(array, found) else array.fill_value
    return array.fill_value


def _unambiguous(array: Any, fill: Any) -> bool:
    """Tell whether a value can only mean missing: in every piece it does, and none is converted to it."""
    if array._known is not None:
        values, mask = array._known
        equal = values == fill
        return not bool((equal if mask is None else equal & ~mask).any())
    return all(_only_missing(array, template, fill) for template in _templates(array))


def _only_missing(array: Any, template: Any, fill: Any) -> bool:
    found = template.encoding
    same = found.dtype == array.dtype or (found.dtype.kind in "iu" and array.dtype.kind in "iu")
    plain = same and not (template.declared or template.steps or found.packed)
    if not plain or not conversion_between(template, array._step).identity:
        return False
    if found.dtype.kind in "iu" and not np.iinfo(found.dtype).min <= fill <= np.iinfo(found.dtype).max:
        return True
    _, mask = found.decode(np.asarray([fill], found.dtype).view(found.stored))
    return mask is not None


def _limits(array: Any) -> dict[str, Any]:
    """Return the valid limits that all pieces declare: values beyond them are missing already, but a copy shall say so too."""
    templates = _templates(array)
    same = len({(t.encoding.valid, t.encoding.packed, t.units, t.calendar, t.steps) for t in templates}) == 1
    if not same or templates[0].encoding.packed or templates[0].steps or templates[0].units != array.units:
        return {}
    limits = zip(("valid_min", "valid_max"), templates[0].encoding.valid, strict=True)
    return {key: value for key, value in limits if value is not None}


def _has_holes(array: Any) -> bool:
    """Tell whether no file holds some of the values: those of a partition, or of a file that is gone and may be."""
    matrix = array._matrix
    if bool((matrix.refs < 0).any()):
        return True
    if array._access.missing != "fill" or array._known is not None:
        return False
    files = matrix.references.uri[matrix.refs.ravel()]
    uris = [str(matrix.references.uris[i]) for i in used_rows(files[files >= 0], len(matrix.references.uris)).tolist()]
    return any(is_remote(uri) or not os.path.exists(uri) for uri in uris)
