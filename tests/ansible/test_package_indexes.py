"""The driver forward, twice, back and in another packaging, where real package metadata judge.

`package_index.py` has the sources. The name of each test says which index judged: small indexes of
our own, Debian's true ones by apt, or those that `make test PACKAGE_INDEXES=DIR` names.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import package_index
import pytest
from hosts import Host, hosts, why_not
from package_index import Entry
from role_lab import furnish, held_of, play, refresh, versions_of


@dataclass(frozen=True)
class Ubuntu:
    """One small index of Ubuntu's drivers: two branches, and one that became transitional."""

    folder: str
    old: str
    new: str
    ending: str  # the last real version of a branch
    transitional: str  # its empty one, which depends on the branch `following`
    following: str

    @property
    def old_branch(self) -> str:
        return self.old.partition(".")[0]

    @property
    def new_branch(self) -> str:
        return self.new.partition(".")[0]

    def read(self) -> list[Entry]:
        """Return the packages of this index, and a site's that depends on the old driver."""
        site = ("Depends", f"nvidia-driver-{self.old_branch}-server")
        entries = package_index.read_indexes(package_index.HERE / self.folder)
        return [*entries, Entry("site-agent", "1.0", (site,))]


JAMMY = Ubuntu(
    "ubuntu-22.04", "535.261.03", "550.144.03",
    "550.144.03-0ubuntu0.22.04.1", "550.163.01-0ubuntu0.22.04.2", "570",
)  # fmt: skip
NOBLE = Ubuntu(
    "ubuntu-24.04", "535.288.01", "580.126.20",
    "570.211.01-0ubuntu0.24.04.2", "570.211.01-0ubuntu1.24.04.1", "580",
)  # fmt: skip
EACH_UBUNTU = pytest.mark.parametrize("ubuntu", [JAMMY, NOBLE], ids=lambda u: u.folder)
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
AREAS = "contrib non-free non-free-firmware"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """One host without any package."""
    if reason := why_not():
        pytest.skip(reason)
    with hosts(1, tmp_path_factory.mktemp("index")) as made:
        yield made[0]


def lay(host: Host, folder: Path, entries: list[Entry], install: str, version: str = "") -> None:
    """Give the host a mirror of these packages, empty ones, and install some of them."""
    preferred = f"Package: /./\nPin: version {version}\nPin-Priority: 995\n" if version else ""
    host.put("/etc/apt/preferences", preferred)
    mirror = folder / "mirror"
    package_index.make_mirror(mirror, [*entries, package_index.build_base(entries)], {})
    apt = "apt-get -qq -y --no-install-recommends install base-system"
    furnish(host, mirror, f"apt-get -qq update && {apt} {install}")
    host.put("/etc/apt/preferences", "")
    refresh(host)


def driver(version: str, *, manager: bool = True) -> dict[str, object]:
    kinds = ("host.driver", "host.fabric_manager") if manager else ("host.driver",)
    return {"packages": dict.fromkeys(kinds, version.partition("-")[0])}


@pytest.mark.parametrize(
    "path", sorted(package_index.HERE.glob("*/Packages")), ids=lambda p: p.parent.name
)
def test_each_entry_of_a_small_index_names_its_page_and_no_package_is_twice(path: Path):
    paragraphs = path.read_text().strip().split("\n\n")
    names = ["\n".join(p.splitlines()[:2]) for p in paragraphs]

    assert all("\nOrigin-Page: https://" in p for p in paragraphs)
    assert len(package_index.read_indexes(path.parent)) == len(set(names)) == len(names)


@EACH_UBUNTU
def test_a_small_index_has_both_flavours_of_each_branch_at_one_version(ubuntu: Ubuntu):
    entries = {(e.name, e.version.partition("-")[0]): e for e in ubuntu.read()}

    for version in (ubuntu.old, ubuntu.new):
        branch = version.partition(".")[0]
        for flavour in ("", "-open"):
            needs = entries[f"nvidia-driver-{branch}-server{flavour}", version].field("Depends")
            assert f"nvidia-dkms-{branch}-server{flavour} (>= {version})" in needs
            assert (f"nvidia-dkms-{branch}-server{flavour}", version) in entries
        assert (f"nvidia-fabricmanager-{branch}", version) in entries


