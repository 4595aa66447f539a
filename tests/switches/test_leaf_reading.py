"""Where ports and routes are, as a leaf says, and one request to it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from small_site import NOT_SENT, SmallSite, ok, play, replacing

from provisioner.integrations.cumulus.nvue_calls import Ask
from provisioner.integrations.cumulus.port_reading import read_places, read_tenant_ports
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.switch import ABSENT, Place
from provisioner.ports import Malformed, Reply, SwitchRefused
from provisioner.ports.wire import UNREADABLE, parse_marked

# --- routes


def test_callers_at_one_time_share_a_reading_of_routes_and_later_ones_do_not() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.put("swp1", "RED")
        leaf = site.leaf()
        first, second = await asyncio.gather(leaf.routes(), leaf.routes())
        later = await leaf.routes()
        return (
            first,
            first is second,
            later == first,
            site.lines().count("GET /vrf?rev=operational"),
        )

    first, shared, equal, listed = play(scenario)

    assert first["RED"] == ("172.16.0.2/31",)
    assert set(first) >= {"RED", "BLUE", "MAINT", "default"}
    assert (shared, equal, listed) == (True, True, 2)


def test_a_caller_that_gives_up_leaves_the_reading_to_the_others() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        gone, stays = asyncio.create_task(leaf.routes()), asyncio.create_task(leaf.routes())
        await asyncio.sleep(0)
        gone.cancel()
        return isinstance(await stays, dict), gone.cancelled()

    assert play(scenario) == (True, True)


@pytest.mark.parametrize(
    ("line", "answer", "words"),
    [
        ("GET /vrf?rev=operational", ok([]), "no readable list of VRFs"),
        ("GET /vrf?rev=operational", ok({}), "no readable list of VRFs"),
        (
            "GET /vrf/RED/router/rib/ipv4/route?rev=operational",
            ok({"nonsense": {}}),
            "VRF RED: no readable routes",
        ),
    ],
)
def test_routes_that_cannot_be_read_are_told(line: str, answer: Reply, words: str) -> None:
    async def scenario(site: SmallSite) -> Any:
        site.transport.answer = replacing({line: answer})
        first = await site.leaf().routes()
        site.transport.answer = replacing({line: NOT_SENT})
        return first, await site.leaf().routes()

    first, silent = play(scenario)

    assert (first.reason, first.detail) == (Reason.MALFORMED, words)
    assert silent.reason is Reason.UNREACHABLE


def test_routes_are_read_at_once_and_who_asks_meanwhile_shares_the_next_reading() -> None:
    async def scenario(site: SmallSite) -> Any:
        began = site.clock.now()
        leaf = site.leaf()
        first = asyncio.create_task(leaf.routes())
        for _ in range(10):  # until its first request is under way
            await asyncio.sleep(0)
        later = [asyncio.create_task(leaf.routes()) for _ in range(3)]
        answers = await asyncio.gather(first, *later)
        listed = site.lines().count("GET /vrf?rev=operational")
        return site.transport.asked[0].at - began, listed, len({id(a) for a in answers})

    assert play(scenario, switch_gather_s=0.7) == (0.0, 2, 2)


# --- where ports are


def test_every_tree_says_where_a_port_is_or_will_be() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.put("swp1", "RED", "operational")
        site.put("swp1", "BLUE", "startup")
        leaf, line = site.leaf(), site.line()
        return await leaf.vrfs(["swp1"]), await read_places(line, ["swp1"], saved=False)

    settled, unsaved = play(scenario)

    assert settled == {"swp1": {"RED", "BLUE", "default"}}
    assert {place.vrf for place in unsaved["swp1"]} == {"RED", "default"}


def test_hosts_that_ask_at_one_time_share_a_reading_of_ports_and_later_ones_do_not() -> None:
    names = [f"swp{n}" for n in range(1, 5)]

    async def scenario(site: SmallSite) -> Any:
        site.put(names[3], "RED")
        leaf = site.leaf()
        together = await asyncio.gather(*(leaf.vrfs([name]) for name in names))
        shared = site.lines().count("GET /revision")
        site.put(names[0], "BLUE")
        later = await leaf.vrfs(names[:1])
        return together, later, shared, site.lines().count("GET /interface?rev=applied")

    read, later, shared, whole = play(scenario)

    assert [set(places) for places in read] == [{name} for name in names]
    assert read[3] == {names[3]: {"RED"}}
    assert (shared, whole) == (1, 1)  # the later host's port is read alone
    assert later != read[0]


@pytest.mark.parametrize("hosts", [2, 3])
def test_a_port_that_cannot_be_read_spoils_no_other_hosts_reading(hosts: int) -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        bad = {"GET /interface/swp2?rev=applied": ok([])}
        whole = {"GET /interface?rev=applied": ok({"swp1": {}, "swp2": [], "swp3": {}})}
        site.transport.answer = replacing({**bad, **whole})
        return await asyncio.gather(*(leaf.vrfs([f"swp{n}"]) for n in range(1, hosts + 1)))

    one, two, *others = play(scenario)

    assert (one, others) == ({"swp1": {"default"}}, [{"swp3": {"default"}}][: hosts - 2])
    assert two.reason is Reason.MALFORMED


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_few_ports_are_read_one_by_one_and_more_with_the_whole_collection(count: int) -> None:
    names = [f"swp{n}" for n in range(1, count + 1)]

    async def scenario(site: SmallSite) -> Any:
        site.put(names[-1], "RED")
        site.switch.operational["interface"][names[-1]]["acl"] = {"provisioner_deny4": {}}
        return await read_places(site.line(), names, saved=True), site.lines()

    found, lines = play(scenario)

    assert found[names[-1]] == {
        Place("RED", denied=False, apart=False),
        Place("RED", denied=True, apart=False),
    }
    assert all(found[name] == {Place("default", denied=False, apart=False)} for name in names[:-1])
    each = [f"/{name}" for name in names] if count <= 2 else [""]
    trees = ("applied", "startup", "operational")
    assert sorted(lines[1:]) == sorted(f"GET /interface{e}?rev={t}" for t in trees for e in each)


def test_a_port_that_a_leaf_lacks_is_refused_in_the_leafs_own_words() -> None:
    async def scenario(site: SmallSite) -> Any:
        with pytest.raises(SwitchRefused) as refused:
            await read_places(site.line(), ["swp9"], saved=True)
        return refused.value

    refused = play(scenario)

    assert refused.reason is Reason.SWITCH_REFUSED
    assert "404" in str(refused)


@pytest.mark.parametrize("others", [["swp1"], ["swp1", "swp2"]])
def test_a_bond_that_is_not_made_yet_hides_no_other_ports_place(others: list[str]) -> None:
    async def scenario(site: SmallSite) -> Any:
        for name in others:
            site.put(name, "RED")
        return await site.leaf().vrfs(["bond1", *others])

    assert play(scenario) == {"bond1": {ABSENT}, **{name: {"RED"} for name in others}}


def test_a_bond_that_is_not_made_yet_has_no_filter_that_anybody_could_rely_on() -> None:
    async def scenario(site: SmallSite) -> Any:
        return await read_places(site.line(), ["bond1"], saved=True)

    assert play(scenario) == {"bond1": {Place(ABSENT, denied=False, apart=False)}}


@pytest.mark.parametrize(
    ("interfaces", "line", "answer", "words"),
    [
        (["swp1"], "GET /revision", ok([]), "no readable list of revisions"),
        (["swp1"], "GET /interface/swp1?rev=startup", ok([]), "swp1: no readable state (startup)"),
        (
            ["swp1", "swp2", "swp3"],
            "GET /interface?rev=applied",
            ok([]),
            "swp1: no readable state (applied)",
        ),
        (
            ["swp1", "swp2", "swp3"],
            "GET /interface?rev=applied",
            ok({"swp1": {}, "swp2": {}}),
            "swp3: no readable state (applied)",
        ),
        (
            ["bond1", "swp2", "swp3"],
            "GET /interface?rev=applied",
            ok([]),
            "bond1: no readable state (applied)",
        ),
    ],
)
def test_a_place_that_cannot_be_read_is_told(
    interfaces: list[str], line: str, answer: Reply, words: str
) -> None:
    async def scenario(site: SmallSite) -> Any:
        site.transport.answer = replacing({line: answer})
        return await site.leaf().vrfs(interfaces)

    blocker = play(scenario)

    assert (blocker.reason, blocker.subject, blocker.detail) == (
        Reason.MALFORMED,
        "leaf-0",
        words,
    )
    assert blocker.unblock


def test_a_leaf_that_is_silent_says_nothing_of_its_ports() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.transport.answer = lambda _asked: NOT_SENT
        leaf = site.leaf()
        return [await leaf.vrfs(["swp1"]), await leaf.tenant_ports(["MAINT"])]

    assert [b.reason for b in play(scenario)] == [Reason.UNREACHABLE] * 2


def test_every_port_in_a_customers_network_is_found_with_its_addresses() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.put("swp1", "MAINT")
        site.put("swp2", "RED")
        site.put("swp2", "BLUE", "startup")
        for tree in (site.switch.startup, site.switch.operational):
            del tree["interface"]["swp2"]["ip"]["address"]
        other = site.switch.new_revision()
        other.changes.append(((), {"interface": {"swp3": {"ip": {"vrf": "BLUE"}}}}))
        site.switch.apply(other, site.clock.now())
        site.switch.new_revision().changes.append(
            ((), {"interface": {"swp4": {"ip": {"vrf": "BLUE"}}}})
        )
        return await site.leaf().tenant_ports({"", "default", "mgmt", "MAINT"})

    found = play(scenario)

    assert {name: set(port.vrfs) for name, port in found.items()} == {
        "swp2": {"RED", "BLUE"},
        "swp3": {"BLUE"},
    }
    assert found["swp2"].addresses == ("172.16.0.5/31",)


@pytest.mark.parametrize(
    ("line", "answer", "words"),
    [
        ("GET /revision", ok([]), "no readable list of revisions"),
        ("GET /interface?rev=startup", ok([]), "no readable interfaces (startup)"),
        (
            "GET /interface?rev=startup",
            ok({f"swp{n}": {} for n in range(8193)}),
            "no readable interfaces (startup)",
        ),
        (
            "GET /interface?rev=startup",
            ok({"x" * 50: []}),
            f"{'x' * 40}: no readable state (startup)",
        ),
    ],
)
def test_a_leaf_that_cannot_be_read_as_a_whole_is_told(
    line: str, answer: Reply, words: str
) -> None:
    async def scenario(site: SmallSite) -> Any:
        site.transport.answer = replacing({line: answer})
        return await site.leaf().tenant_ports({"default"})

    blocker = play(scenario)

    assert (blocker.reason, blocker.detail) == (Reason.MALFORMED, words)


def test_a_leaf_may_have_as_many_interfaces_as_the_bound() -> None:
    async def scenario(site: SmallSite) -> Any:
        whole = ok({f"swp{n}": {} for n in range(8192)})
        trees = ("applied", "startup", "operational")
        site.transport.answer = replacing({f"GET /interface?rev={t}": whole for t in trees})
        return await read_tenant_ports(site.line(), {""})

    assert play(scenario) == {}


# --- one request


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_login_looks_the_address_up_again(status: int) -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        site.transport.answer = lambda _asked: Reply(status, {}, b"")
        return [await leaf.vrfs(["swp1"]) for _ in range(2)], len(site.looked_up)

    blockers, looked_up = play(scenario)

    assert [(b.reason, b.detail) for b in blockers] == [
        (Reason.LOGIN_REFUSED, f"/nvue_v1/revision: status {status}")
    ] * 2
    assert looked_up == 2


def test_a_failure_says_what_to_look_at() -> None:
    async def scenario(site: SmallSite) -> Any:
        refused = SwitchRefused(Reason.SWITCH_REFUSED, "no")
        return [site.source().describe(problem).unblock for problem in (NOT_SENT, refused)]

    silent, refused = play(scenario)

    assert "network and power" in silent
    assert "the switch's changes and log" in refused


def test_an_address_is_kept_for_ten_seconds_and_dropped_when_nothing_answers() -> None:
    async def scenario(site: SmallSite) -> Any:
        source, began = site.source(), site.clock.now()
        for pause in (9.9, 0.1, 9.9):
            await source.open()
            await site.clock.sleep(pause)
        await source.open()
        source.describe(NOT_SENT)
        await source.open()
        return [round(t - began, 3) for t in site.looked_up]

    assert play(scenario) == [0.0, 10.0, 19.9]


def test_no_address_is_why_nothing_is_asked() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.no_address = Blocker(
            reason=Reason.LOGIN_REFUSED, subject="leaf-0", detail="none", unblock="give one"
        )
        return await site.leaf().vrfs(["swp1"]), site.lines()

    blocker, lines = play(scenario)

    assert (blocker.reason, blocker.detail, lines) == (Reason.LOGIN_REFUSED, "none", [])


@pytest.mark.parametrize("status", [300, 400, 404, 500])
def test_what_a_leaf_refuses_is_told_in_its_words(status: int) -> None:
    async def scenario(site: SmallSite) -> Any:
        site.transport.answer = lambda _asked: Reply(status, {}, b"no such\x07 thing")
        with pytest.raises(SwitchRefused) as refused:
            await site.line().ask(Ask("PATCH", "/nvue_v1/x\n"))
        return refused.value.reason, str(refused.value)

    reason, words = play(scenario)

    assert reason is Reason.SWITCH_REFUSED
    assert words.startswith(f"PATCH /nvue_v1/x : status {status}: no such")
    assert words.isprintable()


def test_what_is_not_there_is_none_only_where_that_is_asked() -> None:
    async def scenario(site: SmallSite) -> Any:
        line = site.line()
        site.transport.answer = lambda _asked: Reply(404, {}, b"")
        found = await line.find("/nvue_v1/x")
        with pytest.raises(SwitchRefused):
            await line.get("/nvue_v1/x")
        site.transport.answer = lambda _asked: Reply(500, {}, b"")
        with pytest.raises(SwitchRefused):
            await line.find("/nvue_v1/x")
        site.transport.answer = lambda _asked: Reply(299, {}, b"")
        empty = await line.get("/nvue_v1/x")
        site.transport.answer = lambda _asked: ok([1])
        return found, empty, await line.find("/nvue_v1/x")

    assert play(scenario) == (None, {}, [1])


def test_an_answer_that_is_no_json_is_malformed() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.transport.answer = lambda _asked: Reply(200, {}, b"<html>")
        with pytest.raises(Malformed):
            await site.line().get("/nvue_v1/x")
        return await site.leaf().vrfs(["swp1"])

    assert play(scenario).reason is Reason.MALFORMED


def test_a_switch_s_port_in_the_management_network_counts_as_its_others_do() -> None:
    async def scenario(site: SmallSite) -> Any:
        switch = await site.source().open()
        first = await switch.read_counters("eth0")
        await site.clock.sleep(60.0)
        return first, await switch.read_counters("eth0"), await switch.read_counters("eth9")

    first, second, unknown = play(scenario)

    assert 0 <= first.carried_bytes < second.carried_bytes
    assert (second.in_errors, unknown.carried_bytes) == (0, None)


# --- one damaged value in an answer

DAMAGE = [b"caf\xe9", b"a\rb", b"a\x0cb", b"\xff"]


def spoil(site: SmallSite, field: str, damage: bytes) -> None:
    """Put damage in the place of a text in every answer of the leaves."""

    class Spoiled:
        def __init__(self, leaf: Any) -> None:
            self._leaf = leaf

        def handle(self, *asked: Any) -> Any:
            reply = self._leaf.handle(*asked)
            return reply._replace(body=reply.body.replace(field.encode(), damage))

    site.nvue = {name: Spoiled(leaf) for name, leaf in site.nvue.items()}  # type: ignore[misc]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_description_loses_itself_alone(damage: bytes) -> None:
    async def scenario(site: SmallSite) -> Any:
        site.put("swp1", "RED")
        site.switch.operational["interface"]["swp1"]["description"] = "SPOIL"
        spoil(site, "SPOIL", damage)
        return await site.leaf().vrfs(["swp1"])

    assert play(scenario)["swp1"] == {"RED"}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_port_whose_vrf_is_damaged_is_unread_and_not_one_without(damage: bytes) -> None:
    async def scenario(site: SmallSite) -> Any:
        site.put("swp1", "RED")
        site.switch.operational["interface"]["swp1"]["ip"]["vrf"] = "SPOIL"
        spoil(site, "SPOIL", damage)
        return await site.leaf().vrfs(["swp1"])

    found = play(scenario)
    assert isinstance(found, Blocker)
    assert found.reason is Reason.MALFORMED


@pytest.mark.parametrize(
    ("body", "read", "lost"),
    [
        (b'{"a": "caf\xe9", "b": 1}', {"a": UNREADABLE, "b": 1}, ("a",)),
        (b'{"a": {"b": ["x\ty", "z"]}}', {"a": {"b": [UNREADABLE, "z"]}}, ("b",)),
        (b'{"n": NaN, "m": 1e999, "k": 2}', {"n": UNREADABLE, "m": UNREADABLE, "k": 2}, ("n", "m")),
        (b'{"\xff": 1}', {UNREADABLE: 1}, (UNREADABLE,)),
        (b'\xef\xbb\xbf{"a": "l\\nl"}', {"a": "l\nl"}, ()),
        (b'{"a": 1, "a": 1}', {"a": 1}, ()),
        (b'"\xff"', UNREADABLE, ("",)),
    ],
)
def test_a_damaged_value_stays_as_one_that_is_unknown(
    body: bytes, read: Any, lost: tuple[str, ...]
) -> None:
    reply = Reply(200, {}, body)

    assert reply.json() == read
    assert reply.read_marked() == (read, lost)
    if not body.startswith(b"\xef"):  # as a shell's output comes
        assert parse_marked(body.decode("utf-8", "replace")) == (read, lost)


@pytest.mark.parametrize("body", [b'{"a": 1, "a": 2}', b'{"a": "\xff', b"", b"\xff"])
def test_an_answer_whose_meaning_is_open_is_refused_whole(body: bytes) -> None:
    with pytest.raises(Malformed):
        Reply(200, {}, body).json()
