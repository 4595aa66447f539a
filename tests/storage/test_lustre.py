"""Spaces on Lustre: nodemaps made, changed and removed as planned, by an lctl that fails, and
outputs as the manual and the source print them.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from lctl_rig import open_simulated

from provisioner.integrations.lustre import nodemaps
from provisioner.integrations.lustre.nodemaps import Fileset, SpaceNames
from provisioner.integrations.lustre.spaces import LustreSpaces, open_spaces, read_site
from provisioner.integrations.sim.storage.lctl import SimulatedMgs
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.storage import (
    AddressRange,
    Export,
    FileStorage,
    SpaceAct,
    SpaceState,
    SpaceVerb,
    make_set,
    make_set_of,
)
from provisioner.planning.tenancy.storage import SpaceWish, plan_space
from provisioner.ports import CertificateChanged, HostKeyUnknown, Malformed, Secret, Unreachable
from provisioner.settings import Settings
from provisioner.settings.fabric import StorageSystem

N1, N2, N3 = "172.0.0.0", "172.0.0.2", "10.9.9.9"
STORAGE = FileStorage(exports=(Export(name="scratch", path="/scratch"),))
READ_ONLY = FileStorage(
    exports=(Export(name="models", path="/models", read_only=True, root_squash=False),)
)


class Clock:
    """Time that passes only by waiting."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


def wish(*must: str, storage: FileStorage | None = STORAGE) -> SpaceWish:
    return SpaceWish("red", storage, "", make_set_of(must), make_set_of(must))


async def read_red(spaces: LustreSpaces) -> SpaceState:
    read = await spaces.read(["red"])
    assert isinstance(read, dict), read
    state: SpaceState = read["red"]
    return state


async def bring(spaces: LustreSpaces, wanted: SpaceWish) -> Blocker | None:
    """Make every planned act; the plan is made anew after each, as after a crash."""
    for _ in range(20):
        state = await read_red(spaces)
        known = SpaceWish(wanted.space, wanted.storage, state.handle, wanted.must, wanted.may)
        plan = plan_space(known, state)
        if not plan.acts:
            return plan.blockers[0] if plan.blockers else None
        if (blocker := await spaces.apply(plan.acts[0])) is not None:
            return blocker
    raise AssertionError("the acts do not end")


Story = Callable[[SimulatedMgs, LustreSpaces], Awaitable[Any]]


def on_mgs(story: Story, mgs: SimulatedMgs | None = None) -> Any:
    mgs = mgs or SimulatedMgs()
    return asyncio.run(story(mgs, open_simulated(mgs, Clock())))  # type: ignore[arg-type]


def act(verb: SpaceVerb, *clients: str, handle: str = "", export: Export | None = None) -> SpaceAct:
    return SpaceAct(verb, "red", handle, make_set_of(clients), export)


@pytest.mark.parametrize("listed", [True, False])
def test_a_space_lives_from_its_making_to_its_removal(listed: bool) -> None:
    async def story(mgs: SimulatedMgs, spaces: LustreSpaces) -> None:
        assert await bring(spaces, wish()) is None
        assert mgs.list_readable(N1) == set()
        assert await bring(spaces, wish(N1, N2)) is None
        assert mgs.list_readable(N1) == mgs.list_readable(N2) == {"/tenants/red/scratch"}
        assert mgs.list_readable(N3) == set()
        mgs.restart()
        assert mgs.list_readable(N1) == {"/tenants/red/scratch"}
        assert (await read_red(spaces)).exports["scratch"].mount == "192.0.2.1@tcp:/lustre"
        assert await bring(spaces, wish(N1)) is None
        assert mgs.list_readable(N2) == set()
        assert await bring(spaces, wish(N1, storage=READ_ONLY)) is None
        assert mgs.list_readable(N1) == {"/tenants/red/models"}
        params = mgs.nodemaps["red"].params
        assert (params["readonly_mount"], params["admin_nodemap"]) == ("1", "1")
        assert params["rbac"] == "file_perms"
        assert await bring(spaces, wish(storage=None)) is None
        assert "red" not in mgs.nodemaps
        assert mgs.kept == {}

    on_mgs(story, SimulatedMgs(listed=listed))


