"""Spaces on VAST: made, changed and removed as planned, against a VMS that answers badly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from vms_rig import EXCERPT, SimulatedWire, open_simulated

from provisioner.integrations.sim.storage.vms import LISTS, SimulatedVms
from provisioner.integrations.vast import vms_answers
from provisioner.integrations.vast.spaces import VastSpaces
from provisioner.integrations.vast.vms_calls import VmsCalls
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.storage import (
    Export,
    FileStorage,
    SpaceAct,
    SpaceVerb,
    make_set,
    make_set_of,
)
from provisioner.planning.tenancy.storage import SpaceWish, plan_space
from provisioner.ports import (
    Busy,
    LoginRefused,
    Malformed,
    PortError,
    Reply,
    Secret,
    Unreachable,
)

N1, N2, N3 = "172.0.0.0", "172.0.0.2", "10.9.9.9"
EXPORTS = (
    Export(name="scratch", path="/scratch", quota_bytes=1000),
    Export(name="models", path="/models", read_only=True),
    Export(name="root", path="/root", root_squash=False),
)
STORAGE = FileStorage(exports=EXPORTS, quota_bytes=5000)


class Clock:
    """Time that passes only by waiting."""

    def __init__(self) -> None:
        self.at = 0.0
        self.later: list[Callable[[], object]] = []  # one is done at each long wait

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds
        if seconds >= 10.0 and self.later:
            self.later.pop(0)()


def wish(*must: str, may: tuple[str, ...] = (), storage: FileStorage | None = STORAGE) -> SpaceWish:
    return SpaceWish("red", storage, "", make_set_of(must), make_set_of((*must, *may)))


async def bring(spaces: VastSpaces, wanted: SpaceWish) -> Blocker | None:
    """Make every planned act; the plan is made anew after each, as after a crash."""
    for _ in range(20):
        state = (await spaces.read(["red"]))["red"]  # type: ignore[index]
        known = SpaceWish(wanted.space, wanted.storage, state.handle, wanted.must, wanted.may)
        plan = plan_space(known, state)
        if not plan.acts:
            return plan.blockers[0] if plan.blockers else None
        if (blocker := await spaces.apply(plan.acts[0])) is not None:
            return blocker
    raise AssertionError("the acts do not end")


Story = Callable[[SimulatedVms, VastSpaces, SimulatedWire], Awaitable[Any]]


def on_vms(story: Story, vms: SimulatedVms | None = None) -> Any:
    vms = vms or SimulatedVms()
    spaces, wire = open_simulated(vms, Clock())
    return asyncio.run(story(vms, spaces, wire))  # type: ignore[arg-type]


def act(verb: SpaceVerb, *clients: str, handle: str = "", export: Export | None = None) -> SpaceAct:
    return SpaceAct(verb, "red", handle, make_set_of(clients), export)


def test_a_space_lives_from_its_making_to_its_removal_and_each_exchange_is_as_documented() -> None:
    async def story(vms: SimulatedVms, spaces: VastSpaces, wire: SimulatedWire) -> None:
        assert await bring(spaces, wish()) is None
        assert vms.list_readable(N1) == set()
        assert await bring(spaces, wish(N1, N2)) is None
        everything = {("red", "/scratch"), ("red", "/models"), ("red", "/root")}
        assert vms.list_readable(N1) == vms.list_readable(N2) == everything
        assert vms.list_readable(N3) == set()
        smaller = FileStorage(exports=EXPORTS[:1])
        assert await bring(spaces, wish(N1, storage=smaller)) is None
        assert vms.list_readable(N1) == {("red", "/scratch")}
        assert vms.list_readable(N2) == set()
        assert vms.rows["quotas"][next(iter(vms.rows["quotas"]))]["hard_limit"] == 1000
        changed = Export(name="scratch", path="/scratch", read_only=True, quota_bytes=2000)
        assert await bring(spaces, wish(N1, storage=FileStorage(exports=(changed,)))) is None
        policy = next(p for p in vms.rows["viewpolicies"].values() if p["name"] != "default")
        assert (policy["nfs_read_write"], policy["nfs_read_only"]) == ([], [N1])
        assert await bring(spaces, wish(storage=None)) is None
        assert vms.find("tenants", "red") is None
        assert [p["name"] for p in vms.rows["viewpolicies"].values()] == ["default"]
        unasked = set(EXCERPT) - set(wire.exchanges)
        assert unasked == {"PATCH /views/{id}/", "DELETE /viewpolicies/{id}/"} - set(wire.exchanges)

    on_vms(story)


def test_sixty_four_nodes_are_one_request_to_each_policy_and_one_to_the_tenant() -> None:
    clients = [f"172.0.{n}.0" for n in range(64)]

    async def story(vms: SimulatedVms, spaces: VastSpaces, _: SimulatedWire) -> None:
        await bring(spaces, wish())
        before = len(vms.log)
        assert await spaces.apply(act(SpaceVerb.ADMIT, *clients)) is None
        admitted = [path for _, path, _ in vms.log[before:]]
        before = len(vms.log)
        assert await spaces.apply(act(SpaceVerb.EXPEL, *clients)) is None
        expelled = [path for _, path, _ in vms.log[before:]]

        assert len(admitted) == len(expelled) == len(EXPORTS) + 1
        assert "/tenants/" in admitted[-1]  # it is opened last
        assert "/tenants/" in expelled[0]  # and closed first

    on_vms(story)


@pytest.mark.parametrize("lost", range(12))
def test_whoever_repeats_after_a_lost_answer_makes_nothing_twice(lost: int) -> None:
    async def story(vms: SimulatedVms, spaces: VastSpaces, _: SimulatedWire) -> None:
        seen = [0]

        def lose() -> None:
            seen[0] += 1
            vms.lose = int(seen[0] == lost + 1)

        vms.on_change.append(lose)
        with suppress(Unreachable):
            await bring(spaces, wish(N1))
        assert await bring(spaces, wish(N1)) is None
        assert len(vms.rows["views"]) == len(EXPORTS)
        assert len(vms.rows["viewpolicies"]) == len(EXPORTS) + 1
        assert len(vms.list_readable(N1)) == len(EXPORTS)

    on_vms(story)


def test_at_no_change_anybody_but_the_tenant_can_read() -> None:
    async def story(vms: SimulatedVms, spaces: VastSpaces, _: SimulatedWire) -> None:
        opened: list[str] = []
        vms.on_change.append(lambda: opened.extend(a for a in (N3, N2) if vms.list_readable(a)))
        await bring(spaces, wish(N1))
        await bring(spaces, wish(N1, storage=None))

        assert opened == []

    on_vms(story)


def test_a_tenant_with_a_pool_of_its_own_serves_whom_its_policies_name() -> None:
    """VMS asks for a tenant's ranges at pools of no tenant alone."""

    async def story(vms: SimulatedVms, spaces: VastSpaces, _: SimulatedWire) -> None:
        await bring(spaces, wish(N1))
        tenant = vms.find("tenants", "red")
        assert tenant is not None
        tenant["client_ip_ranges"] = []
        assert await spaces.find_admitting([N1, N2]) == {N1: frozenset(), N2: frozenset()}
        pool = next(iter(vms.rows["vippools"].values()))
        vms.rows["vippools"][99] = {**pool, "id": 99, "name": "own", "tenant_id": tenant["id"]}

        assert await spaces.find_admitting([N1, N2]) == {N1: {"red"}, N2: frozenset()}

    on_vms(story)


