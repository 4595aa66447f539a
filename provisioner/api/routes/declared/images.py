"""Routes of images: files of the artifact store, uploaded, read, described and removed.

The bytes of a file never change under its name, since pins, certificates and running transfers name
it by digest. An upload is received and verified first; what is recorded, and approved where the
site asks for it, is the publication of exactly these bytes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

from aiohttp import ClientError
from pydantic import Field

from provisioner.api.operations import OperationView
from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import Refused, build_refusal, refuse_missing
from provisioner.api.route import OPERATORS, VIEWERS, Dry, Route, format_etag
from provisioner.api.routes.declared.image_changes import MATCH, find_obstacle
from provisioner.api.routes.declared.image_views import ImageList, ImageView, build_view
from provisioner.execution.artifacts import uploads
from provisioner.execution.artifacts.uploads import StoreFile, UploadFailed
from provisioner.model.access import ChangeKind
from provisioner.model.artifact import IMAGE_NAME, NOTE_MAX, StoredImage
from provisioner.model.base import Record
from provisioner.planning.matrix.file_references import list_given_nodes, list_pinning_places

TAG = "artifacts"
LEFT_S = 86_400.0  # a received file that is not published by then is removed


class UploadQuery(Dry):
    """The announced file, whose bytes are the body."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of its bytes.")
    size_bytes: int = Field(ge=1, le=1 << 40, description="Length in bytes.")
    note: str = Field("", max_length=NOTE_MAX, description="Description, in a sentence.")


class ImagePatch(Record):
    """A merge patch of an image (RFC 7396): its bytes never change."""

    note: str | None = Field(None, max_length=NOTE_MAX, description="Description, in a sentence.")


async def list_images(ask: Ask) -> Reply:
    """Return every file of the store, and the described ones that it lacks."""
    _require_own_directory(ask)
    parts = ask.parts
    files = await asyncio.to_thread(uploads.list_files, parts.artifacts, IMAGE_NAME)
    rows = {row.name: row for row in await parts.store.images.list()}
    present = {file.name: file for file in files}
    places = list_pinning_places(parts.matrix)
    nodes = await parts.store.nodes.list()
    items = tuple(
        build_view(
            present.get(name),
            rows.get(name),
            tuple(places.get(name, ())),
            list_given_nodes(parts.matrix, nodes, name) if name in places else (),
        )
        for name in sorted({*present, *rows})
    )
    return Reply(ImageList(items=items, total=len(items)))


async def show_image(ask: Ask) -> Reply:
    """Return one file; one that was put there by hand is read whole for its digest."""
    file, row = await _read(ask)
    parts = ask.parts
    nodes = await parts.store.nodes.list()
    places = tuple(list_pinning_places(parts.matrix).get(_name(ask), ()))
    shown = build_view(file, row, places, list_given_nodes(parts.matrix, nodes, _name(ask)))
    if file is not None and not shown.sha256:
        digest = await asyncio.to_thread(uploads.hash_file, parts.artifacts / file.name)
        shown = shown.model_copy(update={"sha256": digest})
    return Reply(shown, etag=format_etag(0 if row is None else row.generation))


def _require_own_directory(ask: Ask) -> None:
    """Raise Refused where the database and keys are among the files."""
    data = ask.parts.directory
    if data is not None and data.resolve() == ask.parts.artifacts.resolve():
        title = "The artifact directory is the daemon's data directory"
        raise build_refusal(409, "outside", title, "Name a directory of its own with --artifacts.")


def _name(ask: Ask) -> str:
    """Return the name of the path. Raises Refused for one that is no file of the store."""
    _require_own_directory(ask)
    name = ask.read_word("image_name")
    if not re.fullmatch(IMAGE_NAME, name):
        unblock = "Use letters, digits and . _ + ~ -, at most 128, the first a letter or digit."
        raise build_refusal(400, "name", "This is no name of an image", unblock, name)
    return name


async def _read(ask: Ask) -> tuple[StoreFile | None, StoredImage | None]:
    name = _name(ask)
    file = await asyncio.to_thread(uploads.read_file, ask.parts.artifacts, name)
    row = await ask.parts.store.images.get(name)
    if file is None and row is None:
        raise refuse_missing("image")
    return file, row


