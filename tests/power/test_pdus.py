"""Adapters to PDUs against a Redfish service, a real SNMP agent and a site's own command."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import snmp_agent as agent
from pydantic import ValidationError

from provisioner.integrations.outlets.command_pdu import CommandPdu
from provisioner.integrations.outlets.opening import build_pdu
from provisioner.integrations.outlets.outlet_tables import TABLES, parse_index
from provisioner.integrations.outlets.redfish_pdu import RedfishPdu
from provisioner.integrations.outlets.snmp_pdu import SnmpAddress, SnmpPdu
from provisioner.integrations.sim.hardware.clock import HandClock
from provisioner.integrations.sim.hardware.machine import PowerUnit
from provisioner.integrations.sim.redfish.redfish_pdu import OUTLETS, PduService
from provisioner.integrations.twin.wires import MemoryBmcs, Wire
from provisioner.model.input_error import InputError
from provisioner.model.location import OutletState
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import (
    BmcAddress,
    Call,
    LoginRefused,
    Malformed,
    PortError,
    Reply,
    Secret,
    Unreachable,
)
from provisioner.settings import Settings

LOGIN = ("pdu", "secret-of-the-pdu")


# Redfish


def redfish(change: Callable[[str, dict[str, Any]], None] | None = None) -> tuple[Any, RedfishPdu]:
    """A PDU of three outlets; `change` edits the resources that it serves."""
    unit = PowerUnit("a", ("A1", "A2", "A10"))
    service = PduService(unit, HandClock(), *LOGIN)
    read = service._read

    def changed(path: str) -> dict[str, Any] | None:
        value = read(path)
        if value is not None and change is not None:
            change(path, value)
        return value

    service._read = changed  # type: ignore[method-assign]
    transport = MemoryBmcs({"https://a": service}, Wire(random.Random(0), 0.0))  # type: ignore[dict-item]
    return unit, RedfishPdu(transport, BmcAddress("https://a", LOGIN[0], Secret(LOGIN[1])))


@pytest.mark.parametrize("name", ["A1", "1/A1"])
def test_an_outlet_is_switched_by_the_target_that_it_lists(name: str) -> None:
    unit, pdu = redfish()

    assert asyncio.run(pdu.read_outlet(name)) is OutletState.ON
    assert asyncio.run(pdu.switch_outlet(name, on=False)) is None
    assert asyncio.run(pdu.read_outlet(name)) is OutletState.OFF
    assert unit.on == {"A1": False, "A2": True, "A10": True}


def transition(path: str, value: dict[str, Any]) -> None:
    if path.endswith("/A1"):
        value["PowerState"] = "PoweringOff"


def only_off(path: str, value: dict[str, Any]) -> None:
    if path.endswith("/A1"):
        value["Actions"]["#Outlet.PowerControl"]["PowerState@Redfish.AllowableValues"] = ["Off"]


def elsewhere(path: str, value: dict[str, Any]) -> None:
    if path.endswith("/A1"):
        value["Actions"]["#Outlet.PowerControl"]["target"] = "https://other.test/redfish/v1/x"


def renamed(path: str, value: dict[str, Any]) -> None:
    if path.endswith("/A1"):
        value["Id"] = "A2"


def two_units(path: str, value: dict[str, Any]) -> None:
    if path.endswith("/RackPDUs"):
        value["Members"] *= 2


def no_list(path: str, value: dict[str, Any]) -> None:
    if path == OUTLETS:
        value["Members"] = "none"


def test_a_state_between_on_and_off_is_unknown() -> None:
    assert asyncio.run(redfish(transition)[1].read_outlet("A1")) is OutletState.UNKNOWN


@pytest.mark.parametrize(
    ("change", "name", "words"),
    [
        (only_off, "A1", "offers no"),
        (elsewhere, "A1", "offers no"),
        (renamed, "A1", "has the id 'A2'"),
        (two_units, "A1", "write RACKPDU/OUTLET"),
        (None, "B1", "no such outlet"),
        (None, "2/A1", "no rack PDU '2'"),
    ],
)
def test_a_redfish_outlet_that_is_not_the_one_meant_is_not_switched(
    change: Any, name: str, words: str
) -> None:
    unit, pdu = redfish(change)

    refused = asyncio.run(pdu.switch_outlet(name, on=True))

    assert isinstance(refused, Blocker)
    assert refused.reason is Reason.NOT_OFFERED
    assert words in refused.detail
    assert unit.log == []


@pytest.mark.parametrize("damage", [b"caf\xe9", b"a\rb", b"\xff"])
@pytest.mark.parametrize(
    ("field", "state"), [("UserLabel", OutletState.ON), ("PowerState", OutletState.UNKNOWN)]
)
def test_a_damaged_field_of_an_outlet_is_lost_alone(
    damage: bytes, field: str, state: OutletState
) -> None:
    def label(path: str, value: dict[str, Any]) -> None:
        if path.endswith("/Outlets/A1"):
            value[field] = "SPOIL"

    _, pdu = redfish(label)
    request = pdu._transport.request

    async def spoiled(bmc: BmcAddress, call: Call) -> Reply:
        reply = await request(bmc, call)
        return dataclasses.replace(reply, body=reply.body.replace(b"SPOIL", damage))

    pdu._transport.request = spoiled  # type: ignore[method-assign]

    assert asyncio.run(pdu.read_outlet("A1")) is state


def test_a_service_without_a_collection_breaks_the_protocol() -> None:
    with pytest.raises(Malformed):
        asyncio.run(redfish(no_list)[1].read_outlet("A1"))


# SNMP


def asked(
    table: str, story: Callable[[agent.Outlets, Callable[..., SnmpPdu]], Awaitable[Any]]
) -> Any:
    """Play a story with an agent that serves one vendor's table."""

    async def main() -> Any:
        outlets = agent.Outlets(TABLES[table], (1, 2, 3)[: TABLES[table].index])
        snmp = agent.serve(outlets)
        port = await agent.find_port(snmp)

        def make(secret: str = agent.AUTH, user: str = agent.USER, **more: Any) -> SnmpPdu:
            privacy = Secret(more.get("privacy", agent.PRIVACY)) if user else None
            address = SnmpAddress("127.0.0.1", port, Secret(secret), user, "sha256", privacy)
            return SnmpPdu(address, TABLES[table], timeout_s=0.5)

        try:
            return await story(outlets, make)
        finally:
            snmp.close_dispatcher()

    return asyncio.run(main())


