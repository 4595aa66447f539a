"""A switch's certificate is replaced through the manager, and proved by a handshake, over real TLS.

The manager answers as NVIDIA's page "Rotate Customer Certificates" of NetQ NVLink describes
(docs/sources/hardware.md#certificate-rotation); the controller is a TLS port of its own.
"""

from __future__ import annotations

import asyncio
import fcntl
import ipaddress
import itertools
import os
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from typer.testing import CliRunner

from provisioner.integrations.racks.duty import rotate_commands
from provisioner.integrations.racks.duty.certificate_commands import (
    CONTROLLER_PORT,
    Door,
    Presented,
)
from provisioner.integrations.racks.duty.rotate_commands import Rotation, rotate
from provisioner.integrations.racks.duty.switch_bundle import find_refusals, read_bundle
from provisioner.integrations.racks.partitions.nmx_client import VARIABLE, NmxClient
from provisioner.integrations.racks.rack_commands import app
from provisioner.integrations.racks.update_log import BEGAN, Line, hold_log, open_log, read_log
from provisioner.integrations.sim.hardware.clock import load_certificate, make_certificate
from provisioner.integrations.sim.racks.logins import read_login
from provisioner.integrations.sim.racks.nmx import Nmx
from provisioner.ports import Call, Reply, SwitchAddress, Unreachable

PASSWORD = "rw-secret"
HOST = f"127.77.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}"  # its port is one of the system
MORE = tuple(HOST.replace("127.77", f"127.{n}") for n in (78, 79))
Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def make(
    name: str, by: Pair | None = None, days: int = 400, host: str = HOST, begins: int = -1
) -> Pair:
    """A certificate by an authority, or one of its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if by is None else by[0].subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=begins))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .sign(key if by is None else by[1], hashes.SHA256())
    )
    return made, key


def pack(pair: Pair, passphrase: bytes = b"") -> bytes:
    how = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    return pkcs12.serialize_key_and_certificates(b"s0", pair[1], pair[0], None, how)


def open_context(bundle: bytes, folder: Path) -> ssl.SSLContext:
    key, made, _ = pkcs12.load_key_and_certificates(bundle, None)
    assert key is not None
    assert made is not None
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with tempfile.NamedTemporaryFile(dir=folder) as shown:
        shown.write(secret + made.public_bytes(Encoding.PEM))
        shown.flush()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(shown.name)
    return context


@dataclass
class Rack:
    """A manager and one switch's controller, both served."""

    folder: Path
    manager: Nmx
    url: str = ""

    def run(self, *more: str, bundle: bytes | None = None, issuer: x509.Certificate) -> Any:
        if bundle is not None:
            (self.folder / "s0.p12").write_bytes(bundle)
        (self.folder / "issuer.pem").write_bytes(issuer.public_bytes(Encoding.PEM))
        files = ["--bundle", "s0.p12", "--issuer", "issuer.pem", "--ca", "ca.pem"]
        files = [str(self.folder / each) if "." in each else each for each in files]
        login = ["--manager", self.url, "--user", "rw-user"]
        journal = ["--journal", str(self.folder / "s0.journal")]
        words = ["rotate-certificate", str(self.folder / "r.yaml"), "s0", *files, *login, *journal]
        return CliRunner().invoke(app, [*words, *more], env={VARIABLE: PASSWORD})

    @property
    def sent(self) -> list[str]:
        return [line for line in self.manager.log if line.startswith("certificate")]


