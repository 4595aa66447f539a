"""While a process observes, the wire itself lets nothing leave but readings and session pairs."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

import pytest
from aiohttp import web
from devices import Bmc, run

from provisioner.adapters.read_only.hosts import (
    NoAgents,
    NoPlays,
    ReadOnlyPartitions,
    ReadOnlyPdu,
    ReadOnlyShell,
)
from provisioner.adapters.redfish.session import is_session_call
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.checks import lldp
from provisioner.cli.options.serve_options import PLAYBOOKS, check_places
from provisioner.control.fabric.fabric_standing import Fabrics
from provisioner.daemon.artifacts import ArtifactDoor, open_artifacts
from provisioner.daemon.daemon import Parts
from provisioner.daemon.observing import narrow_fabrics, narrow_parts
from provisioner.execution.observe.inband import BOOT_ID, REBOOT
from provisioner.integrations.sonic import acl_rows, config_db, switch_state
from provisioner.model.input_error import InputError
from provisioner.model.location import OutletState
from provisioner.planning.intake import host_tools as host_look
from provisioner.planning.intake import inband_facts
from provisioner.planning.intake.inband_facts import is_reading_command
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import (
    Call,
    FabricDelta,
    LookOnly,
    PlaybookCall,
    ShellCommand,
    ShellOutput,
)
from provisioner.ports.agents import AgentAddress
from provisioner.ports.inband import (
    BmcReads,
    HostReads,
    OutletReads,
    ReadCall,
    ReadCommand,
    SwitchWireReads,
)
from provisioner.ports.isolation import PartitionReads, Partitions
from provisioner.ports.switch import SwitchReads
from provisioner.ports.wire import Secret
from provisioner.runtime import permit
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings

READ_ONLY = Path(__file__).parents[2] / "provisioner" / "adapters" / "read_only"
RESET = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"
SYSTEMS = Call("GET", "/redfish/v1/Systems")


def test_a_bmc_sees_readings_and_one_pair_of_login_and_logout() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()
            with permit.observe():
                assert (await transport.request(bmc.address(), SYSTEMS)).status == 200
                for method in ("POST", "PATCH", "PUT", "DELETE"):
                    with permit.allow_reads(), pytest.raises(LookOnly, match="observes"):
                        await transport.request(bmc.address(), Call(method, RESET, {}))
                await transport.close()
            changes = [(m, p) for m, p in bmc.log if m not in ("GET", "HEAD")]
            assert [m for m, _ in changes] == ["POST", "DELETE"]
            assert all(is_session_call(Call(m, p)) for m, p in changes)
            assert bmc.sessions == {}

    run(scenario())


def test_a_bmc_that_names_a_reset_as_its_sessions_is_not_logged_in_to() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:

            async def root(_: web.Request) -> web.Response:
                links = {"Sessions": {"@odata.id": RESET}}
                return web.json_response({"Links": links, "SessionService": {"@odata.id": "/x"}})

            bmc.answers["GET", "/redfish/v1/"] = root
            transport = RedfishTransport()
            with permit.observe():
                with pytest.raises(LookOnly):
                    await transport.request(bmc.address(), SYSTEMS)
                await transport.close()
            assert {m for m, _ in bmc.log} <= {"GET", "HEAD"}

    run(scenario())


@pytest.mark.parametrize(
    ("method", "path", "is_one"),
    [
        ("POST", "/redfish/v1/SessionService/Sessions", True),
        ("POST", "/redfish/v1/SessionService/Sessions/", True),
        ("DELETE", "/redfish/v1/SessionService/Sessions/7", True),
        ("DELETE", "/redfish/v1/SessionService/Sessions", False),
        ("DELETE", "/redfish/v1/SessionService/Sessions/7/Oem/8", False),
        ("POST", "/redfish/v1/SessionService/Sessions/../../Systems", False),
        ("POST", "/redfish/v1/SessionService/Sessions?x=/Sessions", False),
        ("PATCH", "/redfish/v1/SessionService", False),
        ("POST", "/redfish/v1/EventService/Subscriptions", False),
    ],
)
def test_only_the_standard_s_collection_of_sessions_is_written_to(
    method: str, path: str, *, is_one: bool
) -> None:
    assert is_session_call(Call(method, path)) is is_one


def test_read_only_ports_have_no_method_that_changes_anything() -> None:
    """The type checker refuses any other call on them; here are their names."""
    wires = {name for p in (BmcReads, SwitchWireReads, HostReads, OutletReads) for name in names(p)}
    assert wires == {"close", "fingerprint", "forget", "password_change", "read", "read_outlet"}
    assert names(PartitionReads) == {"close", "delta", "list_partitions", "read_members", "where"}
    others = {n for n in names(SwitchReads) if not n.startswith(("read_", "is_"))}
    assert others == {"facts", "check_login", "find_wrong_firmware"}
    assert get_args(get_type_hints(ReadCall)["method"]) == ("GET", "HEAD")
    assert "body" not in {f.name for f in fields(ReadCall)}


def names(port: type) -> set[str]:
    return {name for name in dir(port) if not name.startswith("_")}


ACTING = {"BmcTransport", "SwitchTransport", "HostShell", "Pdu", "Partitions", "Agents", "Switch"}


def test_no_read_only_adapter_but_the_sources_knows_a_port_that_acts() -> None:
    """What an adapter does not hold, no path through it can call."""
    for module in sorted(READ_ONLY.glob("*.py")):
        if module.stem in ("sources", "__init__"):
            continue
        held = [
            ast.unparse(node.annotation)
            for node in ast.walk(ast.parse(module.read_text()))
            if isinstance(node, ast.arg) and node.annotation is not None
        ]
        assert not ACTING & {name.strip() for text in held for name in text.split("|")}, module


# what an observing daemon gets as it is: stores, records, measurements and ways to people
PASSED_ON = {
    "artifacts",
    "clock",
    "credentials",
    "exports",
    "folds",
    "matrix",
    "matrix_texts",
    "recovery",
    "settings",
    "shared",
    "signer",
    "store",
    "telemetry",
    "thresholds",
    "webhooks",
}


def test_every_part_of_an_observing_daemon_that_acts_is_narrowed_or_left_out() -> None:
    """A part that is added later fails here, until it is narrowed or said to act on no device."""
    given: dict[str, Any] = {field.name: Given(field.name) for field in fields(Parts)}
    given["pdus"] = {}
    given["watch"] = given["fabrics"] = None
    narrowed = narrow_parts(Parts(**given))

    same = {name for name, one in given.items() if getattr(narrowed, name) is one}
    assert same - {"watch", "fabrics"} == PASSED_ON
    fabrics = narrow_fabrics(Fabrics(AddressPlan(), cast("Partitions", Given("ufm"))))
    assert isinstance(fabrics.partitions, ReadOnlyPartitions)


def test_a_change_of_partitions_has_no_way_out() -> None:
    async def scenario() -> None:
        narrowed = ReadOnlyPartitions(cast("PartitionReads", Given("ufm")))
        with pytest.raises(LookOnly):
            await narrowed.place([], "RED", [])
        with pytest.raises(LookOnly):
            await narrowed.bring(FabricDelta())

    run(scenario())


def test_an_observing_daemon_needs_no_firmware_files_and_serves_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        taken = ArtifactDoor(port=1)  # of no use: it is not listened on
        with permit.observe():
            files = open_artifacts(tmp_path / "none", taken, WallClock(), None, Settings())
            async with files as artifacts:
                assert artifacts.url == ""

    run(scenario())
    check_places(None, PLAYBOOKS, tmp_path / "none", None, observe=True)
    with pytest.raises(InputError, match="there is no such directory"):
        check_places(None, PLAYBOOKS, tmp_path / "none", None, observe=False)


class Given:
    """A part of a daemon that nothing asks here."""

    def __init__(self, name: str) -> None:
        self.name = name


class Host:
    """A host that records the commands that arrive."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def read(self, host: str, address: str, commands: list[ReadCommand]) -> list[ShellOutput]:
        self.lines += [c.line for c in commands]
        return [ShellOutput(0, "", "") for _ in commands]

    async def read_outlet(self, outlet: str) -> OutletState:
        raise AssertionError(outlet)

    async def close(self) -> None:
        return None