@pytest.mark.parametrize("vouched", [False, True])
@pytest.mark.parametrize("hosts", [["*"], ["172.0.0.0/16"], ["@all"], ["10.9.9.9"]])
def test_whom_no_tenant_lists_may_be_the_default_ones(hosts: list[str], *, vouched: bool) -> None:
    """At a pool of all tenants; who is listed is its own tenant's alone, whatever that opens."""

    async def story(vms: SimulatedVms, spaces: VastSpaces, _: SimulatedWire) -> None:
        await bring(spaces, wish(N1))
        policy = vms._add("viewpolicies", {**{n: [] for n in LISTS}, "name": "open", "tenant_id": 1,
                                           "nfs_read_write": hosts})  # fmt: skip
        vms._add("views", {"path": "/all", "policy_id": policy["id"], "tenant_id": 1})
        asked = VastSpaces(spaces._calls, (), ("default",) if vouched else ())

        assert await asked.find_admitting([N1]) == {N1: {"red"}}
        told = await asked.find_admitting([N1, N2])

        if hosts == ["@all"] and not vouched:
            assert isinstance(told, Blocker)
            assert "storage.options.vouched" in told.unblock
        else:
            serves = hosts[0] in ("*", "172.0.0.0/16") and not vouched
            assert told == {N1: {"red"}, N2: {"default"} if serves else frozenset()}
        assert ("default", "/all") not in vms.list_readable(N1)
        served = ("default", "/all") in vms.list_readable(N2)
        assert served == (hosts[0] in ("*", "172.0.0.0/16"))
        vms.rows["vippools"].clear()
        assert await asked.find_admitting([N2]) == {N2: frozenset()}

    on_vms(story)


