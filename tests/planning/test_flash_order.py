"""The order of flashing behind one BMC. source: facts, writes 1: NVIDIA's DGX runbooks, Lenovo's
manual, Dell and HPE alike: BMC first and restarted, then the motherboard, then the GPU tray.
"""

from __future__ import annotations

import pytest
from test_planner import edge, matrix, node

from provisioner.model.inventory import Activation
from provisioner.model.matrix import Edge
from provisioner.model.plan import Plan, StepKind
from provisioner.planning.path.planner import plan
from provisioner.planning.path.ranks import get_rank

COLD, AC, RESET = Activation.COLD_BOOT, Activation.AC_CYCLE, Activation.BMC_RESET


def planned(edges: dict[str, tuple[Edge, ...]], *more: tuple[str, str, str]) -> Plan:
    rows = [(kind, "0", "1.0") for kind in edges if kind != "host.psu"]
    return plan(node(*rows, *more), matrix(dict.fromkeys(edges, "2.0"), edges), "r", "p")


def order(found: Plan) -> list[str]:
    assert not found.blockers, found.blockers
    return [str(s.activation) if s.kind is StepKind.ACTIVATE else s.component for s in found.steps]


def test_a_dgx_is_written_bmc_first_and_restarted_before_anything_else() -> None:
    edges = {
        "host.bios": (edge("1.0", "2.0", COLD),),
        "host.bmc": (edge("1.0", "2.0", RESET),),
        "host.cpld": (edge("1.0", "2.0", AC),),
        "host.erot": (edge("1.0", "2.0", AC),),
    }

    assert order(planned(edges)) == [
        "host.bmc",
        "bmc_reset",
        "host.cpld",
        "host.erot",
        "host.bios",
        "ac_cycle",
    ]


def test_a_pending_image_of_the_bmc_is_activated_before_the_next_push() -> None:
    edges = {
        "host.bios": (edge("1.0", "2.0", COLD),),
        "host.bmc": (edge("1.0", "2.0", RESET),),
    }
    seen = node(("host.bios", "0", "1.0"), ("host.bmc", "0", "1.0"))
    staged = seen.components[1].model_copy(update={"staged": "2.0", "pending": RESET})
    seen = seen.model_copy(update={"components": (seen.components[0], staged)})

    found = plan(seen, matrix(dict.fromkeys(edges, "2.0"), edges), "r", "p")

    assert order(found) == ["bmc_reset", "host.bios", "cold_boot"]


def test_a_bmc_that_needs_the_bios_first_does_not_stop_it() -> None:
    edges = {
        "host.bios": (edge("1.0", "2.0", COLD),),
        "host.bmc": (edge("1.0", "2.0", RESET, requires={"host.bios": "==2.0"}),),
    }

    assert order(planned(edges)) == ["host.bios", "cold_boot", "host.bmc", "bmc_reset"]


def test_power_supplies_are_written_one_by_one() -> None:
    supplies = [("host.psu", f"PSU_{n}", "1.0") for n in range(6)]
    edges = {"host.psu": (edge("1.0", "2.0", Activation.NONE),)}

    found = planned(edges, *supplies)

    assert [s.slots for s in found.steps] == [(f"PSU_{n}",) for n in range(6)]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("host.bmc", "host.erot"),
        ("host.erot", "host.bios"),
        ("host.bios", "hgx.bundle"),
        ("hgx.bundle", "nic.firmware"),
    ],
)
def test_the_ranks_follow_the_runbooks(earlier: str, later: str) -> None:
    assert get_rank(earlier) < get_rank(later)
