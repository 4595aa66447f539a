"""Secure Boot and its key databases at every simulated vendor, read and judged.

The resources have the form of DMTF's schemas; no captured tree shows such databases.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from bmc_wire import Wire, host_of

from provisioner.adapters.redfish.client import Redfish
from provisioner.checks import secure_boot
from provisioner.checks.attestation.event_log import BootState, read_boot_states
from provisioner.checks.context import build_context
from provisioner.integrations.sim.redfish.shapes_bios import list_makers_keys, make_boot_key
from provisioner.model.cohort import CheckResult, Evidence, Verdict
from provisioner.model.inventory import Inventory
from provisioner.model.matrix import AttestationRule, Matrix
from provisioner.model.node import BoardTpm, Node, NodeKind

NAMES = ["PK", "KEK", "db", "dbx"]


def read(host: Redfish) -> str:
    reading = asyncio.run(host.read_resources(secure_boot.SOURCE))
    gaps = [[g.source, g.reason.value, g.detail] for g in reading.gaps]
    return json.dumps({"resources": dict(reading.resources), "gaps": gaps})


def judge(text: str, tpm: BoardTpm | None = None, **rule: Any) -> CheckResult:
    rule = {"policy": "require", **rule}
    node = Node(id="n", kind=NodeKind.HOST, tpm=tpm)
    built = build_context(node, Inventory(node="n", vendor="dell"), Matrix(releases={}))
    asked = AttestationRule.model_validate({"secure_boot": rule})
    context = built.model_copy(update={"attestation": asked})
    evidence = Evidence(source=secure_boot.SOURCE, exit_code=0, text=text)
    return secure_boot.CHECK.judge({"secure_boot": evidence}, context)


def test_a_difference_to_the_quote_of_one_boot_never_passes_in_silence() -> None:
    _wire, host, _ = host_of("dell")
    text = read(host)
    tpm = BoardTpm(key_sha256="0" * 64, enrolled_at=1.0, secure_boot=False, shown_secure_boot=True)
    agreeing = tpm.model_copy(update={"shown_secure_boot": False})
    silent = tpm.model_copy(update={"shown_secure_boot": None})

    lied = judge(text, tpm, state="off")

    assert lied.verdict is Verdict.FAIL
    (finding,) = lied.findings
    assert finding.detail == (
        "contradiction: Secure Boot was on by the BMC and off by the TPM's quote, in one boot"
    )
    assert judge(text, agreeing, state="off").verdict is Verdict.PASS
    assert judge(text, silent, state="off").verdict is Verdict.PASS


def boot(wire: Wire) -> None:
    wire.client.machine.host.bios.secure_boot = True
    wire.client.machine.restart_host(wire.now())
    wire.client.later(900.0)


def state_of(text: str) -> BootState:
    (state,) = read_boot_states(text)
    return state


def pins_of(text: str) -> dict[str, list[str]]:
    return {name: [d.sha256] for name, d in state_of(text).databases.items()}


@pytest.mark.parametrize("vendor", ["dell", "hpe", "lenovo", "supermicro", "ami_dgx"])
def test_state_and_four_databases_are_read(vendor: str) -> None:
    _wire, host, _ = host_of(vendor)

    state = state_of(read(host))

    assert state.running is False
    assert [d.entries for d in state.databases.values()] == [1, 1, 2, 5]
    assert list(state.databases) == NAMES


def test_a_host_with_the_admitted_keys_passes() -> None:
    wire, host, _ = host_of("dell")
    boot(wire)
    text = read(host)

    result = judge(text, databases=pins_of(text))

    assert (result.verdict, result.findings) == (Verdict.PASS, ())


def test_secure_boot_that_is_off_fails_in_user_mode() -> None:
    _wire, host, _ = host_of("dell")

    (finding,) = judge(read(host)).findings

    assert (finding.measured, finding.wanted) == ("off", "on")


def test_a_key_more_in_db_is_named_with_both_digests() -> None:
    wire, host, _ = host_of("dell")
    boot(wire)
    pins = pins_of(read(host))
    keys = dict(list_makers_keys())
    keys["db"] = (*keys["db"], make_boot_key("somebody else"))
    wire.client.machine.host.bios.boot_keys = keys
    text = read(host)

    (finding,) = judge(text, databases=pins).findings

    assert finding.part == "db"
    assert finding.wanted == pins["db"][0]
    assert finding.measured == state_of(text).databases["db"].sha256 != finding.wanted


def test_a_digest_less_in_dbx_is_another_database() -> None:
    wire, host, _ = host_of("dell")
    boot(wire)
    pins = pins_of(read(host))
    keys = dict(list_makers_keys())
    wire.client.machine.host.bios.boot_keys = {**keys, "dbx": keys["dbx"][1:]}

    result = judge(read(host), databases=pins)

    assert [f.part for f in result.findings] == ["dbx"]
    assert result.verdict is Verdict.FAIL


def test_the_order_of_entries_is_no_difference() -> None:
    wire, host, _ = host_of("dell")
    pins = pins_of(read(host))
    turned = {name: tuple(reversed(keys)) for name, keys in list_makers_keys().items()}
    wire.client.machine.host.bios.boot_keys = turned

    assert pins_of(read(host)) == pins


def test_recorded_differences_are_stated_and_cost_nothing() -> None:
    _wire, host, _ = host_of("dell")

    result = judge(read(host), policy="record", databases={"db": ["0" * 64]})

    assert result.verdict is Verdict.PASS
    assert {f.part for f in result.findings} == {"host", "db"}


@pytest.mark.parametrize("name", NAMES)
def test_entries_that_the_bmc_does_not_serve_are_no_empty_database(name: str) -> None:
    _wire, host, _ = host_of("dell")
    document = json.loads(read(host))
    pins = pins_of(json.dumps(document))
    for kind in ("Certificates", "Signatures"):
        at = f"/SecureBootDatabases/{name}/{kind}"
        gone = [path for path in document["resources"] if at in path]
        for path in gone:
            del document["resources"][path]
        source = next(p for p in document["resources"] if p.endswith(f"Databases/{name}"))
        document["gaps"].append([f"{source}/{kind}", "not_offered", "HTTP status 404"])

    result = judge(json.dumps(document), state="off", databases=pins)

    (finding,) = result.findings
    assert (finding.part, finding.measured) == (name, "not shown")


def test_setup_mode_is_no_secure_boot() -> None:
    wire, host, _ = host_of("dell")
    boot(wire)
    text = read(host).replace("UserMode", "SetupMode")

    (finding,) = judge(text).findings

    assert "setup mode" in finding.detail


def test_a_bmc_without_secure_boot_does_not_pass() -> None:
    text = json.dumps({"resources": {"/redfish/v1/Systems/1": {}}, "gaps": []})

    assert judge(text).verdict is Verdict.FAIL


def test_unreadable_entries_never_pass() -> None:
    _wire, host, _ = host_of("dell")
    text = read(host).replace("BEGIN CERTIFICATE", "BEGIN NOTHING")

    (finding,) = judge(text, state="off", databases={"db": ["0" * 64]}).findings

    assert finding.detail.startswith("cannot be judged")
