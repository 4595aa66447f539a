"""`provisioner doctor` on a site of HTTPS BMCs and switches, just taken in, then broken."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from local_daemon import daemon
from nginx_server import MISSING, NGINX, nginx
from program import alone
from simulated import Served, served
from typer.testing import CliRunner

from provisioner.cli import app
from provisioner.daemon.data import open_data
from provisioner.integrations.sim.switches.switch import Neighbour
from provisioner.ports import Secret

Told = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def site() -> Iterator[Served]:
    with served(nodes=1, speed=600.0) as found:
        yield found


@pytest.fixture(scope="module")
def place(site: Served, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doctor")
    (folder / "artifacts").mkdir()
    (folder / "expected.json").write_text(json.dumps(site.site.build_expected()))
    words = ["intake", "--yes", "--file", str(folder / "expected.json")]
    words += ["--data", str(folder / "var")]
    cards = [w for name, url in site.site.urls.items() if "_" in name for w in ("--bmc", url)]
    with daemon(folder / "var"):
        taken = alone([*words, *cards], folder)
    assert taken.returncode == 0, taken.stdout + taken.stderr
    return folder


def doctor(place: Path, *words: str) -> tuple[int, Told]:
    """Its exit code, and what it says by (area, subject)."""
    data = ["--data", str(place / "var"), "--artifacts", str(place / "artifacts"), "--json"]
    done = CliRunner().invoke(app, ["doctor", *data, *words])
    told = json.loads(done.stdout.splitlines()[-1])
    return done.exit_code, {(e["area"], e["subject"]): e for e in told["examined"]}


def test_a_site_just_taken_in_answers_with_its_pins_and_credentials(place: Path) -> None:
    code, told = doctor(place)

    assert told["bmc", "su0-n00/host"]["standing"] == "good"
    assert told["credential", "su0-n00/host"]["standing"] in ("good", "warning")
    assert told["switch", "leaf-su0-r3"]["standing"] == "good"
    assert told["certificate", "leaf-su0-r3"]["standing"] == "warning"
    assert told["clock", "this machine"]["standing"] == "good"
    assert told["database", str(place / "var/provisioner.db")]["standing"] == "good"
    # the shipped matrix names no image: a site builds its own
    assert told["image", "maintenance"]["standing"] == "bad"
    assert code == 1
    assert all(e["remedy"] for e in told.values() if e["standing"] != "good")


def test_a_password_that_is_wrong_is_tried_once_and_told(place: Path) -> None:
    right = asyncio.run(exchanged(place, Secret("mistyped")))
    try:
        _, told = doctor(place)
        _, again = doctor(place)
    finally:
        asyncio.run(exchanged(place, right))

    assert told["credential", "su0-n00/host"]["detail"].startswith("login_refused")
    assert again["credential", "su0-n00/host"]["standing"] == "bad"
    assert "mistyped" not in json.dumps([*told.values(), *again.values()])


async def exchanged(place: Path, secret: Secret) -> Secret:
    """The stored password of the host's BMC, replaced."""
    async with open_data(place / "var", 0.0) as opened:
        kept = await opened.vault.current("su0-n00/host")
        assert kept is not None
        await opened.vault.put("su0-n00/host", kept[0], secret)
        return kept[1]


def test_a_missing_firmware_file_is_named_before_go_live(place: Path) -> None:
    overlay = place / "overlay.yaml"
    overlay.write_text(
        "images:\n  maintenance:\n    version: '1'\n    artifact: m.iso\n"
        f"    sha256: {'a' * 64}\n    evidence: built here\n"
    )
    root = Path(__file__).parents[2] / "firmware_matrix.yaml"
    words = ["--matrix", str(root), "--matrix", str(overlay)]

    _, told = doctor(place, *words)
    (place / "artifacts/m.iso").write_bytes(b"something else")
    _, wrong = doctor(place, *words)

    assert told["image", "m.iso"]["standing"] == "good"
    assert ("boot token", "m.iso") not in told
    assert wrong["boot token", "m.iso"]["standing"] == "bad"
    assert "no such file" in told["artifacts", "m.iso"]["detail"]
    assert "SHA-256" in wrong["artifacts", "m.iso"]["detail"]


@pytest.mark.skipif(NGINX is None, reason=MISSING)
def test_firmware_files_of_a_server_outside_are_read_as_devices_get_them(
    place: Path, tmp_path: Path
) -> None:
    overlay = tmp_path / "overlay.yaml"
    digest = hashlib.sha256(b"the image").hexdigest()
    overlay.write_text(
        "images:\n  maintenance:\n    version: '1'\n    artifact: n.iso\n"
        f"    sha256: {digest}\n    evidence: built here\n"
    )
    root = Path(__file__).parents[2] / "firmware_matrix.yaml"
    with nginx(tmp_path) as server:
        words = ["--matrix", str(root), "--matrix", str(overlay), "--artifact-url", server.url]
        _, absent = doctor(place, *words)
        server.put("n.iso", b"the image")
        _, there = doctor(place, *words)

    assert f"{server.url}/n.iso" in absent["artifacts", "n.iso"]["detail"]
    assert there["artifacts", "n.iso"]["standing"] == "good"
    assert not (place / "artifacts" / "n.iso").exists()


