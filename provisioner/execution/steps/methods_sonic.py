"""A SONiC image beside the running one: by the role `switch_sonic`, that is by sonic-installer.

The act is absolute: an image that the switch lists is not installed again. The role also makes it
the one that boots next; the reboot, and the drain before it, are `methods_switch.boot_image`'s.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from provisioner.execution.actions.once import Act, Sent, Snapshot
from provisioner.execution.actions.work import Site, Work
from provisioner.execution.observe.switch_api import ask, open_switch
from provisioner.execution.steps.methods_inband import make_play_blocker
from provisioner.model.node import Node
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Step
from provisioner.ports import PlaybookCall, PlaybookResult, Unreachable

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
            return Blocker(
                reason=Reason.UPDATE_FAILED,
                subject=f"{node.id}/{step.component}",
                detail=f"installed, but {images.next} boots next, not {step.to_version}",
                unblock="Look at `sonic-installer list` on the switch, then retry the node.",
            )
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
        ),
        finish=finish,
    )
