"""Settings appear in drift, debt, the watch and `explain` as versions do."""

from __future__ import annotations

import explain_situations as given
from certified_node import INVENTORY, NODE, issued
from gathered_versions import gather_versions
from test_planner import edge, matrix

from provisioner.model.inventory import Activation, Component, Inventory
from provisioner.model.node import State
from provisioner.planning.campaigns import release_drift
from provisioner.planning.campaigns.fleet_fields import find_pins, list_unlisted
from provisioner.planning.campaigns.release_drift import outline_of
from provisioner.planning.lifecycle.explain import Situation, explain
from provisioner.planning.machine_settings.pinned_sets import BIOS, BMC
from provisioner.planning.path.planner import plan
from provisioner.planning.watch import watch_rules

BOOT = Activation.WARM_REBOOT
MATRIX = matrix(
    {BIOS: "fast-1", BMC: "safe-1"},
    {BIOS: (edge("*", "fast-1", BOOT),), BMC: (edge("*", "safe-1", Activation.NONE),)},
)
NOW = given.NOW


def shown(bios: str, bmc: str, staged: str | None = None) -> tuple[Component, ...]:
    waits = BOOT if staged else None
    return (
        Component(kind=BIOS, slot="host", version=bios, staged=staged, pending=waits, source="s"),
        Component(kind=BMC, slot="host", version=bmc, source="s"),
    )


def with_sets(*components: Component) -> Inventory:
    return INVENTORY.model_copy(update={"components": components})


def test_a_node_whose_settings_differ_drifts_from_its_release() -> None:
    node = NODE.model_copy(update={"release": "r", "profile": "p"})
    inventory = with_sets(*shown("none", "safe-1"))

    (line,) = release_drift.list_differing(
        [outline_of(node)], gather_versions({node.id: inventory}), MATRIX, (), {}, NOW
    )

    assert [(b.kind, b.running, b.wanted) for b in line.behind] == [(BIOS, "none", "fast-1")]


def test_a_pinned_component_that_the_bmc_stopped_to_list_is_drift_and_not_fine() -> None:
    node = NODE.model_copy(update={"release": "r", "profile": "p"})
    silent = gather_versions({node.id: with_sets(*shown("fast-1", "safe-1")[:1])})
    about = ([outline_of(node)], silent, MATRIX, (), {}, NOW)

    (line,) = release_drift.list_differing(*about)
    (row,) = release_drift.tabulate_drift([line])
    never_read = release_drift.list_differing(about[0], gather_versions({}), *about[2:])

    assert [(b.kind, b.running, b.wanted) for b in line.behind] == [(BMC, "not listed", "safe-1")]
    assert (row.nodes, row.names) == (1, (node.id,))
    assert never_read == ()  # the first reading is intake's
    assert list_unlisted(silent.of(node.id) or (), find_pins(MATRIX, "r", "p")) == (BMC,)


def test_settings_that_wait_for_a_boot_are_debt() -> None:
    (line,) = release_drift.find_debt({"n1": with_sets(*shown("none", "safe-1", "fast-1"))}, {})

    assert (line.kind, line.version, line.waits_for) == (BIOS, "fast-1", "warm_reboot")


def test_settings_that_changed_since_the_certificate_are_drift_of_the_watch() -> None:
    certified = issued(inventory=with_sets(*shown("fast-1", "safe-1")))

    (finding,) = watch_rules.find_drift(certified, with_sets(*shown("fast-1", "none")))

    assert (finding.target, finding.message) == (
        f"{BMC}/host",
        "safe-1 was certified, now it is none",
    )


def test_explain_names_the_set_that_is_written_next() -> None:
    answer = plan(with_sets(*shown("none", "safe-1")), MATRIX, "r", "p", production=False)

    explained = explain(Situation(node=given.node(State.CONVERGING), now=NOW, plan=answer))

    text = " ".join(explained.format_lines())
    assert BIOS in text
    assert "fast-1" in text


def test_versions_are_counted_over_the_fleet_against_the_pins_of_each_node() -> None:
    nodes = [
        NODE.model_copy(update={"id": f"n{n}", "release": "r", "profile": "p"}) for n in range(3)
    ]
    seen = {
        "n0": with_sets(*shown("fast-1", "safe-1")),
        "n1": with_sets(*shown("none", "safe-1")),
    }  # n2 was never read

    counts = release_drift.count_versions(
        map(outline_of, nodes), gather_versions(seen), MATRIX, (), {}, NOW
    )

    assert [(c.kind, c.version, c.standing, c.wanted, c.nodes, c.names) for c in counts] == [
        (BIOS, "fast-1", "as pinned", ("fast-1",), 1, ("n0",)),
        (BIOS, "none", "differs", ("fast-1",), 1, ("n1",)),
        (BMC, "safe-1", "as pinned", ("safe-1",), 2, ("n0", "n1")),
    ]


def test_what_no_release_pins_is_counted_as_such() -> None:
    node = NODE.model_copy(update={"release": "other", "profile": "p"})
    part = Component(kind="gpu.vbios", slot="GPU_1", version=None, source="s")

    (count,) = release_drift.count_versions(
        [outline_of(node)],
        gather_versions({node.id: with_sets(part, part.model_copy(update={"slot": "GPU_2"}))}),
        MATRIX,
        (),
        {},
        NOW,
    )

    assert (count.version, count.standing, count.wanted) == ("?", "not pinned", ())
    assert (count.nodes, count.slots) == (1, 2)
