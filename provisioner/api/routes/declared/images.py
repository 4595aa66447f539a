"""Routes of images: files of the artifact store, uploaded, read, described and removed.

The bytes of a file never change under its name, since pins, certificates and running transfers name
it by digest. An upload is received and verified first; what is recorded, and approved where the
site asks for it, is the publication of exactly these bytes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import ClientError
from pydantic import Field

from provisioner.api.changes import Forecast, Outcome, build_failure, build_objection
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import Refused, build_refusal, refuse_missing
from provisioner.api.route import OPERATORS, VIEWERS, Counted, Dry, Effect, Route, format_etag
from provisioner.execution.artifacts import uploads
from provisioner.execution.artifacts.uploads import StoreFile, UploadFailed, build_blocker
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.agent import IMAGE_NAME, NOTE_MAX, StoredImage
from provisioner.model.base import Record
from provisioner.model.operation import ActionStatus
from provisioner.model.outcome import Blocker
from provisioner.model.times.instant import InstantOrNone
from provisioner.planning.matrix.pinned_files import (
    list_given_nodes,
    list_pinned_digests,
    list_pinning_places,
)

# ------------------------------------------------------------------------------
# Views of the artifact store's files: what its directory has, joined with what was recorded.
#
# A recorded digest counts only while the file's length and time of change are those of that
# record.


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
    damaged: str = Field("", description="Why its record cannot be read; what it said is unknown.")


class ImageList(Counted):
    """All files of the artifact store, by name."""

    items: tuple[ImageView, ...]


def build_view(
    name: str,
    file: StoreFile | None,
    row: StoredImage | None,
    places: tuple[str, ...] = (),
    nodes: tuple[str, ...] = (),
    damaged: str = "",
) -> ImageView:
    """Return the view of a file, of its row, or of both; of neither where the row is damaged."""
    one = file if file is not None else row
    same = row is not None and (
        file is None or (file.size_bytes, file.modified_ns) == (row.size_bytes, row.modified_ns)
    )
    return ImageView(
        name=name,
        present=file is not None,
        sha256=row.sha256 if row is not None and same else "",
        size_bytes=0 if one is None else one.size_bytes,
        format="" if file is None else file.format,
        modified_at=0.0 if file is None else file.modified_ns / 1e9,
        note="" if row is None else row.note,
        by="" if row is None else row.by,
        at=0.0 if row is None else row.at,
        pinned_by=places,
        nodes=nodes,
        generation=0 if row is None else row.generation,
        damaged=damaged,
    )


async def find_digest(parts: ApiParts, name: str) -> str:
    """Return the SHA-256 of a present file, as it was recorded or else read now; "": none."""
    file = await asyncio.to_thread(uploads.read_file, parts.artifacts, name)
    if file is None:
        return ""
    recorded = build_view(name, file, await parts.store.images.get(name)).sha256
    return recorded or await asyncio.to_thread(uploads.hash_file, parts.artifacts / name)


# ------------------------------------------------------------------------------
# Changes of the artifact store's files, carried out and foreseen: published, described, removed.
#
# One change at a time (`Uploads.turn`), and each only for the generation that was read when it was
# asked for: what another person approved is never carried out on something else.


MATCH = "generation"  # argument: the generation that was read; 0: there was none
UNSETTLED = (ActionStatus.INTENDED, ActionStatus.SENT)


async def find_obstacle(
    parts: ApiParts, name: str, size_bytes: int, sha256: str
) -> UploadFailed | None:
    """Return why this file is not taken now; None: it is."""
    promised = sum(size for other, size in parts.uploads.sizes.items() if other != name)
    most = parts.settings.api_upload_max_bytes
    obstacle = await asyncio.to_thread(
        uploads.find_obstacle, parts.artifacts, size_bytes, most, promised
    )
    if obstacle is not None:
        return obstacle
    if set(list_pinned_digests(parts.matrix, name)) - {sha256}:
        title = "The matrix pins this name, and not for these bytes"
        return UploadFailed(409, "pinned", title, "Upload it under a new name, then pin that.")
    if await find_digest(parts, name) not in ("", sha256):
        unblock = "Files do not change under their name: upload it under a new one."
        return UploadFailed(409, "taken", "Another file has this name", unblock)
    return None


async def publish_image(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Give a received file its name, and record it."""
    part = str(asked.arguments["part"])
    try:
        async with parts.uploads.turn:
            row = await parts.store.images.get(asked.subject)
            if (0 if row is None else row.generation) != asked.arguments[MATCH]:
                return _object_to_stale(asked.subject)
            sha256 = str(asked.arguments["sha256"])
            published = await asyncio.to_thread(
                uploads.publish_part, parts.artifacts, part, asked.subject, sha256
            )
            if isinstance(published, Blocker):
                return build_failure(published)
            note = str(asked.arguments["note"])
            return await _record(parts, asked, row, sha256, note, published=published)
    finally:
        await asyncio.to_thread(uploads.drop_part, parts.artifacts, part)


