"""`make image`: kernel, ramdisk and bootable ISO from pinned inputs, and a manifest of them.

    python -m images.build image --profile test
    python -m images.build iso --from images/out/NAME.json --cmdline "..." --out site.iso
    python -m images.build compare A.json B.json
    python -m images.build pin NAME.json

Only `image` needs root (a chroot and mounts). Exit codes: 0 good, 1 the images differ, 2 an
input is wrong, in a sentence.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from images import inputs, iso, locks, manifest, ramdisk
from images.locks import BadInput
from images.ramdisk import LOCKS, PROFILES, Profile


def build(profile: Profile, out: Path, *, update_lock: bool, cmdline: str) -> Path:
    """The manifest's path. Raises BadInput."""
    ramdisk.ready(out)
    name = f"{manifest.NAME}-{profile.name}"
    full = iso.checked_cmdline(" ".join(f"{profile.cmdline} {cmdline}".split()))
    lock = LOCKS / "debian.lock"
    if not update_lock:
        iso.check_loaders(ramdisk.locked(LOCKS / "bootloader.lock"), iso.loaders())
    venv = inputs.builder(LOCKS / "builder.lock", out / "builder")
    given = inputs.fetch(LOCKS / "agent.lock", ramdisk.MANAGER, venv, out / "inputs")
    digests = ramdisk.digests()
    ramdisk.disk_image_create(profile, out, venv, given, update_lock=update_lock, name=name)
    made = out / f"{name}.d/dib-manifests"
    there = locks.packages((made / "debian-packages").read_text(), "the image's packages")
    if update_lock:
        _write_lock(lock, there)
        unpacked = locks.packages(_unique(made / "debian-unpacked"), "what was unpacked")
        gone = {name: p for name, p in unpacked.items() if there.get(name) != p}
        _write_lock(LOCKS / "debian-build.lock", gone)
        _write_lock(LOCKS / "bootloader.lock", iso.loaders())
    elif lines := locks.differences(ramdisk.locked(lock) | ramdisk.site_lock(), there):
        raise BadInput("the image has other packages than its lock:\n  " + "\n  ".join(lines))
    _with_bytecode(out / f"{name}.initramfs", out / f"{name}.bytecode.cpio")
    iso.make(out / f"{name}.kernel", out / f"{name}.initramfs", full, out / f"{name}.iso")
    result = manifest.Manifest(
        profile=profile.name,
        agent_version=given.agent_version,
        kernel=(made / "kernel-release").read_text().strip(),
        cmdline=full,
        inputs=digests if not update_lock else ramdisk.digests(),
        debian=tuple(p.line() for p in sorted(there.values())),
        python=tuple((made / "python-packages").read_text().split()),
        files={s: manifest.described(out / f"{name}.{s}") for s in ("kernel", "initramfs", "iso")},
    )
    manifest.write(result, out / f"{name}.json")
    return out / f"{name}.json"


def _unique(path: Path) -> str:
    """A package may be unpacked twice, once for each phase that wants it."""
    return "\n".join(dict.fromkeys(path.read_text().splitlines()))


def _write_lock(path: Path, there: dict[str, locks.Package]) -> None:
    unknown = [p.name for p in there.values() if p.sha256 == "-"]
    if unknown:
        raise BadInput(f"no index has the digest of: {', '.join(unknown)}; they cannot be locked")
    head = "# name, version, sha256; written by `make image ARGS=--update-lock`\n"
    path.write_text(head + "".join(f"{p.line()}\n" for p in sorted(there.values())))


def _with_bytecode(initramfs: Path, bytecode: Path) -> None:
    """An archive that is not compressed may stand before the one that is, as microcode does (Linux,
    Documentation/driver-api/early-userspace/buffer-format.rst)."""
    if not bytecode.is_file():
        return
    joined = initramfs.with_suffix(".joined")
    with joined.open("wb") as file:
        with bytecode.open("rb") as first:
            shutil.copyfileobj(first, file, 1 << 20)
        file.write(bytes(-file.tell() % 4))  # the next archive begins at a multiple of four
        with initramfs.open("rb") as second:
            shutil.copyfileobj(second, file, 1 << 20)
    joined.replace(initramfs)
    bytecode.unlink()


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m images.build", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    image = commands.add_parser("image", help="build kernel, ramdisk, ISO and manifest")
    image.add_argument("--profile", choices=sorted(PROFILES), default="production")
    image.add_argument("--out", type=Path, default=ramdisk.OUT)
    image.add_argument("--cmdline", default=os.environ.get("IMAGE_CMDLINE", ""))
    image.add_argument("--update-lock", action="store_true")
    remade = commands.add_parser("iso", help="an ISO with another kernel command line")
    remade.add_argument("--from", dest="source", type=Path, required=True)
    remade.add_argument("--cmdline", default="", help="words after the profile's own")
    remade.add_argument("--out", type=Path, required=True)
    two = commands.add_parser("compare", help="how two images differ in what they are made of")
    two.add_argument("manifests", nargs=2, type=Path)
    lines = commands.add_parser("pin", help="the lines for a site's matrix overlay")
    lines.add_argument("manifest", type=Path)
    lines.add_argument("--evidence", default="built by this site from images/")
    given = parser.parse_args(arguments)
    try:
        return _run(given)
    except BadInput as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


def _run(given: argparse.Namespace) -> int:
    if given.command == "image":
        made = build(
            PROFILES[given.profile],
            given.out.resolve(),
            update_lock=given.update_lock,
            cmdline=given.cmdline,
        )
        sys.stdout.write(f"{made}\n{manifest.pin(manifest.read(made), 'built by this site')}")
    elif given.command == "iso":
        old = manifest.read(given.source)
        manifest.check_files(old, given.source.parent)
        own = PROFILES[old.profile].cmdline if old.profile in PROFILES else ramdisk.CONSOLE
        folder = given.source.parent
        kernel, initramfs = (folder / old.files[name].name for name in ("kernel", "initramfs"))
        full = " ".join(f"{own} {given.cmdline}".split())
        iso.make(kernel, initramfs, full, given.out)
        files = old.files | {"iso": manifest.described(given.out)}
        new = old.model_copy(update={"cmdline": full, "files": files})
        manifest.write(new, given.out.with_suffix(".json"))
        sys.stdout.write(manifest.pin(new, "built by this site"))
    elif given.command == "compare":
        found = manifest.compare(*(manifest.read(path) for path in given.manifests))
        sys.stdout.write("\n".join(found or ("the same inputs, the same packages",)) + "\n")
        return 1 if found else 0
    else:
        sys.stdout.write(manifest.pin(manifest.read(given.manifest), given.evidence))
    return 0


if __name__ == "__main__":
    sys.exit(main())