def test_a_host_runs_the_closed_list_and_no_list_with_another_command_in_it() -> None:
    async def scenario() -> None:
        host = Host()
        shell = ReadOnlyShell(host)  # type: ignore[arg-type]  # a list is a sequence
        await shell.run("n", "n", [ShellCommand("boot_id", BOOT_ID, 1.0)])
        for line in (REBOOT, f"{BOOT_ID}; {REBOOT}", "", "true"):
            both = [ShellCommand("a", BOOT_ID, 1.0), ShellCommand("b", line, 1.0)]
            with pytest.raises(LookOnly):
                await shell.run("n", "n", both)
        with pytest.raises(LookOnly):
            await shell.forget("n")
        assert host.lines == [BOOT_ID]

        call = PlaybookCall("host_software", "n", "n", {}, 1.0)
        assert (await NoPlays().run(call)).status == "failed"
        agent = AgentAddress("n", "https://a", "", Secret("t"), "", 0.0)
        with pytest.raises(LookOnly):
            await NoAgents().expect("n", (), 1.0)
        with pytest.raises(LookOnly):
            await NoAgents().command(agent, "clean.execute_clean_step", {}, 1.0)
        with pytest.raises(LookOnly):
            await ReadOnlyPdu("pdu", host).switch_outlet("1", on=False)

    run(scenario())


def test_the_list_has_the_readers_commands_and_leaves_no_room_for_a_second() -> None:
    sets = {"host.baseline": {"b": {"service:chrony": "on", "package:rasdaemon": "0.8"}}}
    look = host_look.build_look(sets, [("10.0.0.1", "10.0.1.1"), ("fe80::1", "fe80::2")])
    assert look is not None
    reads = [line for _, line, _ in inband_facts.COMMANDS]
    reads += [command.line for command in lldp.CHECK.commands]
    reads += [
        look[1],
        acl_rows.STATUS,
        switch_state.build_routes_query("red", "ipv4"),
        config_db.IMAGES,
    ]
    reads += [switch_state.build_peers_query("default"), switch_state.build_targets_query("4001")]
    assert [r for r in reads if not is_reading_command(r)] == []

    broken = [f"{r}; reboot" for r in reads] + [f"reboot; {r}" for r in reads]
    broken += [look[1].replace("10.0.0.1", "$(reboot)"), look[1].replace("chrony", "a; reboot")]
    broken += [config_db.SAVE, switch_state.REBOOT, "vtysh -c 'configure terminal'"]
    broken += ["vtysh -c 'show x' -c 'clear bgp json'", "sonic-db-cli COUNTERS_DB HGETALL `x`"]
    assert [b for b in broken if is_reading_command(b)] == []