async def _record(
    parts: ApiParts,
    asked: ChangeRequest,
    row: StoredImage | None,
    sha256: str,
    note: str,
    *,
    published: bool,
) -> Outcome:
    """Write the row of a file as it is now; unchanged where everything was so before."""
    file = await asyncio.to_thread(uploads.read_file, parts.artifacts, asked.subject)
    if file is None:
        return build_objection(asked.subject, "the file is not in the store", "Upload it.")
    now = parts.clock.now()
    changed = StoredImage(
        name=file.name,
        sha256=sha256,
        size_bytes=file.size_bytes,
        modified_ns=file.modified_ns,
        note=note,
        by=asked.asked_by,
        at=now,
        generation=1 if row is None else row.generation + 1,
    )
    kept = {"by", "at", "generation"}
    same = row is not None and row.model_dump(exclude=kept) == changed.model_dump(exclude=kept)
    if same and not published:
        return Outcome(RequestState.DONE, _build_result(changed), note="it was so before")
    return Outcome(RequestState.DONE, _build_result(await parts.store.images.put(changed, now)))


def _build_result(row: StoredImage) -> dict[str, Any]:
    return {"image": row.name, "sha256": row.sha256, "size_bytes": row.size_bytes}


def _object_to_stale(name: str) -> Outcome:
    return build_objection(name, "it was changed meanwhile", "Read it again, then decide anew.")


async def describe_image(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Write another description of a file; one put there by hand is read for its digest."""
    async with parts.uploads.turn:
        row = await parts.store.images.get(asked.subject)
        if (0 if row is None else row.generation) != asked.arguments[MATCH]:
            return _object_to_stale(asked.subject)
        sha256 = await find_digest(parts, asked.subject)
        note = str(asked.arguments["note"])
        return await _record(parts, asked, row, sha256, note, published=False)


async def remove_image(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Remove a file that nothing refers to, then its row."""
    async with parts.uploads.turn:
        name = asked.subject
        row = await parts.store.images.get(name)
        if (0 if row is None else row.generation) != asked.arguments[MATCH]:
            return _object_to_stale(name)
        if blockers := await _find_references(parts, name):
            return build_failure(*blockers)
        file = await asyncio.to_thread(uploads.read_file, parts.artifacts, name)
        if blocker := await asyncio.to_thread(uploads.remove_file, parts.artifacts, name):
            return build_failure(blocker)
        now = parts.clock.now()
        if row is None and file is not None:
            row = StoredImage(
                name=name,
                sha256="",
                size_bytes=file.size_bytes,
                modified_ns=file.modified_ns,
                at=now,
                generation=0,
            )
        if row is not None:
            await parts.store.images.drop(row, asked.asked_by, now)
        return Outcome(RequestState.DONE, {"image": name})


async def _find_references(parts: ApiParts, name: str) -> tuple[Blocker, ...]:
    """Return what refers to a file: pins of the matrix, their nodes, and steps under way.

    Steps count by their ledger, which also has those of a matrix that was in force before.
    """
    references = [
        build_blocker(
            name,
            f"the matrix pins it: {place}",
            "Remove the pin from the matrix, and start the daemon with that.",
        )
        for place in list_pinning_places(parts.matrix).get(name, ())
    ]
    for node in list_given_nodes(parts.matrix, await parts.store.nodes.list(), name):
        detail = f"the release of {node} has it"
        references.append(build_blocker(name, detail, "Bring the node to another release first."))
    for operation in await parts.store.operations.list_active():
        entries = await parts.store.operations.list_entries(operation.node)
        under_way = [e for e in entries if e.status in UNSETTLED and name in e.model_dump_json()]
        if under_way:
            detail = f"a step of {operation.node} that is under way uses it"
            references.append(build_blocker(name, detail, "Wait for the operation's end."))
    return tuple(references)


async def foresee_upload(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return whether a file of this name, length and digest would be taken."""
    name = asked.subject
    arguments = asked.arguments
    size_bytes = int(arguments["size_bytes"])
    sha256 = str(arguments["sha256"])
    if await find_digest(parts, name) == sha256:
        return Forecast((f"{name} is there already, with this digest.",), result={"there": True})
    obstacle = await find_obstacle(parts, name, size_bytes, sha256)
    if obstacle is not None:
        return Forecast((), (build_blocker(name, obstacle.title, obstacle.unblock),))
    return Forecast((f"{name} is stored: {size_bytes} bytes. No node gets it by that.",))


async def foresee_removal(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    blockers = await _find_references(parts, asked.subject)
    lines = () if blockers else (f"{asked.subject} is removed from the store of this daemon.",)
    return Forecast(lines, blockers)


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
    records, damaged = await parts.store.images.list_with_damaged()
    rows = {row.name: row for row in records}
    present = {file.name: file for file in files}
    places = list_pinning_places(parts.matrix)
    nodes = await parts.store.nodes.list()
    items = tuple(
        build_view(
            name,
            present.get(name),
            rows.get(name),
            tuple(places.get(name, ())),
            list_given_nodes(parts.matrix, nodes, name) if name in places else (),
            "see `provisioner doctor`" if name in damaged else "",
        )
        for name in sorted({*present, *rows, *damaged})
    )
    return Reply(ImageList(items=items, total=len(items)))


async def show_image(ask: Ask) -> Reply:
    """Return one file; one that was put there by hand is read whole for its digest."""
    file, row = await _read(ask)
    parts = ask.parts
    nodes = await parts.store.nodes.list()
    name = _name(ask)
    places = tuple(list_pinning_places(parts.matrix).get(name, ()))
    shown = build_view(name, file, row, places, list_given_nodes(parts.matrix, nodes, name))
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
        effect=Effect.LASTING,
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
        effect=Effect.LASTING,
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
        effect=Effect.LASTING,
        entity=True,
        site=True,
    ),
)