def test_sixty_four_nodes_are_one_line_of_commands() -> None:
    clients = [f"172.0.{n}.0" for n in range(64)]

    async def story(mgs: SimulatedMgs, spaces: LustreSpaces) -> None:
        await bring(spaces, wish())
        before = mgs.lines
        assert await spaces.apply(act(SpaceVerb.ADMIT, *clients)) is None
        assert mgs.lines - before == 7  # three readings before it, and three after it
        before = mgs.lines
        assert await spaces.apply(act(SpaceVerb.EXPEL, *clients)) is None
        assert mgs.lines - before == 7

    on_mgs(story)


@pytest.mark.parametrize("listed", [True, False])
def test_at_no_command_anybody_but_the_tenant_can_read_and_it_only_its_fileset(
    listed: bool,
) -> None:
    async def story(mgs: SimulatedMgs, spaces: LustreSpaces) -> None:
        wrong: list[object] = []
        own = [set(), {"/tenants/red/scratch"}, {"/tenants/red/models"}]

        def judge() -> None:
            wrong.extend(mgs.list_readable(a) for a in (N2, N3) if mgs.list_readable(a))
            if mgs.list_readable(N1) not in own:
                wrong.append(mgs.list_readable(N1))

        mgs.on_change.append(judge)
        await bring(spaces, wish(N1))
        await bring(spaces, wish(N1, storage=READ_ONLY))
        await bring(spaces, wish(N1, storage=FileStorage()))
        await bring(spaces, wish(storage=None))

        assert wrong == []

    on_mgs(story, SimulatedMgs(listed=listed))


@pytest.mark.parametrize("lost", range(5))
def test_whoever_repeats_after_a_lost_answer_makes_nothing_twice(lost: int) -> None:
    async def story(mgs: SimulatedMgs, spaces: LustreSpaces) -> None:
        for attempt in range(lost + 1):
            mgs.lose = int(attempt == lost)
            with suppress(Unreachable):
                await bring(spaces, wish(N1))
        assert await bring(spaces, wish(N1)) is None
        assert [r[1] for r in mgs.nodemaps["red"].ranges] == [N1]
        assert mgs.list_readable(N1) == {"/tenants/red/scratch"}

    on_mgs(story)


@pytest.mark.parametrize(
    "word", ["nodemap_add", "property deny", "set_fileset", "property trusted --value 1", "_range"]
)
def test_a_command_that_fails_in_the_middle_opens_nothing_and_is_gone_on_with(word: str) -> None:
    async def story(mgs: SimulatedMgs, spaces: LustreSpaces) -> None:
        mgs.fail = word
        failed = await bring(spaces, wish(N1))
        assert failed is not None
        assert failed.reason is Reason.REFUSED
        assert "Input/output error" in failed.detail
        assert mgs.list_readable(N1) == set()
        mgs.fail = ""
        assert await bring(spaces, wish(N1)) is None
        assert mgs.list_readable(N1) == {"/tenants/red/scratch"}

    on_mgs(story)


@pytest.mark.parametrize(
    "way", ["range", "fileset", "no fileset", "alternate", "root", "roles", "unknown", "readonly"]
)
def test_a_foreign_hand_is_seen_and_taken_back(way: str) -> None:
    async def story(mgs: SimulatedMgs, spaces: LustreSpaces) -> None:
        await bring(spaces, wish(N1))
        red = mgs.nodemaps["red"]
        before = dict(red.params)
        match way:
            case "range":
                red.ranges = [mgs._range("172.0.0.[0-255]@tcp")]
            case "fileset":
                red.filesets = ["/tenants/blue/scratch"]
            case "no fileset":
                red.filesets = []
            case "alternate":
                red.filesets.append("/tenants/blue/scratch")
            case "root":
                red.params["admin_nodemap"] = "1"
            case "roles":
                red.params["rbac"] = "byfid_ops,file_perms"
            case "unknown":
                red.params["deny_unknown"] = "0"
            case "readonly":
                red.params["readonly_mount"] = "1"
        state = await read_red(spaces)
        plan = plan_space(SpaceWish("red", STORAGE, state.handle, *[make_set_of([N1])] * 2), state)

        assert plan.acts
        assert plan.foreign or way == "readonly"
        assert await bring(spaces, wish(N1)) is None
        assert red.params == before
        assert mgs.list_readable(N1) == {"/tenants/red/scratch"}
        assert mgs.list_readable("172.0.0.9") == set()

    on_mgs(story)


