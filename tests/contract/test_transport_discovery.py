"""Probing, scanning and SSDP: strangers are described, never trusted, and never logged in to."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import threading

import pytest
from devices import Bmc, Broken, run

from provisioner.adapters.redfish.discovery import (
    Probe,
    discover_services,
    probe,
    probe_all,
    read_origins,
    scan,
)
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Gap, Reason
from provisioner.ports import Malformed, Unreachable


def test_a_probe_names_what_answers_and_its_certificate() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()
            seen = await probe(transport, bmc.url + "/")

            assert isinstance(seen, Probe)
            assert (seen.url, seen.fingerprint, seen.product) == (bmc.url, bmc.pin, "Box")
            assert (seen.redfish_version, seen.vendor) == ("1.17.0", "unknown")
            assert not any("authorization" in h for h in bmc.headers)
            await transport.close()

    run(scenario())


def test_a_guarded_root_is_a_service_of_an_unknown_vendor() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            bmc.root_guarded = True
            transport = RedfishTransport()
            seen = await probe(transport, bmc.url)

            assert isinstance(seen, Probe)
            assert (seen.vendor, seen.root) == ("unknown", {})
            await transport.close()

    run(scenario())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", Reason.NOT_OFFERED),
        (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", Reason.NOT_OFFERED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", Reason.NOT_OFFERED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n<html/>", Reason.MALFORMED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", Reason.TOO_LARGE),
        (b"220 smtp\r\n\r\n", Reason.MALFORMED),
    ],
    ids=["404", "redirect", "list", "html", "huge", "smtp"],
)
def test_whoever_is_no_redfish_service_is_a_gap(answer, reason) -> None:
    async def scenario() -> None:
        async with Broken(answer) as device:
            transport = RedfishTransport()
            seen = await probe(transport, device.url)

            assert isinstance(seen, Gap)
            assert seen.reason is reason
            await transport.close()

    run(scenario())


@pytest.mark.parametrize("url", ["", "10.0.0.1", "https://", "https://[", "https://a:99999"])
def test_an_address_that_is_none_is_a_gap(url) -> None:
    async def scenario() -> None:
        transport = RedfishTransport()

        assert isinstance(await probe(transport, url), Gap)
        await transport.close()

    run(scenario())


def test_several_addresses_are_probed_once_each_with_progress_and_gaps() -> None:
    async def scenario() -> None:
        steps, gaps = [], []
        async with Bmc() as one, Bmc() as other, Broken(b"") as broken:
            transport = RedfishTransport()
            urls = [other.url, one.url, broken.url, other.url]
            seen = await probe_all(
                transport, urls, lambda done, total: steps.append((done, total)), gaps.append
            )

            assert [p.url for p in seen] == [other.url, one.url]
            assert [g.source for g in gaps] == [broken.url]
            assert steps == [(1, 3), (2, 3), (3, 3)]
            await transport.close()

    run(scenario())


def test_a_scan_finds_the_services_of_a_network_and_nobody_else() -> None:
    async def scenario() -> None:
        steps = []
        async with Bmc() as bmc:
            transport = RedfishTransport()
            seen = await scan(
                transport,
                ipaddress.ip_network("127.0.0.0/29"),
                bmc.port,
                lambda done, total: steps.append((done, total)),
            )

            assert [p.url for p in seen] == [bmc.url]
            assert steps == [(n, 6) for n in range(1, 7)]
            one = await scan(transport, ipaddress.ip_network("127.0.0.1/32"), bmc.port)
            assert one == seen
            await transport.close()

    run(scenario())


@pytest.mark.parametrize("network", ["10.0.0.0/15", "0.0.0.0/0", "fd00::/64"])
def test_a_network_that_is_too_large_is_refused_with_a_remedy(network) -> None:
    async def scenario() -> None:
        with pytest.raises(InputError, match="/16 or smaller"):
            await scan(RedfishTransport(), ipaddress.ip_network(network))

    run(scenario())


def test_ssdp_answers_are_believed_as_addresses_only() -> None:
    claims = {
        "1": "https://10.0.0.9/redfish/v1/",
        "2": "http://[fe80::1]:8000/redfish/v1",
        "3": "https://operator:secret@10.0.0.8/",
        "4": "file:///etc/passwd",
        "5": None,
        "6": "https://10.0.0.7:port/",
        "7": "https://10.0.0.9/other",
    }

    assert read_origins(json.dumps(claims).encode()) == [
        "http://[fe80::1]:8000",
        "https://10.0.0.9",
    ]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff"])
def test_ssdp_answers_that_are_no_object_are_malformed(text) -> None:
    with pytest.raises(Malformed):
        read_origins(text)


SSDP_ANSWERS = (
    b"garbage\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n",
    (
        b"HTTP/1.1 200 OK\r\nAL: https://10.9.8.7/redfish/v1/\r\nUSN: uuid:92384634-2938-2342-8820"
        b"-489239905423::urn:dmtf-org:service:redfish-rest:1\r\n\r\n"
    ),
)


def test_ssdp_asks_in_a_process_of_its_own_and_survives_malformed_answers() -> None:
    """A responder on a port of its own; skipped where multicast does not come back."""
    asked = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("", 0))
        listener.settimeout(8)
        group = socket.inet_aton("239.255.255.250") + socket.inet_aton("0.0.0.0")
        try:
            listener.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
        except OSError as error:
            pytest.skip(f"no multicast on this machine: {error}")

        def respond() -> None:
            with contextlib.suppress(OSError):
                asked.append(listener.recvfrom(2048)[1])
                for answer in SSDP_ANSWERS:
                    listener.sendto(answer, asked[0])

        thread = threading.Thread(target=respond)
        thread.start()
        before = socket.getdefaulttimeout()
        try:
            found = run(discover_services(port=listener.getsockname()[1], response_s=1))
        except Unreachable as error:
            pytest.skip(f"no multicast on this machine: {error}")
        finally:
            thread.join()
    if not asked:
        pytest.skip("multicast does not come back on this machine")

    assert socket.getdefaulttimeout() == before
    assert found == ["https://10.9.8.7"]