async def put_image(ask: Ask) -> Reply:
    """Receive a file, then ask for its publication."""
    parts = ask.parts
    query = ask.query
    name = _name(ask)
    if parts.outside is not None:
        unblock = f"Put it there by hand: {parts.outside.url}/{name}"
        title = "Files are on a server outside, which the daemon does not write"
        raise build_refusal(409, "outside", title, unblock)
    row = await parts.store.images.get(name)
    ask.check_match("" if row is None else format_etag(row.generation))
    arguments = {
        "sha256": query.sha256,
        "size_bytes": query.size_bytes,
        "note": query.note,
        MATCH: 0 if row is None else row.generation,
    }
    kind = ChangeKind.IMAGE_PUT
    if ask.dry_run:
        return await parts.works.submit_change(ask, kind, name, "", arguments)
    parts.works.reserve_place(ask, kind).close()  # refused before a byte is read
    try:
        with parts.uploads.hold(name, query.size_bytes):
            if obstacle := await find_obstacle(parts, name, query.size_bytes, query.sha256):
                raise obstacle
            left_s = LEFT_S + parts.settings.api_approval_h * 3600
            await asyncio.to_thread(uploads.sweep_parts, parts.artifacts, left_s)
            part = await uploads.receive_file(
                parts.artifacts, query.size_bytes, query.sha256, _read_chunks(ask)
            )
            try:
                named = {**arguments, "part": part}
                return await parts.works.submit_change(ask, kind, name, "", named)
            except Refused:  # it was not recorded, or it ended
                uploads.drop_part(parts.artifacts, part)
                raise
    except UploadFailed as failed:
        refused = build_refusal(failed.status, failed.word, failed.title, failed.unblock)
        if failed.status in (408, 413):
            refused.headers["Connection"] = "close"
        raise refused from None


async def _read_chunks(ask: Ask) -> AsyncIterator[bytes]:
    try:
        async for chunk in ask.request.content.iter_chunked(uploads.CHUNK_BYTES):
            yield chunk
    except (ClientError, ConnectionError):
        unblock = "Nothing was stored. Send it anew."
        raise UploadFailed(400, "digest", "The client went away", unblock) from None


async def merge_image(ask: Ask) -> Reply:
    """Ask for another description of a file."""
    _, row = await _read(ask)
    generation = 0 if row is None else row.generation
    ask.check_match(format_etag(generation))
    patch: ImagePatch = ask.body
    arguments = {"note": patch.note or "", MATCH: generation}
    if "note" not in patch.model_fields_set:
        arguments["note"] = "" if row is None else row.note
    kind = ChangeKind.IMAGE_DESCRIBE
    return await ask.parts.works.submit_change(ask, kind, _name(ask), "", arguments)


async def delete_image(ask: Ask) -> Reply:
    """Ask for a file's removal."""
    _, row = await _read(ask)
    generation = 0 if row is None else row.generation
    ask.check_match(format_etag(generation))
    arguments = {MATCH: generation}
    kind = ChangeKind.IMAGE_DELETE
    return await ask.parts.works.submit_change(ask, kind, _name(ask), "", arguments)


_ASKED = {200: OperationView, 202: OperationView}
ROUTES = (
    Route(
        "GET",
        "/images",
        "list_images",
        TAG,
        "List the files of the artifact store, and what refers to each.",
        VIEWERS,
        list_images,
        {200: ImageList},
    ),
    Route(
        "GET",
        "/images/{image_name}",
        "show_image",
        TAG,
        "Show one file of the artifact store: digest, format, and what refers to it.",
        VIEWERS,
        show_image,
        {200: ImageView},
        entity=True,
        heavy=True,
    ),
    Route(
        "PUT",
        "/images/{image_name}",
        "put_image",
        TAG,
        "Upload a file. It appears under its name once its digest is verified.",
        OPERATORS,
        put_image,
        _ASKED,
        query=UploadQuery,
        entity=True,
        site=True,
        streamed=True,
    ),
    Route(
        "PATCH",
        "/images/{image_name}",
        "merge_image",
        TAG,
        "Describe a file otherwise (a merge patch, RFC 7396). Its bytes never change.",
        OPERATORS,
        merge_image,
        _ASKED,
        body=ImagePatch,
        example={"note": "Ubuntu 22.04 with DOCA 3.1"},
        entity=True,
        site=True,
    ),
    Route(
        "DELETE",
        "/images/{image_name}",
        "delete_image",
        TAG,
        "Remove a file that no pin, no node and no step under way refers to.",
        OPERATORS,
        delete_image,
        _ASKED,
        entity=True,
        site=True,
    ),
)
