"""`provisioner db reseal`: secrets open with the new master key, and with no other."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from provisioner.cli.serve.backup import NEW_KEY, reseal
from provisioner.daemon.cluster import digest_code
from provisioner.daemon.data import held_data, open_data
from provisioner.model.input_error import InputError
from provisioner.ports import Secret
from provisioner.store.repositories.signing_keys import ENVIRONMENT, KEY_FILE, MasterKey


def secret_of(data: Path, store: str = "") -> tuple[str, str]:
    """The key's id, and the password of one login, which is stored first if it is given."""

    async def scenario() -> tuple[str, str]:
        async with open_data(data, 1.0) as opened:
            if store:
                await opened.vault.put("n1/host", "root", Secret(store))
            login = await opened.vault.current("n1/host")
            return opened.master.id, login[1].reveal() if login is not None else ""

    return asyncio.run(scenario())


def test_secrets_open_with_a_new_key_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, _ = secret_of(tmp_path, "hunter2")
    text = (tmp_path / KEY_FILE).read_text()

    reseal(tmp_path, as_json=True)

    shown = capsys.readouterr().out
    answer = json.loads(shown)
    assert (answer["before"], answer["after"]) == (old, secret_of(tmp_path)[0])
    assert answer["before"] != answer["after"]
    assert secret_of(tmp_path)[1] == "hunter2"
    assert (tmp_path / KEY_FILE).read_text() != text
    assert (tmp_path / KEY_FILE).read_text().strip() not in shown


def test_a_key_of_the_environment_is_replaced_by_one_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = MasterKey.generate()
    monkeypatch.setenv(ENVIRONMENT, MasterKey.generate().text())
    secret_of(tmp_path, "hunter2")
    with pytest.raises(InputError, match=NEW_KEY):
        reseal(tmp_path)
    monkeypatch.setenv(NEW_KEY, new.text())

    reseal(tmp_path)

    with pytest.raises(InputError, match="sealed with key"):
        secret_of(tmp_path)
    monkeypatch.setenv(ENVIRONMENT, new.text())
    assert secret_of(tmp_path) == (new.id, "hunter2")


def test_it_runs_beside_a_daemon_of_this_version_and_is_refused_beside_any_other(
    tmp_path: Path,
) -> None:
    before = secret_of(tmp_path, "hunter2")
    for program in ("", "another"):
        other = pytest.raises(InputError, match="another version")
        with held_data(tmp_path, program=program), other:
            reseal(tmp_path)
        assert secret_of(tmp_path) == before
    with held_data(tmp_path, program=digest_code()):
        reseal(tmp_path)
    after = secret_of(tmp_path)
    assert after[0] != before[0]
    assert after[1] == "hunter2"


def test_a_key_of_the_environment_is_not_exchanged_beside_a_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, MasterKey.generate().text())
    monkeypatch.setenv(NEW_KEY, MasterKey.generate().text())
    before = secret_of(tmp_path, "hunter2")
    with held_data(tmp_path, program=digest_code()), pytest.raises(InputError):
        reseal(tmp_path)
    assert secret_of(tmp_path) == before
