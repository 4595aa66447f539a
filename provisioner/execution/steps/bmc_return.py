"""Takes a BMC in again that was reset to its factory defaults, as intake takes in a new one.

The certificate that is presented is read, the factory's login is tried once, and who answers is
compared with who was there before. Only then the password is made ours and unique. It is in the
vault under the address meanwhile, as at intake, so that a successor goes on with it, and another
BMC that answers there never gets a login of the node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from yarl import URL

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.discovery import probe
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.discover import Found, introduce_bmcs
from provisioner.execution.observe.rotation import rotate
from provisioner.model.node import BmcRef
from provisioner.model.outcome import Blocker, Gap, Reason
from provisioner.planning.erasure import bmc_defaults as rules
from provisioner.ports import BmcAddress, LoginRefused, PortError, Secret

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
    identity: rules.Identity
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
                return rules.report_absence(self.node, self.bmc, limit_s)
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
                return rules.report_login(self.node, self.bmc, str(error))
        answers, refusals = await introduce_bmcs(
            reach.transport, reach.credentials, [probed], {self.vendor: login}
        )
        if answers:
            return answers[0]
        (refused,) = refusals
        if refused.reason is Reason.LOGIN_REFUSED:
            return rules.report_login(self.node, self.bmc, refused.detail)
        return refused.model_copy(update={"subject": name})

    async def _own(self, answer: Found) -> Found | Blocker:
        """Compare its identity, then change its password if that was not done before."""
        reach = self.site.reach
        quirk = quirks.ALL[self.vendor]
        address = BmcAddress(self.bmc.url, answer.username, answer.secret, answer.endpoint.pin)
        read = await Redfish(reach.transport, address, quirk, reach.pause).read_identity()
        seen = rules.Identity(
            serial=answer.endpoint.serial,
            base_mac=answer.endpoint.base_mac,
            uuid=read.system_uuid or "",
        )
        stranger = rules.refuse_stranger(self.node, self.bmc, self.identity, seen)
        if stranger is not None or answer.endpoint.rotated:
            return stranger or answer
        made = name_made(self.bmc)
        ours = await rotate(reach.transport, reach.credentials, quirk, made, address)
        if isinstance(ours, Blocker):
            return ours
        assert ours.secret is not None
        return replace(answer, username=ours.username, secret=ours.secret)
