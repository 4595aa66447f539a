"""A renewed certificate of the API is served without a restart; a broken one never is."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from pathlib import Path

import pytest
from acme_site import MISSING, NAME, running_acme
from cryptography import x509

from provisioner.daemon.api import EXPIRES, ServedCertificate, served_tls
from provisioner.integrations.sim.hardware.clock import make_certificate
from provisioner.model.input_error import InputError
from provisioner.runtime import permit as process_scope
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey


async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def connect(context: ssl.SSLContext) -> bytes:
    """The certificate that a client is shown on a new connection, in DER."""
    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=context)
    async with server:
        trust = ssl.create_default_context()
        trust.check_hostname = False
        trust.verify_mode = ssl.CERT_NONE
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return bytes(der)


def shown(served: ServedCertificate) -> bytes:
    return asyncio.run(connect(served.context))


def put(file: Path, content: bytes) -> None:
    """Exchange a file as tools do: a new one takes its name."""
    new = file.with_suffix(".new")
    new.write_bytes(content)
    new.replace(file)


def der_of(pem: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.decode())


@pytest.mark.parametrize("apart", [False, True])
def test_a_renewed_pair_is_served_from_the_next_connection_on(tmp_path: Path, apart: bool):
    cert, key = make_certificate("one", "127.0.0.1")
    renewed, its_key = make_certificate("two", "127.0.0.1")
    certificate = tmp_path / "api.pem"
    key_file = tmp_path / "api.key"
    put(certificate, cert if apart else cert + key)
    put(key_file, key)
    served = ServedCertificate(str(certificate), str(key_file) if apart else "")
    ends = x509.load_pem_x509_certificate(cert).not_valid_after_utc.timestamp()

    assert shown(served) == der_of(cert)
    assert process_scope.get_scope().counts[EXPIRES] == int(ends)
    assert not served.reload()
    put(certificate, renewed if apart else renewed + its_key)
    if apart:  # a tool that writes one file after the other
        assert not served.reload()
        assert shown(served) == der_of(cert)
        put(key_file, its_key)
    assert served.reload()
    assert shown(served) == der_of(renewed)
    assert not served.reload()


@pytest.mark.parametrize("broken", ["", "no certificate", "half"])
def test_a_broken_file_leaves_the_served_certificate_in_force(tmp_path: Path, broken: str):
    cert, key = make_certificate("one", "127.0.0.1")
    file = tmp_path / "api.pem"
    put(file, cert + key)
    served = ServedCertificate(str(file))
    content = cert[: len(cert) // 2] if broken == "half" else broken.encode()
    put(file, content)

    assert not served.reload()
    assert shown(served) == der_of(cert)
    file.unlink()
    assert not served.reload()
    assert shown(served) == der_of(cert)


def test_a_daemon_looks_for_renewed_files_by_itself(tmp_path: Path):
    cert, key = make_certificate("one", "127.0.0.1")
    renewed, its_key = make_certificate("two", "127.0.0.1")
    put(tmp_path / "api.pem", cert + key)

    async def scenario() -> None:
        chosen = Settings(api_certificate=str(tmp_path / "api.pem"))
        async with (
            served_tls(tmp_path, chosen, MasterKey.generate(), 0.01) as context,
            asyncio.timeout(20),
        ):
            assert await connect(context) == der_of(cert)
            put(tmp_path / "api.pem", renewed + its_key)
            while await connect(context) != der_of(renewed):
                pass

    asyncio.run(scenario())


def test_a_file_that_cannot_be_used_at_the_start_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="No such file"):
        ServedCertificate(str(tmp_path / "nowhere.pem"))


@pytest.mark.skipif(bool(MISSING), reason="apt-get install pebble certbot: there is no ACME here")
def test_certbot_gets_and_renews_a_certificate_that_clients_verify(tmp_path: Path):
    async def verify(served: ServedCertificate, root: str) -> int:
        server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=served.context)
        async with server:
            port = server.sockets[0].getsockname()[1]
            trust = ssl.create_default_context(cadata=root)
            name = {"server_hostname": NAME}
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, **name)
            serial = writer.get_extra_info("peercert")["serialNumber"]
            writer.close()
            return int(serial, 16)

    with running_acme(tmp_path / "acme") as site:
        site.certify()
        served = ServedCertificate(str(site.file))
        first = asyncio.run(verify(served, site.root()))
        site.certify("--force-renewal")
        assert served.reload()
        second = asyncio.run(verify(served, site.root()))

        assert first != second
        assert site.file.stat().st_mode & 0o777 == 0o640
    shutil.rmtree(tmp_path / "acme")
