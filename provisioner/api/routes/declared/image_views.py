"""Views of the artifact store's files: what its directory has, joined with what was recorded.

A recorded digest counts only while the file's length and time of change are those of that record.
"""

from __future__ import annotations

import asyncio

from pydantic import Field

from provisioner.api.parts import ApiParts
from provisioner.api.route import Counted
from provisioner.execution.artifacts import uploads
from provisioner.execution.artifacts.uploads import StoreFile
from provisioner.model.artifact import StoredImage
from provisioner.model.base import Record
from provisioner.model.times.instant import InstantOrNone


class ImageView(Record):
    """A file of the artifact store, and the things that refer to it."""

    name: str = Field(description="Name of the file.")
    present: bool = Field(description="Whether this daemon's store has it.")
    sha256: str = Field(
        description="SHA-256 of its bytes; empty: it was put there by hand and not read yet."
    )
    size_bytes: int = Field(description="Length in bytes.")
    format: str = Field(description="qcow2, gzip, iso, raw or other, by its first bytes.")
    modified_at: InstantOrNone = Field(0.0, description="Time of the file's last change.")
    note: str = Field("", description="Description, in a sentence.")
    by: str = Field("", description="Person or program that changed it last.")
    at: InstantOrNone = Field(0.0, description="Time of the last change by the API.")
    pinned_by: tuple[str, ...] = Field((), description="Places of the matrix that name it.")
    nodes: tuple[str, ...] = Field((), description="Nodes whose release and profile pin it.")
    generation: int = Field(0, description="Number of the change; 0: put there by hand.")


class ImageList(Counted):
    """All files of the artifact store, by name."""

    items: tuple[ImageView, ...]


def build_view(
    file: StoreFile | None, row: StoredImage | None, places: tuple[str, ...], nodes: tuple[str, ...]
) -> ImageView:
    """Return the view of a file, of its row, or of both; one of them is given."""
    one = file if file is not None else row
    assert one is not None, "a name of the list is a file's or a row's"
    same = row is not None and (
        file is None or (file.size_bytes, file.modified_ns) == (row.size_bytes, row.modified_ns)
    )
    return ImageView(
        name=one.name,
        present=file is not None,
        sha256=row.sha256 if row is not None and same else "",
        size_bytes=one.size_bytes,
        format="" if file is None else file.format,
        modified_at=0.0 if file is None else file.modified_ns / 1e9,
        note="" if row is None else row.note,
        by="" if row is None else row.by,
        at=0.0 if row is None else row.at,
        pinned_by=places,
        nodes=nodes,
        generation=0 if row is None else row.generation,
    )


async def find_digest(parts: ApiParts, name: str) -> str:
    """Return the SHA-256 of a present file, as it was recorded or else read now; "": none."""
    file = await asyncio.to_thread(uploads.read_file, parts.artifacts, name)
    if file is None:
        return ""
    recorded = build_view(file, await parts.store.images.get(name), (), ()).sha256
    return recorded or await asyncio.to_thread(uploads.hash_file, parts.artifacts / name)
