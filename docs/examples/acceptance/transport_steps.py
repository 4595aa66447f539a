"""Steps about the API's transport and about credentials that end by themselves."""

from __future__ import annotations

import os
import socket
import ssl
import struct
from datetime import datetime
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from control_steps import create_key, open_as, revoke_key
from daemon_client import Daemon, RefusedError, wait_for

PROBE_S = 5.0
VERSIONS = {"sslv3": (3, 0), "tlsv1_0": (3, 1), "tlsv1_1": (3, 2), "tlsv1_2": (3, 3)}
# of RFC 5246 and RFC 4492: suites that servers of the old versions have in common with new ones
SUITES = (0xC014, 0xC013, 0xC00A, 0xC009, 0x0035, 0x002F, 0xC030, 0xC02F, 0xC02C, 0xC02B, 0x00FF)
GROUPS = (0x001D, 0x0017, 0x0018)
SIGNATURES = (0x0403, 0x0804, 0x0401, 0x0201, 0x0203)
SERVER_HELLO = 2
HANDSHAKE = 22
DAY_S = 86400
BOUND_S = DAY_S
TTL_S = 900
Answer = dict[str, Any]


def _list_of(values: tuple[int, ...]) -> bytes:
    return struct.pack(f"!{len(values)}H", *values)


def _extension(number: int, body: bytes) -> bytes:
    return struct.pack("!HH", number, len(body)) + body


def build_hello(version: tuple[int, int]) -> bytes:
    """Return a ClientHello of one version (RFC 5246, 7.4.1.2)."""
    groups = _list_of(GROUPS)
    signatures = _list_of(SIGNATURES)
    extensions = _extension(10, struct.pack("!H", len(groups)) + groups)
    extensions += _extension(11, b"\x01\x00")
    extensions += _extension(13, struct.pack("!H", len(signatures)) + signatures)
    suites = _list_of(SUITES)
    body = bytes(version) + bytes(32) + b"\x00" + struct.pack("!H", len(suites)) + suites
    body += b"\x01\x00"
    if version > (3, 0):  # SSL 3.0 has no extensions
        body += struct.pack("!H", len(extensions)) + extensions
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return bytes([HANDSHAKE, 3, min(version[1], 1)]) + struct.pack("!H", len(message)) + message


def _exchange(host: str, port: int, sent: bytes) -> bytes:
    """Return the beginning of the answer; nothing if the connection is refused or cut."""
    try:
        with socket.create_connection((host, port), PROBE_S) as connection:
            connection.settimeout(PROBE_S)
            connection.sendall(sent)
            return connection.recv(64)
    except OSError:
        return b""


def accepts(host: str, port: int, version: tuple[int, int]) -> bool:
    """Return whether a ServerHello of this version answers."""
    answer = _exchange(host, port, build_hello(version))
    is_hello = len(answer) > 10 and answer[0] == HANDSHAKE and answer[5] == SERVER_HELLO
    return is_hello and tuple(answer[9:11]) == version


def _speaks_http(host: str, port: int) -> bool:
    request = f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    return _exchange(host, port, request).startswith(b"HTTP/")


def insecure_protocols_test(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Offer old versions of TLS and plain HTTP to the API's port, and HTTP to port 80 beside it."""
    parts = urlsplit(daemon.url)
    host = parts.hostname or ""
    port = parts.port or 443
    tests = {
        f"{name}_disabled": {"passed": not accepts(host, port, version)}
        for name, version in VERSIONS.items()
        if name != "tlsv1_2"
    }
    plain = _speaks_http(host, port) or _speaks_http(host, 80)
    tests["plain_http_disabled"] = {"passed": not plain}
    # a port that answers nothing at all would pass
    probed = accepts(host, port, VERSIONS["tlsv1_2"]) or _speaks_tls(host, port)
    return {"success": probed, "endpoints_tested": int(probed), "tests": tests}


def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), PROBE_S) as connection,
            context.wrap_socket(connection) as secured,
        ):
            return bool(secured.version())
    except OSError:
        return False


def find_outer_address() -> str:
    """Return this machine's address in a network, by its routes; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # of a range that nothing has (RFC 5737)
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), PROBE_S).close()
    except OSError:
        return False
    return True


def api_endpoint_isolation(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Call the ports of the API and of the BMCs at this machine's address in a network."""
    outer = find_outer_address()
    api = urlsplit(daemon.url)
    nodes = daemon.list_all("/nodes")
    bmcs = [urlsplit(b["url"]) for n in nodes for b in n["bmcs"]]
    hosts = {part.hostname or "" for part in (api, *bmcs)}
    outside = bool(outer) and outer not in hosts
    literal = all(host.replace(".", "").isdigit() for host in hosts)
    private = literal and all(ip_address(host).is_private for host in hosts)
    mgmt_open = [b.port for b in bmcs if b.port and _answers(outer, b.port)]
    return {
        "success": outside and bool(bmcs),
        "probed_from": outer,
        "endpoints_tested": 1 + len(bmcs),
        "tests": {
            "probe_api_from_public": {"passed": not _answers(outer, api.port or 443)},
            "probe_mgmt_from_public": {"passed": not mgmt_open},
            "verify_private_only": {"passed": private},
            "dns_not_public": {"passed": literal},  # they have no names at all
        },
    }


def _read_ttl_s(row: Answer) -> int:
    ends = datetime.fromisoformat(row["expires_at"])
    return round((ends - datetime.fromisoformat(row["made_at"])).total_seconds())


def _is_rejected(caller: Daemon) -> bool:
    try:
        caller.get("/me")
    except RefusedError as error:
        return error.status == 401
    return False


def short_lived_credentials_test(daemon: Daemon, _node: str, _rack: str) -> Answer:
    """Use a program's token before and after its end, and read how long an agent's token lasts."""
    settings = {row["name"]: row["value"] for row in daemon.get("/settings")["items"]}
    days = float(os.environ.get("ACCEPTANCE_DAYS", TTL_S / DAY_S))  # longer: for the counter-proof
    key = create_key(daemon, "acceptance-job", days=days)["access_key_id"]
    caller = open_as(key, "short_lived_credentials_test")
    works = bool(caller.get("/me")["roles"])
    row = next(t for t in daemon.get("/tokens")["items"] if t["id"] == key)
    node_s = round(float(settings["agent_token_s"]))
    job_s = _read_ttl_s(row)
    ended = job_s <= BOUND_S and wait_for(
        lambda: _is_rejected(caller), 2 * TTL_S, "the token is refused after its end"
    )
    if job_s > BOUND_S:
        revoke_key(daemon, key)
    return {
        "node_credential_ttl_seconds": node_s,
        "workload_credential_ttl_seconds": job_s,
        "max_ttl_seconds": BOUND_S,
        "tests": {
            "node_credential_has_expiry": {"passed": node_s > 0},
            "node_credential_ttl_within_bound": {"passed": node_s <= BOUND_S},
            "workload_credential_has_expiry": {"passed": works and bool(ended)},
            "workload_credential_ttl_within_bound": {"passed": job_s <= BOUND_S},
        },
    }


STEPS = {
    "api_endpoint_isolation": api_endpoint_isolation,
    "insecure_protocols_test": insecure_protocols_test,
    "short_lived_credentials_test": short_lived_credentials_test,
}
