"""The door of SCIM at the API's server: it reads its own token, and changes the directory alone.

Least privilege is by construction: the token is accepted below `/scim/v2` and nowhere else, and
what is reached there are people and groups. A write answers once all that a person had has ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from provisioner.integrations.scim import discovery
from provisioner.integrations.scim.paths import Term, apply_patch, matches, parse_filter
from provisioner.integrations.scim.resources import (
    GROUPS,
    PATCH,
    RESULTS_MAX,
    USERS,
    Body,
    Resource,
    ScimError,
    find_version,
    read_document,
    select_attributes,
)
from provisioner.model.directory import DirectoryEntry, EntryKind, Standing
from provisioner.model.input_error import InputError
from provisioner.ports import Clock, StaleWrite, StoreFailed
from provisioner.ports.doors import Directory, Door, DoorAnswer, DoorRequest, NameTaken
from provisioner.runtime.shipped import read_text
from provisioner.settings import Settings

PREFIX = "/scim/v2"
MEDIA = "application/scim+json"
BY = "scim"  # who made a change, in the journal
TOKEN_MIN = 32  # characters: 128 random bits in hex
TOKENS_MAX = 2  # the old one and the new one, while it is exchanged
ENTRIES_MAX = {EntryKind.PERSON: 50_000, EntryKind.GROUP: 2_000}
TRIES = 3  # of a change that a peer overtook
WRITES = ("POST", "PUT", "PATCH")
_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
log = logging.getLogger(__name__)


def open_doors(settings: Settings, clock: Clock, directory: Directory) -> Sequence[Door]:
    """Return the door. Raises InputError where its token cannot be used."""
    return [ScimDoor(TokenFile(Path(settings.scim_token_file)), clock, directory)]


class TokenFile:
    """The tokens of the provider's client, by digest; a change is read at the next request."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mark: tuple[int, int] = (0, 0)
        self._digests: tuple[bytes, ...] = ()
        self._read()

    def accepts(self, token: str) -> bool:
        try:
            status = self._path.stat()
            if (status.st_mtime_ns, status.st_ino) != self._mark:
                self._read()
        except (InputError, OSError) as error:
            log.warning("the token file of SCIM cannot be used: %s", str(error)[:200])
            return False
        digest = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0

    def _read(self) -> None:
        status = self._path.stat() if self._path.exists() else None
        tokens = read_text(self._path).split()
        if not 1 <= len(tokens) <= TOKENS_MAX or any(len(t) < TOKEN_MIN for t in tokens):
            problem = f"it needs one or two tokens of at least {TOKEN_MIN} characters, a line each"
            remedy = "Write one into it: `openssl rand -hex 32`."
            raise InputError("scim_token_file", str(self._path), problem, remedy)
        self._digests = tuple(hashlib.sha256(t.encode()).digest() for t in tokens)
        self._mark = (status.st_mtime_ns, status.st_ino) if status is not None else (0, 0)


