"""Gives a BMC a certificate of the site's authority, so that a crash at any point locks nobody out.

The fingerprint of the new certificate is a pin of the node's row before the BMC hears of it, beside
the one in force: from then on either may be presented. Only once the new one is presented, and a
login under it alone succeeded, it becomes the only pin. A successor that finds several pins asks
first which one the BMC presents; if it is still the old one, it begins anew and adds a pin, since a
request of its predecessor may come into force late.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from yarl import URL

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.upkeep.certificates import (
    find_door,
    install_certificate,
    make_request,
)
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site
from provisioner.model.events.event import Event
from provisioner.model.events.node_events import BmcCertificateReplaced
from provisioner.model.machine.settings import add_pin, split_pins
from provisioner.model.node import BmcRef, Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.credential_rotation import (
    compute_certificate_retry,
    is_unsettled,
    parse_subject,
)
from provisioner.ports import BmcAddress, PortError, StaleWrite, Unreachable
from provisioner.ports.certificates import CertificateAuthority
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# The answer of the site's authority to a BMC's request, judged before the BMC gets it.


TEXT_MAX = 65_536
_DAY = timedelta(days=1)
# what the library raises for foreign bytes; TypeError for values of other types inside of them
_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm)


@dataclass(frozen=True)
class IssuedCertificate:
    """The BMC's own certificate; the rest of a chain is not sent, since many BMCs refuse one."""

    pem: str
    sha256: str
    ends_at: float


def judge_issued(
    bmc: str, request: str, answer: str, now: float, renew_days: float
) -> IssuedCertificate | Blocker:
    """Return the certificate if it fits the request and lives long enough, else why not."""
    try:
        csr = x509.load_pem_x509_csr(request.encode()[:TEXT_MAX])
        wants_key = csr.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        signed = csr.is_signature_valid
    except _UNREADABLE as error:
        return _refuse(bmc, f"its request for a certificate cannot be read: {error}", _AT_BMC)
    if not signed:
        return _refuse(bmc, "its request for a certificate is not signed by its own key", _AT_BMC)
    try:
        issued = x509.load_pem_x509_certificate(answer.encode()[:TEXT_MAX])
        key = issued.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        begins = issued.not_valid_before_utc
        ends = issued.not_valid_after_utc
    except _UNREADABLE as error:
        detail = f"the authority's command printed no certificate that can be read: {error}"
        return _refuse(bmc, detail, _AT_AUTHORITY)
    if key != wants_key:
        detail = "the authority's certificate is for another key than the request's"
        return _refuse(bmc, detail, f"Print the BMC's own certificate first. {_AT_AUTHORITY}")
    at = datetime.fromtimestamp(now, UTC)
    if begins > at + _DAY or ends <= at:
        return _refuse(bmc, f"the certificate is valid from {begins} to {ends}", _AT_AUTHORITY)
    if ends <= at + timedelta(days=renew_days) + _DAY:
        days = (ends - at).days
        detail = f"the certificate ends in {days} days, and is renewed {renew_days:g} days before"
        return _refuse(bmc, detail, "Lower bmc_certificate_renew_days, or have it issued longer.")
    der = issued.public_bytes(Encoding.DER)
    pem = issued.public_bytes(Encoding.PEM).decode()
    return IssuedCertificate(pem, hashlib.sha256(der).hexdigest(), ends.timestamp())


_AT_BMC = "Look at the BMC's event log; it is tried again by itself."
_AT_AUTHORITY = "Correct `bmc_ca_command`; it is tried again by itself."


def _refuse(bmc: str, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=Reason.REFUSED, subject=bmc, detail=detail, unblock=unblock)


log = logging.getLogger(__name__)
SHOWN_S = 90.0  # most BMCs present a new certificate within this, or want a restart for it
LOOK_S = 15.0


