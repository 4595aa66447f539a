"""What a NetBox would have to change, decided: nothing twice, and nothing of others."""

from __future__ import annotations

from netbox_scenario import INVENTORY, NODES

from provisioner.integrations.inventories.deciding.netbox_mirror import build_objects, plan_changes
from provisioner.integrations.inventories.deciding.netbox_records import (
    NetBoxKind,
    NetBoxObject,
    Verb,
)
from provisioner.integrations.inventories.deciding.netbox_source import build_expected
from provisioner.model.node import NodeKind

ROLES = {NodeKind.HOST: "gpu-server", NodeKind.SWITCH: "switch"}
WANTED = build_objects(NODES, {"su0-n01": INVENTORY}, ROLES)


def there(*, ours: bool) -> list[NetBoxObject]:
    """A NetBox that has all of it."""
    return [
        item.model_copy(update={"ours": ours, "number": number})
        for number, item in enumerate(WANTED, start=1)
    ]


def test_what_is_there_is_not_made_again_whoever_made_it():
    assert plan_changes(WANTED, there(ours=True), prune=True) == ()
    assert plan_changes(WANTED, there(ours=False), prune=True) == ()


def test_each_object_comes_after_what_it_refers_to():
    keys = {(o.kind, o.key) for o in WANTED}
    order = [(c.kind, c.key) for c in plan_changes(WANTED, (), prune=False)]
    place = {key: number for number, key in enumerate(order)}

    assert set(order) == keys
    for item in WANTED:
        for name, value in item.fields.items():
            ends = {"a": "interface", "b": "interface"}
            other = ends.get(name, name)
            if other in list(NetBoxKind):
                assert place[NetBoxKind(other), value] < place[item.kind, item.key]


def test_nothing_without_our_tag_is_ever_changed_or_deleted():
    theirs = there(ours=False)
    differing = [
        o.model_copy(update={"fields": {**o.fields, "status": "x", "a": "x/1"}}) for o in theirs
    ]
    for wanted in (WANTED, WANTED[:3], ()):
        for found in (theirs, differing):
            verbs = {c.verb for c in plan_changes(wanted, found, prune=True)}

            assert verbs <= {Verb.LEAVE, Verb.CREATE}


def test_what_is_stale_goes_with_prune_only_and_before_what_it_refers_to():
    kept = plan_changes((), there(ours=True), prune=False)
    gone = plan_changes((), there(ours=True), prune=True)
    kinds = [c.kind for c in gone]

    assert {c.verb for c in kept} == {Verb.LEAVE}
    assert {c.verb for c in gone} == {Verb.DELETE}
    assert kinds == sorted(kinds, key=list(NetBoxKind).index, reverse=True)


def test_an_end_with_somebody_elses_cable_is_left_as_it_is():
    (cable,) = [o for o in WANTED if o.kind is NetBoxKind.CABLE and "su0-n01" in o.key]
    other = {"a": cable.fields["a"], "b": "patch-panel/7"}
    there_ = NetBoxObject(kind=NetBoxKind.CABLE, key="other", fields=other, number=5)
    changes = plan_changes(WANTED, [there_], prune=True)
    (told,) = [c for c in changes if c.key == cable.key]

    assert (told.verb, told.why) == (Verb.LEAVE, f"{cable.fields['a']} has another cable: other")


def test_a_list_for_intake_has_cards_and_ports_by_their_slots():
    module = NetBoxObject(
        kind=NetBoxKind.MODULE, key="su0-n02/NIC_0", fields={"serial": "MT1"}, number=99
    )
    fan = module.model_copy(update={"key": "su0-n02/Fan 1"})
    roles = {slug: kind for kind, slug in ROLES.items()}
    told = build_expected([*there(ours=True), module, fan], roles, ("cumulus", "PW"))
    node = next(n for n in told["nodes"] if n["name"] == "su0-n02")

    assert node["dpus"] == [{"slot": "NIC_0", "serial": "MT1"}]
    assert [p["nic_slot"] for p in node["ports"]] == ["NIC_0"]
    assert build_expected(there(ours=True), {}, ("cumulus", "PW")) == {"nodes": []}
