"""The ironic-python-agent's side of the wire, decided without I/O: lookups and heartbeats.

A lookup is answered only for a node that is to boot now, and its token is handed out once a boot;
a heartbeat is believed only with that token, from the address that it names, with a certificate for
that address. Everything else is a `Refusal` with a reason, and with a status that lets the agent
try again without harm: it takes 409 for "the node is locked", every other status for an error, and
repeats both (ironic_api_client.py of ironic-python-agent 13.0.0).
"""

from __future__ import annotations

import hmac
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509

from provisioner.model.agent import AgentSession
from provisioner.model.outcome import Reason

# From 1.62 the agent wants a token, from 1.68 it makes its own certificate and serves HTTPS.
API_VERSION = "1.68"
OLDEST = (13, 0)  # the version that we boot; older agents were never tried
HIDDEN = "******"  # "handed out already": an agent without a token then locks itself down
ADDRESSES_MAX = 256  # a host has some twenty interfaces
TEXT_MAX = 300  # characters of a foreign text that we repeat
CERTIFICATE_MAX = 16 * 1024  # characters; a P-384 certificate in PEM has about 800
NAMESPACE = uuid.UUID("5d2b3f0e-6d0b-4c6c-9d0a-2f1f7b1f6a11")  # drawn once; nothing else uses it
MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
NOBODYS_MACS = frozenset({"00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"})
TOKEN = re.compile(r"[\x21-\x7e]{1,256}")
VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})[0-9A-Za-z.+-]{0,64}")


@dataclass(frozen=True)
class Refusal:
    """The reason why an agent is not believed.

    `detail` is for us; the agent gets the status alone.
    """

    status: int
    reason: Reason
    detail: str
    node: str = ""  # the node concerned, if there is one


@dataclass(frozen=True)
class Lookup:
    """The MAC addresses of a ramdisk, and the node that it claims to be ("": none yet)."""

    macs: frozenset[str]
    uuid: str = ""


@dataclass(frozen=True)
class Heartbeat:
    """The address where an agent listens, with its proofs."""

    url: str
    host: IPv4Address | IPv6Address
    token: str
    version: str
    certificate: str


def node_uuid(node: str) -> str:
    """Return the agent's name of a node: always the same, safe in a path."""
    return str(uuid.uuid5(NAMESPACE, node))


def make_printable(text: object, limit: int = TEXT_MAX) -> str:
    """Return a foreign text as one short line, without control characters."""
    line = " ".join(str(text)[: 4 * limit].split())
    return "".join(c for c in line if c.isprintable())[:limit]


def normal_mac(text: str) -> str:
    """Return the address in lowercase with colons; "" if it is not the address of one interface."""
    mac = text.strip().lower().replace("-", ":")
    return mac if MAC.fullmatch(mac) and mac not in NOBODYS_MACS else ""


# --- lookup


def root_answer() -> dict[str, Any]:
    """Return the answer to `GET /`; without it an agent uses neither token nor TLS."""
    version = {"id": "v1", "status": "CURRENT", "min_version": "1.1", "version": API_VERSION}
    return {
        "name": "provisioner",
        "versions": [{**version, "links": []}],
        "default_version": {**version, "links": []},
    }


def parse_lookup(query: Mapping[str, str]) -> Lookup | Refusal:
    """Parse the query of `GET /v1/lookup`; interfaces without an Ethernet address are left out."""
    addresses = query.get("addresses", "").split(",")
    if len(addresses) > ADDRESSES_MAX:
        return Refusal(400, Reason.TOO_LARGE, f"{len(addresses)} addresses")
    macs = frozenset(filter(None, map(normal_mac, addresses)))
    if not macs:
        return Refusal(400, Reason.MALFORMED, "a lookup without any address")
    claimed = query.get("node_uuid", "").strip().lower()
    if len(claimed) > 64:
        return Refusal(400, Reason.MALFORMED, "node_uuid is no UUID")
    return Lookup(macs, claimed)


def decide_lookup(
    lookup: Lookup, sessions: Sequence[AgentSession], now: float
) -> AgentSession | Refusal:
    """Return the session of this ramdisk's node; every address that it has is compared.

    Its token may be handed out if it was not before (`handed_at` 0).
    """
    shown = ", ".join(sorted(lookup.macs)[:4])
    owners = [s for s in sessions if lookup.macs & set(s.macs)]
    expected = [s for s in owners if not s.dismissed and (now <= s.until or s.seen_at)]
    if len(expected) > 1:
        names = ", ".join(sorted(s.node for s in expected)[:4])
        return Refusal(404, Reason.DUPLICATE, f"one ramdisk has addresses of {names}")
    if not expected:
        node = owners[0].node if len(owners) == 1 else ""
        return Refusal(404, Reason.NOT_EXPECTED, f"no node with {shown} is to boot now", node)
    session = expected[0]
    if lookup.uuid and lookup.uuid != session.uuid:
        detail = f"a ramdisk with {shown} takes itself for another node"
        return Refusal(404, Reason.FOREIGN_AGENT, detail, session.node)
    return session