@pytest.mark.parametrize("way", ["view", "range", "policy", "squash", "smb", "netgroup", "quota"])
def test_a_foreign_hand_is_seen_and_taken_back(way: str) -> None:
    async def story(vms: SimulatedVms, spaces: VastSpaces, _: SimulatedWire) -> None:
        await bring(spaces, wish(N1))
        tenant = vms.find("tenants", "red")
        view = next(v for v in vms.rows["views"].values() if v["path"] == "/models")
        assert tenant is not None
        policy = vms.rows["viewpolicies"][view["policy_id"]]
        match way:
            case "view":
                everybody = {"path": "/all", "policy_id": 2, "tenant_id": tenant["id"]}
                vms.handle("POST", "/views/", everybody, f"Bearer {next(iter(vms._tokens))}")
            case "range":
                tenant["client_ip_ranges"] = [["172.0.0.0", "172.0.0.255"]]
            case "policy":
                view["policy_id"] = 2  # the default one: everybody, read and write
            case "squash":
                policy["nfs_no_squash"] = ["*"]
            case "smb":
                view["protocols"] = ["NFS", "SMB"]
            case "netgroup":
                policy["nfs_read_write"] = ["@all"]
            case "quota":
                quota = next(iter(vms.rows["quotas"].values()))
                quota["hard_limit"] = 10**9
        state = (await spaces.read(["red"]))["red"]  # type: ignore[index]
        plan = plan_space(SpaceWish("red", STORAGE, state.handle, *[make_set_of([N1])] * 2), state)

        assert plan.foreign
        assert await bring(spaces, wish(N1)) is None
        assert len(vms.list_readable(N1)) == len(EXPORTS)
        assert vms.list_readable("172.0.0.9") == set()
        assert view["protocols"] == ["NFS", "NFS4"] or way != "smb"

    on_vms(story)


@pytest.mark.parametrize("noun", ["tenants", "views", "viewpolicies", "quotas", "vippools"])
def test_half_a_list_is_no_list(noun: str) -> None:
    async def story(vms: SimulatedVms, spaces: VastSpaces, _: SimulatedWire) -> None:
        await bring(spaces, wish(N1))
        vms.cut = {noun}
        before = len(vms.log)
        with pytest.raises(Malformed, match="of"):
            await spaces.read(["red"])
        with pytest.raises(Malformed):
            await spaces.find_admitting([N1])
        with pytest.raises(Malformed):
            await spaces.apply(act(SpaceVerb.ADMIT, N2))
        assert len(vms.log) == before

    on_vms(story)


def test_lists_in_pages_are_read_to_their_end() -> None:
    async def story(vms: SimulatedVms, spaces: VastSpaces, _: SimulatedWire) -> None:
        vms.pages_of = 1
        assert await bring(spaces, wish(N1)) is None
        read = await spaces.read(["red"])
        assert isinstance(read, dict)
        assert len(read["red"].exports) == len(EXPORTS)

    on_vms(story)


Pages = Mapping[int, Any]


