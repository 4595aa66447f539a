"""What may come out of a link at all: a path of the same service, or nothing. No network."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import pytest
from authority_rig import open_own_authority
from cryptography.hazmat.primitives import serialization
from hypothesis import example, given, settings
from hypothesis import strategies as st
from yarl import URL

from provisioner.adapters.agent.protocol import Heartbeat, parse_heartbeat
from provisioner.adapters.agent.tls import Authority, _certificate
from provisioner.adapters.bounded_http import own_url
from provisioner.adapters.redfish import discovery as ssdp
from provisioner.adapters.redfish import parsing, session
from provisioner.adapters.redfish.messages import task_paths
from provisioner.ports import Malformed, Reply

SITE = "https://bmc.example:8443"

_pieces = st.sampled_from(["/", "//", "\\", "@", ":", "http:", "https://", "..", "?", "#", "%2f",
    "evil.example", "[::1%25lo]", "169.254.169.254", "\r\n", "\t", " ", "\x00", "\u3002", "\uff0f",
    "redfish", "v1", "x", "bmc.example"])  # fmt: skip
any_link = st.one_of(st.text(max_size=40), st.lists(_pieces, max_size=8).map("".join))


def stays(path: str) -> bool:
    """Whether every reader of URLs that we use takes this path of SITE to SITE."""
    whole = SITE + path
    joined, own = URL(SITE).join(URL(path)), urlsplit(whole)
    return (
        path.startswith("/")
        and not path.startswith("//")
        and (joined.scheme, joined.host, joined.port) == ("https", "bmc.example", 8443)
        and joined.user is None
        and own.netloc == "bmc.example:8443"
        and URL(whole).host == "bmc.example"
    )


@settings(max_examples=60)
@given(any_link)
@example("https://evil.example@bmc.example/x")
@example("/\\evil.example/")
@example("http:////evil.example/")
def test_a_link_becomes_a_path_of_the_same_service_or_nothing(link: str):
    for found in (parsing.path_of(link), session.path_of(link) or None):
        assert found is None or stays(found)
        assert found is None or not {"\r", "\n", "\t", "\x00"} & set(found)


@settings(max_examples=60)
@given(any_link)
def test_a_task_is_at_a_path_of_the_same_service(link: str):
    told = [{"MessageId": "Base.1.0.X", "MessageArgs": [link, f"{link}/Tasks/1"]}]
    body = {"@odata.id": link, "@odata.type": "#Task.v1_0_0.Task", "@Message.ExtendedInfo": told}
    reply = Reply(202, {"location": link}, json.dumps(body).encode())

    assert all(stays(path) for path in task_paths(reply))


@settings(max_examples=60)
@given(any_link)
def test_what_announces_itself_is_an_address_and_nothing_more(link: str):
    for origin in ssdp.read_origins(json.dumps({"uuid": link}).encode()):
        parts = urlsplit(origin)
        assert parts.scheme in ("http", "https")
        assert (parts.path, parts.query, parts.fragment, parts.username) == ("", "", "", None)
        assert origin.isprintable()


AGENT = "10.0.0.1"


@pytest.fixture(scope="module")
def agents_own(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A certificate for AGENT, and for an address where clouds keep their secrets."""
    authority: Authority = open_own_authority(tmp_path_factory.mktemp("agent"))
    names = (AGENT, "169.254.169.254", "::1")
    made = _certificate("agent", authority.key, authority.certificate, authority.key, names)
    return made.public_bytes(serialization.Encoding.PEM).decode()


agent_links = st.lists(
    st.sampled_from(["https://", "http://", AGENT, "[::1]", "169.254.169.254", ":9999", ":", "@",
        "/", "#", "?", "\\", "%", "..", " ", "\t", "x"]), max_size=6,
).map("".join)  # fmt: skip


@settings(max_examples=60)
@given(agent_links)
@example(f"https://{AGENT}:9999")
@example(f"https://169.254.169.254:80@{AGENT}:9999")
@example(f"https://{AGENT}:9999@169.254.169.254:80")
@example(f"https://{AGENT}:9999/../x")
@example("https://[::1%25lo]:9999")
def test_an_agent_calls_from_an_address_and_a_port_and_nothing_more(agents_own: str, link: str):
    beat = {"agent_token": "t" * 43, "agent_version": "13.0.0", "callback_url": link}
    told = parse_heartbeat(json.dumps(beat | {"agent_verify_ca": agents_own}).encode())

    if link == f"https://{AGENT}:9999":
        assert isinstance(told, Heartbeat), told
    if isinstance(told, Heartbeat):
        parts = urlsplit(told.url)
        spelled = f"[{told.host}]" if told.host.version == 6 else str(told.host)
        assert told.url == f"https://{spelled}:{parts.port}"
        assert URL(told.url).host == str(told.host)


@settings(max_examples=60)
@given(any_link)
@example("/ports/1%2F1")
@example("/\\evil.example")
def test_a_path_is_joined_to_its_own_service_or_refused(path: str):
    for encoded in (False, True):
        try:
            url = own_url(SITE, path, encoded=encoded)
        except Malformed:
            assert path != "/ports/1%2F1"
            continue
        assert (url.scheme, url.host, url.port, url.user) == ("https", "bmc.example", 8443, None)
        assert path != "/ports/1%2F1" or url.raw_path == path