class ScimDoor:
    """`ports.doors.Door` in SCIM 2.0."""

    prefix = PREFIX

    def __init__(self, tokens: TokenFile, clock: Clock, directory: Directory) -> None:
        self._tokens = tokens
        self._clock = clock
        self._directory = directory

    async def answer(self, request: DoorRequest) -> DoorAnswer:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self._tokens.accepts(token.strip()):
            refused = ScimError(401, "a good bearer token of SCIM is needed")
            return _reply(401, refused.render(), {"WWW-Authenticate": 'Bearer realm="scim"'})
        try:
            return await self._serve(request)
        except ScimError as error:
            return _reply(error.status, error.render())
        except NameTaken as error:
            taken = ScimError(409, f"the name {str(error)[:100]} is taken", "uniqueness")
            return _reply(409, taken.render())
        except StaleWrite:
            stale = ScimError(409, "it was changed at the same time; ask again")
            return _reply(409, stale.render())
        except StoreFailed:
            log.exception("the store failed, at %s", request.path)
            return _reply(503, ScimError(503, "the database failed; ask again").render())

    async def _serve(self, request: DoorRequest) -> DoorAnswer:
        _, first, *rest = [*request.path.rstrip("/").split("/"), "", ""]
        name = rest[0] if rest else ""
        if len([word for word in rest if word]) > 1:
            raise ScimError(404, "there is no such path")
        resource = next((r for r in (USERS, GROUPS) if r.endpoint == f"/{first}"), None)
        if (first, name, request.verb) == (".search", "", "POST"):
            _check_media(request)
            return await self._search(_as_query(request), (USERS, GROUPS))
        if resource is None:
            return self._describe(request, first, name)
        if request.verb in WRITES:
            _check_media(request)
        if name == ".search" and request.verb == "POST":  # RFC 7644 section 3.4.3
            return await self._list(_as_query(request), resource, "")
        if name and not _ID.fullmatch(name):
            raise ScimError(404, f"there is no such {resource.name}")
        acts: Mapping[str, Callable[..., Awaitable[DoorAnswer]]] = (
            {"GET": self._show, "PUT": self._replace, "PATCH": self._patch, "DELETE": self._delete}
            if name
            else {"GET": self._list, "POST": self._create}
        )
        act = acts.get(request.verb)
        if act is None:
            refused = ScimError(405, f"{request.verb} is not for this path")
            return _reply(405, refused.render(), {"Allow": ", ".join(acts)})
        return await act(request, resource, name)

    def _describe(self, request: DoorRequest, first: str, name: str) -> DoorAnswer:
        if first in ("Bulk", "Me"):
            raise ScimError(501, f"{first} is not offered")
        lists = {"ResourceTypes": discovery.list_types, "Schemas": discovery.list_schemas}
        if first != "ServiceProviderConfig" and first not in lists:
            raise ScimError(404, "there is no such path")
        if request.verb != "GET":
            refused = ScimError(405, "this can only be read")
            return _reply(405, refused.render(), {"Allow": "GET"})
        if "filter" in request.query:  # RFC 7644 section 4
            raise ScimError(403, "what the service says of itself is not filtered")
        if first == "ServiceProviderConfig":
            if name:
                raise ScimError(404, "there is no such path")
            return _reply(200, discovery.show_config(request.base))
        items = lists[first](request.base)
        if name:
            return _reply(200, discovery.find_one(items, name))
        return _reply(200, discovery.show_list(items, len(items), 1))

    async def _list(self, request: DoorRequest, resource: Resource, _: str) -> DoorAnswer:
        return await self._search(request, (resource,))

    async def _search(self, request: DoorRequest, resources: Sequence[Resource]) -> DoorAnswer:
        query = {key.lower(): value for key, value in request.query.items()}
        start = max(_read_number(query, "startindex", 1), 1)
        count = min(max(_read_number(query, "count", RESULTS_MAX), 0), RESULTS_MAX)
        terms = parse_filter(query["filter"]) if query.get("filter") else ()
        found = [(r, e) for r in resources for e in await self._find(r, terms)]
        groups = await self._read_groups(USERS) if USERS in resources else {}
        if terms:
            # it may be everybody: the daemon goes on meanwhile
            shown = await asyncio.to_thread(_select_shown, found, terms, request.base, groups)
            page = shown[start - 1 : start - 1 + count]
            total = len(shown)
        else:
            chosen = found[start - 1 : start - 1 + count]
            page = [_show_entry(r, e, request.base, groups) for r, e in chosen]
            total = len(found)
        wanted = (query.get("attributes", ""), query.get("excludedattributes", ""))
        items = [select_attributes(told, *wanted) for told in page]
        return _reply(200, discovery.show_list(items, total, start))

    async def _find(self, resource: Resource, terms: Sequence[Term]) -> Sequence[DirectoryEntry]:
        """Return the entries that may satisfy the filter: by its name where it asks for one."""
        indexed = {resource.named_by.lower(), "externalid", "emails"}
        if resource.kind is EntryKind.GROUP:
            indexed = {"displayname"}
        for term in terms:
            if term.name == "id" and isinstance(term.value, str):
                found = await self._directory.get(resource.kind, term.value[:64])
                return [found] if found is not None else []
            if term.name in indexed and isinstance(term.value, str) and term.sub in ("", "value"):
                return await self._directory.find(resource.kind, term.value)
        return await self._directory.list(resource.kind)

    async def _show(self, request: DoorRequest, resource: Resource, name: str) -> DoorAnswer:
        entry = await self._read(resource, name)
        version = find_version(entry)
        if version in _read_tags(request, "if-none-match"):
            return DoorAnswer(304, b"", {"ETag": version})
        told = await self._show_one(request, resource, entry)
        query = {key.lower(): value for key, value in request.query.items()}
        wanted = (query.get("attributes", ""), query.get("excludedattributes", ""))
        return _reply(200, select_attributes(told, *wanted), {"ETag": version})

    async def _create(self, request: DoorRequest, resource: Resource, _: str) -> DoorAnswer:
        body = resource.parse(read_document(request.body))
        if await self._directory.count(resource.kind) >= ENTRIES_MAX[resource.kind]:
            most = ENTRIES_MAX[resource.kind]
            raise ScimError(403, f"there are {most} {resource.name}s, and no more are kept")
        now = self._clock.now()
        entry = DirectoryEntry(
            id=str(uuid.uuid4()),
            kind=resource.kind,
            name=body[resource.named_by],
            made_at=now,
            changed_at=now,
        )
        body = {"active": True} | body if resource.flags else body
        stored = await self._save(resource, entry, body)
        told = await self._show_one(request, resource, stored)
        headers = {"Location": told["meta"]["location"], "ETag": find_version(stored)}
        return _reply(201, told, headers)

    async def _replace(self, request: DoorRequest, resource: Resource, name: str) -> DoorAnswer:
        body = resource.parse(read_document(request.body))
        # a document that does not speak of `active` lets nobody in again
        return await self._change(request, resource, name, lambda old: _keep_flags(old, body))

    async def _patch(self, request: DoorRequest, resource: Resource, name: str) -> DoorAnswer:
        document = read_document(request.body)
        schemas = document.get("schemas", [PATCH])
        if not isinstance(schemas, list) or PATCH not in schemas:
            raise ScimError(400, f"the schema of a PATCH is {PATCH}", "invalidSyntax")

        def change(body: Body) -> Body:
            return apply_patch(resource, body, document)

        return await self._change(request, resource, name, change)

    async def _change(
        self,
        request: DoorRequest,
        resource: Resource,
        name: str,
        change: Callable[[Body], Body],
    ) -> DoorAnswer:
        for attempt in range(TRIES):
            entry = await self._read(resource, name)
            _check_match(request, entry)
            body = resource.parse(change(dict(entry.body)))
            try:
                stored = await self._save(resource, entry, body)
            except StaleWrite:
                if attempt == TRIES - 1 or "if-match" in request.headers:
                    raise
                continue
            told = await self._show_one(request, resource, stored)
            return _reply(200, told, {"ETag": find_version(stored)})
        raise AssertionError("a try ends the loop")

    async def _delete(self, request: DoorRequest, resource: Resource, name: str) -> DoorAnswer:
        entry = await self._read(resource, name)
        _check_match(request, entry)
        gone = entry.model_copy(update={"standing": Standing.GONE, "body": {}})
        await self._directory.save(gone, BY, self._clock.now())
        return DoorAnswer(204)

    async def _save(self, resource: Resource, entry: DirectoryEntry, body: Body) -> DirectoryEntry:
        """Store an entry. Whom nothing calls active is not."""
        is_active = body.get("active", False) or not resource.flags
        changed = entry.model_copy(
            update={
                "name": body[resource.named_by],
                "names": resource.find_names(body),
                "standing": Standing.ACTIVE if is_active else Standing.INACTIVE,
                "body": body,
            }
        )
        now = self._clock.now()
        await self._directory.save(changed, BY, now)
        grown = {"generation": entry.generation + 1, "changed_at": now}
        return changed.model_copy(update=grown)

    async def _read(self, resource: Resource, name: str) -> DirectoryEntry:
        entry = await self._directory.get(resource.kind, name)
        if entry is None:
            raise ScimError(404, f"there is no {resource.name} {name}")
        return entry

    async def _read_groups(self, resource: Resource) -> GroupsOf:
        if resource.kind is EntryKind.GROUP:
            return {}
        found: dict[str, list[DirectoryEntry]] = {}
        for group in await self._directory.list(EntryKind.GROUP):
            for member in {m["value"] for m in group.body.get("members", ())}:
                found.setdefault(member, []).append(group)
        return found

    async def _show_one(
        self, request: DoorRequest, resource: Resource, entry: DirectoryEntry
    ) -> Body:
        return _show_entry(resource, entry, request.base, await self._read_groups(resource))


