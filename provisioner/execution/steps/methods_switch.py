"""A switch's operating system: fetch and install an image, then boot into it.

Both acts are absolute: an image that is there is not installed again, and a switch that runs the
wanted image is not rebooted.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from provisioner.execution.actions.once import Act, Sent, Snapshot
from provisioner.execution.actions.work import Site, Work
from provisioner.execution.observe.rotation import ask, describe, open_switch, turn_of
from provisioner.execution.steps.methods_inband import make_play_blocker
from provisioner.execution.steps.methods_switch_settings import Drain
from provisioner.model.node import Node
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Step
from provisioner.planning.lifecycle.destruction import Destruction
from provisioner.ports import (
    PlaybookCall,
    PlaybookResult,
    PortError,
    Switch,
    SwitchRefused,
    Unreachable,
)

# ------------------------------------------------------------------------------
# A SONiC image beside the running one: by the role `switch_sonic`, that is by sonic-installer.
#
# The act is absolute: an image that the switch lists is not installed again. The role also makes it
# the one that boots next; the reboot, and the drain before it, are `methods_switch.boot_image`'s.


PLAY = "switch_sonic"
METHOD = "sonic_installer"  # of an edge of the matrix
_UNSURE = ("timeout", "unknown", "unreachable")  # something may still be at work on the switch


async def install_sonic_image(site: Site, node: Node, step: Step) -> Work | Blocker:
    """Install the image and choose it; it runs after an image reboot."""
    address = urlsplit(node.address)
    if address.scheme != "ssh":
        return Blocker(
            reason=Reason.NOT_OFFERED,
            subject=f"{node.id}/{step.component}",
            detail=f"{METHOD} is SONiC's, and this switch does not run it",
            unblock="Correct the method of this edge in the matrix, or `os` on the list.",
        )
    switch = await open_switch(site, node)
    if isinstance(switch, Blocker):
        return switch
    call = PlaybookCall(
        play=PLAY,
        host=node.id,
        address=address.hostname or "",
        variables={
            "version": step.to_version,
            "source": site.artifacts.pull_url(step.artifact),
            "phases": ["preflight", "stage"],
        },
        timeout_s=site.settings.playbook_limit_s,
    )

    async def look() -> Snapshot | Blocker:
        images = await ask(node, switch.read_images())
        if isinstance(images, Blocker):
            return images
        return {"partitions": images.versions, "next": images.next}

    def judged(result: PlaybookResult) -> Sent | Blocker:
        return make_play_blocker(node, PLAY, result) or Sent()

    async def send() -> Sent | Blocker:
        result = await site.runner.run(call)
        if result.status in _UNSURE:
            problem = f"{PLAY}: {result.status}: {result.detail}"
            raise Unreachable(problem, maybe_executed=True)
        return judged(result)

    async def recall(since: float) -> Sent | Blocker | None:
        result = await site.runner.recall(call, since)
        return None if result is None or result.status in _UNSURE else judged(result)

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        images = await ask(node, switch.read_images())
        if isinstance(images, Blocker):
            return images
        if images.next != step.to_version:
            next_is = f"installed, but {images.next} boots next, not {step.to_version}"
            return _failed(node, step, next_is)
        return None

    return Work(
        act=Act(
            name=f"install {step.component} {step.to_version}",
            before={"step": step.model_dump(mode="json"), "slots": list(step.slots)},
            look=look,
            send=send,
            happened=lambda _before, now: now.get("next") == step.to_version,
            request_max_s=site.settings.playbook_limit_s,
            recall=recall,
            destroys=Destruction.SWITCH_IMAGE,
        ),
        finish=finish,
    )


async def install_image(site: Site, node: Node, step: Step) -> Work | Blocker:
    """Fetch and install the image into the other partition; it runs after an image reboot."""
    switch = await open_switch(site, node)
    if isinstance(switch, Blocker):
        return switch

    async def look() -> Snapshot | Blocker:
        images = await ask(node, switch.read_images())
        return images if isinstance(images, Blocker) else {"partitions": images.versions}

    async def send() -> Sent | Blocker:
        url = site.artifacts.pull_url(step.artifact)
        limit_s = site.settings.task_limit_s
        try:
            await switch.install_image(url, step.artifact, lambda: turn_of(node), limit_s)
        except SwitchRefused as refused:
            return describe(node, refused)
        return Sent()

    async def finish(_entry: LedgerEntry) -> Blocker | None:
        images = await ask(node, switch.read_images())
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
            destroys=Destruction.SWITCH_IMAGE,
        ),
        finish=finish,
    )


async def boot_image(site: Site, node: Node, step: Step) -> Work | Blocker:
    """Drain, boot into the other image, see that all is well under it, and take the drain back."""
    switch = await open_switch(site, node)
    if isinstance(switch, Blocker):
        return switch
    versions = [version for _, version in step.activates]
    drain = Drain(site, node, switch)

    async def look() -> Snapshot | Blocker:
        images = await ask(node, switch.read_images())
        well = await drain.wellness()
        if isinstance(images, Blocker):
            return images
        if isinstance(well, Blocker):
            return well
        state = {"sessions": sorted(well.established), "vnis": sorted(well.vnis)}
        state["ports"] = sorted(well.ports)
        return {"running": images.running, "health": well.health, **state}

    async def send() -> Sent | Blocker:
        problem = await drain.begin()
        if problem is not None:
            return problem  # it is in service again already
        problem = await _reboot(site, node, step, switch)
        if problem is None:
            return Sent()
        return await drain.end() or problem

    async def finish(entry: LedgerEntry) -> Blocker | None:
        until = site.clock.now() + site.settings.switch_limit_s
        running = "nothing: it did not answer"
        while site.clock.now() < until:
            await site.clock.sleep(site.settings.poll_s)
            try:
                images = await ask(node, switch.read_images())
            except PortError:
                continue  # it reboots
            if isinstance(images, Blocker):
                continue
            running = images.running
            if running in versions:
                before = entry.before.get("seen", {})
                return await drain.well_again(before, running) or await drain.end()
        return _failed(node, step, f"{running} runs after the reboot", Reason.NOT_ACTIVATED)

    return Work(
        act=Act(
            name=f"boot {node.id}",
            before={"step": step.model_dump(mode="json")},
            look=look,
            send=send,
            happened=lambda _before, now: now.get("running") in versions,
            request_max_s=site.settings.switch_limit_s + site.settings.switch_drain_limit_s,
            destroys=None,
        ),
        finish=finish,
    )


async def _reboot(site: Site, node: Node, step: Step, switch: Switch) -> Blocker | None:
    """Reboot into the other image. The next boot's image is read, because the job's result may be
    lost.
    """
    try:
        await switch.choose_other_image(lambda: turn_of(node), site.settings.switch_limit_s)
        images = await switch.read_images()
        if images.next not in [version for _, version in step.activates]:
            return _failed(node, step, f"it would start with {images.next}", Reason.NOT_ACTIVATED)
        await switch.reboot(lambda: turn_of(node))
    except SwitchRefused as refused:
        return describe(node, refused)
    return None


# Manual work and commands without a published source: the guide's chapters "Upgrading Cumulus
# Linux" and "In Service System Upgrade" have the commands of each release.
_RETRY = "then run `provisioner node retry {node}`."
_PACKAGES = (
    "Set `nv set router bgp graceful-shutdown on` (from 5.15: enabled), apply and save; "
    "wait until its counters stand; "
    "upgrade the packages to {to} as the guide's chapter for {start} says, and reboot if it asks; "
    f"set graceful-shutdown off (from 5.15: disabled); {_RETRY}"
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
    """Return the blocker of a permitted change that a person carries out, because no step of it can
    be proved.

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
