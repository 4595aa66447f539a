"""A switch's operating system: fetch and install an image, then boot into it.

Both acts are absolute: an image that is there is not installed again, and a switch that runs the
wanted image is not rebooted. The bodies are `switches/cumulus.py`'s.
"""

from __future__ import annotations

from provisioner.execution.actions.once import Act, Sent, Snapshot
from provisioner.execution.actions.work import Site, Work
from provisioner.execution.observe.switch_api import SwitchApi
from provisioner.execution.steps.switch_drain import Drain
from provisioner.model.node import Node
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Step
from provisioner.ports import PortError


async def install_image(site: Site, node: Node, step: Step) -> Work | Blocker:
    """Fetch and install the image into the other partition; it runs after an image reboot."""
    api = await SwitchApi.open(site, node)
    if isinstance(api, Blocker):
        return api

    async def look() -> Snapshot | Blocker:
        images = await api.images()
        return images if isinstance(images, Blocker) else {"partitions": images.versions}

    async def send() -> Sent | Blocker:
        url = site.artifacts.pull_url(step.artifact)
        fetched = await api.action(api.os.fetch_image(url), site.settings.task_limit_s)
        if fetched is not None:
            return fetched
        installed = await api.action(
            api.os.install_image(step.artifact), site.settings.task_limit_s
        )
        return installed if installed is not None else Sent()

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        images = await api.images()
        if isinstance(images, Blocker):
            return images
        if step.to_version not in images.versions:
            return _failed(node, step, f"installed, but the partitions hold {images.versions}")
        return None

    return Work(
        act=Act(
            name=f"install {step.component} {step.to_version}",
            before={"step": step.model_dump(mode="json"), "slots": list(step.slots)},
            look=look,
            send=send,
            happened=lambda _before, now: step.to_version in now.get("partitions", ()),
            request_max_s=2 * site.settings.task_limit_s,
        ),
        finish=finish,
    )


async def boot_image(site: Site, node: Node, step: Step) -> Work | Blocker:
    """Drain, boot into the other image, see that all is well under it, and take the drain back."""
    api = await SwitchApi.open(site, node)
    if isinstance(api, Blocker):
        return api
    wanted = [version for _, version in step.activates]
    drain = Drain(site, node, api)

    async def look() -> Snapshot | Blocker:
        images, well = await api.images(), await drain.wellness()
        if isinstance(images, Blocker):
            return images
        if isinstance(well, Blocker):
            return well
        seen = {"sessions": sorted(well.established), "vnis": sorted(well.vnis)}
        seen["ports"] = sorted(well.ports)
        return {"running": images.running, "health": well.health, **seen}

    async def send() -> Sent | Blocker:
        problem = await drain.begin()
        if problem is not None:
            return problem  # it is in service again already
        problem = await _rebooted(site, node, step, api)
        if problem is None:
            return Sent()
        return await drain.end() or problem

    async def finish(entry: LedgerEntry) -> Blocker | None:
        until = site.clock.now() + site.settings.switch_limit_s
        running = "nothing: it did not answer"
        while site.clock.now() < until:
            await site.clock.sleep(site.settings.poll_s)
            try:
                images = await api.images()
            except PortError:
                continue  # it reboots
            if isinstance(images, Blocker):
                continue
            running = images.running
            if running in wanted:
                seen = entry.before.get("seen", {})
                return await drain.well_again(seen, running) or await drain.end()
        return _failed(node, step, f"{running} runs after the reboot", Reason.NOT_ACTIVATED)

    return Work(
        act=Act(
            name=f"boot {node.id}",
            before={"step": step.model_dump(mode="json")},
            look=look,
            send=send,
            happened=lambda _before, now: now.get("running") in wanted,
            request_max_s=site.settings.switch_limit_s + site.settings.switch_drain_limit_s,
        ),
        finish=finish,
    )


async def _rebooted(site: Site, node: Node, step: Step, api: SwitchApi) -> Blocker | None:
    """Into the other image. That it would start with it is read: the job's word may be lost."""
    problem = await api.action(api.os.boot_next(), site.settings.switch_limit_s)
    if problem is not None:
        return problem
    images = await api.images()
    if isinstance(images, Blocker):
        return images
    if images.next not in [version for _, version in step.activates]:
        return _failed(node, step, f"it would start with {images.next}", Reason.NOT_ACTIVATED)
    return await api.action(api.os.reboot(), 0.0)


# What a person does, and what is unknown to us: the guide's chapters "Upgrading Cumulus Linux" and
# "In Service System Upgrade" have the commands of each release.
_RETRY = "then run `provisioner node retry {node}`."
_PACKAGES = (
    "Set `nv set router bgp graceful-shutdown on`, apply and save; wait until its counters stand; "
    "upgrade the packages to {to} as the guide's chapter for {start} says, and reboot if it asks; "
    f"set graceful-shutdown off; {_RETRY}"
)
_ONIE = (
    "Back up its configuration; drain it as for a reboot; install {to} by ONIE; give it back its "
    "base configuration by zero-touch provisioning or the role switch_cumulus, and the password "
    f"of the list; {_RETRY}"
)
_BY_HAND = {
    "nvue_packages": ("a package upgrade (ISSU)", _PACKAGES),
    "onie": ("an ONIE installation, which destroys the configuration", _ONIE),
}


def by_hand(node: Node, step: Step) -> Blocker:
    """What is planned and allowed, and still a person's: nothing here can prove it step by step.

    Packages come from a mirror at its newest; ONIE leaves a switch without its configuration and
    with the factory's password, which the site's own zero-touch provisioning must put right.
    """
    how, remedy = _BY_HAND[step.method]
    return Blocker(
        reason=Reason.NOT_OFFERED,
        subject=f"{node.id}/{step.component}",
        detail=f"{how}, from {step.from_version} to {step.to_version}, is done by a person",
        unblock=remedy.format(to=step.to_version, start=step.from_version, node=node.id),
    )


def _failed(node: Node, step: Step, detail: str, reason: Reason = Reason.UPDATE_FAILED) -> Blocker:
    return Blocker(
        reason=reason,
        subject=f"{node.id}/{step.component or 'switch.os'}",
        detail=detail,
        unblock="Look at the switch's console and image list, then retry the node.",
    )
