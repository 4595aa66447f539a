"""Who gets a token, and which heartbeat is believed: as tables."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from provisioner.adapters.agent.protocol import (
    Heartbeat,
    Lookup,
    Refusal,
    decide_heartbeat,
    decide_lookup,
    node_uuid,
    normal_mac,
    parse_heartbeat,
    parse_lookup,
)
from provisioner.model.agent import AgentSession
from provisioner.model.outcome import Reason

MAC_A, MAC_B, MAC_C = (f"02:00:00:00:00:0{c}" for c in "abc")
NOW, LIFE_S = 1000.0, 500.0
TOKEN = "t" * 43
ADDRESS = "198.51.100.7"


def certificate(address: str = ADDRESS) -> str:
    """As an agent makes it: self-signed, for its address."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=True)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


OWN, OTHERS = certificate(), certificate()
ELSEWHERE = certificate("198.51.100.8")


def session(node: str = "a", mac: str = MAC_A, **changes: Any) -> AgentSession:
    made = AgentSession(
        node=node, uuid=node_uuid(node), macs=(mac,), expected_at=900.0, until=1100.0
    )
    return made.model_copy(update=changes)


WAITING = session()
HANDED = session(handed_at=950.0, peer=ADDRESS)
UP = session(
    handed_at=950.0, peer=ADDRESS, url=f"https://{ADDRESS}:9999", certificate=OWN, seen_at=980.0
)


# --- lookup


@pytest.mark.parametrize(
    ("why", "macs", "uuid", "sessions", "expected"),
    [
        ("its node is to boot", {MAC_A}, "", [WAITING], "a"),
        ("among addresses of nobody", {MAC_A, MAC_C}, "", [WAITING], "a"),
        ("it asks again, by name", {MAC_A}, node_uuid("a"), [UP], "a"),
        ("long after the window", {MAC_A}, "", [UP.model_copy(update={"until": 1.0})], "a"),
        ("another node left the ramdisk", {MAC_A}, "",
         [WAITING, session("b", MAC_A, dismissed=True)], "a"),
        ("nobody is to boot", {MAC_A}, "", [], Reason.NOT_EXPECTED),
        ("another node is to boot", {MAC_B}, "", [WAITING], Reason.NOT_EXPECTED),
        ("the window is closed", {MAC_A}, "", [session(until=999.0)], Reason.NOT_EXPECTED),
        ("handed out, never seen, too late", {MAC_A}, "",
         [HANDED.model_copy(update={"until": 999.0})], Reason.NOT_EXPECTED),
        ("it has left", {MAC_A}, "", [session(dismissed=True)], Reason.NOT_EXPECTED),
        ("addresses of two nodes", {MAC_A, MAC_B}, "", [WAITING, session("b", MAC_B)],
         Reason.DUPLICATE),
        ("two nodes claim one address", {MAC_A}, "", [WAITING, session("b", MAC_A)],
         Reason.DUPLICATE),
        ("it takes itself for another", {MAC_A}, node_uuid("b"), [WAITING], Reason.FOREIGN_AGENT),
    ],
)  # fmt: skip
def test_a_lookup_is_answered_for_one_node_that_is_to_boot_now(
    why: str, macs: set[str], uuid: str, sessions: list[AgentSession], expected: str | Reason
) -> None:
    decided = decide_lookup(Lookup(frozenset(macs), uuid), sessions, NOW)
    actual = decided.reason if isinstance(decided, Refusal) else decided.node

    assert actual == expected, why


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({}, 400),
        ({"addresses": ""}, 400),
        ({"addresses": "nonsense,00:00:00:00:00:00,ff:ff:ff:ff:ff:ff"}, 400),
        ({"addresses": ",".join([MAC_A] * 257)}, 400),
        ({"addresses": MAC_A, "node_uuid": "x" * 65}, 400),
    ],
)
def test_a_lookup_that_says_nothing_is_refused(query: dict[str, str], status: int) -> None:
    refusal = parse_lookup(query)

    assert isinstance(refusal, Refusal)
    assert refusal.status == status


def test_addresses_are_read_in_every_spelling() -> None:
    asked = parse_lookup({"addresses": "02-00-00-00-00-0A, 02:00:00:00:00:0b ,a0:00:02:20:fe"})

    assert asked == Lookup(frozenset({MAC_A, MAC_B}))
    assert normal_mac("02:00:00:00:00:0a\n") == MAC_A
    assert normal_mac("02:00:00:00:00:0a:00") == ""


# --- heartbeat


def body(**changes: Any) -> dict[str, Any]:
    told = {
        "callback_url": f"https://{ADDRESS}:9999",
        "agent_token": TOKEN,
        "agent_version": "13.0.0",
        "agent_verify_ca": OWN,
    }
    return {k: v for k, v in {**told, **changes}.items() if v is not ...}