@pytest.mark.parametrize("way", ["idmap", "other network"])
def test_an_opening_that_the_daemon_does_not_close_is_a_blocker(way: str) -> None:
    async def story(mgs: SimulatedMgs, spaces: LustreSpaces) -> None:
        await bring(spaces, wish(N1))
        if way == "idmap":
            mgs.nodemaps["red"].idmap = ["{ idtype: uid, client_id: 530, fs_id: 11000 }"]
        else:
            mgs.nodemaps["red"].ranges.append(mgs._range("10.1.1.1@o2ib"))
        blocker = await bring(spaces, wish(N1))

        assert blocker is not None
        assert "ids are mapped" in blocker.detail or "10.1.1.1@o2ib" in blocker.detail

    on_mgs(story)


def _spoil(mgs: SimulatedMgs, way: str) -> None:
    default, servers = mgs.nodemaps["default"].params, mgs.nodemaps["servers"]
    match way:
        case "inactive":
            mgs.active = False
        case "default trusted":
            default["trusted_nodemap"] = "1"
        case "default squashes":
            default["deny_unknown"] = "0"
        case "server without a nodemap":
            servers.ranges = [mgs._range("192.0.2.[1-2]@tcp")]
        case "server squashed":
            servers.params["admin_nodemap"] = "0"
        case "server on another network":
            servers.ranges = [mgs._range("192.0.2.[1-3]@o2ib")]


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("inactive", "not active"),
        ("default trusted", "in no other nodemap"),
        ("default squashes", "in no other nodemap"),
        ("server without a nodemap", "192.0.2.3@tcp is in no nodemap"),
        ("server squashed", "would be squashed"),
        ("server on another network", "would be squashed"),
    ],
)
def test_nothing_is_opened_where_nodemaps_would_not_hold(way: str, words: str) -> None:
    async def story(mgs: SimulatedMgs, spaces: LustreSpaces) -> None:
        await bring(spaces, wish(N1))
        _spoil(mgs, way)
        before = len(mgs.log)
        export = STORAGE.exports[0]
        acts = [act(SpaceVerb.MAKE), act(SpaceVerb.ADMIT, N2), act(SpaceVerb.EXPORT, export=export)]
        for one in acts:
            refused = await spaces.apply(one)
            assert refused is not None
            assert words in refused.detail
            assert "lctl" in refused.unblock
        assert len(mgs.log) == before
        if way != "inactive":
            assert await spaces.apply(act(SpaceVerb.EXPEL, N1)) is None  # who leaves, leaves
        if "default" in way or way == "inactive":
            assert isinstance(await spaces.find_admitting([N1]), Blocker)

    on_mgs(story)


def test_names_and_addresses_of_others_are_blockers_with_what_to_do() -> None:
    async def story(mgs: SimulatedMgs, spaces: LustreSpaces) -> None:
        mgs.run(
            "lctl nodemap_add blue && lctl nodemap_add_range --name blue --range 172.0.0.[0-9]@tcp"
        )
        assert await spaces.apply(act(SpaceVerb.MAKE)) is None
        overlapping = await spaces.apply(act(SpaceVerb.ADMIT, N1, N3))
        again = await spaces.apply(act(SpaceVerb.MAKE))
        stale = await spaces.apply(act(SpaceVerb.EXPEL, N1, handle="red#99"))
        long = await spaces.apply(SpaceAct(SpaceVerb.MAKE, "a-name-of-17-char"))
        for blocker in (overlapping, again, stale, long):
            assert blocker is not None
            assert blocker.unblock
        assert overlapping is not None
        assert "nodemap blue has of these" in overlapping.detail
        assert mgs.nodemaps["red"].ranges == []
        admitting = await spaces.find_admitting([N1, N3, "192.0.2.2"])
        assert admitting == {
            N1: frozenset({"blue"}), N3: frozenset(), "192.0.2.2": frozenset({"servers"})
        }  # fmt: skip

    on_mgs(story)