def lookup_answer(session: AgentSession, token: str, heartbeat_s: float) -> dict[str, Any]:
    """Return the answer to a lookup. The ramdisk writes images where a command's node says."""
    return {
        "node": {
            "uuid": session.uuid,
            "properties": {},
            "instance_info": {},
            "driver_internal_info": {},
        },
        "config": {
            "heartbeat_timeout": heartbeat_s,
            "agent_token": token,
            "agent_token_required": True,
            "agent_md5_checksum_enable": False,
            "permitted_image_formats": ["raw", "qcow2"],
            "metrics": None,
            "metrics_statsd": None,
        },
    }


# --- heartbeat


def parse_heartbeat(body: bytes) -> Heartbeat | Refusal:
    """Parse the body of `POST /v1/heartbeat/UUID`."""
    try:
        document = json.loads(body.decode())
    except (ValueError, RecursionError):
        return Refusal(400, Reason.MALFORMED, "a heartbeat that is no JSON")
    if not isinstance(document, dict):
        return Refusal(400, Reason.MALFORMED, "a heartbeat that is no object")
    token = document.get("agent_token")
    version = document.get("agent_version")
    if not isinstance(token, str) or not TOKEN.fullmatch(token):
        return Refusal(401, Reason.FOREIGN_AGENT, "a heartbeat without a token")
    matched = VERSION.fullmatch(version) if isinstance(version, str) else None
    if matched is None or (int(matched[1]), int(matched[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        detail = f"agent version {make_printable(version, 40)!r}; {oldest} or newer is wanted"
        return Refusal(400, Reason.NOT_OFFERED, detail)
    place = _place(document.get("callback_url"))
    if isinstance(place, Refusal):
        return place
    certificate = document.get("agent_verify_ca")
    if not isinstance(certificate, str) or not _is_for(certificate, place[1]):
        detail = f"no certificate of its own for {place[1]}"
        return Refusal(400, Reason.FOREIGN_AGENT, detail)
    return Heartbeat(place[0], place[1], token, matched[0], certificate)


def _place(given: object) -> tuple[str, IPv4Address | IPv6Address] | Refusal:
    """Return the https URL of an address and a port, and nothing more."""
    wrong = Refusal(400, Reason.MALFORMED, f"callback_url {make_printable(given, 80)!r}")
    if not isinstance(given, str) or len(given) > 128:
        return wrong
    try:
        parts = urlsplit(given)
        port = parts.port
        host = ip_address(parts.hostname or "")
    except ValueError:
        return wrong
    spelled = f"[{host}]" if host.version == 6 else str(host)
    url = f"https://{spelled}:{port}"
    if parts.scheme != "https" or not port or given.rstrip("/").lower() != url:
        return wrong
    return url, host


def _is_for(certificate: str, host: IPv4Address | IPv6Address) -> bool:
    """Return whether this is one certificate for this address.

    Its dates are ignored: it is trusted byte for byte and for this boot only, and the clock of a
    ramdisk may be wrong.
    """
    if len(certificate) > CERTIFICATE_MAX:
        return False
    try:
        (parsed,) = x509.load_pem_x509_certificates(certificate.encode())
        names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return host in names.get_values_for_type(x509.IPAddress)
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension):
        return False


def decide_heartbeat(
    heartbeat: Heartbeat,
    peer: str,
    session: AgentSession | None,
    token: str,
    now: float,
    token_life_s: float,
) -> AgentSession | Refusal:
    """Return the session after a heartbeat. `token` is the one handed out ("": none was)."""
    if session is None:
        return Refusal(404, Reason.NOT_EXPECTED, "a heartbeat for a node that nobody knows")
    node = session.node
    if not token or not hmac.compare_digest(heartbeat.token.encode(), token.encode()):
        return Refusal(
            401, Reason.FOREIGN_AGENT, "a foreign token, or one of an earlier boot", node
        )
    if session.dismissed:
        return Refusal(404, Reason.NOT_EXPECTED, "the node has left the ramdisk", node)
    if now > (session.handed_at + token_life_s if session.seen_at else session.until):
        return Refusal(401, Reason.TIME_LIMIT, "its token is too old", node)
    try:
        from_itself = ip_address(peer) == heartbeat.host
    except ValueError:
        from_itself = False
    if not from_itself:
        detail = f"{make_printable(peer, 60)} says that its agent listens at {heartbeat.host}"
        return Refusal(400, Reason.FOREIGN_AGENT, detail, node)
    first = not session.seen_at
    if not first and (heartbeat.url, heartbeat.certificate) != (session.url, session.certificate):
        # an agent makes its certificate once, and one that starts again has no token (HIDDEN)
        detail = "the right token from another agent: other certificate or address"
        return Refusal(401, Reason.FOREIGN_AGENT, detail, node)
    return session.model_copy(
        update={
            "url": heartbeat.url,
            "certificate": heartbeat.certificate,
            "version": heartbeat.version,
            "seen_at": now,
        }
    )
