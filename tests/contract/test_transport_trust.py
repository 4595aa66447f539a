"""Whom the transports believe: a pin, a CA, or anybody if a person asked for it."""

from __future__ import annotations

import logging

import pytest
from devices import Bmc, run

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.model.outcome import Reason
from provisioner.ports import (
    BmcAddress,
    Call,
    CertificateChanged,
    CertificateUntrusted,
    LoginRefused,
    Malformed,
    Unreachable,
)

GET = Call("GET", "/redfish/v1/Systems")
POST = Call("POST", "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset", {})


def test_an_unknown_certificate_is_refused_without_a_pin() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()
            with pytest.raises(CertificateUntrusted) as refused:
                await transport.request(bmc.address(pin=""), GET)

            assert refused.value.reason is Reason.CERTIFICATE_UNTRUSTED
            assert "SSLContext" not in str(refused.value)
            assert bmc.log == []
            await transport.close()

    run(scenario())


def test_a_certificate_of_the_given_authority_is_believed() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport(ca_file=bmc.certificate_file)

            assert (await transport.request(bmc.address(pin=""), GET)).status == 200
            await transport.close()

    run(scenario())


def test_insecure_is_obeyed_and_logged_once(caplog) -> None:
    caplog.set_level(logging.WARNING)

    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()
            for _ in range(3):
                await transport.request(bmc.address(pin="", insecure=True), GET)

            assert caplog.text.count("not verified") == 1
            await transport.close()

    run(scenario())


@pytest.mark.parametrize("pin", ["xyz", "00", "ab" * 20, "é"])
def test_a_pin_that_is_no_sha_256_trusts_nobody(pin) -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()
            with pytest.raises(CertificateChanged):
                await transport.request(bmc.address(pin=pin), GET)
            await transport.close()

    run(scenario())


def test_a_pin_may_be_written_with_colons_and_capitals() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            upper = bmc.pin.upper()
            pin = ":".join(upper[i : i + 2] for i in range(0, 64, 2))
            transport = RedfishTransport()

            assert (await transport.request(bmc.address(pin=pin), GET)).status == 200
            await transport.close()

    run(scenario())


def test_the_fingerprint_is_told_without_a_request() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()

            assert await transport.fingerprint(BmcAddress(bmc.url)) == bmc.pin
            assert bmc.log == []
            await transport.close()

    run(scenario())


def test_the_fingerprint_of_nobody_and_of_no_tls_are_promised_errors() -> None:
    async def scenario() -> None:
        transport = RedfishTransport()
        async with Bmc() as bmc:
            await bmc.stop()
            with pytest.raises(Unreachable):
                await transport.fingerprint(bmc.stranger())
            bmc.tls = None
            await bmc.start()
            with pytest.raises((Malformed, Unreachable)):
                await transport.fingerprint(bmc.stranger())
            assert await transport.fingerprint(BmcAddress("http://127.0.0.1:1")) == ""
        await transport.close()

    run(scenario(), limit_s=30)


def test_credentials_are_not_sent_over_plain_http() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            await bmc.stop()
            bmc.tls = None
            await bmc.start()
            transport = RedfishTransport()
            address = bmc.address(pin="")
            plain = type(address)(
                address.url.replace("https", "http"), address.username, address.secret
            )
            with pytest.raises(LoginRefused):
                await transport.request(plain, GET)

            assert not any({"authorization", "x-auth-token"} & h.keys() for h in bmc.headers)
            assert bmc.sessions_made == 0
            await transport.close()

    run(scenario())


def test_t15_another_certificate_than_the_pinned_one_is_refused_before_anything_is_said() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            old = bmc.address()
            transport = RedfishTransport()
            await transport.request(old, GET)
            await bmc.stop()
            bmc.renew_certificate()
            await bmc.start()
            said = len(bmc.log)
            for call in (GET, POST):
                with pytest.raises(CertificateChanged):
                    await transport.request(old, call)

            assert len(bmc.log) == said
            assert await transport.fingerprint(old) == bmc.pin != old.pin
            assert (await transport.request(bmc.address(), GET)).status == 200
            await transport.close()

    run(scenario())


@pytest.mark.parametrize("pin", ["", "ab" * 32])
def test_no_address_of_memory_is_in_a_message(pin: str) -> None:
    async def scenario() -> None:
        transport = RedfishTransport()
        with pytest.raises(Unreachable) as gone:
            await transport.request(BmcAddress("https://127.0.0.1:1", pin=pin), GET)

        assert "127.0.0.1:1" in str(gone.value)
        assert " at 0x" not in str(gone.value)
        await transport.close()

    run(scenario())