@pytest.mark.parametrize(
    ("export", "roles", "words"),
    [
        (Export(name="a", path="/a", quota_bytes=1), True, "project quotas"),
        (Export(name="a", path="/b"), True, "/a"),
        (Export(name="a", path="/a", read_only=True), False, "readonly_mount"),
        (Export(name="a", path="/a", root_squash=False), False, "rbac"),
    ],
)
def test_what_lustre_does_not_offer_is_named_and_not_half_made(
    export: Export, roles: bool, words: str
) -> None:
    async def story(mgs: SimulatedMgs, spaces: LustreSpaces) -> None:
        blocker = await bring(spaces, wish(N1, storage=FileStorage(exports=(export,))))
        assert blocker is not None
        assert blocker.reason is Reason.NOT_OFFERED
        assert words in blocker.detail
        assert mgs.list_readable(N1) == set()

    on_mgs(story, SimulatedMgs(roles=roles))


def test_a_second_export_a_limit_and_encryption_are_not_offered() -> None:
    two = FileStorage(exports=(*STORAGE.exports, *READ_ONLY.exports))
    wishes = [two, FileStorage(quota_bytes=5), FileStorage(encrypted=True)]

    async def story(mgs: SimulatedMgs, spaces: LustreSpaces) -> None:
        for storage in reversed(wishes):
            blocker = await bring(spaces, wish(storage=storage))
            assert blocker is not None
            assert blocker.reason in (Reason.NOT_OFFERED, Reason.REFUSED)
            mgs.nodemaps.pop("red", None)

    on_mgs(story)


@pytest.mark.parametrize("cut", [1, 3, 40, 400])
def test_half_an_output_is_no_output(cut: int) -> None:
    async def story(mgs: SimulatedMgs, spaces: LustreSpaces) -> None:
        await bring(spaces, wish(N1))
        mgs.cut = cut
        before = len(mgs.log)
        for ask in (
            spaces.read(["red"]),
            spaces.find_admitting([N1]),
            spaces.apply(act(SpaceVerb.ADMIT, N2)),
        ):
            with pytest.raises(Malformed):
                await ask
        assert len(mgs.log) == before

    on_mgs(story)


def test_an_mgs_without_nodemaps_is_told_and_not_taken_for_an_empty_one() -> None:
    async def story(mgs: SimulatedMgs, spaces: LustreSpaces) -> None:
        mgs.fail = "nodemap.active"
        read = await spaces.read(["red"])
        assert isinstance(read, Blocker)
        mgs.fail = "rbac"  # it cannot be read, which does not mean that there is none
        assert isinstance(await spaces.read(["red"]), Blocker)

    on_mgs(story)


# ------------------------------------------------------------------------------
# Outputs that others printed.

# https://doc.lustre.org/lustre_manual.xhtml#verifyingsettings ("Verifying Settings")
MANUAL_RANGES = """\
[
      { id: 11, start_nid: 192.168.0.100@tcp, end_nid: 192.168.0.100@tcp }
     ]"""
# the same place, `lctl get_param nodemap.BirdResearchSite.idmap`
MANUAL_IDMAP = """\
[
      { idtype: uid, client_id: 530, fs_id: 11000 },
      { idtype: gid, client_id: 601, fs_id: 11001 }
     ]"""
