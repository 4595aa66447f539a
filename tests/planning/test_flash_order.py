"""The order of flashing behind one BMC: it first and restarted, then motherboard, then GPU tray.

source: docs/sources/redfish.md#flash-order (NVIDIA's DGX runbooks, Lenovo's manual, Dell, HPE).
"""

from __future__ import annotations

import pytest
from test_planner import edge, matrix, node

from provisioner.model.inventory import Activation
from provisioner.model.matrix import Edge
from provisioner.model.plan import Plan, StepKind
from provisioner.planning.path.conditions import get_rank
from provisioner.planning.path.planner import plan

COLD, AC, RESET = Activation.COLD_BOOT, Activation.AC_CYCLE, Activation.BMC_RESET


def planned(
    edges: dict[str, tuple[Edge, ...]], *more: tuple[str, str, str], vendor: str = "ami_megarac"
) -> Plan:
    rows = [(kind, "0", "1.0") for kind in edges if kind != "host.psu"]
    seen = node(*rows, *more).model_copy(update={"vendor": vendor})
    return plan(seen, matrix(dict.fromkeys(edges, "2.0"), edges), "r", "p")


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


DGX = {
    "host.bios": (edge("1.0", "2.0", COLD),),
    "host.bmc": (edge("1.0", "2.0", RESET),),
    "host.erot": (edge("1.0", "2.0", AC),),
}


def test_a_restart_that_only_the_order_needs_says_so_with_its_cost() -> None:
    restart = planned(DGX).steps[1]

    assert restart.activation is RESET
    assert "NVIDIA's DGX runbooks" in restart.reason
    assert "1 restart more than the cheapest plan has" in restart.reason


@pytest.mark.parametrize("vendor", ["unknown", "supermicro", "v"])
def test_without_a_vendors_word_the_order_costs_nothing(vendor: str) -> None:
    """The cheapest plan has one AC cycle; the ranks decide among equal ones."""
    found = planned(DGX, vendor=vendor)

    assert order(found) == ["host.bmc", "host.erot", "host.bios", "ac_cycle"]
    assert (found.outages, found.resets) == (1, 1)


def test_an_order_that_costs_nothing_adds_no_words() -> None:
    edges = {"host.bmc": DGX["host.bmc"], "host.driver": (edge("1.0", "2.0", AC),)}

    found = planned(edges)

    assert order(found) == ["host.bmc", "host.driver", "ac_cycle"]  # nothing else is pushed
    assert "cheapest" not in found.steps[-1].reason


def test_a_pending_image_of_the_bmc_is_activated_before_the_next_push() -> None:
    edges = {
        "host.bios": (edge("1.0", "2.0", COLD),),
        "host.bmc": (edge("1.0", "2.0", RESET),),
    }
    seen = node(("host.bios", "0", "1.0"), ("host.bmc", "0", "1.0"))
    staged = seen.components[1].model_copy(update={"staged": "2.0", "pending": RESET})
    components = (seen.components[0], staged)
    seen = seen.model_copy(update={"components": components, "vendor": "hpe_ilo"})

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
