"""Partitions as UFM lists them are read whole or not at all, and moved out before in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from fabrics import tenant
from hypothesis import given
from hypothesis import strategies as st
from ufm_standin import Ufm

from provisioner.integrations.ufm.isolation import UfmIsolation, UfmTransport
from provisioner.integrations.ufm.partitions import (
    Act,
    Partition,
    find_default_connection,
    list_networks,
    list_partitions,
    plan_partitions,
    plan_placing,
    read_guid,
    read_partitions,
    read_subnet_keys,
)
from provisioner.model.integrations.partition import SubnetKeys
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import Phase
from provisioner.ports import Member, Secret

A, B = "506b4b0300a1b200", "506b4b0300a1b201"
RED, BLUE = tenant("red", 0), tenant("blue", 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["0x1", "guids", "guid", "membership"]), inner)
    ),
    max_leaves=12,
)


def seen(**partitions: Any) -> dict[int, Partition]:
    found = {int(k[1:], 16): dict.fromkeys(v, "full") for k, v in partitions.items()}
    return {pkey: Partition(pkey, members) for pkey, members in found.items()}


@given(JSON)
def test_whatever_ufm_says_it_is_read_or_unreadable(answer):
    assert isinstance(read_partitions(answer), dict | str)


@pytest.mark.parametrize(
    "answer",
    [
        {"0x1": {"guids": [{"guid": "xyz", "membership": "full"}]}},
        {"0x1": {"guids": [{"guid": A, "membership": "both"}]}},
        {"0x1": {"guids": {"guid": A}}},
        {"0x12345": {"guids": []}},
        {"0x1": []},
        [],
        "<html>login</html>",
    ],
)
def test_one_unreadable_member_makes_all_unreadable(answer):
    assert isinstance(read_partitions(answer), str)


def test_a_key_is_the_same_with_and_without_its_membership_bit():
    told = {
        "0x8101": {"guids": [{"guid": f"0x{A.upper()}", "membership": "full"}]},
        "0x101": {"guids": [{"guid": B, "membership": "limited"}]},
    }

    assert read_partitions(told) == {0x101: Partition(0x101, {A: "full", B: "limited"})}
    assert read_guid("0x" + A) == A
    assert read_guid(A[1:]) is None


def test_out_comes_before_in():
    assert plan_placing((B, A), "BLUE", (RED, BLUE), seen(x100=[A, B], xff=[A])) == (
        Act("remove", 0xFF, (A,)),
        Act("remove", 0x100, (A, B)),
        Act("add", 0x101, (A, B)),
    )


def test_a_stranger_s_partition_keeps_a_port_from_a_customer_but_not_from_maintenance():
    there = seen(x7=[A], x101=[B])

    found = plan_placing((A, B), "BLUE", (RED, BLUE), there)
    assert isinstance(found, Blocker)
    assert found.reason is Reason.ISOLATION
    assert plan_placing((A, B), "MAINT", (RED, BLUE), there) == (
        Act("remove", 0x7, (A,)),
        Act("remove", 0x101, (B,)),
        Act("add", 0xFF, (A, B)),
    )


def test_a_limited_member_is_in_the_network_and_made_a_full_one():
    there = {0x100: Partition(0x100, {A: "limited"})}

    assert list_networks((A, B), (RED,), there) == {A: {"RED"}, B: frozenset()}
    assert plan_placing((A,), "RED", (RED,), there) == (Act("add", 0x100, (A,)),)


def test_strangers_are_named_by_their_key():
    assert list_networks((A,), (RED,), seen(x7=[A], x7fff=[A])) == {A: {"0x0007"}}


def test_the_default_partition_must_be_known_not_to_join():
    full, limited = seen(x7fff=[A]), {0x7FFF: Partition(0x7FFF, {A: "limited"})}

    assert (
        getattr(find_default_connection((A,), full, limited=True), "reason", None)
        is Reason.ISOLATION
    )
    assert (
        getattr(find_default_connection((A,), {}, limited=False), "reason", None)
        is Reason.CANNOT_TELL
    )
    assert (
        getattr(find_default_connection((A, B), limited, limited=False), "reason", None)
        is Reason.CANNOT_TELL
    )
    assert find_default_connection((A,), limited, limited=False) is None
    assert find_default_connection((A,), {}, limited=True) is None


def test_a_partition_that_went_with_its_last_member_is_not_missed():
    ready = RED.model_copy(update={"phase": Phase.READY})

    assert plan_partitions((ready,), {}) == ()
    assert plan_partitions((RED,), {}) == (Act("add", 0x100),)
    leaving = RED.model_copy(update={"phase": Phase.LEAVING})
    assert plan_partitions((leaving,), seen(x100=[])) == (Act("delete", 0x100),)
    assert isinstance(plan_partitions((leaving,), seen(x100=[A])), Blocker)


def test_a_key_that_ufm_does_not_take_is_refused():
    over = RED.model_copy(update={"pkey": 0x7FFF})

    assert isinstance(plan_partitions((over,), {}), Blocker)


MEMBERS = (Member("", A), Member("", B))


def with_ufm(scenario: Callable[[Ufm], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60), Ufm() as ufm:
            await scenario(ufm)

    asyncio.run(bounded())


def isolation(ufm: Ufm, *, limited: bool = True, **changes: Any) -> UfmIsolation:
    return UfmIsolation(UfmTransport(ufm.address(**changes)), default_limited=limited)


def test_nothing_goes_to_a_tenant_while_the_default_partition_joins_all():
    async def scenario(ufm: Ufm) -> None:
        ufm.partitions["0x7fff"]["guids"] = {A: "full", B: "full"}
        ib = isolation(ufm)

        found = await ib.place(MEMBERS, "RED", (RED,))

        assert [b.reason for b in found] == [Reason.ISOLATION]
        assert ufm.members(0x100) == set()
        assert await ib.place(MEMBERS, "MAINT", (RED,)) == ()
        await ib.close()

    with_ufm(scenario)


def test_a_token_goes_by_its_own_path():
    async def scenario(ufm: Ufm) -> None:
        ib = isolation(ufm, username="", secret=Secret(ufm.password))

        assert (await ib.delta((RED,))).blockers == ()
        assert ufm.requests == [("GET", "/ufmRestV3/resources/pkeys?guids_data=true")]
        await ib.close()

    with_ufm(scenario)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"secret": Secret("wrong")}, Reason.LOGIN_REFUSED),
        ({"pin": "0" * 64}, Reason.CERTIFICATE_CHANGED),
        ({"pin": ""}, Reason.CERTIFICATE_UNTRUSTED),
        ({"url": "http"}, Reason.LOGIN_REFUSED),
    ],
    ids=["password", "pin", "no CA", "plain"],
)
def test_who_is_not_trusted_gets_nothing(changes, reason):
    async def scenario(ufm: Ufm) -> None:
        address = ufm.address(**{k: v for k, v in changes.items() if k != "url"})
        if "url" in changes:
            address = type(address)(
                address.url.replace("https", "http"), address.username, address.secret
            )
        ib = UfmIsolation(UfmTransport(address))

        found = await ib.place(MEMBERS, "MAINT", (RED,))

        assert [b.reason for b in found] == [reason]
        assert "fabric's" not in str(found)
        assert all(method == "GET" for method, _ in ufm.requests)
        await ib.close()

    with_ufm(scenario)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda: web.Response(text="<html>login</html>"), Reason.MALFORMED),
        (lambda: web.Response(status=302, headers={"Location": "/"}), Reason.UNREACHABLE),
        (lambda: web.Response(status=500), Reason.UNREACHABLE),
        (lambda: web.json_response([1]), Reason.MALFORMED),
        (lambda: web.Response(body=b" " * (33 * 1024 * 1024)), Reason.TOO_LARGE),
        (lambda: web.Response(text="[" * 100_000), Reason.MALFORMED),
    ],
    ids=["html", "redirect", "500", "list", "huge", "deep"],
)
def test_an_answer_that_is_none_blocks(answer, reason):
    async def scenario(ufm: Ufm) -> None:
        ufm.answer = answer
        ib = isolation(ufm)

        assert [b.reason for b in (await ib.delta((RED,))).blockers] == [reason]
        assert [b.reason for b in await ib.place(MEMBERS, "RED", (RED,))] == [reason]
        await ib.close()

    with_ufm(scenario)


def test_many_ports_go_in_requests_that_a_server_takes():
    async def scenario(ufm: Ufm) -> None:
        ib = isolation(ufm)
        many = [Member("", f"{n:016x}") for n in range(1, 2100)]

        assert await ib.place(many, "MAINT", (RED,)) == ()
        assert await ib.place(many, "RED", (RED,)) == ()
        assert len(ufm.members(0x100)) == 2099
        assert max(len(path) for _, path in ufm.requests) < 4096
        await ib.close()

    with_ufm(scenario)


def test_a_port_that_somebody_adds_elsewhere_meanwhile_is_seen():
    async def scenario(ufm: Ufm) -> None:
        def meddle(method: str) -> None:
            if method == "POST":
                ufm.partitions["0x7"] = {"ip_over_ib": True, "guids": {A: "full"}}

        ufm.before = meddle
        ib = isolation(ufm)

        found = await ib.place(MEMBERS, "RED", (RED,))

        assert [b.reason for b in found] == [Reason.ISOLATION]
        await ib.close()

    with_ufm(scenario)


def test_what_is_no_guid_is_refused_before_ufm_is_asked():
    async def scenario(ufm: Ufm) -> None:
        ib = isolation(ufm)

        found = await ib.place((Member("", "1/guids/../../users"),), "MAINT", (RED,))

        assert [b.reason for b in found] == [Reason.MALFORMED]
        assert ufm.requests == []
        await ib.close()

    with_ufm(scenario)


def test_partitions_are_listed_with_their_tenants_and_the_keys_without_their_values():
    async def scenario(ufm: Ufm) -> None:
        ufm.partitions["0x100"] = {"ip_over_ib": True, "guids": {A: "full", B: "limited"}}
        ufm.partitions["0x7"] = {"ip_over_ib": True, "guids": {}}
        ib = isolation(ufm)

        listed = await ib.list_partitions((RED, BLUE))
        ufm.configuration["m_key"] = "0x0"
        bare = await ib.list_partitions(())
        del ufm.configuration["m_key"]
        unread = await ib.list_partitions(())
        await ib.close()

        rows = [(p.pkey, p.tenant, p.vrf, p.ports) for p in listed.items]
        assert rows == [("0x0007", "", "", 0), ("0x0100", "red", "RED", 2)]
        assert listed.keys == SubnetKeys(management=True, per_port=True)
        assert "4d5f" not in listed.model_dump_json()
        assert bare.keys == SubnetKeys(management=False, per_port=True)
        assert {p.tenant for p in bare.items} == {""}
        assert (unread.keys, [b.reason for b in unread.blockers]) == (None, [Reason.MALFORMED])

    with_ufm(scenario)


def test_the_program_s_own_partition_is_no_tenant_s():
    listed = list_partitions((RED,), seen(xff=[A], x7fff=[A, B]))

    assert [(p.pkey, p.tenant, p.vrf, p.ports) for p in listed] == [("0x00ff", "", "MAINT", 1)]


@pytest.mark.parametrize(
    "answer", [None, [], {}, {"m_key": 1, "m_key_per_port": True}, {"m_key": "0x1"}]
)
def test_unreadable_keys_are_not_taken_for_set_ones(answer):
    assert isinstance(read_subnet_keys(answer), str)