# https://git.whamcloud.com/fs/lustre-release.git, lustre/tests/sanity-sec.sh test_10c (LU-8912):
# the range 10.210.[32-47].[0-255]@o2ib3 has these ends
LU_8912 = "[\n { id: 1, start_nid: 10.210.32.0@o2ib3, end_nid: 10.210.47.255@o2ib3 }\n]"
# lustre/ptlrpc/nodemap_lproc.c, nodemap_fileset_seq_show of Lustre 2.17
FILESETS = "[\n { primary:\t/dir1, mode: ro },\n { alternate:\t/dir2 }\n]"


def test_the_manuals_outputs_are_read() -> None:
    (bird,) = nodemaps.parse_ranges(MANUAL_RANGES)
    assert bird.held == AddressRange("192.168.0.100", "192.168.0.100")
    (lu,) = nodemaps.parse_ranges(LU_8912)
    assert lu.held is not None
    assert nodemaps.write_range(lu.held, lu.net) == "10.210.[32-47].[0-255]@o2ib3"
    assert nodemaps.parse_filesets(FILESETS) == (
        (Fileset("/dir1", read_only=True), Fileset("/dir2", primary=False)), True
    )  # fmt: skip
    # sanity-sec.sh waits for "nodemap.c0.fileset=" after a fileset was cleared (before 2.17)
    assert nodemaps.parse_params("nodemap.c0.fileset=\n") == {("c0", "fileset"): ""}
    assert nodemaps.parse_filesets("") == ((), False)
    assert nodemaps.parse_ranges("[\n\n]") == nodemaps.parse_ranges("[]") == ()
    whole = f"nodemap.Bird.idmap=\n{MANUAL_IDMAP}\nnodemap.Bird.id=4\n"
    assert nodemaps.parse_params(whole)["Bird", "id"] == "4"


@pytest.mark.parametrize(
    "text",
    [
        MANUAL_RANGES[:-1],
        MANUAL_RANGES.replace(" }", ""),
        MANUAL_RANGES.replace("]", ",]"),
        "",
        "[",
        "[ { id: 1, start_nid: 10.0.0.9@tcp, end_nid: 10.0.0.1@tcp } ]",
        "[ { id: 1, start_nid: 10.0.0.1@tcp, end_nid: 10.0.0.9@o2ib } ]",
        "[ { id: 1, start_nid: 10.0.0.1, end_nid: 10.0.0.9 } ]",
        "[ { id: 1, start_nid: 10.0.0.999@tcp, end_nid: 10.0.0.999@tcp } ]",
        "[ { id: 1, start_nid: ::1@tcp, end_nid: 10.0.0.9@tcp } ]",
    ],
)
def test_ranges_that_cannot_be_read_are_not_taken_for_none(text: str) -> None:
    with pytest.raises(Malformed):
        nodemaps.parse_ranges(text)


@pytest.mark.parametrize(
    "change",
    [
        ("nodemap.red.deny_unknown=1\n", ""),
        ("nodemap.red.admin_nodemap=0", "nodemap.red.admin_nodemap=yes"),
        ("nodemap.active=1", "nodemap.active=2"),
        ("nodemap.red.id=3\n", "nodemap.red.id=3\nnodemap.red.id=4\n"),
        ("nodemap.red.id=3\n", "nodemap.red.id=3\nerror: hello\n"),
        ("nodemap.default.", "nodemap.def."),
        ("nodemap.red.ranges=\n[", "nodemap.red.ranges=\n"),
    ],
)
def test_a_nodemap_of_which_something_is_missing_is_not_read(change: tuple[str, str]) -> None:
    mgs = SimulatedMgs()
    mgs.run("lctl nodemap_add red")
    mgs.nodemaps["red"].number = 3
    mgs.nodemaps["red"].params["deny_unknown"] = "1"
    words = " ".join(["nodemap.active", *(f"nodemap.*.{p}" for p in nodemaps.READ)])
    output = mgs.run(f"lctl get_param {words}")[1]
    assert nodemaps.parse_nodemaps(output)[1]["red"].number == 3
    assert change[0] in output

    with pytest.raises(Malformed):
        nodemaps.parse_nodemaps(output.replace(*change))