@pytest.mark.long
@EACH_UBUNTU
def test_small_indexes_of_our_own_another_branch_and_open_modules(
    bare: Host, tmp_path: Path, ubuntu: Ubuntu
):
    old, new = ubuntu.old_branch, ubuntu.new_branch
    held = f"nvidia-driver-{old}-server"
    lay(bare, tmp_path, ubuntu.read(), f"{held} nvidia-fabricmanager-{old} site-agent")
    opened = {"packages": {"host.driver_packages": "ubuntu-server-open"}}

    bound = play("host_software", {bare: driver(ubuntu.new)}, tmp_path)["host-1"]
    untouched = held in versions_of(bare)
    bare.run(f"dpkg --purge site-agent && apt-mark hold {held}")
    mixed = play(
        "host_software",
        {bare: {"packages": {"host.driver": ubuntu.new, **opened["packages"]}}}, tmp_path,
    )["host-1"]  # fmt: skip
    first = play("host_software", {bare: driver(ubuntu.new)}, tmp_path)["host-1"]
    after = versions_of(bare)
    second = play("host_software", {bare: driver(ubuntu.new)}, tmp_path)["host-1"]
    flavour = play("host_software", {bare: opened}, tmp_path)["host-1"]
    final = versions_of(bare)

    assert "apt would remove site-agent" in bound.message
    assert untouched
    assert "are two changes: change the packaging at one version" in mixed.message
    assert first.ok, first.message
    assert f"nvidia-dkms-{old}-server" in first.result["removed"]
    assert all(old in name for name in first.result["removed"])
    assert f"nvidia-dkms-{new}-server" in after
    assert (second.ok, second.changed) == (True, 0)
    assert flavour.ok, flavour.message
    assert flavour.result["installed"] == {
        "host.driver": ubuntu.new, "host.driver_packages": "ubuntu-server-open",
    }  # fmt: skip
    assert flavour.result["reboot_required"] is True
    assert f"nvidia-dkms-{new}-server" in flavour.result["removed"]
    assert f"nvidia-dkms-{new}-server-open" in final
    assert f"nvidia-dkms-{new}-server" not in final
    opened_names = {f"nvidia-driver-{new}-server-open", f"nvidia-fabricmanager-{new}"}
    assert opened_names <= set(held_of(bare))


@pytest.mark.long
@EACH_UBUNTU
def test_small_indexes_of_our_own_open_modules_stay_open_and_back(
    bare: Host, tmp_path: Path, ubuntu: Ubuntu
):
    old, new = ubuntu.old_branch, ubuntu.new_branch
    open_driver = f"nvidia-driver-{old}-server-open"
    lay(bare, tmp_path, ubuntu.read(), f"{open_driver} nvidia-fabricmanager-{old}")

    forward = play("host_software", {bare: driver(ubuntu.new)}, tmp_path)["host-1"]
    stays = versions_of(bare)
    upstream = ubuntu.transitional.partition("-")[0]
    ambiguous = play("host_software", {bare: driver(upstream)}, tmp_path)["host-1"]
    back = play("host_software", {bare: driver(ubuntu.old)}, tmp_path)["host-1"]

    assert forward.ok, forward.message
    assert f"nvidia-driver-{new}-server-open" in stays
    assert f"nvidia-driver-{new}-server" not in stays
    assert f"may be any of {ubuntu.transitional}" in ambiguous.message
    assert back.ok, back.message
    assert versions_of(bare)[open_driver].startswith(ubuntu.old)


@pytest.mark.long
@EACH_UBUNTU
def test_small_indexes_of_our_own_a_transitional_package_is_another_driver(
    bare: Host, tmp_path: Path, ubuntu: Ubuntu
):
    """The last package of a branch that ends is empty and depends on the next branch."""
    name = f"nvidia-driver-{ubuntu.ending.partition('.')[0]}-server"
    lay(bare, tmp_path, ubuntu.read(), f"{name}={ubuntu.ending}", ubuntu.ending)
    renamed = {"packages": {"host.driver": ubuntu.transitional}}

    ended = play("host_software", {bare: renamed}, tmp_path)["host-1"]

    assert "these must have one version" in ended.message
    assert f"nvidia-driver-{ubuntu.following}-server" in ended.message
    assert versions_of(bare)[name] == ubuntu.ending


@pytest.mark.long
def test_small_indexes_of_our_own_a_branch_of_cudas_repository_stays_itself(
    bare: Host, tmp_path: Path
):
    """cuda-drivers-580 is content with the packages of 590, which its repository has too."""
    entries = package_index.read_indexes(package_index.HERE / "cuda-debian-12")
    lay(bare, tmp_path, entries, "")
    pinned = dict.fromkeys(("host.driver", "host.fabric_manager"), "580.105.08")
    pinned["host.driver_packages"] = "nvidia"

    first = play("host_software", {bare: {"packages": pinned}}, tmp_path)["host-1"]
    after = versions_of(bare)
    second = play("host_software", {bare: {"packages": pinned}}, tmp_path)["host-1"]
    bare.run("apt-get -qq -y --allow-change-held-packages install nvidia-kernel-dkms")
    newer = versions_of(bare)["nvidia-kernel-dkms"]
    verified = {bare: {"packages": pinned, "phases": ["verify"]}}
    mixed = play("host_software", verified, tmp_path)["host-1"]

    assert first.ok, first.message
    assert {v for n, v in after.items() if n.startswith(("cuda-", "nvidia-"))} == {"580.105.08-1"}
    assert "nvidia-fabricmanager" in after  # nvidia-fabricmanager-580 is virtual there
    assert (second.ok, second.changed) == (True, 0)
    assert newer == "590.48.01-1"
    assert "these must have one version" in mixed.message


