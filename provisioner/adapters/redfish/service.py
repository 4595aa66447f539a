"""Requests that change something: links and action targets read from the tree, ETags, refusals.

Nothing here repeats a request that may have been carried out: a POST that may have arrived is its
caller's to settle. One that was refused for a property changed nothing (see `messages`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from provisioner.adapters.redfish import messages
from provisioner.adapters.redfish.messages import body_of, read_refusal
from provisioner.adapters.redfish.parsing import Json, as_object, at, link, objects, path_of, text
from provisioner.adapters.redfish.parts import (
    host_manager,
    host_system,
    is_baseboard,
    of_type,
)
from provisioner.adapters.redfish.walk import ROOT, Allowance, Resource, Sightings, Walk
from provisioner.model.outcome import Blocker, Gap, Reason
from provisioner.ports import (
    BmcAddress,
    BmcTransport,
    Call,
    LoginRefused,
    Reply,
    TooLarge,
    Unreachable,
    Upload,
)
from provisioner.quirks import ALL, Quirk, identify_managers, is_stated

LOG = logging.getLogger(__name__)
# over 60 s until a PATCH of settings is answered were seen (docs/sources/bmc-faults.md#t6)
_PATCH_S = 100.0
_WANTS_A_TAG = (412, 428)
_WALKS_KEPT = 32  # readings that a refusal may rest on; one operation makes under ten
_UNREAD_S = 300.0  # what was not read longer ago was for another operation
Pause = Callable[[float], Awaitable[Any]]
UNBLOCK = "Look at the BMC's event log; it is tried again at the next turn."


class _Found:
    """What was found once of one BMC: paths, what it has shown, and its software."""

    def __init__(self, quirk: Quirk) -> None:
        self.quirk = quirk
        self.learnt = False
        self.system: str | None = None
        self.chart: dict[str, Resource] = {}
        self.sightings = Sightings()


class Service:
    """One BMC. Paths found once are kept for the life of this object, by all its operations."""

    def __init__(
        self,
        transport: BmcTransport,
        address: BmcAddress,
        quirk: Quirk,
        pause: Pause = asyncio.sleep,
    ) -> None:
        self.transport = transport
        self.address = address
        self.pause = pause  # the site's clock: some services need seconds between two requests
        self._found = _Found(quirk)
        self._walks: deque[Walk] = deque(maxlen=_WALKS_KEPT)
        self.allowance: Allowance | None = None  # of all requests; None: each walk has its own

    @property
    def quirk(self) -> Quirk:
        """The declaration of the software that answers, as far as it is known by now."""
        return self._found.quirk

    @property
    def sightings(self) -> Sightings:
        """Return what the BMC has shown so far."""
        return self._found.sightings

    def begin(self) -> Service:
        """Return this service for one operation: an allowance holds for all of its requests."""
        begun = Service.__new__(Service)  # as copy.copy does, at a fifth of its cost
        begun.__dict__.update(self.__dict__)
        begun.allowance = self.allowance or Allowance()
        return begun

    def walk(self, *, charted: bool = False, alone: bool = False, apart: bool = False) -> Walk:
        """A fresh reading, with its own gaps; `charted`: along links that were seen before.

        `alone`: of one resource, for which no session need be opened. `apart`: a reading for its
        own sake; no refusal of `not_offered` rests on it.
        """
        walk = Walk(
            self.transport,
            self.address,
            self.quirk,
            self._found.chart if charted else None,
            alone=alone,
            allowance=self.allowance,
            sightings=self._found.sightings,
        )
        if not apart:
            self._walks.append(walk)
        return walk

    def not_offered(self, subject: str, what: str) -> Blocker:
        """Return the refusal of a service that has no such resource or action.

        Raises `PortError` instead if something that was looked at for it could not be read.
        """
        recent = asyncio.get_running_loop().time() - _UNREAD_S
        unread: dict[str, Gap] = {}
        for walk in self._walks:
            for path in walk.done:
                unread.pop(path, None)
            if walk.missed_s >= recent:
                unread.update({gap.source.rstrip("/"): gap for gap in walk.unread})
        self._walks.clear()  # all is looked at again by then
        raise_unread(list(unread.values()))
        return Blocker(
            reason=Reason.NOT_OFFERED,
            subject=subject,
            detail=f"this service offers no {what}",
            unblock="Update the BMC's firmware, or do it by hand.",
        )

    async def learn(self) -> None:
        """Make sure which software answers, before a flag of its declaration is relied on.

        A root that names only the maker of the machine leaves it open; the managers tell. Nothing
        changes while they cannot be read: it is asked again at the next operation.
        """
        if self._found.learnt or self.quirk not in ALL.values():
            return
        walk = self.walk(apart=True)
        root = await walk.read_root()
        if not is_stated(root, self.quirk):
            shown = await self._read_software(walk)
            if walk.unread:
                return
            if shown is not None and shown is not self.quirk:
                LOG.info("%s: %s answers, not %s", self.address.url, shown.title, self.quirk.title)
                self._found.quirk = shown
        self._found.learnt = True

    async def find_other_software(self) -> str:
        """Return the software that this BMC shows, if it is another than the declared one; else "".

        What a declaration knows of a software, and this BMC does not list, is then not used on it.
        Raises `PortError` if its managers cannot be read.
        """
        walk = self.walk(apart=True)
        shown = await self._read_software(walk)
        raise_unread(walk.unread)
        return shown.title if shown is not None and shown.name != self.quirk.name else ""

    async def _read_software(self, walk: Walk) -> Quirk | None:
        managers = await walk.read_linked(await walk.read_root(), "Managers")
        return identify_managers([one.data for one in managers])

    async def call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """One request. An answer whose body calls for another status has that one."""
        return await self.ask(Call(method, path, body=body, headers=headers or {}))

    async def ask(self, call: Call, *, bulk: bool = False) -> Reply:
        """Send any request as `call` does, within the operation's allowance.

        `bulk`: see `Allowance.ask`.

        What an operation has no allowance left for is not sent, and raised as silence.
        """
        if self.allowance is None:
            reply = await self.transport.request(self.address, call)
            return messages.correct_status(reply, read=call.method == "GET")
        try:
            reply = await self.allowance.ask(self.transport, self.address, call, bulk=bulk)
            return messages.correct_status(reply, read=call.method == "GET")
        except TooLarge as error:
            if spent := self.allowance.find_spent():
                raise Unreachable(f"{call.path}: {spent}", maybe_executed=False) from None
            raise error

    async def upload(self, path: str, upload: Upload, timeout_s: float) -> Reply:
        """A multipart POST; the file is streamed."""
        return await self.ask(Call("POST", path, body=upload, timeout_s=timeout_s))

    async def get(self, path: str) -> Json:
        """One resource that a link names. Raises `PortError` if it cannot be read now.

        Empty only if the service says that there is none: what was not read lacks nothing.
        """
        walk = self.walk()
        data = (await walk.read(path)).data
        if not data:
            raise_unread(walk.gaps)
        return data

    async def peek(self, path: str) -> Json:
        """One resource; empty if it cannot be read. Only to look for what it should show by now."""
        return (await self.walk(apart=True).read(path)).data

    async def find_existing(self, path: str) -> Json | None:
        """One resource of ours by its path; None: it is gone. Raises `PortError` if it is unread.

        The answer of one request decides, since a thing that is ended is not there any more.
        """
        reply = await self.ask(Call("GET", path, alone=True))
        if reply.status in (404, 410):
            return None
        if reply.status != 200:
            raise Unreachable(f"{path}: HTTP status {reply.status}", maybe_executed=False)
        return body_of(reply)

    async def read_system(self, *, alone: bool = False) -> Resource | None:
        """The host's system, read now; `alone`: nothing else is read or changed soon.

        Raises `PortError` while it is not shown: the baseboard beside it is never taken for it.
        """
        if not alone:
            await self.learn()
        known = self._found.system
        if known is not None:
            walk = self.walk(alone=alone)
            resource = await walk.read(known)
            if resource.data:
                return resource
            raise_unread(walk.unread)
        walk = self.walk()
        systems = of_type(
            await walk.read_linked(await walk.read_root(), "Systems"), "ComputerSystem"
        )
        host = host_system(systems)
        if host is None or not host.data:
            raise_unread(walk.gaps)
        if host is None or is_baseboard(host):
            raise_unread(walk.unread)
            if known is not None and not is_baseboard(Resource(known)):
                raise Unreachable(f"{known}: it is listed no more", maybe_executed=False)
        self._found.system = host.path if host is not None else None
        return host

    async def read_manager(self) -> Resource | None:
        """The BMC's own manager, read now."""
        walk = self.walk()
        managers = of_type(await walk.read_linked(await walk.read_root(), "Managers"), "Manager")
        manager = host_manager(managers, await self.read_system())
        if manager is None or not manager.data:
            raise_unread(walk.gaps)
        return manager

    async def find_part(self, name: str) -> Resource:
        """A service that the root links to: "UpdateService", "EventService", "Tasks" ...

        One that did not answer is no service that offers nothing: its silence is raised.
        """
        await self.learn()
        walk = self.walk()
        path = link(await walk.read_root(), name)
        resource = await walk.read(path) if path is not None else Resource(ROOT)
        if not resource.data:
            raise_unread(walk.gaps)
        return resource

    async def post(
        self,
        path: str,
        body: Any,
        subject: str,
        *,
        spare: Collection[str] = (),
        demanded: Json | None = None,
    ) -> Reply | Blocker:
        """A POST as `send_post` sends it. The reply if it was accepted, else why it was not."""
        reply = await self.send_post(path, body, spare, demanded or {})
        return reply if 200 <= reply.status < 300 else read_refusal(reply, subject, UNBLOCK)

    async def send_post(
        self, path: str, body: Any, spare: Collection[str], demanded: Json
    ) -> Reply:
        """Send a POST, and return the last answer.

        A refusal, which changed nothing, is answered without a property that it names if that is in
        `spare`, and with one that it demands if that is in `demanded`. All others are final.
        """
        reply = await self.call("POST", path, body)
        for _ in range(messages.LEFT_OUT_MAX if isinstance(body, Mapping) else 0):
            again = messages.leave_out(reply, body, {}, spare)
            if again is None:
                again = messages.add_demanded(reply, body, demanded)
            if not again:
                break
            body = again
            reply = await self.call("POST", path, body)
        return reply

    async def patch(
        self,
        path: str,
        body: Json,
        subject: str,
        *,
        if_match: str = "",
        hidden: str = "",
        always: Collection[str] = (),
        spare: Collection[str] = (),
    ) -> Blocker | None:
        """PATCH under the resource's ETag, which is read first.

        BMCs refuse absent, weak and empty ones (docs/sources/bmc-faults.md#e1, #e2, #e4).

        The rule "any" needs no tag, nor does "none", under which no tag is sent. A refusal
        changed nothing. A resource without a tag is then asked for with "*", and so is one whose
        strong tag is refused though it has not changed; one that was changed meanwhile is
        left alone, and so is one with a weak tag, which does not say whether it was changed.

        Properties that the resource shows with this value are not sent, apart from those in
        `always`; for those in `spare`, see `messages`. With `hidden`, a secret, all is sent as is.
        What was refused is done all the same if the resource shows it afterwards, and what was
        accepted but for a property that the answer names as not taken is refused unless it does.
        """
        reply, sent = await self._write(path, body, if_match, always, spare, secret=bool(hidden))
        refused = not 200 <= reply.status < 300
        if refused:
            doubted = {leaf for leaf, _ in messages.list_leaves(sent)}
        else:
            doubted = {p for p in messages.find_not_taken(reply, sent) if p[-1] not in spare}
        if not doubted or (refused and (hidden or reply.status not in messages.NAMING)):
            return read_refusal(reply, subject, UNBLOCK, hidden) if refused else None
        shown = await self.peek(path)
        if all(messages.is_shown(shown, leaf, at(sent, *leaf)) for leaf in doubted):
            return None
        return read_refusal(reply, subject, UNBLOCK, hidden)

    async def send_patch(
        self, path: str, body: Json, subject: str, *, if_match: str = ""
    ) -> Reply | Blocker:
        """Send a whole body as `patch` does, whatever is shown; the reply if it was accepted."""
        reply, _ = await self._write(path, body, if_match, tuple(body), (), secret=False)
        done = 200 <= reply.status < 300
        return reply if done else read_refusal(reply, subject, UNBLOCK)

    async def _write(
        self,
        path: str,
        body: Json,
        if_match: str,
        always: Collection[str],
        spare: Collection[str],
        *,
        secret: bool,
    ) -> tuple[Reply, Json]:
        """Return the last answer to a PATCH, and the body that it answers; {}: nothing was due."""
        rule = if_match or self.quirk.if_match
        compared = not secret and any(
            not set(leaf) & set(always) for leaf, _ in messages.list_leaves(body)
        )
        seen = await self.call("GET", path) if rule == "etag" or compared else None
        if seen is not None:
            raise_not_ready(path, seen)  # nothing was sent yet
        shown = body_of(seen) if seen is not None and seen.status == 200 and not secret else {}
        body = messages.drop_shown(shown, body, always)
        reply = Reply(204, {}, b"")
        for _ in range(messages.LEFT_OUT_MAX):
            if not body:
                break  # all of it is so already
            reply = await self._send_tagged(path, body, rule, _tags_of(seen))
            again = None if secret else messages.leave_out(reply, body, shown, spare)
            if again is None or not (again or _is_all_shown(body, shown)):
                break
            body = again
            if not again:
                return Reply(204, {}, b""), {}
        return reply, body

    async def _send_tagged(self, path: str, body: Json, rule: str, tags: tuple[str, ...]) -> Reply:
        tags = tags if rule == "etag" else ()
        tried = list_tags(tags) or (("*",) if rule == "any" else ("",))
        for tag in tried:
            reply = await self._patched(path, body, tag)
            if reply.status not in _WANTS_A_TAG:
                break
        weak = any(tag.startswith("W/") for tag in tags)
        any_fits = reply.status in _WANTS_A_TAG and tried != ("*",) and not weak
        if any_fits and (not tags or _tags_of(await self.call("GET", path)) == tags):
            reply = await self._patched(path, body, "*")
        return reply

    async def _patched(self, path: str, body: Any, tag: str) -> Reply:
        headers = {"If-Match": tag} if tag else {}
        call = Call("PATCH", path, body=body, headers=headers, timeout_s=_PATCH_S)
        return await self.ask(call)

    async def reset_types(self, action: Json) -> list[str]:
        """Reset types that an action allows; empty if it does not say."""
        listed = action.get("ResetType@Redfish.AllowableValues")
        if not isinstance(listed, list):
            info = link(action, "@Redfish.ActionInfo") or path_of(action.get("@Redfish.ActionInfo"))
            parameters = (await self.get(info)).get("Parameters") if info else None
            listed = next(
                (
                    p.get("AllowableValues")
                    for p in objects(parameters or [])
                    if p.get("Name") == "ResetType"
                ),
                None,
            )
        return [t for t in (text(v) for v in listed) if t] if isinstance(listed, list) else []