def test_the_rest_of_a_range_is_written_in_few_expressions() -> None:
    held = make_set([("10.0.0.1", "10.0.1.9"), ("10.1.0.0", "10.1.3.255")])
    written = nodemaps.write_ranges(held, "tcp")
    assert "10.1.[0-3].[0-255]@tcp" in written
    assert len(written) < 16
    mgs = SimulatedMgs()
    read = [mgs._range(text) for text in written]
    assert make_set((r[1], r[2]) for r in read) == held


def test_names_of_spaces_and_of_nodemaps_are_the_same_set() -> None:
    assert nodemaps.name_nodemap("red-1") == "red_1"
    assert nodemaps.name_space("red_1") == "red-1"
    refused = ("default", "a" * 17, "red_1", "", "a.b", "a;b")
    assert [nodemaps.name_nodemap(name) for name in refused] == [None] * len(refused)
    assert nodemaps.name_export("/t/redder/x", "red", SpaceNames("/t")) == ("/t/redder/x",) * 2


# ------------------------------------------------------------------------------
# Settings and SSH.

OPTIONS = {"servers": "192.0.2.1@tcp 192.0.2.3@tcp", "known_hosts": "/k", "root": "/tenants"}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("servers", ""), ("servers", "192.0.2.1"), ("lnet", "eth0"), ("root", "/a/../b"),
        ("root", "tenants"), ("squash_id", "0"), ("settle_s", "-1"), ("port", "x"),
        ("known_hosts", ""), ("colour", "red"),
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_meant_is_refused_by_its_name(option: str, value: str) -> None:
    options = {**OPTIONS, option: value}
    storage = StorageSystem(provider="lustre", address="mgs", options=options)
    with pytest.raises(InputError, match=f"options.{option}"):
        read_site(Settings(storage=storage))


class _Keys(asyncssh.SSHServer):
    """A server that knows one client by its key."""

    def __init__(self, client: asyncssh.SSHKey) -> None:
        self._client = client.export_public_key()

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == "root" and key.export_public_key() == self._client


@pytest.mark.parametrize("known", ["right", "another", "none"])
def test_over_ssh_the_mgs_is_known_by_its_host_key_alone(tmp_path: Path, known: str) -> None:
    mgs = SimulatedMgs()
    client = asyncssh.generate_private_key("ssh-ed25519")
    host = asyncssh.generate_private_key("ssh-ed25519")
    keys = {"right": host, "another": asyncssh.generate_private_key("ssh-ed25519")}

    def serve(process: asyncssh.SSHServerProcess[str]) -> None:
        line = process.command or ""
        inner = line.partition("sh -c ")[2]
        code, out, err = mgs.run(shlex.split(inner)[0])
        process.stdout.write(out)
        process.stderr.write(err)
        process.exit(code)

    async def story() -> object:
        server = await asyncssh.listen(
            "127.0.0.1", 0, server_factory=lambda: _Keys(client), server_host_keys=[host],
            process_factory=serve,
        )  # fmt: skip
        port = server.get_port()
        file = tmp_path / "known_hosts"
        key = keys.get(known)
        public = "" if key is None else key.export_public_key().decode()
        file.write_text(f"[127.0.0.1]:{port} {public}" if public else "")
        options = {**OPTIONS, "known_hosts": str(file), "port": str(port), "settle_s": "0"}
        storage = StorageSystem(provider="lustre", address="127.0.0.1", options=options)
        secret = Secret(client.export_private_key().decode())
        clock: Any = Clock()
        try:
            async with open_spaces(Settings(storage=storage), secret, clock, None) as spaces:
                assert await bring(spaces, wish(N1)) is None
                return mgs.list_readable(N1)
        finally:
            server.close()
            await server.wait_closed()

    if known == "right":
        assert asyncio.run(story()) == {"/tenants/red/scratch"}
    else:
        expected = CertificateChanged if known == "another" else HostKeyUnknown
        with pytest.raises(expected):
            asyncio.run(story())
        assert mgs.lines == 0
