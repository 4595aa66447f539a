"""A tenant's space against its record: what is closed, made and admitted, and in which order."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.storage import (
    AddressRange,
    Export,
    FileStorage,
    SeenExport,
    SpaceState,
    SpaceVerb,
    count_addresses,
    intersect,
    make_set,
    make_set_of,
    subtract,
    unite,
)
from provisioner.model.tenant import Phase, Tenant
from provisioner.planning.tenancy.storage import (
    ForeignKind,
    SpaceWish,
    judge_access,
    list_client_addresses,
    make_wish,
    plan_clients,
    plan_space,
)

SCRATCH = Export(name="scratch", path="/scratch", quota_bytes=1000)
HOME = Export(name="home", path="/home", read_only=True)
N1, N2, N3 = "172.0.0.0", "172.0.0.2", "172.0.0.4"


def wish(*must: str, may: tuple[str, ...] = (), handle: str = "g1") -> SpaceWish:
    storage = FileStorage(exports=(SCRATCH, HOME), quota_bytes=5000)
    return SpaceWish("red", storage, handle, make_set_of(must), make_set_of((*must, *may)))


def state(*clients: str, **changes: object) -> SpaceState:
    admitted = make_set_of(clients)
    exports = {
        "home": SeenExport("home", "/home", True, True, admitted),
        "scratch": SeenExport("scratch", "/scratch", False, True, admitted, 1000, 10),
    }
    fields: dict[str, object] = {
        "handle": "g1",
        "clients": admitted,
        "exports": exports,
        "quota_bytes": 5000,
        "used_bytes": 10,
    }
    return SpaceState(**{**fields, **changes})  # type: ignore[arg-type]


def verbs(plan: object) -> list[SpaceVerb]:
    return [act.verb for act in plan.acts]  # type: ignore[attr-defined]


def test_a_new_space_is_made_for_nobody_then_exported_then_opened() -> None:
    plan = plan_space(wish(N1, handle=""), SpaceState())

    assert verbs(plan) == ["make", "limit", "export", "export", "admit"]
    assert plan.acts[2].clients == ()
    assert plan.acts[-1].clients == make_set_of([N1])
    assert not plan.blockers


def test_a_space_as_recorded_needs_nothing() -> None:
    assert plan_space(wish(N1), state(N1)) == plan_space(wish(N1, may=(N2,)), state(N1))
    assert not plan_space(wish(N1), state(N1)).acts


def test_a_widened_range_is_closed_before_anything_is_opened() -> None:
    plan = plan_space(wish(N1, N2), state(N1, "10.0.0.9"))

    assert verbs(plan) == ["expel", "admit"]
    assert plan.acts[0].clients == make_set_of(["10.0.0.9"])
    assert {h.kind for h in plan.foreign} == {ForeignKind.CLIENTS, ForeignKind.SHUT}


def test_an_export_that_is_wider_than_its_space_is_closed_as_well() -> None:
    opened = {**state(N1).exports}
    opened["home"] = SeenExport(
        "home", "/home", True, True, make_set([("0.0.0.0", "255.255.255.255")])
    )

    plan = plan_space(wish(N1), state(N1, exports=opened))

    assert verbs(plan) == ["expel"]
    assert count_addresses(plan.acts[0].clients) == 2**32 - 1


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        (SeenExport("home", "/home", False, True, make_set_of([N1])), ForeignKind.RULES),
        (SeenExport("home", "/home", True, False, make_set_of([N1])), ForeignKind.RULES),
        (SeenExport("home", "/home", None, True, make_set_of([N1])), ForeignKind.RULES),
        (SeenExport("home", "/home", True, True, make_set_of([N1]), 7), ForeignKind.QUOTA),
        (
            SeenExport("home", "/home", True, True, make_set_of([N1]), foreign=("open by SMB",)),
            ForeignKind.RULES,
        ),
    ],
)
def test_rules_that_a_hand_changed_are_named_and_set_again(
    changed: SeenExport, kind: ForeignKind
) -> None:
    plan = plan_space(wish(N1), state(N1, exports={**state(N1).exports, "home": changed}))

    assert [h.kind for h in plan.foreign] == [kind]
    assert verbs(plan) == ["export"]


def test_an_export_that_no_record_asks_for_is_removed_and_its_files_stay() -> None:
    more = {**state(N1).exports, "x": SeenExport("x", "/x", False, False, make_set_of([N3]))}

    plan = plan_space(wish(N1), state(N1, exports=more))

    assert verbs(plan) == ["unexport"]
    assert plan.foreign[0].opens


def test_a_name_that_is_taken_is_a_blocker_and_nothing_is_changed() -> None:
    plan = plan_space(wish(N1, handle=""), state(N3))

    assert not plan.acts
    assert plan.blockers[0].reason is Reason.DUPLICATE
    assert "Rename or remove" in plan.blockers[0].unblock


def test_an_empty_space_that_a_person_made_is_taken_only_on_word() -> None:
    asked = wish(N1, handle="")
    refused = plan_space(asked, SpaceState(handle="g7"))
    assert asked.storage is not None
    word = replace(asked, storage=asked.storage.model_copy(update={"adopt": True}))

    assert (refused.acts, refused.blockers[0].reason) == ((), Reason.DUPLICATE)
    assert "adopt: true" in refused.blockers[0].unblock
    assert verbs(plan_space(word, SpaceState(handle="g7")))[0] == "limit"
    assert plan_space(word, state(N3)).blockers[0].reason is Reason.DUPLICATE


def test_an_empty_space_of_the_name_is_what_an_interrupted_making_left() -> None:
    plan = plan_space(replace(wish(N1, handle=""), making=True), SpaceState(handle="g7"))

    assert verbs(plan) == ["limit", "export", "export", "admit"]
    assert {a.handle for a in plan.acts} == {"g7"}


@pytest.mark.parametrize("seen", [state(N1, handle="g2"), SpaceState()])
def test_a_space_that_was_replaced_or_removed_by_hand_is_a_blocker(seen: SpaceState) -> None:
    plan = plan_space(wish(N1), seen)

    assert not plan.acts
    assert plan.foreign[0].kind is ForeignKind.REPLACED
    assert plan.blockers[0].reason is Reason.PRECONDITION


def test_a_limit_below_what_is_used_is_refused() -> None:
    plan = plan_space(wish(N1), state(N1, quota_bytes=9000, used_bytes=6000))

    assert plan.blockers[0].reason is Reason.QUOTA
    assert not plan.acts


def test_removal_expels_everybody_first_and_removes_the_space_last() -> None:
    gone = SpaceWish("red", None, "g1")

    assert verbs(plan_space(gone, state(N1))) == ["expel", "unexport", "unexport", "remove"]
    assert plan_space(gone, SpaceState()).acts == ()


def test_a_stranger_of_the_name_is_not_removed_with_a_tenant() -> None:
    assert plan_space(SpaceWish("red", None, ""), state(N1)).acts == ()


def test_sixty_four_nodes_enter_and_leave_in_one_act() -> None:
    entering = make_set_of(f"172.0.{n}.0" for n in range(64))
    may = tuple(f"172.0.{n}.0" for n in range(64))

    plan = plan_clients(wish(may=may), state(), entering=entering)

    assert verbs(plan) == ["admit"]
    left = plan_clients(wish(may=may), state(*may), leaving=entering)
    assert verbs(left) == ["expel"]
    assert left.acts[0].clients == entering


def test_who_leaves_is_expelled_although_the_space_is_replaced_or_an_export_alone_has_it() -> None:
    exports = {"home": SeenExport("home", "/home", True, True, make_set_of([N1]))}
    seen = SpaceState(handle="g2", exports=exports)

    plan = plan_clients(wish(N1), seen, leaving=make_set_of([N1]))

    assert verbs(plan) == ["expel"]


def test_nobody_enters_a_space_that_is_not_as_recorded() -> None:
    plan = plan_clients(wish(N1, may=(N2,)), state(N1, "9.9.9.9"), entering=make_set_of([N2]))

    assert plan.blockers
    assert [a.verb for a in plan.closing] == ["expel"]
    assert SpaceVerb.ADMIT not in verbs(plan)


def test_nobody_enters_a_full_space() -> None:
    exports = {**state(N1).exports}
    exports["scratch"] = SeenExport(
        "scratch", "/scratch", False, True, make_set_of([N1]), 1000, 1000
    )

    plan = plan_clients(wish(N1, may=(N2,)), state(N1, exports=exports), make_set_of([N2]))

    assert [b.reason for b in plan.blockers] == [Reason.QUOTA]
    assert SpaceVerb.ADMIT not in verbs(plan)


def host(name: str, number: int, **changes: object) -> Node:
    port = Port(
        switch="leaf",
        interface=f"swp{number}",
        rail=0,
        nic_slot="N",
        address=f"172.0.{number}.1/31",
    )
    return Node(id=name, kind=NodeKind.HOST, ports=(port,)).model_copy(update=changes)


def test_only_rows_that_entitle_a_node_to_the_network_entitle_it_to_the_storage() -> None:
    tenant = Tenant(name="red", vrf="RED", file_storage=FileStorage(), space_handle="g1")
    inside = {"placement": Placement.CUSTOMER, "vrf": "RED", "tenant": "red"}
    nodes = [
        host("a", 1, state=State.RELEASED, **inside),
        host("b", 2, state=State.DRAINING, **inside),
        host("c", 3, state=State.CERTIFIED, placement=Placement.MIXED, tenant="red", served="red"),
        host("d", 4, state=State.CERTIFIED, placement=Placement.MAINTENANCE, tenant="red"),
        host("e", 5, state=State.RELEASED, placement=Placement.CUSTOMER, vrf="BLUE", tenant="blue"),
    ]

    made = make_wish(tenant, nodes, "red")

    assert made.must == make_set_of(["172.0.1.0"])
    assert made.may == make_set_of(["172.0.1.0", "172.0.2.0", "172.0.3.0"])
    leaving = make_wish(tenant.model_copy(update={"phase": Phase.LEAVING}), nodes, "red")
    assert leaving.storage is None


def test_neither_a_damaged_row_nor_a_changed_setting_shuts_out_who_serves() -> None:
    tenant = Tenant(name="red", vrf="RED", file_storage=FileStorage(), space_handle="g1")
    inside = {"placement": Placement.CUSTOMER, "vrf": "RED", "tenant": "red"}
    serving = host("a", 1, state=State.RELEASED, **inside)
    depends = host("b", 2, state=State.RELEASED, **inside)
    stand_in = host("c", 3, state=State.QUARANTINED, generation=-1)
    blind = Node(id="d", kind=NodeKind.HOST, generation=-1)

    moved = make_wish(tenant, [serving], "red", ["10.0.0.0/8"])
    assert (moved.must, moved.may) == ((), make_set_of(["172.0.1.0"]))

    kept = make_wish(tenant, [serving], "red", (), [depends, stand_in, blind])
    assert kept.may == make_set_of(["172.0.1.0", "172.0.2.0", "172.0.3.0"])
    assert kept.must == make_set_of(["172.0.1.0"])
    assert kept.unread == ("d",)


def test_an_address_that_may_be_a_damaged_nodes_is_told_and_not_closed() -> None:
    strange = state(N1, "9.9.9.9")
    unread = replace(wish(N1), unread=("su0-n03",))

    plan = plan_space(unread, strange)

    assert plan.closing == ()
    assert [h.kind for h in plan.foreign] == [ForeignKind.CLIENTS]
    assert "su0-n03" in plan.blockers[0].detail
    assert plan_space(replace(unread, unread=()), strange).closing


def test_with_who_leaves_goes_what_no_row_entitles_in_a_space_of_ours_alone() -> None:
    """The node may have come in by another address, or none of its addresses is known any more."""
    for leaving in (make_set_of([N1]), ()):
        plan = plan_clients(wish(N2, may=(N3,)), state(N2, N3, N1, "9.9.9.9"), leaving=leaving)
        assert [a.clients for a in plan.acts] == [make_set_of([N1, "9.9.9.9"])]

    foreign = replace(state(N2, "9.9.9.9"), handle="g2")
    assert plan_clients(wish(N2), foreign, leaving=()).acts == ()
    unread = replace(wish(N2), unread=("su0-n03",))
    assert plan_clients(unread, state(N2, "9.9.9.9"), leaving=()).blockers
    known = plan_clients(unread, state(N2, N1, "9.9.9.9"), leaving=make_set_of([N1]))
    assert [a.clients for a in known.acts] == [make_set_of([N1])]


def test_a_node_without_an_address_for_storage_is_a_blocker() -> None:
    assert list_client_addresses(host("a", 1)) == ("172.0.1.0",)
    assert list_client_addresses(host("a", 1), ["172.0.0.0/8"]) == ("172.0.1.0",)
    assert isinstance(list_client_addresses(host("a", 1), ["10.0.0.0/8"]), Blocker)
    assert isinstance(list_client_addresses(host("a", 1), ["fd00::/8"]), Blocker)


def test_access_is_right_only_where_the_own_space_alone_serves() -> None:
    admitting = {N1: frozenset({"red"}), N2: frozenset({"red", "x"}), N3: frozenset[str]()}

    assert [right for _, right, _ in judge_access("red", [N1, N2, N3], admitting)] == [
        True,
        False,
        False,
    ]
    assert [right for _, right, _ in judge_access("", [N1, N3], admitting)] == [False, True]


def test_exports_inside_of_each_other_or_twice_are_refused() -> None:
    for other in (
        Export(name="b", path="/scratch/b"),
        Export(name="b", path="/scratch"),
        Export(name="scratch", path="/b"),
    ):
        with pytest.raises(ValueError, match="export"):
            FileStorage(exports=(SCRATCH, other))
    for path in ("/", "/a/../b", "/a/", "a", "/a b", "/.x"):
        with pytest.raises(ValueError, match="path"):
            Export(name="a", path=path)


NUMBERS = st.integers(0, 40)
SETS = st.lists(st.tuples(NUMBERS, NUMBERS).map(sorted), max_size=6)


def text(number: int, version: int) -> str:
    if version == 4:
        return str(ipaddress.IPv4Address(number))
    return str(ipaddress.IPv6Address(number))


@given(SETS, SETS, st.sampled_from([4, 6]))
def test_sets_of_addresses_are_sets(
    one: list[list[int]], other: list[list[int]], version: int
) -> None:
    a, b = (make_set((text(x, version), text(y, version)) for x, y in s) for s in (one, other))
    plain_a, plain_b = ({n for x, y in s for n in range(x, y + 1)} for s in (one, other))

    def plain(ranges: tuple[AddressRange, ...]) -> set[int]:
        ends = [(int(ipaddress.ip_address(x)), int(ipaddress.ip_address(y))) for x, y in ranges]
        return {n for x, y in ends for n in range(x, y + 1)}

    assert plain(unite(a, b)) == plain_a | plain_b
    assert plain(subtract(a, b)) == plain_a - plain_b
    assert plain(intersect(a, b)) == plain_a & plain_b
    assert count_addresses(a) == len(plain_a)
    assert make_set((text(n, version), text(n, version)) for n in plain_a) == a


def test_addresses_of_two_versions_do_not_meet() -> None:
    both = make_set([("0.0.0.0", "255.255.255.255"), ("::", "ffff::")])

    assert len(both) == 2
    assert subtract(make_set_of(["1.2.3.4", "::5"]), make_set([("::", "::9")])) == make_set_of(
        ["1.2.3.4"]
    )
    with pytest.raises(ValueError, match="range"):
        make_set([("1.1.1.9", "1.1.1.1")])


@pytest.mark.parametrize("making", [False, True])
@pytest.mark.parametrize("used", [1, 2**40])
def test_a_space_with_files_is_nobodys_on_word_either(making: bool, used: int) -> None:
    asked = FileStorage(exports=(), adopt=True)
    wish = SpaceWish("red", asked, making=making)

    plan = plan_space(wish, SpaceState(handle="h", used_bytes=used))

    assert not plan.acts
    assert [b.reason for b in plan.blockers] == [Reason.DUPLICATE]
    assert plan_space(wish, SpaceState(handle="h", used_bytes=0)).blockers == ()
