"""Certificates of a rack's machines, read over real TLS on loopback."""

from __future__ import annotations

import asyncio
import json
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pydantic import ValidationError
from typer.testing import CliRunner

from provisioner.integrations.racks.duty.certificate_commands import (
    Door,
    Presented,
    judge,
    list_doors,
    read_door,
    read_doors,
)
from provisioner.integrations.racks.duty.certificate_watch import SUBJECT, CertificateWatch
from provisioner.integrations.racks.plan import RackPlan
from provisioner.integrations.racks.rack_commands import app
from provisioner.runtime import permit
from provisioner.settings import Settings

DAY_S = 86_400.0


def write_certificate(folder: Path, days: int) -> Path:
    """Write a key and a certificate of it that ends in so many days."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "s0.nvos.example")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=400))
        .not_valid_after(now + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file = folder / f"{days}.pem"
    file.write_bytes(secret + made.public_bytes(Encoding.PEM))
    return file


async def ask(file: Path, *, mutual: bool = False) -> Presented:
    """Serve a certificate, and read it."""
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(file)
    if mutual:  # as the NVLink controller does
        served.verify_mode = ssl.CERT_REQUIRED
        served.load_verify_locations(file)
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=served
    )
    port = server.sockets[0].getsockname()[1]
    async with server:
        return await read_door(Door("s0", "NVOS", "127.0.0.1", port))


@pytest.mark.parametrize(("days", "says"), [(400, "good"), (29, "ends soon"), (-1, "over")])
@pytest.mark.parametrize("mutual", [False, True])
def test_the_end_of_a_certificate_is_read_by_a_handshake_without_a_login(
    tmp_path: Path, days: int, says: str, mutual: bool
) -> None:
    read = asyncio.run(ask(write_certificate(tmp_path, days), mutual=mutual))

    assert (read.unread, read.subject) == ("", "CN=s0.nvos.example")
    assert judge(read, datetime.now(UTC).timestamp()) == says


def test_what_does_not_answer_is_unread_and_a_closed_controller_is_none() -> None:
    async def silent() -> Presented:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            return await read_door(Door("s0", "NVOS", "127.0.0.1", port), limit_s=0.2)

    mute = asyncio.run(silent())
    assert (judge(mute, 0.0), mute.unread) == ("unread", "no answer in 0 s")
    closed = Presented(Door("s0", "NVLink controller", "h", 9370, optional=True), unread="refused")
    assert judge(closed, 0.0) == "closed"


def test_every_tls_port_of_the_plan_is_asked_and_an_unread_one_is_told(tmp_path: Path) -> None:
    units = [
        {"name": "s0", "kind": "nvlink-switch", "u": 19, "slot": 20, "tray_index": 0}
        | {"bmc": "https://127.0.0.1:1", "nvos": "https://127.0.0.1:2"},
        {"name": "p0", "kind": "power-shelf", "u": 6, "bmc": "http://127.0.0.1:3"},
    ]
    racks = [{"name": "r01", "chassis_serial": "18", "domain": "d01", "units": units}]
    doors = list_doors(RackPlan.model_validate({"racks": racks}).racks)
    assert [(one.unit, one.what, one.port) for one in doors] == [
        ("s0", "BMC", 1),
        ("s0", "NVOS", 2),
        ("s0", "NVLink controller", 9370),
    ]
    assert all(one.unread for one in asyncio.run(read_doors(doors)))
    (tmp_path / "racks.yaml").write_text(json.dumps({"racks": racks}))
    told = CliRunner().invoke(app, ["certificates", str(tmp_path / "racks.yaml"), "--json"])
    assert told.exit_code == 1
    states = [row["state"] for row in json.loads(told.stdout)]
    assert states == ["unread", "unread", "closed"]


@pytest.mark.parametrize(
    "host", ["bad..host", ".host", f"{'a' * 70}.x", "h:99999", "h:x", "h:0", ":443", "[::1"]
)
def test_an_address_that_no_socket_takes_is_refused_with_the_plan(host: str) -> None:
    unit = {"kind": "power-shelf", "u": 1, "name": "p0", "bmc": f"https://{host}"}
    with pytest.raises(ValidationError, match="bmc"):
        RackPlan.model_validate({"racks": [{"name": "r", "chassis_serial": "C", "units": [unit]}]})


@pytest.mark.parametrize(("host", "port"), [("bad..host", 443), ("127.0.0.1", 99_999)])
def test_a_door_that_no_socket_takes_is_unread(host: str, port: int) -> None:
    assert asyncio.run(read_door(Door("p0", "BMC", host, port))).unread


@pytest.mark.parametrize(
    "value",
    ["2001-99-99", "!!int x", "!!bool x", "!!timestamp x", "9" * 5000, ":".join("1" * 200) + ".0"],
)
def test_no_value_of_the_plans_file_ends_the_loop(tmp_path: Path, value: str) -> None:
    (tmp_path / "racks.yaml").write_text(f"racks: {value}\n")
    settings = Settings(racks_folder=str(tmp_path))
    parts: Any = SimpleNamespace(clock=SimpleNamespace(now=lambda: 0.0), settings=settings)
    asyncio.run(CertificateWatch(parts).tick())


def test_the_daemon_tells_of_what_ends_within_thirty_days_and_forgets_what_was_replaced(
    tmp_path: Path,
) -> None:
    """Each port is a real TLS server; one answers nothing, and is no certificate that ends."""
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    clock = SimpleNamespace(now=lambda: datetime.now(UTC).timestamp())
    settings = Settings(racks_folder=str(tmp_path))
    parts: Any = SimpleNamespace(clock=clock, settings=settings)
    watch = CertificateWatch(parts)

    async def scenario() -> None:
        served.load_cert_chain(write_certificate(tmp_path, 29))
        server = await asyncio.start_server(
            lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=served
        )
        port = server.sockets[0].getsockname()[1]
        unit = {"kind": "power-shelf", "u": 1, "name": "p0", "bmc": f"https://127.0.0.1:{port}"}
        silent = {"kind": "power-shelf", "u": 2, "name": "p1", "bmc": "https://127.0.0.1:1"}
        rack = {"name": "r01", "chassis_serial": "C1", "units": [unit, silent]}
        plan = RackPlan.model_validate({"racks": [rack]})
        (tmp_path / "racks.yaml").write_text(plan.model_dump_json())
        notices = permit.get_scope().notices
        async with server:
            await watch.tick()
            (told,) = notices[SUBJECT]
            assert told.startswith("the certificate of p0's BMC ends on 20")
            server.close()
            await server.wait_closed()
            await watch.tick()
            assert notices[SUBJECT] == (told,)  # an unread one is not a good one
        server = await asyncio.start_server(
            lambda _, writer: writer.close(), "127.0.0.1", port, ssl=served
        )
        async with server:
            served.load_cert_chain(write_certificate(tmp_path, 400))
            await watch.tick()
            assert notices[SUBJECT] == ()
            (tmp_path / "racks.yaml").unlink()
            await watch.tick()

    asyncio.run(scenario())
