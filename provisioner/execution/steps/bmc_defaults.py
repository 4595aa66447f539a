"""Gives BMCs their factory defaults between two tenants, and takes each one in again.

A reset ends what the daemon knows a BMC by: login, certificate, perhaps the network. So it is
intake once more, at the address that is stored: the certificate that is presented is read, the
factory's login is tried once, serial and UUID are compared with those from before, the password is
made ours and unique, and only then the certificate is the pin. The host's BMC is proved by the next
boot of the image through it besides.

Rows of the ledger say how far it came. Until the identity is proved, the node's pin and login stay
as they were: another BMC that answers there gets none of them. The login that is made meanwhile is
in the vault under the address, as at intake, so that a successor finds it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from yarl import URL

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.discovery import probe
from provisioner.adapters.redfish.settings.bmc_writes import (
    list_resets,
    read_bmc_state,
    reset_bmc_defaults,
)
from provisioner.execution.actions.once import Act, Sent, Snapshot, blocked
from provisioner.execution.actions.work import Site, Work, do_work
from provisioner.execution.observe.discover import Found, introduce_bmcs
from provisioner.execution.observe.intake import set_times
from provisioner.execution.observe.rotation import rotate
from provisioner.execution.steps.agent_steps import find_last, find_open, record_outcome
from provisioner.execution.steps.farewell import FACTORY
from provisioner.execution.steps.maintenance_boot import Stay
from provisioner.model.erasure import ErasureRecord, Holder, Method, Result
from provisioner.model.events.node_events import CredentialReplaced
from provisioner.model.machine.settings import BiosState, split_pins
from provisioner.model.node import BmcRef
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker, Gap, Reason
from provisioner.planning.erasure import bmc_defaults
from provisioner.planning.erasure.erasure import not_done
from provisioner.planning.lifecycle.destruction import Destruction
from provisioner.planning.path.history import OPEN
from provisioner.ports import (
    BmcAddress,
    CertificateChanged,
    LoginRefused,
    Malformed,
    PortError,
    Secret,
    Unreachable,
)

# ------------------------------------------------------------------------------
# Takes a BMC in again that was reset to its factory defaults, as intake takes in a new one.
#
# The certificate that is presented is read, the factory's login is tried once, and who answers is
# compared with who was there before. Only then the password is made ours and unique. It is in the
# vault under the address meanwhile, as at intake, so that a successor goes on with it, and another
# BMC that answers there never gets a login of the node.


LOOK_S = 15.0
_STARTING = (Reason.UNREACHABLE, Reason.MALFORMED, Reason.NOT_OFFERED, Reason.BUSY)


def name_made(bmc: BmcRef) -> str:
    """Return the vault's name of the login that is made while the identity is not proved."""
    return f"endpoint/{URL(bmc.url).origin()}"