@pytest.mark.long
def test_small_indexes_of_our_own_dcgm_4_takes_the_place_of_dcgm_3(bare: Host, tmp_path: Path):
    entries = package_index.read_indexes(package_index.HERE / "nvidia-dcgm")
    lay(bare, tmp_path, entries, "datacenter-gpu-manager")
    tools = {"datacenter-gpu-manager-4-cuda13": "4.5.2", "datacenter-gpu-manager-4-core": "4.5.2"}
    call = {bare: {"packages": tools, "persistence": False}}

    first = play("check_tools", call, tmp_path)["host-1"]
    second = play("check_tools", call, tmp_path)["host-1"]

    assert first.ok, first.message
    assert "datacenter-gpu-manager" not in versions_of(bare)
    assert (second.ok, second.changed) == (True, 0)


@pytest.mark.long
def test_true_indexes_of_debian_forward_twice_and_open_modules(bare: Host, tmp_path: Path):
    entries = fetch_debian(tmp_path / "apt")
    versions = sorted({e.version for e in entries if e.name == "nvidia-driver"})
    if len(versions) < 2:
        pytest.skip(f"Debian has one driver today: {versions}")
    old, new = versions[0], versions[-1]
    lay(bare, tmp_path, entries, f"nvidia-driver={old} nvidia-kernel-dkms={old}", old)

    first = play("host_software", {bare: driver(new, manager=False)}, tmp_path)["host-1"]
    second = play("host_software", {bare: driver(new, manager=False)}, tmp_path)["host-1"]
    older = play("host_software", {bare: driver(old, manager=False)}, tmp_path)["host-1"]
    opened = {"packages": {"host.driver_packages": "debian-open"}}
    flavour = play("host_software", {bare: opened}, tmp_path)["host-1"]

    assert first.ok, first.message
    assert (second.ok, second.changed) == (True, 0)
    assert (older.ok, older.changed) == (False, 0)  # a downgrade is not asked for
    assert flavour.ok, flavour.message
    assert versions_of(bare)["nvidia-open-kernel-dkms"] == new
    assert "nvidia-kernel-dkms" not in versions_of(bare)


def fetch_debian(folder: Path) -> list[Entry]:
    """Debian's packages of the host software, of two suites, as its mirror has them today."""
    if shutil.which("apt-get") is None or not KEYRING.is_file():
        pytest.skip("apt-get or debian-archive-keyring is not installed")
    (folder / "lists" / "partial").mkdir(parents=True)
    site = f"deb [signed-by={KEYRING}] http://deb.debian.org/debian"
    suites = ("bookworm", "bookworm-backports")
    (folder / "list").write_text("".join(f"{site} {suite} {AREAS}\n" for suite in suites))
    options = {
        "Dir::Etc::sourcelist": folder / "list", "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": folder / "lists", "Dir::Cache": folder,
        "Acquire::GzipIndexes": "false", "APT::Sandbox::User": "root",
    }  # fmt: skip
    line = [
        "apt-get",
        "-qq",
        "update",
        *(w for k, v in options.items() for w in ("-o", f"{k}={v}")),
    ]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    entries = package_index.read_indexes(folder / "lists")
    if not entries:
        pytest.skip(f"no network to Debian's mirror here: {done.stderr[-200:]}")
    return entries


def test_given_indexes_another_branch_and_open_modules(bare: Host, tmp_path: Path):
    folder = package_index.find_given_indexes()
    if folder is None:
        pytest.skip("needs index files of a person: make test PACKAGE_INDEXES=DIR")
    entries = package_index.read_indexes(folder)
    drivers = package_index.list_server_drivers(entries)
    if len(drivers) < 2:
        pytest.skip(f"{folder} needs two branches of nvidia-driver-NNN-server, it has {drivers}")
    (old_name, old), (new_name, new) = drivers[-2:]
    lay(bare, tmp_path, entries, f"{old_name}={old}", old)

    forward = {"packages": {"host.driver": new}}
    first = play("host_software", {bare: forward}, tmp_path)["host-1"]
    second = play("host_software", {bare: forward}, tmp_path)["host-1"]
    opened = {"packages": {"host.driver_packages": "ubuntu-server-open"}}
    flavour = play("host_software", {bare: opened}, tmp_path)["host-1"]

    assert first.ok, first.message
    assert versions_of(bare)[new_name] == new
    assert (second.ok, second.changed) == (True, 0)
    assert flavour.ok, flavour.message
