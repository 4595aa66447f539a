"""The gate of every act that nothing undoes: each condition alone refuses it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provisioner.model.case import Case, Fault, Origin, Service, Stage, StageTime
from provisioner.model.location import Location, Port
from provisioner.model.node import Boots, Node, NodeKind, Placement, State, TenantData
from provisioner.model.outcome import Reason
from provisioner.planning.lifecycle.destruction import (
    HOUR_S,
    MEANINGS,
    TABLE,
    Destruction,
    Facts,
    Ground,
    Limits,
    Need,
    find_ground,
    find_questions,
    is_confirmed,
    judge_destruction,
)
from provisioner.planning.lifecycle.operator_requests import retry_node

ROOT = Path(__file__).parents[2]
NOW = 10_000.0


def host(name: str = "n1", leaf: str = "leaf-1", **more: Any) -> Node:
    """A host that its tenant gave up, fenced, in the maintenance image."""
    given = {
        "state": State.DRAINING,
        "placement": Placement.MAINTENANCE,
        "vrf": "MAINT",
        "fenced_at": NOW,
        "served": "red",
        "boots": Boots.NOTHING,
        "location": Location(rack=f"rack of {name}"),
        "ports": (Port(switch=leaf, interface="swp1", rail=0, nic_slot="", address=""),),
    }
    return Node.model_validate({"id": name, "kind": NodeKind.HOST, **given, **more}, strict=False)


def cut_off(node: str = "n1", at: float = NOW, **more: Any) -> Case:
    """A case that took its node from its tenant at once, on one alert."""
    given: dict[str, Any] = {
        "id": f"{node}-c1",
        "node": node,
        "origin": Origin.EVENT,
        "service": Service.CUT_OFF,
        "reason": "FatalEvent at GPU_SXM_5",
        "faults": (Fault(source="alert", id="FatalEvent"),),
        "drain_at": at,
        "opened_at": at,
    }
    return Case(**{**given, **more})


def retiring(**more: Any) -> Case:
    return cut_off(stage=Stage.RETIRING, retire_at=NOW, service=Service.KEEP, **more)


# facts under which an act may be carried out
MAY: dict[Destruction, Facts] = {
    **dict.fromkeys(
        (
            Destruction.DISKS,
            Destruction.TPM,
            Destruction.BOOT_ENTRIES,
            Destruction.BIOS_DEFAULTS,
            Destruction.SECURE_BOOT_KEYS,
            Destruction.BMC_DEFAULTS,
            Destruction.CARD_STORAGE,
            Destruction.CARD_SYSTEM,
            Destruction.FIRMWARE,
        ),
        Facts(node=host()),
    ),
    Destruction.IMAGE: Facts(node=host(served="")),
    Destruction.SWITCH_IMAGE: Facts(
        node=Node(id="leaf-1", kind=NodeKind.SWITCH, state=State.CONVERGING)
    ),
    Destruction.LOGIN: Facts(node=None, stored=True),
    Destruction.FACTORY_LOGIN: Facts(node=host(served=""), case=retiring(), stored=True),
    Destruction.FORGOTTEN_LOGIN: Facts(node=host(served=""), case=retiring()),
    Destruction.HOST_LOGIN: Facts(
        node=host(placement=Placement.MIXED, state=State.CERTIFIED, tenant="red")
    ),
    Destruction.RETIREMENT: Facts(node=host(served=""), case=retiring()),
}


def changed(**more: Any) -> Callable[[Facts], Facts]:
    def change(before: Facts) -> Facts:
        node = before.node
        assert node is not None
        return Facts(**{**vars(before), "node": node.model_copy(update=more)})

    return change


def without(**more: Any) -> Callable[[Facts], Facts]:
    return lambda facts: Facts(**{**vars(facts), **more})


# what takes each condition away; all of them are tried on each act that has the condition
SPOILT: dict[Need, tuple[Callable[[Facts], Facts], ...]] = {
    Need.FENCED: (
        changed(placement=Placement.MIXED),
        changed(placement=Placement.CUSTOMER),
        changed(placement=Placement.NONE),
        changed(fenced_at=0.0),
        without(node=None),
    ),
    Need.UNASKED: (
        changed(tenant_data=TenantData.ASKED),
        changed(tenant_data=TenantData.KEEP),
    ),
    Need.GROUND: (
        lambda f: Facts(node=changed(tenant="red")(f).node, case=cut_off()),
        lambda f: Facts(
            node=changed(served="red, unknown", tenant="red", boots=Boots.SYSTEM)(f).node,
            keeps=True,
        ),
        lambda f: Facts(
            node=changed(served="red, VRF BLUE", tenant="red", boots=Boots.SYSTEM)(f).node,
            keeps=True,
        ),
    ),
    Need.FEW: (without(nodes=[host(n, tenant_data=TenantData.ASKED) for n in ("n2", "n3")]),),
    Need.NOBODYS: (changed(served="red"), changed(served="unknown")),
    Need.BOOTED: (changed(boots=Boots.SYSTEM), changed(boots=Boots.HANDED_OVER)),
    Need.SWITCH: (changed(state=State.RELEASED), changed(state=State.RETIRED), without(node=None)),
    Need.STORED: (without(stored=False),),
    Need.ORDERED: (
        without(case=None),
        without(case=cut_off()),
        without(case=cut_off(stage=Stage.RETIRING)),
        without(case=cut_off(retire_at=NOW, stage=Stage.HARDWARE)),
    ),
    Need.CLEAN: (changed(served="red"), without(node=None)),
    Need.LEAVING: (
        changed(placement=Placement.MAINTENANCE),
        changed(placement=Placement.CUSTOMER),
        changed(tenant=""),
        changed(served=""),
        changed(tenant="", served=""),
        changed(served="blue"),
        changed(served="red, blue"),
        changed(state=State.DRAINING),
        without(node=None),
    ),
}


REASONS: dict[Need, set[Reason]] = {
    Need.FENCED: {Reason.PRECONDITION},
    Need.UNASKED: {Reason.TRESPASS, Reason.NOT_SANITIZED},
    Need.GROUND: {Reason.TRESPASS},
    Need.FEW: {Reason.NOT_CONFIRMED},
    Need.NOBODYS: {Reason.NOT_SANITIZED},
    Need.BOOTED: {Reason.PRECONDITION},
    Need.SWITCH: {Reason.PRECONDITION},
    Need.STORED: {Reason.PRECONDITION},
    Need.ORDERED: {Reason.NOT_CONFIRMED},
    Need.CLEAN: {Reason.NOT_SANITIZED},
    Need.LEAVING: {Reason.PRECONDITION},
}


@pytest.mark.parametrize("act", Destruction)
def test_an_act_whose_conditions_hold_may_be_carried_out(act: Destruction) -> None:
    assert judge_destruction(act, "n1", MAY[act]) is None


@pytest.mark.parametrize("act", [a for a in Destruction if a is not Destruction.LOGIN])
def test_nothing_is_destroyed_of_a_node_without_a_row(act: Destruction) -> None:
    needs = TABLE[act].needs
    nobody = Facts(**{**vars(MAY[act]), "node": None})

    assert judge_destruction(act, "n1", nobody) is not None
    for need in set(needs) - {Need.GROUND, Need.FEW, Need.ORDERED, Need.STORED}:
        refused = judge_destruction(act, "n1", nobody, set(needs) - {need})
        assert refused is not None, need
        assert refused.reason in REASONS[need]


@pytest.mark.parametrize("need", Need)
def test_a_condition_of_nothing_is_refused_with_the_whole_remedy(need: Need) -> None:
    """Neither row is there; what follows a condition may rely on the ones before it alone."""
    act = next(a for a, row in TABLE.items() if need in row.needs)
    before = set(TABLE[act].needs[: TABLE[act].needs.index(need)])
    relies = need in (Need.GROUND, Need.FEW)
    nothing = Facts(node=host(tenant="red") if relies else None, case=cut_off() if relies else None)
    refused = judge_destruction(act, "n1", crowd(9) if need is Need.FEW else nothing, before)

    assert refused is not None
    assert refused.subject == "n1"
    assert refused.detail[0].islower()
    assert refused.unblock.endswith((".", "`."))


@pytest.mark.parametrize("boots", [Boots.RAMDISK, Boots.NOTHING])
def test_a_host_in_the_maintenance_image_may_be_erased(boots: Boots) -> None:
    assert judge_destruction(Destruction.DISKS, "n1", Facts(node=host(boots=boots))) is None


def test_a_host_is_no_switch() -> None:
    facts = Facts(node=host(state=State.CONVERGING))

    assert judge_destruction(Destruction.SWITCH_IMAGE, "n1", facts) is not None


@pytest.mark.parametrize("act", Destruction)
def test_each_condition_of_an_act_alone_refuses_it_with_a_reason_and_a_remedy(
    act: Destruction,
) -> None:
    assert TABLE[act].needs, "an act without a condition"
    for need in TABLE[act].needs:
        for spoil in SPOILT[need]:
            refused = judge_destruction(act, "n1", spoil(MAY[act]))

            assert refused is not None, (act, need)
            assert refused.reason in REASONS[need]
            assert refused.detail
            assert refused.unblock
            assert refused.subject == "n1"


@pytest.mark.parametrize(
    ("act", "spoilt"),
    [
        (Destruction.CARD_SYSTEM, {"tenant_data": TenantData.KEEP}),
        (Destruction.CARD_SYSTEM, {"tenant_data": TenantData.ASKED}),
        (Destruction.IMAGE, {}),
        (Destruction.RETIREMENT, {}),
    ],
)
def test_a_refusal_names_whose_data_it_is(act: Destruction, spoilt: dict[str, Any]) -> None:
    facts = Facts(node=host(**spoilt), case=retiring())
    refused = judge_destruction(act, "n1", facts)

    assert refused is not None
    assert "data of red" in refused.detail


def test_what_nothing_undoes_has_a_second_look_a_limit_and_somebody_who_is_told() -> None:
    assert set(TABLE) == set(Destruction)
    assert set(MEANINGS) == set(SPOILT) == set(Need)
    for act, row in TABLE.items():
        assert all((row.allowed_by, row.confirmed_by, row.at_once, row.told, row.undone)), act


GROUNDS: dict[str, tuple[dict[str, Any], Case | None, bool, Ground | None]] = {
    "its tenant gave it up": ({}, None, False, Ground.GIVEN_UP),
    "nobody's, whatever cut it off": ({"served": ""}, cut_off(), False, Ground.NOBODYS),
    "another tenant has it": ({"tenant": "blue"}, None, False, Ground.GIVEN_UP),
    "a stranger's drive": ({"served": "unknown"}, None, False, Ground.NOBODYS),
    "a network without a handover": ({"served": "VRF RED"}, None, False, Ground.NOBODYS),
    "a request keeps its tenant": ({"tenant": "red"}, None, False, Ground.REQUESTED),
    "a person's word": (
        {"tenant": "red", "tenant_data": TenantData.ERASE}, cut_off(), True, Ground.DECIDED,
    ),
    "a person retires it": ({"tenant": "red"}, cut_off(retire_at=NOW), False, Ground.DECIDED),
    "the tenant reported it": (
        {"tenant": "red"}, cut_off(origin=Origin.TENANT), False, Ground.REQUESTED,
    ),
    "a case that did not take it": ({"tenant": "red"}, cut_off(drain_at=0.0), False,
                                    Ground.REQUESTED),
    "its notice ran out": (
        {"tenant": "red"}, cut_off(service=Service.DRAIN), False, Ground.NOTICE,
    ),
    "cut off on one alert": ({"tenant": "red"}, cut_off(), False, None),
    "the log that the alert came from": (
        {"tenant": "red"},
        cut_off(faults=(Fault(source="event_log", id="x"), Fault(source="alert", id="y"))),
        False,
        None,
    ),
    "a strange drive in a node that its tenant never had": (
        {"tenant": "red", "served": "unknown", "boots": Boots.SYSTEM},
        None,
        True,
        Ground.NOBODYS,
    ),
    "a system without our login is written anew, at a site that keeps data": (
        {"tenant": "red", "served": "red, VRF BLUE", "boots": Boots.HANDED_OVER},
        None,
        True,
        Ground.REQUESTED,
    ),
    "a node that comes back as it went, at a site that keeps data": (
        {"tenant": "red", "boots": Boots.SYSTEM}, None, True, Ground.REQUESTED,
    ),
    "two tenants before the one that has it now": (
        {"tenant": "red", "served": "blue, green"}, None, False, Ground.GIVEN_UP,
    ),
    "a drive that is strange, at a site that keeps data": (
        {"tenant": "red", "served": "red, unknown", "boots": Boots.SYSTEM}, None, True, None,
    ),
    "a port that was read elsewhere, at a site that keeps data": (
        {"tenant": "red", "served": "red, VRF BLUE", "boots": Boots.SYSTEM}, None, True, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", GROUNDS)
def test_one_observation_is_no_ground_to_destroy_a_tenants_data(sentence: str) -> None:
    node, case, keeps, ground = GROUNDS[sentence]

    assert find_ground(host(**node), case, keeps=keeps) is ground


@pytest.mark.parametrize("source", ["xid", "isolation", "inventory", "report"])
def test_a_second_look_by_another_way_confirms_why_a_node_was_cut_off(source: str) -> None:
    case = cut_off(faults=(Fault(source="alert", id="a"), Fault(source=source, id="b")))

    assert is_confirmed(case)
    assert find_ground(host(tenant="red"), case, keeps=False) is Ground.CONFIRMED


def test_people_who_worked_on_a_node_have_looked_at_it() -> None:
    assert is_confirmed(cut_off(stages=(StageTime(stage=Stage.HARDWARE, at=NOW),)))


def confirmed(node: str, at: float = NOW) -> Case:
    return cut_off(node, at, faults=(Fault(source="xid", id="xid 79"),))


def crowd(many: int, **more: Any) -> Facts:
    """A node that was cut off, with so many others at the same time."""
    names = [f"m{n}" for n in range(many)]
    at = more.pop("at", NOW)
    others = [host(n, **more) for n in names]
    cases = [confirmed("n1"), *(confirmed(n, at) for n in names)]
    mine = host(tenant="red", location=Location(rack="r1"))
    return Facts(node=mine, case=cases[0], nodes=[mine, *others], cases=cases)


AT_ONCE: dict[str, tuple[int, dict[str, Any]]] = {
    "leaf": (Limits.LEAF, {}),
    "rack r1": (Limits.RACK, {"leaf": "leaf-2", "location": Location(rack="r1")}),
    "tenant red": (Limits.TENANT, {"leaf": "leaf-2", "tenant": "red"}),
    "site": (Limits.SITE, {"leaf": "leaf-2"}),
}


@pytest.mark.parametrize("group", AT_ONCE)
def test_several_nodes_at_once_stop_erasures_that_nobody_asked_for(group: str) -> None:
    most, shared = AT_ONCE[group]

    assert judge_destruction(Destruction.DISKS, "n1", crowd(most - 1, **shared)) is None
    refused = judge_destruction(Destruction.DISKS, "n1", crowd(most, **shared))

    assert refused is not None
    assert refused.reason is Reason.NOT_CONFIRMED
    assert f"of one {group} were cut off" in refused.detail
    assert "m0" in refused.detail


def test_only_nodes_that_were_cut_off_are_a_crowd() -> None:
    people = [{"origin": o} for o in (Origin.OPERATOR, Origin.TENANT, Origin.MAINTENANCE)]
    others = ({"drain_at": 0.0}, {"service": Service.DRAIN}, *people)
    for other in others:
        facts = crowd(Limits.SITE)
        cases = [facts.cases[0], *(c.model_copy(update=other) for c in facts.cases[1:])]

        assert judge_destruction(
            Destruction.DISKS, "n1", Facts(**{**vars(facts), "cases": cases})
        ) is None  # fmt: skip


def test_nodes_whose_rack_nobody_told_share_none() -> None:
    facts = crowd(Limits.RACK, leaf="leaf-2", location=Location())
    mine = host(tenant="red", location=Location())

    assert (
        judge_destruction(Destruction.DISKS, "n1", Facts(**{**vars(facts), "node": mine})) is None
    )


def test_the_leaf_with_the_most_nodes_counts() -> None:
    facts = crowd(Limits.LEAF, leaf="leaf-2")
    ports = (*host(leaf="leaf-1").ports, *host(leaf="leaf-2").ports, *host(leaf="leaf-3").ports)
    mine = host(tenant="red", location=Location(rack="r1"), ports=ports)

    assert judge_destruction(Destruction.DISKS, "n1", Facts(**{**vars(facts), "node": mine}))


def test_the_leaf_with_the_most_nodes_is_not_the_first_one() -> None:
    facts = crowd(Limits.LEAF, leaf="leaf-2")
    near = host("a0", leaf="leaf-1")  # alone at the first leaf, and before the others by its name
    ports = (*host(leaf="leaf-1").ports, *host(leaf="leaf-2").ports)
    mine = host(tenant="red", location=Location(rack="r1"), ports=ports)
    changes = {
        "node": mine,
        "nodes": [*facts.nodes, near],
        "cases": [*facts.cases, confirmed("a0")],
    }

    refused = judge_destruction(Destruction.DISKS, "n1", Facts(**{**vars(facts), **changes}))

    assert refused is not None
    assert f"{Limits.LEAF + 1} nodes of one leaf were cut off" in refused.detail


def test_what_its_tenant_gave_up_is_no_part_of_a_crowd() -> None:
    facts = crowd(Limits.SITE)
    mine = host()

    assert (
        judge_destruction(Destruction.DISKS, "n1", Facts(**{**vars(facts), "node": mine})) is None
    )


def test_nodes_that_were_cut_off_at_other_times_are_no_crowd() -> None:
    early = crowd(Limits.SITE, at=NOW - HOUR_S - 1)
    late = crowd(Limits.SITE, at=NOW + HOUR_S + 1)

    assert judge_destruction(Destruction.DISKS, "n1", early) is None
    assert judge_destruction(Destruction.DISKS, "n1", late) is None
    assert judge_destruction(Destruction.DISKS, "n1", crowd(Limits.SITE, at=NOW - HOUR_S))


@pytest.mark.parametrize(
    "word",
    [
        {"retire_at": NOW},
        {"origin": Origin.OPERATOR},
        {"origin": Origin.TENANT},
        {"origin": Origin.MAINTENANCE},
    ],
)
def test_what_people_asked_for_goes_on_beside_a_crowd(word: dict[str, Any]) -> None:
    facts = crowd(Limits.SITE)
    case = confirmed("n1").model_copy(update=word)

    assert (
        judge_destruction(Destruction.DISKS, "n1", Facts(**{**vars(facts), "case": case})) is None
    )


def asked(leaf: str = "leaf-1") -> list[Node]:
    return [host(n, leaf, tenant="blue", tenant_data=TenantData.ASKED) for n in ("n2", "n3")]


def test_several_nodes_of_a_leaf_taken_back_on_a_reading_stop_the_erasures_of_that_leaf() -> None:
    refused = judge_destruction(Destruction.DISKS, "n1", Facts(node=host(), nodes=asked()))

    assert refused is not None
    assert refused.reason is Reason.NOT_CONFIRMED
    assert "n2, n3" in refused.unblock
    elsewhere = Facts(node=host(), nodes=asked("leaf-2"))
    assert judge_destruction(Destruction.DISKS, "n1", elsewhere) is None
    one = Facts(node=host(), nodes=asked()[:1])
    assert judge_destruction(Destruction.DISKS, "n1", one) is None


def test_a_persons_word_about_the_very_node_goes_on_while_its_leaf_is_doubted() -> None:
    node = host(tenant="red", tenant_data=TenantData.ERASE)

    assert judge_destruction(Destruction.DISKS, "n1", Facts(node=node, nodes=asked())) is None


def test_a_question_is_answered_by_the_command_that_it_names() -> None:
    node = host(tenant="red", tenant_data=TenantData.ASKED, state=State.QUARANTINED)
    refused = judge_destruction(Destruction.DISKS, "n1", Facts(node=node))

    assert refused is not None
    assert refused.reason is Reason.TRESPASS
    assert "node retry n1 --tenant-data keep" in refused.unblock
    assert isinstance(retry_node(node, NOW, tenant_data=TenantData.ERASE), Node)


def test_kept_data_is_never_destroyed_and_a_person_may_decide_again() -> None:
    node = host(tenant="red", tenant_data=TenantData.KEEP, state=State.QUARANTINED)
    refused = judge_destruction(Destruction.DISKS, "n1", Facts(node=node))
    again = retry_node(node, NOW, tenant_data=TenantData.ERASE)

    assert refused is not None
    assert refused.reason is Reason.NOT_SANITIZED
    assert isinstance(again, Node)
    assert judge_destruction(Destruction.DISKS, "n1", Facts(node=again)) is None


def test_data_of_a_system_without_our_login_cannot_be_kept() -> None:
    node = host(
        tenant="red",
        tenant_data=TenantData.ASKED,
        state=State.QUARANTINED,
        boots=Boots.HANDED_OVER,
    )

    assert "no login" in str(retry_node(node, NOW, tenant_data=TenantData.KEEP))


def test_a_node_whose_disks_are_destroyed_may_be_retired_with_what_it_served() -> None:
    facts = Facts(node=host(), case=retiring(disks_gone="shredded by ann"))

    assert judge_destruction(Destruction.RETIREMENT, "n1", facts) is None


def test_without_a_case_nobody_said_that_the_disks_are_destroyed() -> None:
    facts = Facts(node=host())

    refused = judge_destruction(Destruction.RETIREMENT, "n1", facts, (Need.ORDERED,))

    assert refused is not None
    assert "red" in refused.detail
    assert judge_destruction(
        Destruction.RETIREMENT, "n1", Facts(node=host(served="")), (Need.ORDERED,)
    ) is None  # fmt: skip


def test_times_are_times_however_early() -> None:
    facts = crowd(Limits.SITE)
    early = [c.model_copy(update={"drain_at": 0.5}) for c in facts.cases]
    ordered = Facts(node=host(served=""), case=cut_off(stage=Stage.RETIRING, retire_at=0.5))
    fenced = Facts(node=host(fenced_at=0.5))

    assert judge_destruction(
        Destruction.DISKS, "n1", Facts(**{**vars(facts), "cases": early})
    ) is not None  # fmt: skip
    assert judge_destruction(Destruction.RETIREMENT, "n1", ordered) is None
    assert judge_destruction(Destruction.DISKS, "n1", fenced) is None


def test_a_node_without_ports_shares_no_leaf() -> None:
    facts = crowd(Limits.LEAF)
    mine = host(tenant="red", location=Location(rack="r1"), ports=())

    assert (
        judge_destruction(Destruction.DISKS, "n1", Facts(**{**vars(facts), "node": mine})) is None
    )


def test_a_node_that_was_never_ours_may_be_forgotten() -> None:
    facts = Facts(node=host(placement=Placement.NONE), case=retiring())

    assert judge_destruction(Destruction.FORGOTTEN_LOGIN, "n1", facts) is None


def test_firmware_of_a_switch_needs_no_fence() -> None:
    leaf = Node(id="leaf-1", kind=NodeKind.SWITCH, state=State.CONVERGING)

    assert judge_destruction(Destruction.FIRMWARE, "leaf-1", Facts(node=leaf)) is None
    assert judge_destruction(Destruction.CARD_SYSTEM, "leaf-1", Facts(node=leaf)) is not None


def test_only_the_boot_is_judged_later_when_an_erasure_begins() -> None:
    running = host(boots=Boots.SYSTEM)
    later = (Need.BOOTED,)

    assert judge_destruction(Destruction.DISKS, "n1", Facts(node=running), later) is None
    asks = host(boots=Boots.SYSTEM, tenant_data=TenantData.ASKED)
    assert judge_destruction(Destruction.DISKS, "n1", Facts(node=asks), later) is not None


def test_what_follows_a_condition_that_is_judged_later_is_judged_now() -> None:
    elsewhere = host(placement=Placement.MIXED, tenant_data=TenantData.ASKED)
    refused = judge_destruction(Destruction.DISKS, "n1", Facts(node=elsewhere), (Need.FENCED,))

    assert refused is not None
    assert refused.reason is Reason.TRESPASS


def test_a_node_is_no_other_node_of_its_leaf() -> None:
    mine, other = asked()

    assert find_questions(mine, [mine, other]) == (other.id,)