@dataclass(frozen=True)
class BmcReturn:
    """One BMC of `node` on its way back. `vendor` is what it was before its reset."""

    site: Site
    node: str
    bmc: BmcRef
    identity: bmc_defaults.Identity
    vendor: str

    async def take_in(self, login: tuple[str, Secret]) -> Found | Blocker:
        """Return the login and certificate of the BMC, once it is proved that it is this one."""
        limit_s = self.site.settings.bmc_return_limit_s
        until = self.site.clock.now() + limit_s
        while True:
            try:
                answer = await self._introduce(login)
                if isinstance(answer, Found):
                    answer = await self._own(answer)
            except PortError as error:
                answer = blocked(error, f"{self.node}/{self.bmc.name}")
            if isinstance(answer, Found):
                return answer
            if answer.reason not in _STARTING:
                return answer
            if self.site.clock.now() >= until:
                return bmc_defaults.report_absence(self.node, self.bmc, limit_s)
            await self.site.clock.sleep(LOOK_S)

    async def _introduce(self, login: tuple[str, Secret]) -> Found | Blocker:
        """Log in once, as at intake; a BMC that demands another password first gets one."""
        reach = self.site.reach
        name = f"{self.node}/{self.bmc.name}"
        probed = await probe(reach.transport, self.bmc.url)
        if isinstance(probed, Gap):
            wait = "It is tried again by itself."
            return Blocker(reason=probed.reason, subject=name, detail=probed.detail, unblock=wait)
        made = name_made(self.bmc)
        begun = await reach.credentials.current(made) or await reach.credentials.pending(made)
        if begun is None:  # one attempt decides: a second one with the same login may lock it
            try:
                bare = BmcAddress(probed.url, *login, probed.fingerprint)
                await reach.transport.password_change(bare)
            except LoginRefused as error:
                return bmc_defaults.report_login(self.node, self.bmc, str(error))
        answers, refusals = await introduce_bmcs(
            reach.transport, reach.credentials, [probed], {self.vendor: login}
        )
        if answers:
            return answers[0]
        (refused,) = refusals
        if refused.reason is Reason.LOGIN_REFUSED:
            return bmc_defaults.report_login(self.node, self.bmc, refused.detail)
        return refused.model_copy(update={"subject": name})

    async def _own(self, answer: Found) -> Found | Blocker:
        """Compare its identity, then change its password if that was not done before."""
        reach = self.site.reach
        quirk = quirks.ALL[self.vendor]
        address = BmcAddress(self.bmc.url, answer.username, answer.secret, answer.endpoint.pin)
        read = await Redfish(reach.transport, address, quirk, reach.pause).read_identity()
        seen = bmc_defaults.Identity(
            serial=answer.endpoint.serial,
            base_mac=answer.endpoint.base_mac,
            uuid=read.system_uuid or "",
        )
        stranger = bmc_defaults.refuse_stranger(self.node, self.bmc, self.identity, seen)
        if stranger is not None or answer.endpoint.rotated:
            return stranger or answer
        made = name_made(self.bmc)
        ours = await rotate(reach.transport, reach.credentials, quirk, made, address)
        if isinstance(ours, Blocker):
            return ours
        assert ours.secret is not None
        return replace(answer, username=ours.username, secret=ours.secret)


HOST = "host"
CAUSE = "factory_defaults"  # of the new password, in the journal
log = logging.getLogger(__name__)


class View(Enum):
    """How a BMC shows itself after the request."""

    OURS = "the pinned certificate, and it accepts the daemon's login"
    REFUSED = "the pinned certificate, and it refuses the daemon's login"
    ANOTHER = "another certificate"


async def finish_resets(stay: Stay) -> Blocker | None:
    """Take in again what a predecessor reset: until then the BMC is reached by nothing else."""
    for bmc in stay.node.bmcs:
        reset = BmcDefaults(stay, bmc.name)
        if await reset.is_under_way():
            record = await reset.restore()
            if isinstance(record, Blocker):
                return record
    return None


async def restore_bmcs(stay: Stay) -> list[ErasureRecord] | Blocker:
    """Return the record of each BMC, cards first. A Blocker: it is gone on with later."""
    records = []
    for bmc in sorted(stay.node.bmcs, key=lambda one: one.name == HOST):
        record = await BmcDefaults(stay, bmc.name).restore()
        if isinstance(record, Blocker):
            return record
        records.append(record)
    if any(r.result is Result.DONE for r in records) and stay.site.settings.bmc_ntp_servers:
        await set_times(stay.site, stay.node)
    return records


