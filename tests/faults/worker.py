"""Process that reads damaged files one after the other.

``python -m tests.faults.worker SCRATCH`` reads cases from standard input, one line of JSON each ([path of a specimen, file in
it, damage]), and answers each with ["begun"], then with a line of the outcome, its seconds, and the path of the file. Memory is
limited, and a case that times out ends the process with a traceback.
"""

import faulthandler
import gc
import json
import os
import resource
import shutil
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import aggarray as aa
from aggarray.formats.hdf5 import isolated
from aggarray.memory import Ragged
from aggarray.read import close_files

#: Bytes in addition to those at the start of the process, and seconds per case (on a loaded machine).
MEMORY, SECONDS = 1 << 30, 60
#: Only corners of arrays of more bytes are read: a small file may define a large array without stored values.
_LARGE = 1 << 24


def damaged(data: bytes, damage: list[Any]) -> bytes:
    """Return bytes with one damage: ["cut", length], ["flip", [[offset, mask], ...]] or ["set", offset, count, byte].

    >>> damaged(b"abc", ["flip", [[1, 1]]]), damaged(b"abc", ["cut", 1]), damaged(b"abc", ["set", 1, 5, 0])
    (b'acc', b'a', b'a\\x00\\x00')
    """
    kind, *how = damage
    if kind == "cut":
        return data[: how[0]]
    changed = bytearray(data)
    if kind == "flip":
        for offset, mask in how[0]:
            changed[offset] ^= mask
    else:
        offset, count, byte = how
        end = min(offset + count, len(data))
        changed[offset:end] = bytes([byte]) * (end - offset)
    return bytes(changed)


def everything(path: str) -> dict[str, Any]:
    """Return everything that reading a file returns: structure, and values in a form that compares exactly."""
    result: dict[str, Any] = {}
    agg = aa.open(path, processes=1)
    result["skipped"] = [[s.variable, s.reason] for s in agg.skipped]
    for array in agg:
        name = str(array.name)
        while name in result:
            name += "'"
        about = (array.dtype, array.dimensions, array.units, sorted(map(str, array.attrs)))
        result[name] = [list(array.shape), *map(str, about)]
        result[f"{name} values"] = _values(array)
        for other, coordinate in array.coords.items():
            result[f"{name}, {other} values"] = _values(coordinate)
    agg.check(checksum=True)
    return result


def _values(array: aa.MasterArray) -> str:
    large = array.nbytes > _LARGE
    key = tuple(slice(0, 3) if n > 3 else slice(None) for n in array.shape) if large else ...
    result = array.read(key, masked=True)
    flat: Any = result.flat if isinstance(result, Ragged) else result
    mask = np.ma.getmaskarray(flat)
    text = str(np.asarray(np.ma.getdata(flat)).tolist()) if flat.dtype.kind == "T" else np.ma.getdata(flat).tobytes().hex()
    return f"{flat.shape}{'large' if large else ''}{text}{mask.tobytes().hex() if mask.any() else ''}"


def outcome(path: str, truth: dict[str, Any] | None) -> list[Any]:
    """Return ["right"], ["wrong", names, skipped], ["error", class, message] or ["fault", class, message]."""
    try:
        result = everything(path)
    except aa.AggarrayError as error:
        return ["error", type(error).__name__, str(error)]
    except Exception as error:  # any other exception is a fault
        place = [f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)][-4:]
        return ["fault", type(error).__name__, f"{' '.join(str(error).split())[:300]} {place}"]
    if truth is None:
        return ["truth", result]
    wrong = sorted(name for name in {*result, *truth} if result.get(name) != truth.get(name))
    return ["wrong", wrong, result["skipped"]] if wrong else ["right"]


def _limited() -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _one(source: Path, relative: str, damage: list[Any], target: Path, truth: dict[str, Any]) -> list[Any]:
    if source.is_dir():
        shutil.copytree(source, target)
    data = (source / relative if relative else source).read_bytes()
    (target / relative if relative else target).write_bytes(damaged(data, damage))
    start = time.perf_counter()
    result = outcome(str(target), truth)
    taken = time.perf_counter() - start
    close_files()
    # Finalisers of library objects belong to the case.
    gc.collect()
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    return [*result, taken, str(target)]


def main(scratch: str) -> None:
    """Run the cases of standard input."""
    faulthandler.enable()
    isolated.PATIENCE = 3.0  # some damage makes the library loop until it times out
    warnings.simplefilter("ignore")
    truths: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(sys.stdin):
        specimen, relative, damage = json.loads(line)
        source = Path(specimen)
        if specimen not in truths:
            truths[specimen] = outcome(specimen, None)[1]
            if len(truths) == 1:
                _limited()
                gc.freeze()
        print(json.dumps(["begun"]), flush=True)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        # Files with references need their data files next to them.
        folder = source.parent if source.suffix in (".json", ".parq", ".nca") else Path(scratch)
        target = folder / f"{number}_{os.getpid()}{source.suffix}"
        result = _one(source, relative, damage, target, truths[specimen])
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
