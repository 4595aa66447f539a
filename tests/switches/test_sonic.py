"""SONiC behind the port that Cumulus is behind: the same code moves ports on both."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.execution.actions.reach import SwitchSource
from provisioner.execution.tenancy.leaf import Leaf
from provisioner.integrations.sonic import acl_rows
from provisioner.integrations.sonic import config_db as sonic
from provisioner.integrations.sonic import switch_state as sonic_state
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.switch import Images, Move
from provisioner.ports import ShellCommand, ShellOutput, SwitchAddress
from provisioner.ports.wire import parse_marked
from provisioner.runtime.switch_systems import make_switches
from provisioner.settings import Settings

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner),
    max_leaves=12,
)


class Shell:
    """A SONiC switch with CONFIG_DB, startup file and kernel apart; `stuck`: its kernel lags."""

    def __init__(self) -> None:
        rows = {"Ethernet0": {}, "Ethernet0|10.0.0.1/31": {}, "Ethernet4": {}}
        self.config: dict[str, Any] = {
            "PORT": {"Ethernet0": {"lanes": "0"}, "Ethernet4": {"lanes": "4"}},
            "VRF": {"VrfMAINT": {}},
            "INTERFACE": rows,
        }
        self.startup = json.loads(json.dumps(self.config))
        self.stuck, self.clings, self.refuses = False, False, ""
        self.kernel, self.held = "default", True
        self.lines: list[str] = []

    async def run(
        self, host: str, address: str, commands: Sequence[ShellCommand]
    ) -> Sequence[ShellOutput]:
        return [self.one(c.line) for c in commands]

    def one(self, line: str) -> ShellOutput:
        self.lines.append(line)
        if line == sonic.CONFIGURATION:
            return ShellOutput(0, json.dumps(self.config), "")
        if line == sonic.STARTUP:
            return ShellOutput(0, json.dumps(self.startup), "")
        if line == sonic.LINKS:
            return ShellOutput(0, json.dumps(self.links()), "")
        if line == sonic.SAVE:
            self.startup = json.loads(json.dumps(self.config))
            return ShellOutput(0, "", "")
        if "config apply-patch" in line:
            if self.refuses:
                return ShellOutput(2, "", self.refuses)
            for step in json.loads(shlex.split(line)[4]):
                place: Any = self.config
                *path, last = [k.replace("~1", "/") for k in step["path"].split("/")[1:]]
                for key in path:
                    place = place[key]
                if step["op"] == "remove":
                    del place[last]
                else:
                    place[last] = step["value"]
            self.follow()
            return ShellOutput(0, "Patch applied successfully.", "")
        if "INTERFACE_TABLE|" in line:
            held = ["INTERFACE_TABLE|Ethernet0"] if self.held else []
            return ShellOutput(0, "\n".join([*held, "read"]), "")
        return ShellOutput(127, "", "not found")

    def follow(self) -> None:
        """Do as intfmgrd: a row is taken only while STATE_DB has none of the interface."""
        row = self.config.get("INTERFACE", {}).get("Ethernet0")
        if self.clings or (row is not None and self.held):
            return
        self.held = row is not None
        if not self.stuck:
            self.kernel = "default" if row is None else row.get("vrf_name", "default")

    def links(self) -> list[Any]:
        master = {} if self.kernel == "default" else {"master": self.kernel}
        vrfs = [{"ifname": v, "linkinfo": {"info_kind": "vrf"}} for v in self.config["VRF"]]
        ports = [{"ifname": "Ethernet0", "operstate": "UP", **master}, {"ifname": "Ethernet4"}]
        return [*vrfs, *ports]

    async def forget(self, host: str, known: str = "") -> None:
        pass

    async def close(self) -> None:
        pass


class Clock:
    """Time passes by sleeping only."""

    time = 0.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        await asyncio.sleep(0)


def on_leaf(shell: Shell, story: Callable[[Leaf], Awaitable[Any]]) -> Any:
    async def live() -> Any:
        async def lookup() -> SwitchAddress:
            return SwitchAddress(url="ssh://10.0.0.9")

        switches = make_switches(None, shell)  # type: ignore[arg-type]  # none speaks HTTPS
        source = SwitchSource("leaf", lookup, switches, Clock(), Settings())
        leaf = Leaf(source, Clock(), Settings())
        return await story(leaf)

    return asyncio.run(live())


MOVE = [Move("Ethernet0", "RED", "10.0.0.1/31")]


def test_a_port_is_moved_on_sonic_by_the_code_that_moves_it_on_cumulus() -> None:
    shell = Shell()

    outcome = on_leaf(shell, lambda leaf: leaf.move(MOVE))
    again = on_leaf(shell, lambda leaf: leaf.move(MOVE))

    assert outcome.blockers == ()
    assert shell.config["INTERFACE"]["Ethernet0"] == {"vrf_name": "VrfRED"}
    assert "VrfRED" in shell.config["VRF"]
    assert shell.startup == shell.config
    assert (again.blockers, again.revision) == ((), "")
    assert shell.kernel == "VrfRED"
    patches = [json.loads(shlex.split(s)[4]) for s in shell.lines if "apply-patch" in s]
    assert [[(s["op"], s["path"]) for s in steps] for steps in patches] == [
        [
            ("remove", "/INTERFACE/Ethernet0|10.0.0.1~131"),
            ("remove", "/INTERFACE/Ethernet0"),
        ],
        [
            ("add", "/VRF/VrfRED"),
            ("add", "/INTERFACE/Ethernet0"),
            ("add", "/INTERFACE/Ethernet0|10.0.0.1~131"),
        ],
    ]


def test_the_last_rows_of_interfaces_go_with_their_table() -> None:
    config = sonic.read_configuration({"PORT": {"E0": {}}, "INTERFACE": {"E0": {}, "E0|a": {}}})
    assert config is not None

    assert sonic.plan_removal(config, ["E0"]) == [{"op": "remove", "path": "/INTERFACE"}]
    assert sonic.plan_removal(config, []) == []


def test_a_port_that_its_daemon_does_not_give_up_is_not_configured_anew() -> None:
    shell = Shell()
    shell.clings = True

    outcome = on_leaf(shell, lambda leaf: leaf.move(MOVE))

    assert [b.reason for b in outcome.blockers] == [Reason.SWITCH_REFUSED]
    assert "INTERFACE_TABLE|Ethernet0: not removed from STATE_DB" in outcome.blockers[0].detail
    assert "Ethernet0" not in shell.config.get("INTERFACE", {})
    assert sum("apply-patch" in line for line in shell.lines) == 1


def test_a_port_that_stays_in_its_vrf_is_not_taken_out_of_it() -> None:
    shell = Shell()

    on_leaf(shell, lambda leaf: leaf.move([Move("Ethernet0", "default", "10.0.0.3/31")]))

    assert not any("remove" in line for line in shell.lines)
    assert shell.kernel == "default"


def test_what_the_kernel_does_not_do_is_not_believed() -> None:
    shell = Shell()
    shell.stuck = True

    outcome = on_leaf(shell, lambda leaf: leaf.move(MOVE))

    assert [b.reason for b in outcome.blockers] == [Reason.ISOLATION]


def test_sonics_refusal_is_told_in_its_own_words() -> None:
    shell = Shell()
    shell.refuses = "Failed to apply patch: leafref"

    outcome = on_leaf(shell, lambda leaf: leaf.move(MOVE))

    assert [b.reason for b in outcome.blockers] == [Reason.SWITCH_REFUSED]
    assert "leafref" in outcome.blockers[0].detail


def test_a_filter_of_security_groups_is_refused_by_name_and_nothing_is_sent() -> None:
    shell = Shell()
    move = Move("Ethernet0", "RED", "10.0.0.1/31", guard="provisioner_sg_RED_web")

    outcome = on_leaf(shell, lambda leaf: leaf.move([move]))

    assert [b.reason for b in outcome.blockers] == [Reason.NOT_OFFERED]
    assert "security groups" in outcome.blockers[0].detail
    assert not any("apply-patch" in line for line in shell.lines)


def test_a_port_that_the_switch_does_not_have_cannot_be_moved() -> None:
    outcome = on_leaf(Shell(), lambda leaf: leaf.move([Move("Ethernet99", "RED")]))

    assert isinstance(outcome.blockers[0], Blocker)


@pytest.mark.parametrize(
    ("ours", "theirs"), [("RED", "VrfRED"), ("default", "default"), ("mgmt", "mgmt")]
)
def test_names_of_vrfs_go_both_ways(ours: str, theirs: str) -> None:
    assert (sonic.sonic_vrf(ours), sonic.own_vrf(theirs)) == (theirs, ours)


def test_the_running_and_the_next_image_are_read() -> None:
    text = "Current: SONiC-OS-1\nNext: SONiC-OS-2\nAvailable: \nSONiC-OS-1\nSONiC-OS-2\n"

    assert sonic.read_images(text) == Images(
        running="SONiC-OS-1", next="SONiC-OS-2", versions=("SONiC-OS-1", "SONiC-OS-2")
    )
    assert sonic.read_images("Current: a\nNext: a\n") is None


@given(answer=JSON)
def test_no_answer_raises(answer: Any) -> None:
    configuration = sonic.read_configuration(answer)
    sonic.read_kernel(answer, configuration or sonic.Configuration(frozenset(), {}, {}))
    sonic.read_platform(answer, str(answer))
    sonic.read_images(str(answer))


@given(table=JSON, rule=JSON, ports=JSON)
def test_no_filter_of_a_configuration_raises(table: Any, rule: Any, ports: Any) -> None:
    fields = {"PRIORITY": rule, "PACKET_ACTION": "DROP", "DST_IP": rule}
    rows = {f"{acl_rows.NAME}|RULE_1": rule, f"{acl_rows.NAME}|RULE_2": fields}
    for entry in (table, {"type": "L3", "ports": ports}):
        tables = {"ACL_TABLE": {acl_rows.NAME: entry}, "ACL_RULE": rows}
        acl_rows.list_ports(tables)
        acl_rows.list_bound_ports(entry)
        assert acl_rows.read_filter(tables) is not None


WORDS = st.sampled_from(
    [
        "lldp",
        "interface",
        "Ethernet0",
        "chassis",
        "port",
        "id",
        "value",
        "peers",
        "state",
        "dst",
        "dev",
        "lladdr",
        "nexthops",
        "vrf",
        "importRts",
        "exportRts",
        "importFromVrfs",
        "type",
    ]
)
SHAPED = st.recursive(
    JSON, lambda inner: st.dictionaries(WORDS, inner) | st.lists(inner), max_leaves=15
)


@given(answer=SHAPED)
def test_no_answer_about_a_switch_s_state_raises(answer: Any) -> None:
    sonic_state.read_neighbours(answer)
    sonic_state.read_routes(answer)
    sonic_state.read_peers(answer)
    sonic_state.read_leaks(answer)
    sonic_state.read_vnis(answer)
    sonic_state.read_targets(answer)
    sonic_state.read_lldp(answer, "Ethernet0")
    sonic_state.read_lldp({"lldp": {"interface": [{"Ethernet0": answer}]}}, "Ethernet0")
    sonic_state.read_routes({"10.0.0.0/31": [answer]})
    for entry in ({"chassis": answer, "port": answer}, {"chassis": {"a": 1}, "port": answer}):
        sonic_state.read_lldp({"lldp": {"interface": [{"Ethernet0": entry}]}}, "Ethernet0")
    sonic_state.read_routes({"10.0.0.0/31": [{"nexthops": answer}]})
    for text in (str(answer), repr(answer) * 2):
        sonic_state.read_health(text)
        sonic_state.read_drained(text)
        sonic_state.read_counters(text)
        sonic_state.read_port_id(text, "Ethernet0")


def test_only_a_plain_word_of_the_mode_is_believed() -> None:
    assert sonic_state.read_drained("System Mode: Normal\n") is False
    assert sonic_state.read_drained("System Mode: Maintenance\n") is True
    for text in ("", "System Mode: Not consistent", "System Mode: Normal -> Maintenance"):
        assert sonic_state.read_drained(text) is None


@pytest.mark.parametrize(
    ("old", "new", "readable"),
    [
        ('"lanes": "4"', '"lanes": "\ufffd4"', True),
        ('"Ethernet0|10.0.0.1/31"', '"Ether\ufffdnet0|10.0.0.1/31"', False),
        ('"VrfMAINT"', '"Vrf\ufffdMAINT"', False),
    ],
)
def test_one_bad_byte_loses_its_field_and_no_port_seems_to_be_elsewhere(
    old: str, new: str, readable: bool
) -> None:
    config, lost = parse_marked(json.dumps(Shell().config).replace(old, new))
    read = sonic.read_configuration(config)

    assert len(lost) == 1
    assert (read is not None) is readable
    assert read is None or read.ports.keys() == {"Ethernet0", "Ethernet4"}


@pytest.mark.parametrize(
    "row", [None, [], "VrfRED", 7, {"vrf_name": ["VrfRED"]}, {"vrf_name": {"VrfRED": {}}},
            {"vrf_name": 7}, {"vrf_name": True}],
)  # fmt: skip
def test_a_row_of_a_port_that_is_no_row_is_no_port_without_a_vrf(row: object) -> None:
    assert sonic.read_configuration({"PORT": {"E0": {}}, "INTERFACE": {"E0": row}}) is None


@pytest.mark.parametrize("master", [["VrfRED"], {"name": "VrfRED"}, 7, True])
def test_a_master_that_is_no_name_is_no_kernel_without_a_vrf(master: object) -> None:
    applied = sonic.read_configuration({"PORT": {"E0": {}}, "INTERFACE": {"E0": {}}})

    assert applied is not None
    assert sonic.read_kernel([{"ifname": "E0", "master": master}], applied) is None
    plain = sonic.read_kernel([{"ifname": "E0", "master": None}], applied)
    assert plain is not None
    assert plain.ports["E0"].vrf == "default"