@dataclass(frozen=True)
class CertificateExchange:
    """The exchange at one BMC of the node that `hold` is about."""

    site: Site
    store: SqlStore
    authority: CertificateAuthority | None  # None: only what began earlier is brought to its end
    hold: Hold
    bmc: str

    @property
    def name(self) -> str:
        return f"{self.hold.operation.node}/{self.bmc}"

    async def run(self) -> Blocker | None:
        """Exchange the certificate; a failure is stored with the time of the next attempt."""
        try:
            problem = await self._exchange()
        except PortError as error:
            problem = blocked(error, self.name)
        if problem is not None:
            log.warning("the certificate of %s was not exchanged: %s", self.name, problem.detail)
            retry_at = self.site.clock.now() + compute_certificate_retry(problem)
            await self._write({"certificate_retry_at": retry_at})
        return problem

    async def _exchange(self) -> Blocker | None:
        node, bmc = await self._read()
        address = await self.site.reach.address(node, bmc)
        if isinstance(address, Blocker):
            return address
        with self.site.reach.hold_login(self.name) as granted:
            if not granted:
                return _busy(self.name, "another change of its login is under way")
            if is_unsettled(bmc):
                shown = await self.site.reach.transport.fingerprint(address)
                if shown in split_pins(bmc.pin)[1:]:
                    return await self._settle(address, bmc, shown)
            if self.authority is None:
                return None
            return await self._replace(self.authority, address)

    async def _replace(
        self, authority: CertificateAuthority, address: BmcAddress
    ) -> Blocker | None:
        settings = self.site.settings
        client = await self._client(address)
        door = await find_door(client.service)
        if isinstance(door, Blocker):
            return door
        host = URL(address.url).host or ""
        subject = parse_subject(settings.bmc_certificate_subject)
        request = await make_request(client.service, door, host, subject)
        if isinstance(request, Blocker):
            return request
        answer = await authority.sign(self.name, host, request)
        if isinstance(answer, Blocker):
            return answer
        now = self.site.clock.now()
        days = settings.bmc_certificate_renew_days
        issued = judge_issued(self.name, request, answer, now, days)
        if isinstance(issued, Blocker):
            return issued
        bmc = await self._write(
            lambda bmc: {
                "pin": add_pin(bmc.pin, issued.sha256),
                "certificate_ends_at": issued.ends_at,
            }
        )
        address = replace(address, pin=bmc.pin)
        client = await self._client(address)
        try:
            reply = await install_certificate(client.service, door, issued.pem)
        except Unreachable as error:
            if not error.maybe_executed:
                raise
            reply = None  # its web server went away with the old certificate, perhaps
        if isinstance(reply, Blocker):
            return reply
        return await self._prove(client, bmc, issued)

    async def _prove(
        self, client: Redfish, bmc: BmcRef, issued: IssuedCertificate
    ) -> Blocker | None:
        """Wait until the BMC presents the new certificate; restart it once for that."""
        if not await self._presents(client.address, issued.sha256, SHOWN_S):
            if await client.read_tasks():
                return _busy(self.name, "it wants a restart for its certificate, and has tasks")
            refused = await client.reset_bmc()
            if refused is not None:
                return refused
            limit_s = self.site.settings.bmc_return_limit_s
            if not await self._presents(client.address, issued.sha256, limit_s):
                return Blocker(
                    reason=Reason.NOT_ACTIVATED,
                    subject=self.name,
                    detail="the BMC took the certificate, was restarted, and does not present it",
                    unblock="Look at its certificates in its own web page. Both are accepted until "
                    "it presents the new one; it is tried again tomorrow.",
                )
        return await self._settle(client.address, bmc, issued.sha256)

    async def _presents(self, address: BmcAddress, sha256: str, limit_s: float) -> bool:
        until = self.site.clock.now() + limit_s
        while True:
            try:
                if await self.site.reach.transport.fingerprint(address) == sha256:
                    return True
            except PortError as error:
                log.info("%s: %s", self.name, error)  # it restarts its web server, or itself
            if self.site.clock.now() >= until:
                return False
            await self.site.clock.sleep(LOOK_S)

    async def _settle(self, address: BmcAddress, bmc: BmcRef, shown: str) -> Blocker | None:
        """Log in under the new certificate alone; then it is the only pin."""
        await self.site.reach.transport.forget(address)
        client = await self._client(replace(address, pin=shown))
        until = self.site.clock.now() + self.site.settings.bmc_return_limit_s
        while not await self._admits(client):
            if self.site.clock.now() >= until:
                return _busy(self.name, "it presents its new certificate, and admits no login yet")
            await self.site.clock.sleep(2 * LOOK_S)
        pins = split_pins(bmc.pin)
        # one of an earlier attempt is in force: when it ends was not stored, so it is renewed
        ends_at = bmc.certificate_ends_at if shown == pins[-1] else 0.0
        event = BmcCertificateReplaced(
            about=self.hold.operation.node, bmc=self.bmc, pin=shown, before=pins[0]
        )
        changed = {"pin": shown, "certificate_ends_at": ends_at, "certificate_retry_at": 0.0}
        await self._write(changed, [event])
        return None

    async def _admits(self, client: Redfish) -> bool:
        try:
            return await client.admits()
        except Unreachable as error:
            log.info("%s: %s", self.name, error)
            return False

    async def _client(self, address: BmcAddress) -> Redfish:
        reach = self.site.reach
        return Redfish(reach.transport, address, await reach.quirk(address), reach.pause)

    async def _read(self) -> tuple[Node, BmcRef]:
        node = await self.store.nodes.get(self.hold.operation.node)
        assert node is not None
        return node, next(bmc for bmc in node.bmcs if bmc.name == self.bmc)

    async def _write(
        self,
        change: Mapping[str, object] | Callable[[BmcRef], Mapping[str, object]],
        events: Sequence[Event] = (),
    ) -> BmcRef:
        """Store the BMC's changed fields; again if a person changed the node meanwhile."""
        while True:
            node, bmc = await self._read()
            update = change(bmc) if callable(change) else change
            changed = bmc.model_copy(update=dict(update))
            bmcs = tuple(changed if b.name == self.bmc else b for b in node.bmcs)
            try:
                await self.hold.record(node=node.model_copy(update={"bmcs": bmcs}), events=events)
            except StaleWrite:
                continue
            return changed


def _busy(subject: str, detail: str) -> Blocker:
    unblock = "It is tried again by itself."
    return Blocker(reason=Reason.BUSY, subject=subject, detail=detail, unblock=unblock)