@pytest.mark.skipif(NGINX is None, reason=MISSING)
@pytest.mark.parametrize(("merge", "standing"), [(True, "good"), (False, "bad")])
def test_a_bundle_is_asked_for_as_a_card_will_ask_for_it(
    place: Path, tmp_path: Path, merge: bool, standing: str
) -> None:
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(
        "edges:\n  bluefield.bundle:\n    - from: [2.9.0-90]\n      to: 2.10.0-147_25.01\n"
        f"      artifact: x.bfb\n      sha256: {hashlib.sha256(b'bundle').hexdigest()}\n"
    )
    root = Path(__file__).parents[2] / "firmware_matrix.yaml"
    with nginx(tmp_path, merge=merge) as server:
        server.put("x.bfb", b"bundle")
        words = ["--matrix", str(root), "--matrix", str(overlay), "--artifact-url", server.url]
        _, told = doctor(place, *words)

    assert told["artifacts", "x.bfb"]["standing"] == standing


@pytest.fixture(scope="module")
def fresh() -> Iterator[Served]:
    """A site that nobody takes in: an examination changes nothing of it."""
    with served(nodes=1, speed=600.0) as found:
        yield found


@pytest.fixture
def new_rack(fresh: Served, tmp_path: Path) -> Served:
    """A site that nobody has taken in, with all that its owner has to write."""
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts/m.iso").write_bytes(b"an image")
    digest = hashlib.sha256(b"an image").hexdigest()
    (tmp_path / "site.yaml").write_text(
        "images:\n  maintenance:\n    version: '1'\n    artifact: m.iso\n"
        f"    sha256: {digest}\n    evidence: built here\n"
    )
    (tmp_path / "lab.yaml").write_text("production: false\nagent_lookup_trusts: first\n")
    return fresh


def examine(
    site: Served, place: Path, change: Callable[[dict[str, Any]], None], *words: str
) -> tuple[int, Told]:
    """Examine the new rack with its list, after `change` was made to that."""
    expected = site.site.build_expected()
    change(expected)
    (place / "expected.json").write_text(json.dumps(expected))
    files = ["--settings", str(place / "lab.yaml"), "--matrix", str(place / "site.yaml")]
    return doctor(place, "--file", str(place / "expected.json"), *files, *words)


def test_a_right_list_of_new_hardware_is_ready_before_the_first_intake(
    new_rack: Served, tmp_path: Path
) -> None:
    code, told = examine(new_rack, tmp_path, lambda _list: None)

    url = new_rack.url("su0-n00/host")
    assert (code, [t for t in told.values() if t["standing"] in ("bad", "not looked")]) == (0, [])
    assert told["credential", url]["standing"] == "good"
    assert "serial" in told["credential", url]["detail"]
    assert told["switch", "leaf-su0-r0"]["standing"] == "good"
    assert told["database", str(tmp_path / "var/provisioner.db")]["standing"] == "after intake"
    assert not (tmp_path / "var").exists()


def mistype_switch(expected: dict[str, Any]) -> None:
    for node in expected["nodes"]:
        if node["name"] == "leaf-su0-r0":
            node["password"] = "mistyped"


def mistype_factory(expected: dict[str, Any]) -> None:
    for login in expected["factory_credentials"].values():
        login["password"] = "mistyped"


def forget_vendor(expected: dict[str, Any]) -> None:
    expected["factory_credentials"].pop("supermicro")


def mistake_serial(expected: dict[str, Any]) -> None:
    expected["nodes"][0]["bmc"]["serial"] = "another"


def name_no_release(expected: dict[str, Any]) -> None:
    expected["release"] = "spectrum-x-9"


@pytest.mark.parametrize(
    ("change", "area", "subject"),
    [
        (mistype_switch, "switch", "leaf-su0-r0"),
        (mistype_factory, "credential", "URL"),
        (forget_vendor, "credential", "URL"),
        (mistake_serial, "list", "su0-n00"),
        (name_no_release, "list", "release"),
    ],
)
def test_each_mistake_of_the_list_is_found_before_the_first_intake(
    new_rack: Served,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], None],
    area: str,
    subject: str,
) -> None:
    code, told = examine(new_rack, tmp_path, change)

    found = told[area, new_rack.url("su0-n00/host") if subject == "URL" else subject]
    assert code == 1
    assert found["standing"] == "bad"
    assert found["remedy"]
    assert "mistyped" not in json.dumps(list(told.values()))


def test_a_password_that_the_list_names_and_nobody_gave_is_asked_for(
    new_rack: Served, tmp_path: Path
) -> None:
    expected = new_rack.site.build_expected()
    for login in expected["factory_credentials"].values():
        login.pop("password", None)
        login["password_env"] = "NOBODY_SET_THIS"
    (tmp_path / "expected.json").write_text(json.dumps(expected))

    done = alone(["doctor", "--file", "expected.json"], tmp_path)

    assert done.returncode == 2
    assert "NOBODY_SET_THIS" in done.stderr


def test_cables_between_switches_are_read_and_compared_with_the_plan(
    new_rack: Served, tmp_path: Path
) -> None:
    switches = new_rack.site.switches
    for at, port, other, far in (
        ("leaf-su0-r0", "swp33s0", "spine-0", "swp1s0"),
        ("spine-0", "swp1s0", "leaf-su0-r0", "swp33s0"),
        ("leaf-su0-r0", "swp33s1", "spine-3", "swp1s0"),  # the plan's is spine-1
    ):
        neighbour = Neighbour(other, far, switches[other].mac)
        switches[at].add_port(port, neighbour=neighbour)
    (tmp_path / "plan.yaml").write_text("{}")

    code, told = examine(
        new_rack, tmp_path, lambda _list: None, "--plan", str(tmp_path / "plan.yaml")
    )

    assert code == 1
    found = told["cables", "leaf-su0-r0"]
    assert found["standing"] == "bad"
    assert "swp33s1 should see spine-1/swp1s0 and sees spine-3/swp1s0" in found["detail"]
    assert "swp33s0" not in found["detail"]