NAMES = {1: "1", 2: "1/2", 3: "1/2/3"}


@pytest.mark.parametrize(
    ("table", "login"),
    [
        *((t, (agent.AUTH, agent.USER)) for t in sorted(TABLES)),
        ("apc_rpdu2", (agent.COMMUNITY, "")),
    ],
)
def test_an_outlet_is_read_and_switched_by_each_vendors_table(
    table: str, login: tuple[str, str]
) -> None:
    async def story(outlets: agent.Outlets, make: Callable[..., SnmpPdu]) -> tuple[Any, ...]:
        pdu, name = make(*login), NAMES[TABLES[table].index]
        before = await pdu.read_outlet(name)
        off = await pdu.switch_outlet(name, on=False)
        switched = not any(outlets.states.values())
        after = await pdu.read_outlet(name)
        await pdu.switch_outlet(name, on=True)
        return before, off, switched, after, all(outlets.states.values())

    assert asked(table, story) == (OutletState.ON, None, True, OutletState.OFF, True)


def test_a_value_of_no_state_is_unknown_and_a_missing_outlet_is_refused() -> None:
    async def story(outlets: agent.Outlets, make: Callable[..., SnmpPdu]) -> tuple[Any, ...]:
        outlets.answers = 17
        pdu = make()
        return await pdu.read_outlet("1/2"), await pdu.read_outlet("1/9")

    state, missing = asked("raritan_pdu2", story)

    assert state is OutletState.UNKNOWN
    assert isinstance(missing, Blocker)
    assert "no such outlet" in missing.detail


def test_a_login_that_may_only_read_is_refused_as_such() -> None:
    async def story(outlets: agent.Outlets, make: Callable[..., SnmpPdu]) -> tuple[Any, ...]:
        refused = await make(agent.READER, "").switch_outlet("1", on=False)
        return refused, outlets.states

    refused, states = asked("apc_rpdu2", story)

    assert isinstance(refused, Blocker)
    assert "the right to write" in refused.unblock
    assert all(states.values())


