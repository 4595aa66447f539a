"""A BMC's certificate from a real authority: OpenSSL's, over real TLS, by the daemon's own client.

The command is the one of docs/credentials.md.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sockets import Served, run, served

from provisioner.adapters.redfish.transport import RedfishTransport, presented_fingerprint
from provisioner.adapters.site_command import CertificateCommand
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site as Effects
from provisioner.execution.observe.certificate_exchange import CertificateExchange
from provisioner.integrations.sim.hardware.clock import FastClock
from provisioner.model.node import BmcRef, Node, NodeKind, State
from provisioner.model.outcome import Blocker
from provisioner.planning.lifecycle.credential_rotation import BMC_CERTIFICATES_WANT as WANT
from provisioner.ports import BmcAddress, Call, CertificateChanged, Secret, Unreachable
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import open_store

PAGE = Path(__file__).parents[2] / "docs" / "credentials.md"
SUBJECT = "C=DE,ST=Hessen,L=Frankfurt,O=Example,OU=Compute"
OPENSSL = shutil.which("openssl")


def make_authority(folder: Path) -> Path:
    """A new authority, and the page's command for it."""
    if OPENSSL is None:
        pytest.skip("openssl is not installed")
    make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=Site"
    files = ["-keyout", str(folder / "ca.key"), "-out", str(folder / "ca.pem")]
    subprocess.run([OPENSSL, *make.split(), *files], check=True, capture_output=True)
    text = PAGE.read_text()
    script = text[text.index("#!/bin/sh") :].split("```")[0]
    command = folder / "sign-bmc"
    command.write_text(script.replace("/etc/provisioner/ca", str(folder)))
    command.chmod(0o700)
    return command


class FastEnough:
    """The clock of the simulated site; its waits are short ones of the wall."""

    def __init__(self, clock: FastClock) -> None:
        self.now = clock.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds / 400.0, 0.2))


async def exchange(device: Served, command: Path) -> tuple[Blocker | None, str, Any]:
    """Take the BMC into a store, and exchange its certificate; the outcome and the stored pin."""
    address = await device.address()
    assert address.secret is not None
    clock: Any = FastEnough(device.server.clock)  # type: ignore[arg-type]
    store: Any = open_store(":memory:", inline=True)
    vault = Vault(store, MasterKey.generate())
    await vault.put("n/host", address.username, Secret(address.secret.reveal()))
    ref = BmcRef(name="host", url=device.url, pin=address.pin, rotated=True)
    await store.nodes.add(Node(id="n", kind=NodeKind.HOST, state=State.CERTIFIED, bmcs=(ref,)))
    operation = await store.operations.open("n", WANT, 0.0)
    hold = Hold(store, clock, await store.operations.take(operation.id))
    transport = RedfishTransport()
    nothing: Any = None
    reach = Reach(transport, nothing, vault, pause=clock.sleep)
    settings = Settings(
        site="test", bmc_ca_command=(str(command),), bmc_certificate_subject=SUBJECT
    )
    site = Effects(clock, settings, reach, nothing, nothing, nothing, nothing)
    authority = CertificateCommand((str(command),), 30.0, {})
    problem = await CertificateExchange(site, store, authority, hold, "host").run()
    await transport.close()
    return problem, (await store.nodes.get("n")).bmcs[0].pin, address


@pytest.mark.parametrize("trouble", ["", "late_certificate"])
def test_openssl_signs_and_the_bmc_presents_it(trouble: str, tmp_path: Path) -> None:
    command = make_authority(tmp_path)

    async def scenario() -> None:
        async with served("dell") as device:
            device.service.bmc.troubles |= {trouble}
            problem, pin, before = await exchange(device, command)
            assert problem is None
            assert pin == await presented_fingerprint(device.url) != before.pin
            (tmp_path / "bmc.pem").write_bytes(device.service.bmc.certificate)
            old = RedfishTransport()
            both = BmcAddress(before.url, before.username, before.secret, f"{before.pin},{pin}")
            assert (await old.request(both, Call("GET", "/redfish/v1"))).status == 200
            with pytest.raises(CertificateChanged):
                await old.request(before, Call("GET", "/redfish/v1"))
            await old.close()

    run(scenario())
    assert OPENSSL is not None
    verify = [OPENSSL, "verify", "-CAfile", str(tmp_path / "ca.pem"), str(tmp_path / "bmc.pem")]
    assert "OK" in subprocess.run(verify, check=True, capture_output=True, text=True).stdout
    show = [OPENSSL, "x509", "-in", str(tmp_path / "bmc.pem"), "-noout", "-subject", "-ext"]
    shown = subprocess.run([*show, "subjectAltName"], check=True, capture_output=True, text=True)
    assert "127.0.0.1" in shown.stdout
    assert "Hessen" in shown.stdout


def test_a_command_that_fails_or_does_not_end_is_named(tmp_path: Path) -> None:
    async def sign(text: str, limit_s: float = 10.0) -> str | Blocker:
        command = tmp_path / "command"
        command.write_text(f"#!/bin/sh\n{text}\n")
        command.chmod(0o700)
        authority = CertificateCommand((str(command),), limit_s, {"TOKEN": "t-7"})
        return await authority.sign("n/host", "10.0.0.9", "the request")

    async def scenario() -> None:
        echoed = await sign('cat; echo "$TOKEN $PROVISIONER_BMC $PROVISIONER_BMC_HOST $HOME"')
        assert echoed == "the requestt-7 n/host 10.0.0.9 \n"
        refused = await sign("exit 3")
        assert isinstance(refused, Blocker)
        assert "exit code 3" in refused.detail
        with pytest.raises(Unreachable):
            await sign("sleep 30", 0.2)
        missing = CertificateCommand((str(tmp_path / "none"),), 1.0, {})
        with pytest.raises(Unreachable):
            await missing.sign("n/host", "10.0.0.9", "the request")

    run(scenario())
