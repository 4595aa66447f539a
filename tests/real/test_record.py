"""`provisioner record`, `sim serve --recording` and `compatibility` with HTTP between them."""

from __future__ import annotations

import asyncio
import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from static_tree import serving
from typer.testing import CliRunner

from provisioner.cli import app
from provisioner.cli.options.bmc_options import read_recording
from provisioner.integrations.sim.site.serve_site import serve_recordings
from provisioner.model.input_error import InputError

TINY = Path(__file__).parents[1] / "recorded" / "tiny_dgx"


def record(url: str, out: Path, *more: str) -> Any:
    return CliRunner().invoke(app, ["record", url, "--out", str(out), "--json", *more])


def test_a_bmc_is_recorded_and_its_replay_gives_the_same_inventory(tmp_path: Path) -> None:
    out = tmp_path / "dgx.json.gz"
    with serving(TINY) as url:
        result = record(url, out)
        shown = json.loads(CliRunner().invoke(app, ["inspect", url, "--json"]).stdout)

    async def replay() -> dict[str, Any]:
        server, urls = await serve_recordings({"dgx": read_recording(out).tree})
        arguments = ["inspect", urls["dgx"], "--insecure", "--json"]
        answer = await asyncio.to_thread(CliRunner().invoke, app, arguments)
        await server.close()
        whole: dict[str, Any] = json.loads(answer.stdout)
        return whole

    replayed = asyncio.run(replay())
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["resources"] == len(read_recording(out).tree)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    versions = [[(c["kind"], c["version"]) for c in one["components"]] for one in (shown, replayed)]
    assert versions[0] == versions[1] != []
    assert replayed["system"]["serial"] not in (None, shown["system"]["serial"])


def test_recordings_with_one_key_agree_and_an_existing_file_is_left_alone(tmp_path: Path) -> None:
    first, second, key = (tmp_path / name for name in ("1.json", "2.json", "key"))
    with serving(TINY) as url:
        record(url, first, "--key", str(key))
        record(url, second, "--key", str(key))
        again = record(url, first)

    assert read_recording(first).tree == read_recording(second).tree
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert "exists already" in str(again.exception)


def test_a_recording_of_nothing_is_refused_before_it_is_written(tmp_path: Path) -> None:
    with serving(TINY) as url:
        nowhere = record(url, tmp_path / "none" / "1.json")
    silent = record("http://127.0.0.1:9", tmp_path / "2.json")
    locked = record_locked(tmp_path / "3.json")

    assert isinstance(nowhere.exception, InputError)
    assert "its directory is not there" in str(nowhere.exception)
    assert (silent.exit_code, locked.exit_code) == (1, 1)
    assert "Check the address" in silent.stderr
    assert "--user" in locked.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "tree"]


def record_locked(out: Path) -> Any:
    """Record a service that shows its root alone without a login, as a BMC does."""
    tree = out.parent / "tree"
    root = tree / "redfish" / "v1"
    root.mkdir(parents=True)
    systems = {"@odata.id": "/redfish/v1/Systems"}
    (root / "index.json").write_text(json.dumps({"RedfishVersion": "1.9.0", "Systems": systems}))
    with serving(tree, absent=401) as url:
        return record(url, out)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"{", "Invalid JSON"), (b"\x1f\x8bx", "end-of-stream"), (b"[]", "object")],
)
def test_a_file_that_is_no_recording_is_refused(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    file = tmp_path / "bad.json"
    file.write_bytes(content)

    result = CliRunner().invoke(app, ["compatibility", str(file)])

    assert isinstance(result.exception, InputError)
    assert re.search(problem, str(result.exception), re.IGNORECASE)