AUTHORITY = make("site authority")
OLD, NEW = make("old", AUTHORITY, days=20), make("new", AUTHORITY)


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[Rack]:
    units = ", ".join(
        f"{{name: s{n}, kind: nvlink-switch, u: {19 + n}, slot: {20 + n}, tray_index: {n}, "
        f'bmc: "https://127.0.0.1:{n + 1}", nvos: "https://{host}"}}'
        for n, host in enumerate((HOST, *MORE))
    )
    plan = f"racks:\n  - name: r01\n    chassis_serial: C1\n    domain: d01\n    units: [{units}]\n"
    (tmp_path / "r.yaml").write_text(plan)
    certificate, key = make_certificate("netq", "127.0.0.1")
    (tmp_path / "ca.pem").write_bytes(certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(context, certificate, key)
    olds = {host: pack(make("old", AUTHORITY, days=20, host=host)) for host in MORE}
    made = Rack(tmp_path, Nmx(managed={HOST: pack(OLD), **olds}))
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def answer(request: web.BaseRequest) -> web.Response:
        login = read_login(request.headers)
        if (login.user, login.password) != ("rw-user", PASSWORD):
            return web.Response(status=401)
        form: dict[str, list[bytes]] = {}
        if request.method == "PUT":
            for name, value in (await request.post()).items():
                content = value.file.read() if isinstance(value, web.FileField) else value
                assert not isinstance(content, bytearray)
                form.setdefault(name, []).append(
                    content.encode() if isinstance(content, str) else content
                )
        told = made.manager.request(request.method, request.path, form)
        return web.Response(status=told.status, body=told.encode())

    async def run() -> None:
        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        made.url = f"https://127.0.0.1:{runner.addresses[0][1]}"

        async def present(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            host = writer.get_extra_info("sockname")[0]
            with suppress(OSError):  # the certificate of now, as a controller that started anew
                await writer.start_tls(open_context(made.manager.managed[host], tmp_path))
            writer.close()

        hosts = [HOST, *MORE]
        server = await asyncio.start_server(present, hosts, CONTROLLER_PORT)
        ready.set()
        await stop.wait()
        server.close()
        await runner.cleanup()

    # forked runs of these tests share the address: one controller stands there at a time
    turn = os.open(
        Path(tempfile.gettempdir(), f"provisioner-{HOST}.lock"), os.O_CREAT | os.O_WRONLY
    )
    fcntl.flock(turn, fcntl.LOCK_EX)
    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield made
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()
        os.close(turn)


def test_a_new_certificate_is_shown_first_then_sent_once_and_proved_by_a_handshake(
    rack: Rack,
) -> None:
    dry = rack.run(bundle=pack(NEW), issuer=AUTHORITY[0])
    assert (dry.exit_code, rack.sent) == (1, [])
    assert "in place of CN=old" in dry.output

    done = rack.run("--apply", "--yes", issuer=AUTHORITY[0])
    assert done.exit_code == 0, done.output
    assert done.output.endswith("s0 presents it\n")
    assert rack.sent == [f"certificate {HOST}"]

    again = rack.run("--apply", "--yes", issuer=AUTHORITY[0])
    assert (again.exit_code, again.output, len(rack.sent)) == (0, "s0 presents it\n", 1)
    assert PASSWORD not in (rack.folder / "s0.journal").read_text()


@pytest.mark.parametrize(
    ("fault", "told"),
    [("maintenance", "maintenance mode"), ("managed", "status 422"), ("fails", "failed")],
)
def test_what_the_manager_refuses_or_fails_is_not_done(rack: Rack, fault: str, told: str) -> None:
    rack.manager.maintenance = fault != "maintenance"
    rack.manager.faults.fails = fault == "fails"
    rack.manager.unmanaged = fault == "managed"
    done = rack.run("--apply", "--yes", bundle=pack(NEW), issuer=AUTHORITY[0])
    assert done.exit_code == 1
    assert "not done" in done.output
    assert told in done.output

    rack.manager.maintenance, rack.manager.unmanaged = True, False
    rack.manager.faults.fails = False
    assert rack.run("--apply", "--yes", issuer=AUTHORITY[0]).exit_code == 0


def test_a_command_that_died_with_its_request_under_way_waits_for_it_and_sends_nothing(
    rack: Rack,
) -> None:
    bundle = pack(NEW)
    form = {"CertP12": [bundle], "Switches": [f'{{"Address": "{HOST}"}}'.encode()]}
    rack.manager.request("PUT", "/nmx/v1/certificates/switches", form)
    with open_log(rack.folder / "s0.journal") as log:
        log.write(Line("s0", BEGAN, read_bundle(bundle).sha256, time.time(), "x"))
        asyncio.run(log.sync())
    done = rack.run("--apply", "--yes", bundle=bundle, issuer=AUTHORITY[0])
    assert done.exit_code == 0, done.output
    assert len(rack.sent) == 1


@pytest.fixture
def batch(rack: Rack) -> Rack:
    """Three switches, each with a new bundle of its own."""
    for number, host in enumerate((HOST, *MORE)):
        made = pack(make("new", AUTHORITY, host=host))
        (rack.folder / f"s{number}.p12").write_bytes(made)
    return rack


def rotate_batch(rack: Rack, *more: str, plan: Path | None = None) -> tuple[int, list[str]]:
    if plan is None:
        rack.run(issuer=AUTHORITY[0])  # writes the issuer's file
    words = ["rotate-certificate", str(plan or rack.folder / "r.yaml"), "s0", "s1", "s2"]
    words += ["--bundle", str(rack.folder), "--issuer", str(rack.folder / "issuer.pem")]
    words += ["--manager", rack.url, "--user", "rw-user", "--ca", str(rack.folder / "ca.pem")]
    words += ["--journal", str(rack.folder / "batch.journal"), *more]
    done = CliRunner().invoke(app, words, env={VARIABLE: PASSWORD})
    failed = "" if isinstance(done.exception, SystemExit) else f"{done.exception or ''}"
    said = f"{done.output}{failed}"
    return done.exit_code, said.splitlines()


def test_a_batch_of_certificates_that_is_cut_names_what_is_done_and_sends_nothing_twice(
    batch: Rack,
) -> None:
    take = batch.manager.request

    def cut(method: str, path: str, body: Any) -> Any:
        if method == "PUT" and len(batch.sent) == 1:
            batch.manager.maintenance = False  # somebody ends its maintenance mode
        return take(method, path, body)

    batch.manager.request = cut  # type: ignore[method-assign]
    code, said = rotate_batch(batch, "--apply", "--yes")
    assert code == 1
    assert said[3] == "s0 presents it"
    assert said[4].startswith("s1: not done: the manager refused it")
    assert said[5] == "s2: not begun"
    assert batch.sent == [f"certificate {HOST}"]

    batch.manager.request = take  # type: ignore[method-assign]
    batch.manager.maintenance = True
    second = read_bundle((batch.folder / "s1.p12").read_bytes())
    with open_log(batch.folder / "batch.journal") as log:  # and the next one dies as it sends
        log.write(Line("s1", BEGAN, second.sha256, time.time() - 3600.0, "x"))
        asyncio.run(log.sync())
    code, said = rotate_batch(batch)
    assert code == 1
    assert said[0] == "s0 presents it"
    assert [line.partition(":")[0] for line in said[1:]] == ["s1", "s2"]
    ends = "; it was sent before, and nobody saw its end"
    assert [line.endswith(ends) for line in said] == [False, True, False]
    code, said = rotate_batch(batch, "--apply", "--yes")
    assert code == 0, said
    assert said[0] == "s0 presents it"
    assert said[-2:] == ["s1 presents it", "s2 presents it"]
    assert batch.sent == [f"certificate {host}" for host in (HOST, *MORE)]


def test_a_batch_with_one_bundle_that_would_be_refused_sends_none(batch: Rack) -> None:
    (batch.folder / "s2.p12").write_bytes(pack(make("new", AUTHORITY, host=HOST)))
    code, said = rotate_batch(batch, "--apply", "--yes")
    assert code == 1
    assert any(line.startswith("s2: refused: ") for line in said)
    assert batch.sent == []


@pytest.mark.parametrize("beside", ["the same plan", "renamed", "a copy", "another manager"])
def test_two_rotations_of_one_domain_are_not_under_way_at_one_time(
    batch: Rack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    """Each with a journal of its own, so that no journal keeps them apart."""
    seen: list[tuple[int, list[str]]] = []
    plan = batch.folder / "r.yaml"
    go_on = rotate_commands._rotate_all

    def begin_beside() -> tuple[int, list[str]]:
        (tmp_path / "b").mkdir()
        copy = tmp_path / "b" / "r.yaml"
        copy.write_text(plan.read_text())
        if beside == "renamed":
            copy = copy.replace(plan)
        words = ["--apply", "--yes", "--journal", str(tmp_path / "b" / "journal")]
        if beside == "another manager":
            words += ["--manager", "https://127.0.0.2:1"]
        return rotate_batch(batch, *words, plan=plan if beside == "the same plan" else copy)

    async def act_beside_another(*words: Any) -> None:
        if not seen:
            seen.append(await asyncio.to_thread(begin_beside))
        await go_on(*words)

    monkeypatch.setattr(rotate_commands, "_rotate_all", act_beside_another)
    rotate_batch(batch, "--apply", "--yes")
    (second,) = seen
    assert second[0]
    assert "another rotation of certificates is under way there" in " ".join(second[1])
    assert len(batch.sent) == 3


class Forgetful:
    """A manager that is idle; `loses`: the answer to what changes something is lost."""

    def __init__(self, *, loses: bool) -> None:
        self.loses = loses
        self.sent = 0

    async def request(self, _: SwitchAddress, call: Call) -> Reply:
        if call.method == "GET":
            return Reply(200, {}, b"[]")
        self.sent += 1
        raise Unreachable("the answer is lost", maybe_executed=self.loses)


@pytest.mark.parametrize("died", [True, False])
def test_a_controller_that_still_starts_anew_gets_the_bundle_of_a_lost_request_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died: bool
) -> None:
    """After a death, and after a lost answer: it shows the new one only at the sixth look."""
    bundle = read_bundle(pack(NEW))
    looks = itertools.count()

    async def look(door: Door) -> Presented:
        return Presented(door, sha256="old" if next(looks) < 5 else bundle.sha256)

    monkeypatch.setattr(rotate_commands, "read_door", look)
    wire = Forgetful(loses=True)
    one = Rotation("s0", Door("s0", "NVLink controller", HOST, CONTROLLER_PORT), bundle, "", 0.01)

    async def run() -> str:
        client = NmxClient(wire, SwitchAddress("https://m"), asyncio.sleep)
        async with hold_log(tmp_path / "journal") as log:
            if died:
                log.write(Line("s0", BEGAN, bundle.sha256, time.time(), "old"))
                await log.sync()
            return await rotate(one, client, log)

    assert asyncio.run(run()) == ""
    assert wire.sent == (0 if died else 1)
    assert repr(bundle.content) not in repr(bundle)


def test_a_bundle_that_changes_nothing_is_sent_three_times_at_most(rack: Rack) -> None:
    rack.manager.faults.fails = True
    for _ in range(4):
        done = rack.run("--apply", "--yes", bundle=pack(NEW), issuer=AUTHORITY[0])
    assert len(rack.sent) == 3
    assert "it was sent 3 times" in done.output
    assert read_log(rack.folder / "s0.journal").of("s0").has_begun()


def test_a_closed_controller_gets_nothing(rack: Rack, tmp_path: Path) -> None:
    plan = (tmp_path / "r.yaml").read_text().replace(HOST, "127.77.255.254")
    (tmp_path / "r.yaml").write_text(plan)
    bundle = pack(make("new", AUTHORITY, host="127.77.255.254"))
    done = rack.run("--apply", "--yes", bundle=bundle, issuer=AUTHORITY[0])
    assert (done.exit_code, rack.sent) == (1, [])
    assert "shows no certificate" in done.output


OTHER = make("another authority")
MIDDLE = make("old", AUTHORITY)
REFUSED = {
    "another name": (pack(make("n", AUTHORITY, host="127.0.0.9")), f"does not name {HOST}"),
    "over": (pack(make("n", AUTHORITY, days=-1, begins=-9)), "its certificate ended on"),
    "early": (pack(make("n", AUTHORITY, begins=3)), "its certificate begins on"),
    "no later": (pack(make("n", AUTHORITY, days=19)), "no later than the present one"),
    "authority": (pack(make("n", OTHER)), "no chain of signatures"),
    "by no authority": (pack(make("n", MIDDLE)), "no chain of signatures"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_not_be_accepted_is_refused_by_name(case: str) -> None:
    content, told = REFUSED[case]
    ends = OLD[0].not_valid_after_utc.timestamp()
    refused = find_refusals(read_bundle(content), AUTHORITY[0], HOST, ends, time.time())
    assert [told in each for each in refused] == [True]


def test_an_issuer_that_is_none_is_refused_and_a_good_bundle_is_not() -> None:
    bundle, now = read_bundle(pack(NEW)), time.time()
    assert list(find_refusals(bundle, AUTHORITY[0], HOST, 0.0, now)) == []
    strange = replace(bundle, key=make("x")[1])
    (told,) = find_refusals(strange, AUTHORITY[0], HOST, 0.0, now)
    assert told == "its key is not its certificate's"
    (told,) = find_refusals(bundle, OLD[0], HOST, 0.0, now)
    assert "no certificate of an authority" in told
    late = now + 500 * 86_400.0
    assert any(
        "not valid now" in each for each in find_refusals(bundle, AUTHORITY[0], HOST, 0, late)
    )


@pytest.mark.parametrize("content", [b"", b"x" * 99, pack(NEW, passphrase=b"secret"), b"0" * 2**21])
def test_what_is_no_bundle_without_a_passphrase_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"PKCS#12|too large"):
        read_bundle(content)