def _tags_of(reply: Reply | None) -> tuple[str, ...]:
    """The header's tag and the body's, as they are printed; () if there is none."""
    if reply is None:
        return ()
    tags = (text(reply.headers.get("etag")), text(body_of(reply).get("@odata.etag")))
    return tuple(dict.fromkeys(tag for tag in tags if tag and tag.strip('W/" ')))


def _is_all_shown(body: Json, shown: Json) -> bool:
    return all(messages.is_shown(shown, leaf, value) for leaf, value in messages.list_leaves(body))


def list_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Ways to name these tags in If-Match, best first; none of them fits a changed resource.

    RFC 9110 compares strongly, so that a tag that a proxy made weak is sent strong
    (docs/sources/bmc-faults.md#e3). Services that compare text want it as it was printed, one whose
    header is quoted twice as its body has it (community.general#3268), or bare (its
    `strip_etag_quotes`).
    """
    bare = [tag.removeprefix("W/").strip().strip('"') for tag in tags]
    ways = [f'"{tag}"' for tag in bare] + [tag for tag in tags if '""' not in tag] + bare[:1]
    return tuple(dict.fromkeys(ways))


def raise_silence(gaps: Sequence[Gap]) -> None:
    """Raise for a BMC that gave nothing: silence and refused logins are no facts about a device."""
    for gap in gaps:
        detail = f"{gap.source}: {gap.detail}"
        if gap.reason is Reason.LOGIN_REFUSED:
            raise LoginRefused(detail)
        if gap.reason in (Reason.UNREACHABLE, Reason.TOO_LARGE, Reason.BUSY):
            raise Unreachable(detail, maybe_executed=False)


def raise_unread(gaps: Sequence[Gap]) -> None:
    """Raise for a resource that every service has and this one did not show.

    An answer that is none (status 200 with an empty body) is silence here: it is asked again.
    """
    raise_silence(gaps)
    for gap in gaps:
        if gap.reason in (Reason.MALFORMED, Reason.REFUSED):
            raise Unreachable(f"{gap.source}: {gap.detail}", maybe_executed=False)


def raise_not_ready(path: str, reply: Reply) -> None:
    """Raise for an answer that says only that the BMC cannot answer now."""
    blocker = read_refusal(reply, path, UNBLOCK) if reply.status >= 400 else None
    if blocker is not None and (reply.status >= 500 or blocker.reason is Reason.BUSY):
        raise Unreachable(f"{path}: {blocker.detail}", maybe_executed=False)


def action_of(resource: Json, name: str) -> Json:
    """The action whose name ends so, standard or OEM; empty if it is not offered."""
    return next((a for key, a in list_actions(resource) if key.endswith(name)), {})


def target_of(action: Json) -> str | None:
    """Where to POST: read, never built (DGX has SimpleUpdate at a path of its own)."""
    return path_of(action.get("target"))


def list_actions(resource: Json) -> list[tuple[str, Json]]:
    """Return the name and the action of each, also from under Oem and Oem.<vendor>.

    Three levels are all there are. HPE lists its own under the resource's Oem.Hpe (captured tree
    of a DL385 Gen10 Plus v2).
    """
    level = [as_object(at(resource, "Actions"))]
    vendors = list(as_object(resource.get("Oem")).values())[:16]
    level += [as_object(at(part, "Actions")) for part in vendors]
    actions: list[tuple[str, Json]] = []
    for _ in range(3):
        below = []
        for group in level:
            for key, value in list(group.items())[:64]:
                action = as_object(value)
                if "target" in action:
                    actions.append((str(key), action))
                elif action:
                    below.append(action)
        level = below
    return actions
