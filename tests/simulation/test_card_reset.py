"""An activation by mlxfwreset goes through the play, for the cards of the step and no others."""

from __future__ import annotations

import asyncio

from leaf_rig import Rig

from provisioner.execution.actions.once import Sent
from provisioner.execution.actions.work import Work
from provisioner.execution.steps import activations
from provisioner.model.inventory import Activation, Device, DeviceKind, Inventory
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Disruption, Step, StepKind

NODE, NEW = "su0-n00", "32.44.1036"


def reset(fault: str = "") -> tuple[Sent | Blocker, dict[str, str]]:
    """Stage firmware on two cards, reset one by the step; the answer and what runs then."""

    async def main() -> tuple[Sent | Blocker, dict[str, str]]:
        rig = await Rig().open()
        machine = rig.site.machines[NODE]
        if fault:
            machine.faults.add(fault)
        for slot in ("NIC_0", "NIC_1"):
            machine.stage_version(machine.firmware[slot, "DPU_NIC"], NEW, rig.clock.now())
        cards = [d for d in machine.devices.values() if d.kind == "nic"]
        inventory = Inventory(
            node=NODE,
            vendor="x",
            devices=tuple(Device(kind=DeviceKind.NIC, slot=d.slot, pci=d.pci) for d in cards),
        )
        step = Step(
            kind=StepKind.ACTIVATE,
            component="nic.cx7",
            to_version=NEW,
            reason="a test",
            expected=(),
            activation=Activation.NIC_RESET,
            disruption=Disruption.NIC,
            duration_s=300,
            activates=(("supernic.nic/NIC_0", NEW),),
        )
        work = await activations.build_work(rig.effects, rig.nodes[NODE], step, inventory)
        assert isinstance(work, Work)
        answer = await work.act.send()
        slots = ("NIC_0", "NIC_1")
        running = {slot: machine.firmware[slot, "DPU_NIC"].running for slot in slots}
        await rig.close()
        return answer, running

    return asyncio.run(main())


def test_the_steps_cards_are_reset_and_run_what_was_staged():
    answer, running = reset()

    assert isinstance(answer, Sent)
    assert running["NIC_0"] == NEW
    assert running["NIC_1"] != NEW


def test_a_host_that_does_not_answer_is_a_reason():
    answer, running = reset("inband_unreachable")

    assert isinstance(answer, Blocker)
    assert answer.reason is Reason.UNREACHABLE
    assert NEW not in running.values()
