"""host_kernel: the kernel of the next boot is the pinned one, built for, chosen and held."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Host
from role_lab import ANSIBLE, held_of, play, refresh, versions_of

sys.path.insert(0, str(ANSIBLE / "collections"))

from ansible_collections.provisioner.fleet.plugins.module_utils import (
    kernel,
    kernel_choice,
    tools,
)

RELEASE, OTHER = "6.8.0-57-generic", "6.8.0-60-generic"
PIN = {"packages": {"host.kernel": f"{RELEASE}=6.8.0-57.59"}}
BOOT = "/boot/grub/grub.cfg"


CLEAN = "rm -rf /boot/* /etc/default/grub.d/90-* /lib/modules/*/updates /sys/firmware"


@pytest.fixture
def kernels(furnished: list[Host]) -> Iterator[list[Host]]:
    """The lab's hosts; other tests find them without these kernels and without Secure Boot."""
    yield furnished
    for host in furnished:
        host.run(CLEAN)


def begin(host: Host) -> None:
    """A host with the newest kernel by its metapackage, as Ubuntu's images are."""
    refresh(host)
    host.run(
        f"{CLEAN} && cd /srv/mirror && dpkg -i linux-image-generic_* linux-image-6.8.0-60-*"
        " linux-modules-6.8.0-60-* && echo GRUB_DEFAULT=0 >/etc/default/grub && update-grub"
    )


@pytest.mark.long
@pytest.mark.slow
def test_the_pinned_kernel_is_the_next_one_and_nothing_brings_another(
    kernels: list[Host], tmp_path: Path
):
    pinned, unbuilt, unsigned = kernels
    for host in kernels:
        begin(host)
    for host in (unbuilt, unsigned):
        host.run("mkdir -p /lib/modules/$(uname -r)/updates/dkms")
        host.run("touch /lib/modules/$(uname -r)/updates/dkms/vastnfs.ko.zst")
    refused = {"unbuilt": ["vastnfs"]}
    unbuilt.run(f"sed -i '1s|^{{|{json.dumps(refused)[:-1]}, |' /var/lib/standins/state.json")
    unsigned.run(f"mkdir -p $(dirname {kernel.SECURE_BOOT})")
    unsigned.run(f"printf '\\006\\000\\000\\000\\001' >{kernel.SECURE_BOOT}")

    tried = play("host_software", {pinned: PIN}, tmp_path, check=True)["host-1"]
    untouched = (versions_of(pinned), held_of(pinned), pinned.get(BOOT))
    first = play("host_software", dict.fromkeys(kernels, PIN), tmp_path)
    second = play("host_software", {pinned: PIN}, tmp_path)["host-1"]

    assert tried.ok, tried.message
    assert RELEASE not in untouched[2]
    assert untouched[1] == []
    assert first["host-1"].ok, first["host-1"].message
    assert first["host-1"].result["installed"] == PIN["packages"]
    assert first["host-1"].result["reboot_required"]
    assert kernel_choice.read_default(pinned.get(BOOT)).endswith(
        f">gnulinux-{RELEASE}-advanced-3f6c0d6e-0000-4000-8000-000000000001"
    )
    assert set(held_of(pinned)) == {
        f"linux-image-{RELEASE}",
        f"linux-headers-{RELEASE}",
        f"linux-modules-{RELEASE}",
        "linux-image-generic",
    }
    assert (second.ok, second.changed) == (True, 0)
    assert f"there is no module vastnfs for {RELEASE}, the next" in first["host-2"].message
    assert "Secure Boot would refuse vastnfs: not signed" in first["host-3"].message


