"""The command line signs in at a provider that others wrote (Authlib), by the device flow."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from device_provider import CLIENT, DeviceProvider
from local_daemon import daemon
from program import Done, alone

from provisioner.cli.client.connection import find_file
from provisioner.integrations.command_sign_in import sign_in_commands as device_flow
from provisioner.integrations.command_sign_in import sign_in_commands as sign_ins
from provisioner.integrations.command_sign_in.sign_in_commands import (
    Code,
    Endpoints,
    Offer,
    Provider,
    ProviderRefused,
    build_trust,
)


@pytest.fixture(scope="module")
def provider() -> Iterator[DeviceProvider]:
    with DeviceProvider() as served:
        yield served


@pytest.fixture(scope="module")
def place(
    provider: DeviceProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, str]]:
    """A served data directory `var`, and its URL."""
    folder = tmp_path_factory.mktemp("served")
    settings = {
        "api_oidc_issuer": provider.issuer,
        "api_oidc_audience": "provisioner",
        "api_oidc_device_client_id": CLIENT,
    }
    with daemon(folder / "var", api_serve=True, **settings) as url:
        yield folder, url


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No context of the person who runs the tests."""
    for name in ("SERVER", "DATA", "TOKEN_FILE", "CA"):
        monkeypatch.delenv(f"PROVISIONER_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def ask(place: tuple[Path, str], *words: str) -> Done:
    folder, url = place
    ca = str(folder / "var" / "agent-ca.pem")
    return alone([*words, "--server", url, "--ca", ca], folder)


def test_a_person_signs_in_works_and_signs_out(
    place: tuple[Path, str], provider: DeviceProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.answers = [None, None, True]
    signed_in = ask(place, "sign-in")
    me = json.loads(ask(place, "whoami", "--json").stdout)
    (file,) = (find_file().parent / "sign-ins").glob("*.json")
    mode = stat.S_IMODE(file.stat().st_mode)
    first = json.loads(file.read_text())["tokens"]
    monkeypatch.setattr(sign_ins, "EARLY_S", 1e12)  # every token is about to expire
    refreshed = ask(place, "node", "list")
    second = json.loads(file.read_text())["tokens"]
    out = ask(place, "sign-out")
    after = ask(place, "whoami")

    assert signed_in.returncode == 0, signed_in.stderr
    assert "as ada (operator)" in signed_in.stdout
    assert f"{provider.issuer}/activate?user_code=" in signed_in.stderr
    assert (me["subject"], mode) == ("ada", 0o600)
    assert refreshed.returncode == 0, refreshed.stderr
    assert provider.refreshes[first["refresh"]].revoked  # used once, as Authlib gives a new one
    assert second["refresh"] != first["refresh"]
    assert out.stdout.startswith("signed out of https://127.0.0.1")
    assert "did not revoke" not in out.stdout
    assert provider.refreshes[second["refresh"]].revoked
    assert not file.exists()
    assert (after.returncode, "provisioner sign-in" in after.stderr) == (2, True)


def test_a_person_who_refuses_is_not_signed_in(
    place: tuple[Path, str], provider: DeviceProvider
) -> None:
    provider.answers = [None, False]
    refused = ask(place, "sign-in")

    assert (refused.returncode, refused.stdout) == (1, "")
    assert "the person at the provider refused" in refused.stderr
    assert not (find_file().parent / "sign-ins").exists()


def test_a_token_for_another_service_leaves_no_sign_in(
    place: tuple[Path, str], provider: DeviceProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(provider.access, "aud", "mail")
    provider.answers = [True]
    refused = ask(place, "sign-in")

    assert refused.returncode == 1
    assert "api_oidc_audience" in refused.stderr
    assert list((find_file().parent / "sign-ins").glob("*.json")) == []


def test_a_sign_in_that_was_revoked_asks_for_another(
    place: tuple[Path, str], provider: DeviceProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.answers = [True]
    assert ask(place, "sign-in").returncode == 0
    for refresh in provider.refreshes.values():
        refresh.revoked = True
    monkeypatch.setattr(sign_ins, "EARLY_S", 1e12)
    ended = ask(place, "node", "list")

    assert ended.returncode == 2
    assert "the sign-in has ended: invalid_grant" in ended.stderr
    assert "provisioner sign-in" in ended.stderr


def test_codes_expire_and_a_slow_provider_is_asked_less_often(provider: DeviceProvider) -> None:
    offer = Offer(provider.issuer, CLIENT)
    asks = Provider(offer, build_trust(""))
    endpoints = asks.find_endpoints()
    provider.answers = []
    waits: list[float] = []
    code = asks.ask_code(endpoints)
    short = Code(code.page, code.user_code, "", code.device_code, interval_s=4.0, expires_s=10.0)

    with pytest.raises(ProviderRefused, match="has expired"):
        asks.await_tokens(endpoints, short, waits.append)
    assert waits == [4.0, 4.0, 4.0]
    provider.slow = True
    with pytest.raises(ProviderRefused, match="has expired"):
        asks.await_tokens(endpoints, short, waits.append)
    provider.slow = False
    assert waits[3:] == [4.0, 9.0]

    with pytest.raises(ProviderRefused, match="no https address"):
        Provider(Offer("http://example.com", CLIENT), build_trust("")).find_endpoints()
    nowhere = Endpoints(device=provider.issuer + "/keys", token="")
    with pytest.raises(ProviderRefused, match="gave no code: 405"):
        asks.ask_code(nowhere)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("https://login.example.com/device", "https://login.example.com/device"),
        ("http://login.example.com/device", ""),
        ("javascript:alert(1)", ""),
        ("https://login.example.com/\x1b[2J", ""),
        (7, ""),
    ],
)
def test_pages_that_no_person_should_open_are_not_printed(page: object, expected: str) -> None:
    assert device_flow._page(page) == expected
