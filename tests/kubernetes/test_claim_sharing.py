"""Shares of claims, and what a tenant's number becomes: decided for all claims together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from provisioner.integrations.kubernetes.claim_sharing import (
    Claim,
    Demand,
    find_demand,
    share_nodes,
)
from provisioner.integrations.kubernetes.conditions import Refusal

HELD = ("n1", "n2", "n3", "n4")


def claim(uid: str, count: int, claimed: int | None = None, *nodes: str, **more: bool) -> Claim:
    took = count if claimed is None else claimed
    return Claim(uid, "team", uid, "green", count, uid, took, nodes, **more)


NODES = tuple(f"n{i}" for i in range(8))
CLAIMS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(0, 5),
        st.lists(st.sampled_from(NODES), unique=True, max_size=5),
        st.booleans(),
    ),
    max_size=4,
).map(
    lambda rows: [
        claim(f"u{i}", count, took, *nodes, leaving=leaving)
        for i, (count, took, nodes, leaving) in enumerate(rows)
    ]
)


@given(CLAIMS, st.sets(st.sampled_from(NODES)), st.sets(st.sampled_from(NODES)))
def test_shares_are_disjoint_of_the_tenant_within_the_number_and_stay(
    claims: list[Claim], held: set[str], ready: set[str]
) -> None:
    shares = share_nodes(claims, held, ready)
    given_out = [n for nodes in shares.values() for n in nodes]

    assert len(given_out) == len(set(given_out))
    assert set(given_out) <= held
    for one in claims:
        assert len(shares[one.uid]) <= one.accepted
        # nothing lies idle while a claim lacks it
        assert len(shares[one.uid]) == one.accepted or set(given_out) == held
    after = [
        Claim(c.uid, c.namespace, c.name, c.tenant, c.count, c.created, c.claimed, shares[c.uid],
              c.leaving)
        for c in claims
    ]  # fmt: skip
    assert share_nodes(after, held, ready) == {u: tuple(n) for u, n in shares.items()} or all(
        set(share_nodes(after, held, ready)[u]) == set(n) for u, n in shares.items()
    )


def test_claims_of_one_second_come_by_namespace_and_name_whatever_their_uids() -> None:
    first = Claim("z", "team-a", "train", "green", 1, "2026-01-01T00:00:00Z", 1)
    second = Claim("a", "team-b", "serve", "green", 1, "2026-01-01T00:00:00Z", 1)

    assert share_nodes((second, first), {"n1"}, {"n1"}) == {"z": ("n1",), "a": ()}


def test_a_claim_asks_for_its_own_growth_upon_what_was_taken_of_others() -> None:
    refused = claim("b", 100, 0)
    assert find_demand(claim("a", 3, 1), [refused], 1, HELD, HELD) == Demand(3)
    assert find_demand(claim("a", 1), [refused], 1, HELD, HELD) is None


def test_a_claim_gives_its_own_nodes_back_and_no_other_does() -> None:
    going = claim("a", 2, 2, "n1", "n2", leaving=True)
    staying = claim("b", 2, 2, "n3", "n4")
    assert find_demand(going, [staying], 4, HELD, HELD) == Demand(2, ("n1", "n2"))
    # the claim that stays waits for the other's request
    assert find_demand(staying, [going], 4, HELD, HELD) is None


def test_what_a_claim_never_had_is_taken_from_the_number_and_a_missing_node_is_passed_on() -> None:
    going = claim("a", 3, 3, "n1", "n2", leaving=True)
    staying = claim("b", 2, 2, "n3")
    # three held of five: the other claim gets one of the two, and one leaves
    assert find_demand(going, [staying], 5, ("n1", "n2", "n3"), HELD) == Demand(2, ("n2",))


def test_nodes_that_no_claim_asked_for_stay() -> None:
    demand = find_demand(claim("a", 2, 0), [], 10, HELD, HELD)
    assert isinstance(demand, Refusal)
    assert demand.reason == "nodes_not_claimed"
    assert "spec.nodes of the Tenant" in demand.unblock


def test_a_smaller_claim_gives_back_first_what_does_not_serve() -> None:
    smaller = claim("a", 1, 3, "n1", "n2", "n3")
    assert find_demand(smaller, [], 3, ("n1", "n2", "n3"), ("n3",)) == Demand(1, ("n1", "n2"))