@pytest.mark.parametrize(
    ("pages", "whole"),
    [
        ({1: [1, 2], 2: [1, 2]}, [1, 2]),  # a VMS that knows no pages
        ({1: [1, 2], 2: [3], 3: []}, [1, 2, 3]),  # arrays, cut without a word
        ({1: [1, 2], 2: [2, 3]}, None),  # they moved meanwhile
        ({1: [1, 1]}, None),
        ({1: (4, [1, 2]), 2: (3, [4])}, None),  # one was removed meanwhile, and 3 passed over
        ({1: (3, [1, 2]), 2: (3, [2])}, None),
        ({1: [1, 2], 2: (2, [])}, None),
        ({1: (2, [1, 2])}, [1, 2]),
        ({1: []}, []),
        ({1: [1, 2]}, [1, 2]),  # there is no second page: 404
    ],
)
def test_a_list_is_whole_only_as_pages_say_that_fit_together(
    pages: Pages, whole: list[int] | None
) -> None:
    class Wire:
        async def send(self, method: str, path: str, body: object, authorization: str) -> Reply:
            page = int(parse_qs(urlsplit(path).query)["page"][0])
            told = pages.get(page)
            if told is None:
                return Reply(404, {}, b'{"detail": "Invalid page."}')
            if isinstance(told, tuple):
                more = "https://vms/next" if page + 1 in pages else None
                rows = [{"id": n} for n in told[1]]
                answer: Any = {"count": told[0], "next": more, "results": rows}
            else:
                answer = [{"id": n} for n in told]
            return Reply(200, {}, json.dumps(answer).encode())

        async def close(self) -> None:
            pass

    calls = VmsCalls(Wire(), "", Secret("t"), Clock(), task_limit_s=1.0, poll_s=1.0)
    if whole is None:
        with pytest.raises(Malformed):
            asyncio.run(calls.list_all("tenants"))  # type: ignore[arg-type]
    else:
        rows = asyncio.run(calls.list_all("tenants"))  # type: ignore[arg-type]
        assert [r["id"] for r in rows] == whole


@pytest.mark.parametrize("host", ["@all", "login.example", "*.example"])
@pytest.mark.parametrize("vouched", [False, True])
def test_hosts_by_name_of_a_tenant_with_a_pool_may_be_anybody(host: str, *, vouched: bool) -> None:
    """Unless the site vouches for them; with its ranges asked for, they do not matter."""

    async def story(vms: SimulatedVms, spaces: VastSpaces, wire: SimulatedWire) -> None:
        await bring(spaces, wish(N1))
        other = vms._add("tenants", {"name": "corp", "client_ip_ranges": []})
        made = {"name": "corp", "tenant_id": other["id"], "nfs_read_write": [host]}
        policy = vms._add("viewpolicies", {**{n: [] for n in LISTS}, **made})
        vms._add("views", {"path": "/c", "policy_id": policy["id"], "tenant_id": other["id"]})
        assert await spaces.find_admitting([N1]) == {N1: {"red"}}
        pool = next(iter(vms.rows["vippools"].values()))
        vms.rows["vippools"][99] = {**pool, "id": 99, "name": "own", "tenant_id": other["id"]}
        calls = spaces._calls
        told = await VastSpaces(calls, (), ("corp",) if vouched else ()).find_admitting([N1])
        if vouched:
            assert told == {N1: {"red"}}
        else:
            assert isinstance(told, Blocker)
            assert told.reason is Reason.CANNOT_TELL
            assert host in told.detail

    on_vms(story)


@pytest.mark.parametrize(
    ("statuses", "problem"),
    [
        ([429, 503], None),
        ([503] * 4, Busy),
        ([500], Unreachable),
        ([403], LoginRefused),
        ([401], None),
    ],
)
def test_a_busy_vms_is_waited_for_and_a_failing_one_is_no_answer(
    statuses: list[int], problem: type[PortError] | None
) -> None:
    async def story(vms: SimulatedVms, spaces: VastSpaces, _: SimulatedWire) -> None:
        await bring(spaces, wish(N1))
        vms.refuse = list(statuses)
        if problem is None:
            assert await spaces.apply(act(SpaceVerb.EXPEL, N1)) is None
            assert vms.list_readable(N1) == set()
        else:
            with pytest.raises(problem):
                await spaces.apply(act(SpaceVerb.EXPEL, N1))

    on_vms(story)


def test_a_token_that_ran_out_is_renewed_once_and_a_wrong_password_is_not_tried_on() -> None:
    async def story(vms: SimulatedVms, spaces: VastSpaces, _: SimulatedWire) -> None:
        await bring(spaces, wish(N1))
        vms.expire_tokens()
        await spaces.read(["red"])
        vms.expire_tokens()
        vms.password = "another"
        with pytest.raises(LoginRefused):
            await spaces.read(["red"])
        assert vms.asked.count(("POST", "/token/")) == 3

    on_vms(story)