@pytest.mark.parametrize(
    ("login", "error"),
    [
        (("wrong-key-1234", agent.USER), LoginRefused),
        ((agent.AUTH, "stranger"), LoginRefused),
        (("wrong-community", ""), Unreachable),  # an agent does not answer it at all
    ],
)
def test_a_wrong_login_is_an_error_that_shows_no_secret(
    login: tuple[str, str], error: type[PortError]
) -> None:
    async def story(_outlets: agent.Outlets, make: Callable[..., SnmpPdu]) -> None:
        await make(*login).read_outlet("1")

    with pytest.raises(error) as raised:
        asked("apc_rpdu2", story)

    assert login[0] not in str(raised.value)


def test_an_outlet_that_is_no_row_of_its_table_is_never_sent() -> None:
    for name in ("", "1/1", "x", "-1", "0", "1.2", "99999", "١"):
        assert parse_index(TABLES["apc_rpdu"], name) is None
    assert parse_index(TABLES["sentry4"], "1/1/24") == (1, 1, 24)


def test_no_object_is_used_by_two_tables() -> None:
    columns = [c for t in TABLES.values() for c in (t.state, t.command)]

    assert len(set(columns)) == len(columns) == 8


# a command


def command(tmp_path: Path, body: str, limit_s: float = 5.0, **environment: str) -> CommandPdu:
    script = tmp_path / "outlet"
    script.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    script.chmod(0o755)
    return CommandPdu((str(script), "--rack", "7"), limit_s, environment)


def test_a_command_gets_verb_and_outlet_and_only_the_variables_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_ANOTHER", "x")
    log = tmp_path / "log"
    pdu = command(tmp_path, f'echo "$@" >> {log}; env >> {log}; echo ON', TOKEN="t")

    assert asyncio.run(pdu.read_outlet("b/12")) is OutletState.ON
    assert asyncio.run(pdu.switch_outlet("b/12", on=False)) is None
    text = log.read_text(encoding="utf-8")
    assert "--rack 7 read b/12" in text
    assert "--rack 7 off b/12" in text
    assert "TOKEN=t" in text
    assert "SECRET_OF_ANOTHER" not in text


def test_a_command_that_fails_prints_nonsense_or_is_missing_is_an_answer(tmp_path: Path) -> None:
    assert asyncio.run(command(tmp_path, "echo maybe").read_outlet("1")) is OutletState.UNKNOWN
    refused = asyncio.run(command(tmp_path, "exit 3").switch_outlet("1", on=True))
    assert isinstance(refused, Blocker)
    assert "exit code 3" in refused.detail
    with pytest.raises(Unreachable):
        asyncio.run(CommandPdu(("/nonexistent/x",), 5.0, {}).read_outlet("1"))


@pytest.mark.parametrize("body", ["sleep 600", "yes on", "sleep 600 & wait"])
def test_a_command_that_does_not_end_is_ended_with_its_children(tmp_path: Path, body: str) -> None:
    began = time.monotonic()
    with pytest.raises(Unreachable) as raised:
        asyncio.run(command(tmp_path, body, limit_s=0.2).switch_outlet("1", on=True))

    assert raised.value.maybe_executed
    assert time.monotonic() - began < 30


# settings


def settings(**pdu: Any) -> Settings:
    return Settings.model_validate({"pdus": {"a": pdu}})


@pytest.mark.parametrize(
    "pdu",
    [
        {"kind": "redfish", "url": "http://a", "password_env": "X"},
        {"kind": "redfish", "url": "https://user@a", "password_env": "X"},
        {"kind": "redfish", "url": "https://a"},
        {"kind": "redfish", "url": "https://a", "password": "in the file"},
        {"kind": "snmp", "host": "a", "table": "apc_rpdu2", "password_env": "X"},
        {"kind": "snmp", "host": "a", "table": "mine", "version": "2c", "password_env": "X"},
        {"kind": "command", "argv": ["outlet"]},
        {"kind": "command", "argv": []},
        {"kind": "telnet"},
    ],
)
def test_settings_that_would_leak_or_guess_are_refused(pdu: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(**pdu)


def test_a_secret_that_is_missing_is_named_before_the_daemon_starts() -> None:
    pdu = settings(kind="redfish", url="https://a", username="u", password_env="PDU_A").pdus["a"]

    with pytest.raises(InputError, match="PDU_A"):
        build_pdu("a", pdu, None, {})  # type: ignore[arg-type]
    made = build_pdu("a", pdu, None, {"PDU_A": "x"})  # type: ignore[arg-type]
    assert isinstance(made, RedfishPdu)
