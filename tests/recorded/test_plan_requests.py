"""The requests of plans over several BMCs, on reduced real trees."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from golden_requests import read_tree
from tree_transport import TreeTransport

from provisioner import quirks
from provisioner.adapters.redfish.dry_run import StandingClock
from provisioner.execution.plan_requests import DryBmc, PlanRequests, Rehearsal, open_dry_bmc
from provisioner.model.inventory import Activation, Component, Inventory
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Disruption, Plan, Step, StepKind
from provisioner.ports import BmcAddress, Secret

BUNDLE = "bluefield.bundle"


def record(steps: tuple[Step, ...], bmcs: dict[str, str], place: Path) -> PlanRequests:
    """Return the requests of these steps; `bmcs` are trees by the BMC's name in the node."""
    clock = StandingClock()

    async def reach(name: str) -> DryBmc | Blocker:
        tree = read_tree(bmcs[name])
        address = BmcAddress(f"https://{name}.example", "root", Secret("hidden"))
        return open_dry_bmc(
            TreeTransport(tree), address, quirks.identify(tree["/redfish/v1"]), clock
        )

    def find_file(step: Step) -> tuple[Path, bool]:
        (place / step.artifact).touch()
        return place / step.artifact, False

    cards = tuple(
        Component(kind=BUNDLE, slot=name, version="2.9.0", source="/x", bmc=name)
        for name in bmcs
        if name.startswith("DPU")
    )
    rehearsal = Rehearsal(reach, find_file, "http://192.0.2.9", clock, image="maintenance.iso")
    inventory = Inventory(node="n", vendor="v", components=cards)
    plan = Plan(node="n", release="r", profile="p", steps=steps)
    return asyncio.run(rehearsal.record(plan, inventory))


def update(component: str, slots: tuple[str, ...], method: str) -> Step:
    return Step(
        kind=StepKind.UPDATE,
        component=component,
        slots=slots,
        from_version="1",
        to_version="2",
        method=method,
        artifact="file.bfb",
        activation=Activation.NONE,
        disruption=Disruption.NONE,
        duration_s=1,
        expected=(),
        reason="because.",
    )


def reset(activation: Activation, *bmcs: str) -> Step:
    step = update("", (), "")
    changed = {"kind": StepKind.ACTIVATE, "activation": activation, "bmcs": bmcs}
    return step.model_copy(update=changed)


def test_each_card_gets_its_own_requests_although_their_paths_are_equal(tmp_path: Path) -> None:
    """What is changed at the first card is not shown by the second one (rshim, for example)."""
    cards = {"DPU_1": "bluefield3", "DPU_2": "bluefield3"}
    steps = (update(BUNDLE, ("DPU_1", "DPU_2"), "bluefield_bfb"),)

    (step,) = record(steps, cards, tmp_path).steps

    by_card = [[r.path for r in step.requests if r.bmc == name] for name in cards]
    assert by_card[0] == by_card[1]
    assert by_card[0][-1].endswith("UpdateService.SimpleUpdate")


def test_a_restart_names_every_bmc_of_the_step(tmp_path: Path) -> None:
    steps = (reset(Activation.BMC_RESET, "DPU_1", "host"),)

    (step,) = record(steps, {"DPU_1": "bluefield3", "host": "dgx_h100"}, tmp_path).steps

    assert [r.bmc for r in step.requests] == ["DPU_1", "host"]


@pytest.mark.parametrize(
    ("activation", "means"),
    [
        (Activation.WARM_REBOOT, "ssh"),
        (Activation.NIC_RESET, "ansible"),
        (Activation.IMAGE_REBOOT, "switch"),
    ],
)
def test_a_reset_that_no_bmc_gets_is_named(
    activation: Activation, means: str, tmp_path: Path
) -> None:
    (step,) = record((reset(activation),), {}, tmp_path).steps

    assert (step.means, step.requests) == (means, ())


def test_an_image_of_the_system_boots_maintenance_and_then_the_disk(tmp_path: Path) -> None:
    recorded = record((update("host.os", ("0",), "deploy_image"),), {"host": "gb200"}, tmp_path)

    boots = [w.body["Boot"] for w in recorded.writes if w.body and "Boot" in w.body]
    targets = [b["BootSourceOverrideTarget"] for b in boots if "BootSourceOverrideTarget" in b]
    assert targets == ["UefiHttp", "Hdd"]
    assert recorded.refused is None


def test_nothing_follows_a_refusal(tmp_path: Path) -> None:
    steps = (reset(Activation.AC_CYCLE), reset(Activation.COLD_BOOT))

    recorded = record(steps, {"host": "dgx_h100"}, tmp_path)

    assert recorded.writes == ()
    assert recorded.refused is not None
    assert recorded.refused.reason is Reason.NOT_OFFERED
    assert len(recorded.steps) == 1
    assert "hidden" not in str(recorded.build_view())