def test_a_directory_that_a_hand_wrote_with_a_slash_is_the_same_directory() -> None:
    async def story(vms: SimulatedVms, spaces: VastSpaces, _: SimulatedWire) -> None:
        assert await bring(spaces, wish(N1)) is None
        quota = next(q for q in vms.rows["quotas"].values() if q["path"] == "/scratch")
        view = next(v for v in vms.rows["views"].values() if v["path"] == "/scratch")
        quota["path"] = view["path"] = "/scratch/"
        quota["hard_limit"] = 7
        assert await bring(spaces, wish(N1)) is None
        assert (quota["hard_limit"], len(vms.rows["quotas"])) == (1000, 1)
        assert sum(v["path"].startswith("/scratch") for v in vms.rows["views"].values()) == 1
        fields = {k: v for k, v in quota.items() if k not in ("id", "guid")}
        vms._add("quotas", {**fields, "name": "by hand", "path": "/scratch//", "hard_limit": 5})
        seen = await spaces.read(["red"])
        assert isinstance(seen, dict)
        assert seen["red"].exports["scratch"].quota_bytes == 1000

    on_vms(story)


def test_names_and_addresses_of_others_are_blockers_with_what_to_do() -> None:
    async def story(vms: SimulatedVms, spaces: VastSpaces, _: SimulatedWire) -> None:
        other = vms._add("tenants", {"name": "blue", "client_ip_ranges": [[N1, N1]]})
        vms._add("viewpolicies", {"name": "red.models.ro.squash", "tenant_id": other["id"]})
        assert await spaces.apply(act(SpaceVerb.MAKE)) is None
        taken = await spaces.apply(act(SpaceVerb.EXPORT, export=EXPORTS[1]))
        overlapping = await spaces.apply(act(SpaceVerb.ADMIT, N1))
        again = await spaces.apply(act(SpaceVerb.MAKE))
        stale = await spaces.apply(act(SpaceVerb.EXPEL, N1, handle="tenants-99999999"))

        assert taken is not None
        assert taken.reason is Reason.DUPLICATE
        assert overlapping is not None
        assert "overlap with tenant blue" in overlapping.detail
        assert again is not None
        assert stale is not None
        assert all(b.unblock for b in (taken, overlapping, again, stale))
        assert vms.list_readable(N1) == set()

    on_vms(story)


def test_files_that_a_tenant_left_keep_its_space_until_a_person_removed_them() -> None:
    async def story(vms: SimulatedVms, spaces: VastSpaces, _: SimulatedWire) -> None:
        await bring(spaces, wish(N1))
        vms.files["red", "/scratch"] = 7
        kept = await bring(spaces, wish(storage=None))
        assert kept is not None
        assert "Remove the files" in kept.unblock
        assert vms.list_readable(N1) == set()
        vms.files.clear()
        assert await bring(spaces, wish(storage=None)) is None

    on_vms(story)


@pytest.mark.parametrize("state", ["FAILED", "TIMEOUT", "PARTIALLY_COMPLETED"])
def test_a_task_that_ends_otherwise_than_well_is_a_blocker(state: str) -> None:
    async def story(vms: SimulatedVms, spaces: VastSpaces, _: SimulatedWire) -> None:
        await bring(spaces, wish(storage=FileStorage()))

        def fail() -> None:
            for task in vms.tasks.values():
                task["state"] = state

        vms.on_change.append(fail)
        ended = await spaces.apply(act(SpaceVerb.REMOVE))

        assert ended is not None
        assert state in ended.detail

    on_vms(story)


@pytest.mark.parametrize(
    "row",
    [
        {"client_ip_ranges": [["1.1.1.1"]]},
        {"client_ip_ranges": "all"},
        {"client_ip_ranges": [["1.1.1.9", "1.1.1.1"]]},
        {"client_ip_ranges": [[True, None]]},
    ],
)
def test_ranges_that_cannot_be_read_are_not_taken_for_none(row: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        vms_answers.read_ranges(row, "tenant red")


def test_hosts_of_a_policy_are_read_as_widely_as_they_may_be_meant() -> None:
    def read(*hosts: object) -> object:
        return vms_answers.read_hosts({"nfs_read_write": list(hosts)}, "nfs_read_write", "p")

    assert read("10.0.0.7", "10.0.0.8/31") == (make_set([("10.0.0.7", "10.0.0.9")]), ())
    assert read("10.*.3.4") == (make_set([("10.0.0.0", "10.255.255.255")]), ())
    assert read("@all", "host.example") == ((), ("@all", "host.example"))
    assert read("*") == (vms_answers.EVERYBODY, ())
    with pytest.raises(Malformed):
        read(7)