@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        ({"callback_url": f"http://{ADDRESS}:9999"}, 400, Reason.MALFORMED),
        ({"callback_url": f"https://{ADDRESS}"}, 400, Reason.MALFORMED),
        ({"callback_url": f"https://{ADDRESS}:99999"}, 400, Reason.MALFORMED),
        ({"callback_url": "https://agent.test:9999"}, 400, Reason.MALFORMED),
        ({"callback_url": f"https://me@{ADDRESS}:9999"}, 400, Reason.MALFORMED),
        ({"callback_url": f"https://{ADDRESS}:9999/v1?x="}, 400, Reason.MALFORMED),
        ({"callback_url": "https://[::1"}, 400, Reason.MALFORMED),
        ({"callback_url": ["https"]}, 400, Reason.MALFORMED),
        ({"callback_url": ...}, 400, Reason.MALFORMED),
        ({"agent_token": ...}, 401, Reason.FOREIGN_AGENT),
        ({"agent_token": ""}, 401, Reason.FOREIGN_AGENT),
        ({"agent_token": "a b"}, 401, Reason.FOREIGN_AGENT),
        ({"agent_token": "t" * 257}, 401, Reason.FOREIGN_AGENT),
        ({"agent_version": "12.4.0"}, 400, Reason.NOT_OFFERED),
        ({"agent_version": "newest"}, 400, Reason.NOT_OFFERED),
        ({"agent_version": ...}, 400, Reason.NOT_OFFERED),
        ({"agent_verify_ca": ...}, 400, Reason.FOREIGN_AGENT),
        ({"agent_verify_ca": ELSEWHERE}, 400, Reason.FOREIGN_AGENT),
        ({"agent_verify_ca": OWN + OTHERS}, 400, Reason.FOREIGN_AGENT),
        ({"agent_verify_ca": OWN.replace("A", "B")}, 400, Reason.FOREIGN_AGENT),
        ({"agent_verify_ca": " " * 20_000 + OWN}, 400, Reason.FOREIGN_AGENT),
    ],
)
def test_a_heartbeat_that_proves_nothing_is_refused(
    changes: dict[str, Any], status: int, reason: Reason
) -> None:
    refusal = parse_heartbeat(json.dumps(body(**changes)).encode())

    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.reason) == (status, reason)


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"{", b"\xff", b"[" * 60_000])
def test_a_heartbeat_that_is_no_object_is_refused(text: bytes) -> None:
    refusal = parse_heartbeat(text)

    assert isinstance(refusal, Refusal)
    assert refusal.status == 400


@given(st.dictionaries(st.sampled_from(list(body())), st.none() | st.text() | st.integers()))
def test_no_heartbeat_is_a_traceback(changes: dict[str, Any]) -> None:
    told = parse_heartbeat(json.dumps({**body(), **changes}).encode())

    assert isinstance(told, Heartbeat | Refusal)


def heard(**changes: Any) -> Heartbeat:
    told = parse_heartbeat(json.dumps(body(**changes)).encode())
    assert isinstance(told, Heartbeat)
    return told


MOVED = {"callback_url": "https://198.51.100.8:9999", "agent_verify_ca": ELSEWHERE}


@pytest.mark.parametrize(
    ("why", "changes", "peer", "known", "token", "now", "expected"),
    [
        ("the first", {}, ADDRESS, HANDED, TOKEN, NOW, None),
        ("a later one", {}, ADDRESS, UP, TOKEN, NOW, None),
        ("long after the window", {}, ADDRESS, UP, TOKEN, 1400.0, None),
        ("of a node that nobody knows", {}, ADDRESS, None, "", NOW, (404, Reason.NOT_EXPECTED)),
        ("no token was handed out", {}, ADDRESS, WAITING, "", NOW, (401, Reason.FOREIGN_AGENT)),
        ("another token", {}, ADDRESS, HANDED, "u" * 43, NOW, (401, Reason.FOREIGN_AGENT)),
        ("a beginning of the token", {"agent_token": TOKEN[:-1]}, ADDRESS, HANDED, TOKEN, NOW,
         (401, Reason.FOREIGN_AGENT)),
        ("too late for the first", {}, ADDRESS, HANDED, TOKEN, 1101.0, (401, Reason.TIME_LIMIT)),
        ("an expired token", {}, ADDRESS, UP, TOKEN, 1451.0, (401, Reason.TIME_LIMIT)),
        ("after it was dismissed", {}, ADDRESS, UP.model_copy(update={"dismissed": True}), TOKEN,
         NOW, (404, Reason.NOT_EXPECTED)),
        ("from another address", {}, "198.51.100.9", HANDED, TOKEN, NOW,
         (400, Reason.FOREIGN_AGENT)),
        ("from no address", {}, "", HANDED, TOKEN, NOW, (400, Reason.FOREIGN_AGENT)),
        ("with another certificate", {"agent_verify_ca": OTHERS}, ADDRESS, UP, TOKEN, NOW,
         (401, Reason.FOREIGN_AGENT)),
        ("from another place", MOVED, "198.51.100.8", UP, TOKEN, NOW, (401, Reason.FOREIGN_AGENT)),
        ("at another port", {"callback_url": f"https://{ADDRESS}:9998"}, ADDRESS, UP, TOKEN, NOW,
         (401, Reason.FOREIGN_AGENT)),
    ],
)  # fmt: skip
def test_a_heartbeat_is_believed_from_the_agent_that_we_booted(
    why: str,
    changes: dict[str, Any],
    peer: str,
    known: AgentSession | None,
    token: str,
    now: float,
    expected: tuple[int, Reason] | None,
) -> None:
    decided = decide_heartbeat(heard(**changes), peer, known, token, now, LIFE_S)

    if isinstance(decided, Refusal):
        assert (decided.status, decided.reason) == expected, why
    else:
        assert expected is None, why
        assert (decided.seen_at, decided.certificate) == (now, OWN)


def test_an_address_of_ip_version_6_is_one_too() -> None:
    place = {"callback_url": "https://[2001:db8::7]:9999"}
    told = heard(**place, agent_verify_ca=certificate("2001:db8::7"))
    decided = decide_heartbeat(told, "2001:db8:0::7", HANDED, TOKEN, NOW, LIFE_S)

    assert isinstance(decided, AgentSession)
    assert decided.url == "https://[2001:db8::7]:9999"
