"""Every request that a whole plan would send to the BMCs of one node, recorded instead of sent.

The plan's steps are carried out in their order by the functions that the daemon uses, over a
transport per BMC that only reads. Steps that send nothing to a BMC are named with the play, the
command or the person that does them. The daemon observes and plans again after each step, and it
stops at the first refusal; so does this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from typing_extensions import TypeAliasType

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.dry_run import DryRunTransport, StandingClock, Write
from provisioner.adapters.redfish.walk import Walk
from provisioner.components.kind import DEPLOY
from provisioner.execution.actions.power import Pace, cycle_standby, switch_off, switch_on
from provisioner.execution.executor import slot_groups
from provisioner.execution.observe.inband import REBOOT
from provisioner.execution.steps.agent_steps import boot_disk, boot_image
from provisioner.model.base import Record
from provisioner.model.inventory import Activation, Inventory
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Plan, Step, StepKind
from provisioner.ports import BmcAddress, BmcTransport, Credentials, PortError
from provisioner.quirks import Quirk
from provisioner.settings.maintenance import BootWay

Means = TypeAliasType("Means", Literal["redfish", "ansible", "ssh", "switch", "person"])

_METHODS: dict[str, tuple[Means, str]] = {
    "redfish_push": ("redfish", "upload of the package"),
    "bluefield_bfb": ("redfish", "pull of the bundle by the card's BMC"),
    DEPLOY: ("redfish", "boot of the maintenance image, its agent writes the disk, boot from disk"),
    "playbook_host_software": ("ansible", "play host_software"),
    "playbook_ofed_migration": ("ansible", "play host_software, which may remove MLNX_OFED"),
    "playbook_nic_firmware": ("ansible", "play nic_firmware"),
    "playbook_drive_firmware": ("ansible", "play drive_firmware"),
    "playbook_nic_config": ("ansible", "play nic_config"),
    "playbook_host_baseline": ("ansible", "play host_baseline"),
    "playbook_check_tools": ("ansible", "play check_tools"),
    "redfish_bios_settings": ("redfish", "PATCH of the BIOS's settings object"),
    "redfish_bmc_settings": ("redfish", "PATCH of the BMC's resources"),
    "redfish_card_settings": ("redfish", "mode and attributes of a BlueField, for its next start"),
    "switch_settings": ("switch", "change of time servers, syslog and logins, read back, saved"),
    "nvue_image": ("switch", "image of Cumulus Linux through NVUE"),
    "sonic_installer": ("switch", "image of SONiC through sonic-installer"),
}
_RESETS: dict[Activation, tuple[Means, str]] = {
    Activation.BMC_RESET: ("redfish", "restart of BMCs"),
    Activation.COLD_BOOT: ("redfish", "power off, power on"),
    Activation.AC_CYCLE: ("redfish", "removal of standby power"),
    Activation.WARM_REBOOT: ("ssh", f"{REBOOT} in the host"),
    Activation.NIC_RESET: ("ansible", "play nic_reset"),
    Activation.IMAGE_REBOOT: ("switch", "drain, boot of the other image, drain taken back"),
}


class BmcRequest(Write):
    """One request that changes something, and the BMC that it is sent to."""

    bmc: str


class StepRequests(Record):
    """The requests of one step, in the order of sending; none if it sends nothing to a BMC."""

    number: int
    title: str
    reason: str
    means: Means
    detail: str  # the play, the command, or the kind of request
    requests: tuple[BmcRequest, ...] = ()


class PlanRequests(Record):
    """The requests of a plan up to its end, or to the first refusal."""

    steps: tuple[StepRequests, ...] = ()
    refused: Blocker | None = None

    @property
    def writes(self) -> tuple[Write, ...]:
        """Return all requests in the order of sending."""
        names = set(Write.model_fields)
        return tuple(
            Write(**request.model_dump(include=names))
            for step in self.steps
            for request in step.requests
        )

    def build_view(self) -> dict[str, Any]:
        """Return the object that is printed and served: `writes`, `refused` and `steps`."""
        refused = self.refused
        return {
            "writes": [write.model_dump(mode="json") for write in self.writes],
            "refused": refused
            and {
                "reason": refused.reason.value,
                "detail": refused.detail,
                "unblock": refused.unblock,
            },
            "steps": [step.model_dump(mode="json") for step in self.steps],
        }


@dataclass(frozen=True)
class DryBmc:
    """A client of one BMC whose requests are recorded by its transport."""

    client: Redfish
    transport: DryRunTransport


def open_dry_bmc(
    transport: BmcTransport, address: BmcAddress, quirk: Quirk, clock: StandingClock
) -> DryBmc:
    """Return a client that reads through `transport` and records everything else."""
    recorder = DryRunTransport(transport)
    return DryBmc(Redfish(recorder, address, quirk, clock.sleep), recorder)


@dataclass(frozen=True)
class NodeBmcs:
    """The BMCs of a stored node, opened by name with the logins that are in force."""

    node: Node
    transport: BmcTransport
    credentials: Credentials
    clock: StandingClock

    async def open_bmc(self, name: str) -> DryBmc | Blocker:
        """Return the BMC `name` of the node, or why it cannot be asked. Raises `PortError`."""
        bmc = next((b for b in self.node.bmcs if b.name == name), None)
        login = await self.credentials.current(f"{self.node.id}/{name}")
        if bmc is None or login is None:
            missing = "BMC of this name" if bmc is None else "credential of this BMC"
            return Blocker(
                reason=Reason.NOT_OFFERED if bmc is None else Reason.LOGIN_REFUSED,
                subject=f"{self.node.id}/{name}",
                detail=f"the node has no {missing}",
                unblock="Add it to the expected-hardware list and take the node in again.",
            )
        username, secret = login
        address = BmcAddress(url=bmc.url, username=username, secret=secret, pin=bmc.pin)
        root = await Walk(self.transport, address, quirks.UNKNOWN).read_root()
        if not root:
            return Blocker(
                reason=Reason.UNREACHABLE,
                subject=f"{self.node.id}/{name}",
                detail="it does not answer as a Redfish service",
                unblock="Check the BMC's network and its pinned certificate.",
            )
        return open_dry_bmc(self.transport, address, quirks.identify(root), self.clock)


@dataclass
class Rehearsal:
    """What the requests of a plan are recorded with.

    `reach` opens a BMC by its name in the node. `find_file` returns the file of a step, and whether
    its content is at hand. `url` is where devices fetch files.
    """

    reach: Callable[[str], Awaitable[DryBmc | Blocker]]
    find_file: Callable[[Step], tuple[Path, bool]]
    url: str
    clock: StandingClock
    image: str = ""  # file name of the maintenance image
    way: BootWay = "vendor"
    _opened: dict[str, DryBmc] = field(default_factory=dict)

    async def record(self, plan: Plan, inventory: Inventory) -> PlanRequests:
        """Return the requests of each step up to the first refusal."""
        if plan.blockers:
            return PlanRequests(refused=plan.blockers[0])
        steps: list[StepRequests] = []
        for number, step in enumerate(plan.steps, 1):
            requests: list[BmcRequest] = []
            try:
                refused = await self._carry_out(step, inventory, requests)
            except PortError as error:
                refused = Blocker(
                    reason=error.reason,
                    subject=f"{plan.node}/{step.title}",
                    detail=str(error),
                    unblock="Check the BMC's address, its login and its certificate.",
                )
            means, detail = _describe(step)
            steps.append(
                StepRequests(
                    number=number,
                    title=step.title,
                    reason=step.reason,
                    means=means,
                    detail=detail,
                    requests=tuple(requests),
                )
            )
            if refused is not None:
                return PlanRequests(steps=tuple(steps), refused=refused)
        return PlanRequests(steps=tuple(steps))

    async def _carry_out(
        self, step: Step, inventory: Inventory, requests: list[BmcRequest]
    ) -> Blocker | None:
        if step.kind is StepKind.ACTIVATE:
            return await self._reset(step, requests)
        if step.method == DEPLOY:
            return await self._on("host", self._deploy, requests)
        if step.method not in ("redfish_push", "bluefield_bfb"):
            return None
        if not step.artifact:
            return Blocker(
                reason=Reason.MISSING_ARTIFACT,
                subject=step.component,
                detail=f"the matrix names no file for {step.title}",
                unblock="Add `artifact` and `sha256` to the edge or pin (an overlay will do).",
            )
        refused: Blocker | None = None
        for slots in slot_groups(step, inventory):
            component = inventory.find_component(step.component, slots[0])
            bmc = component.bmc if component is not None and component.bmc else "host"
            chosen = step.model_copy(update={"slots": slots})
            refused = await self._on(bmc, partial(self._update, step=chosen), requests)
            if refused is not None:
                break
        return self._describe_files(step, requests) or refused

    def _describe_files(self, step: Step, requests: list[BmcRequest]) -> Blocker | None:
        """Name files by the matrix's digest; the daemon sends no file of another digest."""
        file, at_hand = self.find_file(step)
        if not at_hand:
            requests[:] = [_declare_file(r, file.name, step.sha256) for r in requests]
        sent = {r.upload.sha256 for r in requests if r.upload is not None}
        if not step.sha256 or sent <= {step.sha256}:
            return None
        requests.clear()
        return Blocker(
            reason=Reason.DIGEST_MISMATCH,
            subject=step.artifact,
            detail=f"{file.name} has the SHA-256 {min(sent)}, the matrix names {step.sha256}",
            unblock="Put the file that the matrix names into the folder of --artifacts.",
        )

    async def _update(self, client: Redfish, step: Step) -> Blocker | None:
        if step.method == "bluefield_bfb":
            sent = await client.simple_update(f"{self.url}/{step.artifact}", step.component)
            return sent if isinstance(sent, Blocker) else None
        file, _ = self.find_file(step)
        sent = await client.push(step.component, step.slots, file, force=step.force)
        return sent if isinstance(sent, Blocker) else await client.end_push()

    async def _reset(self, step: Step, requests: list[BmcRequest]) -> Blocker | None:
        match step.activation:
            case Activation.BMC_RESET:
                for name in step.bmcs or ("host",):
                    refused = await self._on(name, Redfish.reset_bmc, requests)
                    if refused is not None:
                        return refused
                return None
            case Activation.COLD_BOOT:
                return await self._on("host", self._cold_boot, requests)
            case Activation.AC_CYCLE:
                return await self._on("host", self._ac_cycle, requests)
        return None

    async def _cold_boot(self, host: Redfish) -> Blocker | None:
        pace = self._get_pace()
        return await switch_off(host, pace) or await switch_on(host, pace)

    async def _ac_cycle(self, host: Redfish) -> Blocker | None:
        return await cycle_standby(host, self._get_pace(), _return_at_once)

    async def _deploy(self, host: Redfish) -> Blocker | None:
        if not self.image:
            return Blocker(
                reason=Reason.MISSING_ARTIFACT,
                subject="images.maintenance",
                detail="the matrix pins no maintenance image",
                unblock="Pin images.maintenance in an overlay.",
            )
        pace = self._get_pace()
        if (refused := await switch_off(host, pace)) is not None:
            return refused
        refused = await boot_image(host, pace, f"{self.url}/{self.image}", self.way)
        return refused or await boot_disk(host, pace)

    def _get_pace(self) -> Pace:
        return Pace(self.clock, poll_s=1.0, limit_s=60.0, subject="host")

    async def _on(
        self,
        name: str,
        act: Callable[[Redfish], Awaitable[Blocker | None]],
        requests: list[BmcRequest],
    ) -> Blocker | None:
        if name not in self._opened:
            opened = await self.reach(name)
            if isinstance(opened, Blocker):
                return opened
            self._opened[name] = opened
        bmc = self._opened[name]
        sent_before = len(bmc.transport.writes)
        try:
            return await act(bmc.client)
        finally:
            requests += [
                BmcRequest(bmc=name, **write.model_dump())
                for write in bmc.transport.writes[sent_before:]
            ]


def _describe(step: Step) -> tuple[Means, str]:
    """Return who does a step, and by which play, command or kind of request."""
    if step.kind is StepKind.ACTIVATE:
        return _RESETS.get(step.activation, ("person", f"{step.activation} by hand"))
    return _METHODS.get(step.method, ("person", f"{step.method} by hand"))


def _declare_file(request: BmcRequest, name: str, sha256: str) -> BmcRequest:
    """Describe the upload of a file that is not at hand by the matrix's name and digest."""
    if request.upload is None:
        return request
    described: Mapping[str, Any] = {"name": name, "size": None, "sha256": sha256}
    return request.model_copy(update={"upload": request.upload.model_copy(update=described)})


async def _return_at_once() -> Blocker | None:
    return None