def test_packages_of_a_kernel_and_those_that_bring_one_are_held():
    # dpkg-query of Ubuntu 24.04 and Debian 12
    text = "\n".join(
        (
            f"linux-image-{RELEASE}\tii \tkmod, linux-base, linux-modules-{RELEASE}",
            f"linux-modules-nvidia-570-server-{RELEASE}\tii \tlinux-image-{RELEASE}",
            f"linux-image-{OTHER}\tii \tkmod, linux-modules-{OTHER}",
            f"linux-generic-hwe-24.04\tii \tlinux-image-generic-hwe-24.04 (= {OTHER}.1)",
            f"linux-image-generic-hwe-24.04\tii \tlinux-image-{OTHER}, linux-firmware",
            "linux-image-amd64\thi \tlinux-image-6.1.0-29-amd64 (= 6.1.123-1)",
            f"linux-headers-generic\trc \tlinux-headers-{OTHER}",
            "linux-libc-dev:amd64\tii \t",
            "linux-base\tii \tdebconf (>= 0.5)",
        )
    )

    assert kernel_choice.list_packages(text, RELEASE) == [
        "linux-generic-hwe-24.04",
        "linux-image-6.8.0-57-generic",
        "linux-image-amd64",
        "linux-image-generic-hwe-24.04",
        "linux-modules-nvidia-570-server-6.8.0-57-generic",
    ]


def test_an_entry_of_a_menu_without_submenus_has_one_name():
    # GRUB_DISABLE_SUBMENU=y
    menu = f"menuentry 'x' --class y $menuentry_id_option 'gnulinux-{RELEASE}-advanced-u' {{\n}}\n"

    assert kernel_choice.find_entry(menu, RELEASE) == f"gnulinux-{RELEASE}-advanced-u"
    assert kernel_choice.find_entry(menu, "6.8.0-5-generic") == ""
    with pytest.raises(tools.Unreadable, match="sets no default"):
        kernel_choice.read_default(menu)


def make_certificate(folder: Path, name: str) -> tuple[str, str, str]:
    """A key for DKMS as update-secureboot-policy makes it, by the real openssl; as it is read."""
    folder.mkdir()
    der = str(folder / "MOK.der")
    line = ["openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "36500"]
    line += ["-subj", f"/CN={name}/", "-outform", "DER", "-out", der]
    line += ["-keyout", str(folder / "MOK.priv"), "-addext", "subjectKeyIdentifier=hash"]
    subprocess.run(line, check=True, capture_output=True)
    (row,) = kernel.read_certificates((der, str(folder / "none")))
    return row


def test_a_module_is_signed_by_the_key_that_is_enrolled_and_not_by_one_of_its_name(tmp_path: Path):
    name = "su0-n00 Secure Boot Module Signature key"
    older = make_certificate(tmp_path / "older", name)
    newer = make_certificate(tmp_path / "newer", name)
    row = "0a1 I------ 1 perm 1f030000 0 0 asymmetri {}: {}: X509.rsa 0a850c19 []\n"
    theirs = "Canonical Ltd. Kernel Module Signing"
    keys = kernel.parse_keys(
        row.format(name, older[2].zfill(40))
        + row.format(theirs, "88f752e560a1e0737e31163a466ad7b70a850c19")
        + row.format("Acme Ltd: site key", "0123456789abcdef0123456789abcdef01234567")
    )
    spelled = ":".join(older[1].zfill(40)[n : n + 2] for n in range(0, 40, 2)).upper()

    def judge(signer: str, serial: str, *rows: tuple[str, str, str]) -> str:
        return kernel.find_signature_fault(signer, serial, keys, list(rows))

    assert older[0] == name
    assert judge(name, spelled, older) == ""
    assert judge(theirs, "AA:BB", older) == ""
    assert judge("site key", "AA:BB") == ""  # the kernel adds the organisation of a certificate
    assert judge("", "") == "not signed"
    assert "a key that is not enrolled" in judge("another", spelled, older)
    assert "another key than this host's" in judge(name, spelled, newer)
    assert "a newer" in judge(name, newer[1], newer)
    with pytest.raises(tools.Unreadable):
        kernel.parse_certificate("Serial Number: 1 (0x1)\n")
