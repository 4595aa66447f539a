"""The first rack and the README's part on real hardware are walked, against `sim serve`.

The commands are those of the pages, in their order. Replaced is what a simulated site has
otherwise: addresses, ports, folders, and options of `serve` that lead to the simulator and
give its fast clock limits. Planted are factory passwords, unknown pins and a wrong password of
the switches. Counted are the commands up to the first released node, and their time.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from page_reading import ROOT, blocks, commands

from provisioner.integrations.demo.site import choose_settings

PAGE = ROOT / "docs" / "first-rack.md"
README = ROOT / "README.md"
NETWORK = "127.0.83"
PORT = "18443"
SPEED = 300.0
LIMIT_S = 900.0  # a hung command must end
COMMANDS_MAX = 8
PASSWORDS = {
    "FACTORY_SUPERMICRO": "ADMIN-of-this-order-1",
    "FACTORY_NVIDIA_OPENBMC": "0penBmc",
    "SWITCH_PASSWORD": "Cumulus-of-this-site-1",
}


class Site:
    """A simulated site with factory passwords, and a folder to work in as a new user has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.control = folder / "c.sock"
        (folder / "firmware").mkdir()
        settings = choose_settings(1, SPEED).model_copy(update={"certify_gates": "ab"})
        changed = settings.model_dump(mode="json", exclude_defaults=True)
        (folder / "settings.yaml").write_text(json.dumps(changed))
        first = ["--listen", f"{NETWORK}.1", "--port", PORT, "--speed", str(SPEED)]
        words = ["sim", "serve", "--nodes", "1", *first, "--control", str(self.control)]
        self.running = [self.begin(words, "sim.log")]
        self.wait_for("sim.log", "endpoints")
        self.passwords = dict(PASSWORDS)

    def begin(self, words: list[str], log: str) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("wb") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "provisioner", *words],
                cwd=self.folder,
                env=self.environment(),
                stdout=out,
                stderr=out,
            )

    def environment(self) -> dict[str, str]:
        own = {k: v for k, v in os.environ.items() if not k.startswith("PROVISIONER")}
        return {**own, "PYTHONPATH": str(ROOT), **getattr(self, "passwords", PASSWORDS)}

    def wait_for(self, log: str, words: str) -> None:
        limit = time.monotonic() + LIMIT_S
        while words not in (told := (self.folder / log).read_text()):
            assert time.monotonic() < limit, told
            assert all(p.poll() is None for p in self.running), told
            time.sleep(0.2)

    def run(self, words: list[str]) -> tuple[int, str]:
        """Run a command to its end; what it asks is answered with yes."""
        yes = ["--yes"] if words[0] == "intake" and "--dry-run" not in words else []
        done = subprocess.run(
            [sys.executable, "-m", "provisioner", *words, *yes],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def walk(self, words: list[str]) -> str:
        """Run a command of a page: each ends with 0."""
        if words[0] == "serve":
            self.running.append(self.begin([*words, *self.serve_options()], "serve.log"))
            self.wait_for("serve.log", "serving")
            return ""
        code, told = self.run(words)
        assert code == 0, f"{shlex.join(words)}\n{told}"
        return told

    def serve_options(self) -> list[str]:
        free = [w for o in ("artifact", "api") for w in (f"--{o}-port", "0")]
        return ["--simulator", str(self.control), "--settings", "settings.yaml", *free]

    def end(self) -> None:
        for process in reversed(self.running):
            process.send_signal(signal.SIGINT)
            process.wait(60)


def translate(words: list[str], folder: Path) -> list[str]:
    """Return a page's command for the simulated site."""
    text = shlex.join(words[1:])
    replaced = {
        "--range 10.0.0.0/24": f"--range {NETWORK}.0/27 --port {PORT}",
        "--switches 10.0.1.0/28": f"--switches {NETWORK}.0/27 --switch-port {PORT}",
        "/var/lib/provisioner": str(folder / "data"),
        "/srv/firmware": str(folder / "firmware"),
        "--artifact-host 10.0.0.2": "--artifact-host 127.0.0.1",
    }
    for old, new in replaced.items():
        text = text.replace(old, new)
    return shlex.split(text)


def walked(page: Path, first: str, last: str) -> list[list[str]]:
    """Return the commands of a page from the one named `first` to the last one named `last`."""
    found = [words for block in blocks(page) for words in commands(block)]
    begin = next(n for n, w in enumerate(found) if w[1] == first)
    end = max(n for n, w in enumerate(found) if w[1 : 1 + len(last.split())] == last.split())
    return found[begin : end + 1]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    try:
        yield made
    finally:
        made.end()


def test_at_most_eight_commands_lead_to_the_first_released_node() -> None:
    listed = [" ".join(w[1:3]) for w in walked(PAGE, "init", "node list")]

    assert len(listed) <= COMMANDS_MAX, listed
    assert [w.split()[0] for w in listed[:4]] == ["init", "doctor", "rehearse", "serve"]


@pytest.mark.long
@pytest.mark.slow
def test_the_first_rack_is_walked_from_factory_passwords_to_a_released_node(
    site: Site, record_property: Callable[[str, object], None]
) -> None:
    listed = [translate(w, site.folder) for w in walked(PAGE, "init", "node list")]
    began = time.monotonic()
    first, *rest = listed

    site.passwords["SWITCH_PASSWORD"] = "wrong-on-purpose"
    code, told = site.run(first)
    assert code == 1, told
    assert "its serial and cables" in told
    code, told = site.run(first)
    assert code == 2, told  # nothing is replaced
    assert "--force" in told
    site.passwords["SWITCH_PASSWORD"] = PASSWORDS["SWITCH_PASSWORD"]
    told = site.walk([*first, "--force"])
    assert "missing: hgx-h100-bf3: version of host.driver" in told
    texts = [f.read_text() for f in site.folder.rglob("*.yaml")]
    assert not [p for p in PASSWORDS.values() for text in texts if p in text]

    *rest, look = rest
    for words in rest:
        if words[0] == "doctor":
            site.passwords["SWITCH_PASSWORD"] = "wrong-on-purpose"
            code, told = site.run(words)
            assert code == 1, told
            assert "leaf-su0-r0" in told
            site.passwords["SWITCH_PASSWORD"] = PASSWORDS["SWITCH_PASSWORD"]
        site.walk(words)
    limit = time.monotonic() + LIMIT_S
    while not re.search(r"su0-n00 .*released.*RED", told := site.walk(look)):
        assert time.monotonic() < limit, told
        time.sleep(2.0)
    record_property("commands", len(listed))
    record_property("minutes", round((time.monotonic() - began) / 60, 1))

    check = next(w for w in walked(PAGE, "matrix", "matrix check"))
    code, told = site.run(translate(check, site.folder))
    assert code == 1, told  # production wants every pin
    assert "unknown" in told


@pytest.mark.long
@pytest.mark.slow
def test_the_readmes_commands_for_real_hardware_end_as_it_says(site: Site) -> None:
    for words in walked(README, "init", "intake"):
        told = site.walk(translate(words, site.folder))

    assert "13 nodes taken in" in told


@pytest.mark.long
@pytest.mark.slow
def test_a_lease_file_leads_to_the_same_list_as_a_range(site: Site) -> None:
    first = translate(next(w for w in walked(PAGE, "init", "init")), site.folder)
    site.walk(first)
    ranged = yaml.safe_load((site.folder / "expected.yaml").read_text())
    switches = [n for n in ranged["nodes"] if n["kind"] == "switch"]
    first_switch = min(int(re.findall(r"[.](\d+):", str(n))[0]) for n in switches)
    bmcs = [f"{NETWORK}.{n}" for n in range(1, first_switch)]
    leases = [f"0 02:00:00:00:00:{n:02x} {address} * *" for n, address in enumerate(bmcs)]
    (site.folder / "dnsmasq.leases").write_text("\n".join(leases) + "\n")

    assert first[:2] == ["init", "--range"]
    site.walk(["init", *first[3:], "--leases", "dnsmasq.leases", "--out", "leased"])

    assert len(bmcs) >= 2
    assert yaml.safe_load((site.folder / "leased" / "expected.yaml").read_text()) == ranged
