"""The array that a selection is read into, and the parameters of its values."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from aggarray.errors import SelectionError
from aggarray.partition.matrix import Step
from aggarray.storage.access import ANYWHERE, Access


@dataclass(frozen=True, slots=True)
class Target:
    """Parameters of a master array's values: units, calendar, dtype, fill value, access to files."""

    step: Step
    fill_value: Any
    access: Access = ANYWHERE


def output(out: np.ndarray | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Return the array to fill: a new one, or ``out``. SelectionError if ``out`` does not fit."""
    if out is None:
        return _fitting(np.empty, shape, dtype, f"values of {dtype}")
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != dtype or not out.flags.writeable:
        found = f"{out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise SelectionError(f"out is {found}{_read_only(out)}: give a writable array of {dtype} and shape {shape}")
    return out


def mask_output(shape: tuple[int, ...]) -> np.ndarray:
    """Return a mask without missing elements. SelectionError if it does not fit into memory."""
    return _fitting(np.zeros, shape, np.dtype(bool), "values and their mask")


def _fitting(make: Callable[..., np.ndarray], shape: tuple[int, ...], dtype: np.dtype[Any], what: str) -> np.ndarray:
    try:
        return make(shape, dtype)
    except (MemoryError, ValueError) as error:
        size = " x ".join(map(str, shape))
        raise SelectionError(f"{size} {what} do not fit into memory: read a part of them") from error


def _read_only(out: Any) -> str:
    return ", read-only" if isinstance(out, np.ndarray) and not out.flags.writeable else ""
