"""Changes of the artifact store's files, carried out and foreseen: published, described, removed.

One change at a time (`Uploads.turn`), and each only for the generation that was read when it was
asked for: what another person approved is never carried out on something else.
"""

from __future__ import annotations

import asyncio
from typing import Any

from provisioner.api.changes import Forecast, Outcome, build_failure, build_objection
from provisioner.api.parts import ApiParts
from provisioner.api.routes.declared.image_views import find_digest
from provisioner.execution.artifacts import uploads
from provisioner.execution.artifacts.uploads import UploadFailed, build_blocker
from provisioner.model.access import ChangeRequest, RequestState
from provisioner.model.artifact import StoredImage
from provisioner.model.operation import ActionStatus
from provisioner.model.outcome import Blocker
from provisioner.planning.matrix.file_references import (
    list_given_nodes,
    list_pinned_digests,
    list_pinning_places,
)

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
    """Return what would be removed, or what refers to it."""
    blockers = await _find_references(parts, asked.subject)
    lines = () if blockers else (f"{asked.subject} is removed from the store of this daemon.",)
    return Forecast(lines, blockers)