GroupsOf = Mapping[str, Sequence[DirectoryEntry]]  # a person's id -> its groups


def _show_entry(resource: Resource, entry: DirectoryEntry, base: str, groups: GroupsOf) -> Body:
    return resource.show(entry, base, groups.get(entry.id, ()))


def _select_shown(
    found: Sequence[tuple[Resource, DirectoryEntry]],
    terms: Sequence[Term],
    base: str,
    groups: GroupsOf,
) -> list[Body]:
    shown = (_show_entry(r, e, base, groups) for r, e in found)
    return [told for told in shown if matches(told, terms)]


def _reply(status: int, told: Body, headers: Mapping[str, str] | None = None) -> DoorAnswer:
    given = {"Content-Type": MEDIA, "Cache-Control": "no-store", **(headers or {})}
    return DoorAnswer(status, json.dumps(told).encode(), given)


def _keep_flags(old: Body, body: Body) -> Body:
    return {"active": old["active"]} | body if "active" in old else dict(body)


def _as_query(request: DoorRequest) -> DoorRequest:
    """Return a search in a body as one in the address."""
    query = {}
    for key, value in read_document(request.body).items():
        if key.lower() in ("attributes", "excludedattributes") and isinstance(value, list):
            query[key] = ",".join(str(each) for each in value)
        elif key.lower() != "schemas" and isinstance(value, str | int):
            query[key] = str(value)
    return replace(request, query=query)


def _check_media(request: DoorRequest) -> None:
    media = request.headers.get("content-type", MEDIA).partition(";")[0].strip().lower()
    if media not in (MEDIA, "application/json"):
        raise ScimError(415, f"the body has to be {MEDIA}")


def _check_match(request: DoorRequest, entry: DirectoryEntry) -> None:
    wanted = _read_tags(request, "if-match")
    if wanted and "*" not in wanted and find_version(entry) not in wanted:
        raise ScimError(412, "it was changed since this version was read")


def _read_tags(request: DoorRequest, header: str) -> tuple[str, ...]:
    return tuple(t.strip() for t in request.headers.get(header, "").split(",") if t.strip())


def _read_number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    if not text:
        return default
    if not re.fullmatch(r"-?\d{1,9}", text):
        raise ScimError(400, f"{name} has to be a number", "invalidValue")
    return int(text)
