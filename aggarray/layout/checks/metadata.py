"""Metadata that are scattered between the values of a file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from aggarray.formats.partial_scan import FileLayout, MetadataLayout
from aggarray.layout.base import Archive, Check, Finding
from aggarray.layout.remedies import repacked
from aggarray.scan.progress import amount


def _fault(file: FileLayout, metadata: MetadataLayout, settings: Mapping[str, Any]) -> str:
    """Return what is wrong with the metadata of a file, "" if nothing is."""
    if metadata.file_nbytes is None:
        return "" if metadata.consolidated else "no consolidated metadata"
    if metadata.file_nbytes < settings["tiny"]:
        return ""
    if metadata.paged:
        is_short = settings["paged"] and metadata.paged < metadata.nbytes
        return "pages smaller than the metadata" if is_short else ""
    if not metadata.consolidated:
        return "chunk indexes lie behind the first chunk"
    is_scattered = settings["paged"] and metadata.scattered > settings["scattered"]
    return "metadata lie behind the first values" if is_scattered else ""


def _remedy(file: FileLayout, settings: Mapping[str, Any]) -> str:
    metadata = file.metadata
    if metadata is None or metadata.file_nbytes is None:
        code = f"import zarr; zarr.consolidate_metadata({file.uri!r})"
        is_plain = shlex.quote(file.uri) == file.uri
        return f'python -c "{code}"' if is_plain else shlex.join(["python", "-c", code])
    # Twice as much, because the repacked metadata may be larger.
    size = 1 << (2 * metadata.nbytes - 1).bit_length()
    options = ("-S", "PAGE", "-G", str(size)) if settings["paged"] else (f"--metadata_block_size={size}",)
    return repacked(file.uri, *options)


def find(archive: Archive, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the files whose metadata take many reads."""
    found: dict[str, list[FileLayout]] = {}
    known = [file for file in archive.files if file.metadata is not None]
    for file in known:
        if file.metadata is not None and (fault := _fault(file, file.metadata, settings)):
            found.setdefault(fault, []).append(file)
    for fault, files in found.items():
        of_files = [file.metadata for file in files if file.metadata is not None and file.metadata.file_nbytes is not None]
        most = max((metadata.scattered or metadata.nbytes for metadata in of_files), default=0)
        text = f"{fault} (up to {amount(most, 'bytes')})" if most else fault
        lines = {file.uri: _remedy(file, settings) for file in files}
        yield Finding(text, tuple(lines), len(known), lines)


CHECK = Check("metadata", {"paged": bool, "tiny": int, "scattered": int}, find)
