"""Flavour and stack of a host as steps of their own, and the edge away from MLNX_OFED."""

from __future__ import annotations

import pytest
from test_planner import edge, matrix, node

from provisioner.integrations.matrix_tools.deciding.contradictions import find_contradictions
from provisioner.model.host_packages import OFED_MIGRATION
from provisioner.model.inventory import Activation
from provisioner.model.outcome import Reason
from provisioner.planning.path.planner import plan

OLDER = "MLNX_OFED_LINUX-23.10-0.5.5.0"
DOCA, STACK = "2.10.0-093000-25.01-ubuntu2204", "doca-ofed=2.10.0-0.5.3"
REBOOT = Activation.WARM_REBOOT


def test_mlnx_ofed_is_left_by_an_edge_that_names_its_removal() -> None:
    away = edge(
        OLDER, DOCA, REBOOT, method="playbook_ofed_migration", carries={"host.doca_ofed": STACK},
    )  # fmt: skip
    pinned = matrix({"host.doca": DOCA}, {"host.doca": (away,)})

    made = plan(node(("host.doca", "host", OLDER)), pinned, "r", "p", production=True)

    assert not made.blockers
    assert made.steps[0].method == "playbook_ofed_migration"
    assert dict(made.steps[0].carries) == {"host.doca_ofed": STACK}
    assert made.steps[-1].activation is REBOOT


def test_mlnx_ofed_without_such_an_edge_is_blocked() -> None:
    pinned = matrix({"host.doca": DOCA}, {"host.doca": (edge("2.9.0-1", DOCA, REBOOT),)})

    made = plan(node(("host.doca", "host", OLDER)), pinned, "r", "p")

    assert [b.reason for b in made.blockers] == [Reason.UNKNOWN_GRAMMAR]


def test_a_stack_that_the_edge_brings_is_not_missing_before_it() -> None:
    """On a host with MLNX_OFED no package of DOCA's stack is there to be seen."""
    away = edge(
        OLDER, DOCA, REBOOT, method=OFED_MIGRATION, carries={"host.doca_ofed": STACK},
    )  # fmt: skip
    pins = {"host.doca": DOCA, "host.doca_ofed": STACK}

    made = plan(node(("host.doca", "host", OLDER)), matrix(pins, {"host.doca": (away,)}), "r", "p")
    later = plan(node(("host.doca", "host", DOCA)), matrix(pins, {"host.doca": (away,)}), "r", "p")
    other = matrix({**pins, "host.doca_ofed": "doca-all=1"}, {"host.doca": (away,)})
    another = plan(node(("host.doca", "host", OLDER)), other, "r", "p")

    assert not made.blockers
    assert dict(made.steps[0].carries) == {"host.doca_ofed": STACK}
    for refused in (later, another):
        assert (Reason.VERSION_MISSING, "host.doca_ofed") in {
            (b.reason, b.subject) for b in refused.blockers
        }


@pytest.mark.parametrize(
    ("kind", "start", "method", "says"),
    [
        ("host.doca", OLDER, "playbook_host_software", "leads away from MLNX_OFED"),
        ("host.doca", "2.9.0-1", OFED_MIGRATION, "versions MLNX_OFED_LINUX-... of host.doca only"),
        ("host.driver", OLDER, OFED_MIGRATION, "versions MLNX_OFED_LINUX-... of host.doca only"),
        ("host.doca", OLDER, OFED_MIGRATION, ""),
    ],
)
def test_the_removal_of_mlnx_ofed_is_named_by_the_edges_that_need_it_alone(
    kind: str, start: str, method: str, says: str
) -> None:
    edges = {kind: (edge(start, DOCA, REBOOT, method=method),)}

    faults = [f for f in find_contradictions(matrix({kind: DOCA}, edges)) if f.path[0] == "edges"]

    named = [f.problem for f in faults if "method" in f.path]
    assert [says in problem for problem in named] == ([True] if says else [])
    assert named or not faults


PINS = {
    "host.driver_packages": "ubuntu-server-open",
    "host.doca_ofed": STACK,
    "host.kernel": "6.8.0-57-generic=6.8.0-57.59",
}


@pytest.mark.parametrize("kind", PINS)
def test_a_packaging_a_stack_and_a_kernel_are_each_a_step(kind: str) -> None:
    to = PINS[kind]
    pinned = matrix({kind: to}, {kind: (edge("ubuntu-server", to, REBOOT),)})

    made = plan(node((kind, "host", "ubuntu-server")), pinned, "r", "p")

    assert not made.blockers
    assert [s.component for s in made.steps[:1]] == [kind]
    assert made.steps[0].to_version == to