@dataclass(frozen=True)
class BmcDefaults:
    """The reset of one BMC of the node."""

    stay: Stay
    name: str

    @property
    def _site(self) -> Site:
        return self.stay.site

    @property
    def _bmc(self) -> BmcRef:
        return next(b for b in self.stay.node.bmcs if b.name == self.name)

    @property
    def _login(self) -> str:
        return f"{self.stay.node.id}/{self.name}"

    @property
    def _reset(self) -> str:
        return f"BMC {self.name} to defaults"

    @property
    def _lost(self) -> str:
        return f"BMC {self.name} lost its login"

    @property
    def _proof(self) -> str:
        return f"BMC {self.name} defaults proved"

    async def restore(self) -> ErasureRecord | Blocker:
        """Reset the BMC once in this visit, and take it in again; a death resumes here."""
        rows = await self._rows()
        proved = find_last(rows, self._proof)
        if proved is not None and self._stands(proved):
            self._require_boot(rows)
            return ErasureRecord.model_validate_json(proved.outcome)
        try:
            sent = self._unjudged(rows) or await self._send(rows)
            if not isinstance(sent, LedgerEntry):
                return sent
            with self._site.reach.hold_login(self._login) as granted:
                if not granted:
                    return self._busy()
                return await self._come_back(sent)
        except PortError as error:
            return blocked(error, self._login)

    async def is_under_way(self) -> bool:
        """Return whether the BMC may have been reset, and was not taken in again."""
        rows = await self._rows()
        return find_open(rows, self._reset) is not None or self._unjudged(rows) is not None

    async def _rows(self) -> list[LedgerEntry]:
        visit = self.stay.node.fenced_at
        rows = await self.stay.hold.list_entries()
        return [r for r in rows if r.before.get("visit") == visit]

    def _stands(self, proof: LedgerEntry) -> bool:
        """Return whether a verdict holds: a failed one is tried again by the next operation."""
        mine = proof.operation == self.stay.hold.operation.id
        return proof.status is ActionStatus.CONFIRMED or (
            mine and proof.status is ActionStatus.FAILED
        )

    def _unjudged(self, rows: Sequence[LedgerEntry]) -> LedgerEntry | None:
        sent = find_last(rows, self._reset)
        if sent is None or sent.status is not ActionStatus.CONFIRMED:
            return None
        proof = find_last([r for r in rows if r.status not in OPEN], self._proof)
        return None if proof is not None and proof.intended_at >= sent.settled_at else sent

    def _require_boot(self, rows: Sequence[LedgerEntry]) -> None:
        """The host's own BMC is proved by a boot of the image through it, after the reset."""
        sent = find_last(rows, self._reset)
        if self.name == HOST and sent is not None:
            self.stay.since = max(self.stay.since, sent.settled_at)

    async def _send(self, rows: Sequence[LedgerEntry]) -> LedgerEntry | ErasureRecord | Blocker:
        earlier = find_open(rows, self._reset)
        if earlier is None:
            client = await self._site.reach.redfish(self.stay.node, self.name)
            if isinstance(client, Blocker):
                return client
            kind, why = await self._choose(client)
            if why:
                record = not_done(Holder.BMC_DEFAULTS, self.name, why, self._site.clock.now())
                return record.model_copy(update={"result": Result.UNSUPPORTED})
        else:  # it may have another certificate by now, so that no request gets through
            kind = str(earlier.before["kind"])
            client = self._client(await self._stored_address(), earlier)
        refused = await do_work(self._site, self.stay.hold, self._work(client, kind), earlier)
        if refused is not None and refused.reason is Reason.BUSY:
            return refused
        if refused is not None:
            now = self._site.clock.now()
            return not_done(Holder.BMC_DEFAULTS, self.name, refused.detail[:400], now)
        row = find_last(await self._rows(), self._reset)
        assert row is not None
        return row

    async def _choose(self, client: Redfish) -> tuple[str, str]:
        """Return the type of reset; or "", and why there is none."""
        if not self._identity().serial:
            return "", "no serial of it is stored, and nothing else would prove it afterwards"
        offered = await list_resets(client.service)
        if isinstance(offered, Blocker):
            return "", offered.detail
        reserved = self._site.settings.erase_bmc_defaults == "addresses_reserved"
        factory = await self._factory(client.quirk.name)
        return bmc_defaults.choose_reset(
            offered, reserved=reserved, factory_login=factory is not None
        )

    def _work(self, client: Redfish, kind: str) -> Work:
        async def look() -> Snapshot | Blocker:
            view = await self._view(client)
            compares = view is View.OURS and bmc_defaults.keeps_login(kind)
            state = await read_bmc_state(client.service) if compares else None
            shown = None if state is None else state.model_dump(mode="json")
            return {"view": view.name, "state": shown}

        async def send() -> Sent | Blocker:
            # of an earlier intake at this address: its password ends with the reset
            await self._site.reach.credentials.remove(name_made(self._bmc))
            refused = await reset_bmc_defaults(client.service, kind)
            return refused if refused is not None else Sent()

        async def finish(_entry: LedgerEntry) -> Blocker | None:
            return None  # how the BMC comes back is a matter of its own

        before = {"visit": self.stay.node.fenced_at, "kind": kind, "vendor": client.quirk.name}
        act = Act(
            name=self._reset,
            before=before,
            look=look,
            send=send,
            happened=lambda _before, now: now["view"] != View.OURS.name,  # else it is sent again
            destroys=Destruction.BMC_DEFAULTS,
        )
        return Work(act=act, finish=finish)

    async def _come_back(self, sent: LedgerEntry) -> ErasureRecord | Blocker:
        kind = str(sent.before["kind"])
        client = self._client(await self._stored_address(), sent)
        view = await self._await_reset(sent, client)
        if isinstance(view, Blocker):
            return view
        if view is View.OURS:
            result, detail = bmc_defaults.judge_kept(kind, await self._list_changed(sent, client))
            return await self._record(sent, result, detail)
        login = await self._find_login(sent, client.address, view)
        if login is None:
            return bmc_defaults.report_login(
                self.stay.node.id, self._bmc, "no factory login is known"
            )
        ours = await BmcReturn(
            self._site, self.stay.node.id, self._bmc, self._identity(), str(sent.before["vendor"])
        ).take_in(login)
        if isinstance(ours, Blocker):
            return ours
        await self._install(ours)
        return await self._record(sent, Result.DONE, f"{kind}; taken in again by its serial")

    async def _await_reset(self, sent: LedgerEntry, client: Redfish) -> View | Blocker:
        """Return the view that decides; the daemon's login is not tried once it was refused."""
        rows = await self._rows()
        lost = find_last(rows, self._lost)
        if lost is not None and lost.intended_at >= sent.intended_at:
            return View[str(lost.before["view"])]
        limit_s = self._site.settings.bmc_return_limit_s
        until = self._site.clock.now() + limit_s
        while True:
            view, changed = await self._look(sent, client)
            if changed:
                return View.OURS
            if view in (View.REFUSED, View.ANOTHER):
                before = {"visit": self.stay.node.fenced_at, "view": view.name}
                hold = self.stay.hold
                await record_outcome(hold, self._lost, before, ActionStatus.CONFIRMED, "")
                return view
            if self._site.clock.now() >= until:
                gone = bmc_defaults.report_absence(self.stay.node.id, self._bmc, limit_s)
                return gone if view is None else view
            await self._site.clock.sleep(LOOK_S)

    async def _look(
        self, sent: LedgerEntry, client: Redfish
    ) -> tuple[View | None, tuple[str, ...]]:
        """Return how the BMC shows itself (None while it does not answer, as it restarts), and the
        settings that the reset changed, where it keeps the login.
        """
        try:
            view = await self._view(client)
            changed = await self._list_changed(sent, client) if view is View.OURS else ()
        except CertificateChanged:  # between two requests
            return View.ANOTHER, ()
        except (LoginRefused, Malformed, Unreachable) as error:
            log.info("%s: %s", self._login, error)
            return None, ()
        return view, changed

    async def _view(self, client: Redfish) -> View:
        """Read the certificate; the login goes to the pinned one alone."""
        transport = self._site.reach.transport
        shown = await transport.fingerprint(BmcAddress(url=client.address.url))
        if shown not in split_pins(client.address.pin):
            return View.ANOTHER
        await transport.forget(client.address)
        try:
            return View.OURS if await client.admits() else View.REFUSED
        except LoginRefused:
            return View.REFUSED
        except CertificateChanged:
            return View.ANOTHER

    async def _list_changed(self, sent: LedgerEntry, client: Redfish) -> tuple[str, ...]:
        """Return the settings that the reset changed, where it keeps the login."""
        state = sent.before.get("seen", {}).get("state")
        if state is None or not bmc_defaults.keeps_login(str(sent.before["kind"])):
            return ()
        before = BiosState.model_validate(state, strict=False)
        return bmc_defaults.list_changed(before, await read_bmc_state(client.service))

    async def _find_login(
        self, sent: LedgerEntry, stored: BmcAddress, view: View
    ) -> tuple[str, Secret] | None:
        """Return the login that the BMC has after the reset; None: it is not known."""
        if view is View.ANOTHER and bmc_defaults.keeps_login(str(sent.before["kind"])):
            assert stored.secret is not None
            return stored.username, stored.secret
        return await self._factory(str(sent.before["vendor"]))

    async def _install(self, ours: Found) -> None:
        """Make the proved login and certificate those of the node."""
        await self._site.reach.credentials.put(self._login, ours.username, ours.secret)
        changed = {
            "pin": ours.endpoint.pin,
            "rotated": True,
            "certificate_ends_at": 0.0,
            "certificate_retry_at": 0.0,
        }
        ref = self._bmc.model_copy(update=changed)
        event = CredentialReplaced(about=self.stay.node.id, bmc=self.name, pin=ref.pin, cause=CAUSE)
        await self.stay.replace_bmc(ref, [event])

    async def _record(self, sent: LedgerEntry, result: Result, detail: str) -> ErasureRecord:
        record = ErasureRecord(
            holder=Holder.BMC_DEFAULTS,
            device=self.name,
            serial=self._bmc.serial,
            method=Method.BMC_DEFAULTS,
            result=result,
            detail=detail,
            started_at=sent.intended_at,
            ended_at=self._site.clock.now(),
        )
        done = result is Result.DONE
        status = ActionStatus.CONFIRMED if done else ActionStatus.FAILED
        visit = {"visit": self.stay.node.fenced_at}
        text = record.model_dump_json()
        await record_outcome(self.stay.hold, self._proof, visit, status, text)
        self._require_boot(await self._rows())
        return record

    def _identity(self) -> bmc_defaults.Identity:
        """What the BMC is known by when it comes back."""
        seen = self.stay.inventory if self.name == HOST else None
        serial = self._bmc.serial or (seen.system_serial if seen else "") or ""
        return bmc_defaults.Identity(
            serial=serial,
            base_mac=self._bmc.base_mac,
            uuid=(seen.system_uuid if seen else "") or "",
        )

    async def _factory(self, vendor: str) -> tuple[str, Secret] | None:
        return await self._site.reach.credentials.current(f"{FACTORY}/{vendor}")

    async def _stored_address(self) -> BmcAddress:
        """The address with the node's login; `Reach` gives none while the login is held."""
        stored = await self._site.reach.credentials.current(self._login)
        assert stored is not None, self._login
        return BmcAddress(self._bmc.url, *stored, self._bmc.pin)

    def _client(self, address: BmcAddress, sent: LedgerEntry) -> Redfish:
        reach = self._site.reach
        quirk = quirks.ALL[str(sent.before["vendor"])]
        return Redfish(reach.transport, address, quirk, reach.pause)

    def _busy(self) -> Blocker:
        return Blocker(
            reason=Reason.BUSY,
            subject=self._login,
            detail="another change of its login is under way",
            unblock="It is tried again by itself.",
        )
