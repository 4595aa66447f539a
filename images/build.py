"""`make image`: builds kernel, ramdisk and bootable ISO from pinned inputs, and their manifest.

    python -m images.build image --profile test
    python -m images.build iso --from images/out/NAME.json --cmdline "..." --out site.iso
    python -m images.build uki --from images/out/NAME.json --cmdline "..." --key K --cert C --out I
    python -m images.build compare A.json B.json
    python -m images.build pin NAME.json

Only `image` needs root (a chroot and mounts). Exit codes: 0 success, 1 the images differ, 2 an
input is wrong, with a message.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from images import inputs, iso, locks, manifest, ramdisk, uki
from images.locks import BadInput
from images.ramdisk import LOCKS, PROFILES, Profile


def build(profile: Profile, out: Path, *, update_lock: bool, cmdline: str) -> Path:
    """Build the image and return the path of its manifest. Raises BadInput."""
    ramdisk.require_tools(out)
    name = f"{manifest.NAME}-{profile.name}"
    full = iso.require_cmdline(" ".join(f"{profile.cmdline} {cmdline}".split()))
    lock = LOCKS / "debian.lock"
    if not update_lock:
        iso.check_loaders(ramdisk.read_lock(LOCKS / "bootloader.lock"), iso.read_loaders())
    venv = inputs.make_builder(LOCKS / "builder.lock", out / "builder")
    fetched = inputs.fetch(LOCKS / "agent.lock", ramdisk.MANAGER, venv, out / "inputs")
    digests = ramdisk.hash_inputs()
    ramdisk.create_image(profile, out, venv, fetched, update_lock=update_lock, name=name)
    manifests = out / f"{name}.d/dib-manifests"
    present = locks.parse_packages(
        (manifests / "debian-packages").read_text(), "the image's packages"
    )
    if update_lock:
        _write_lock(lock, present)
        unpacked = locks.parse_packages(
            _remove_repeats(manifests / "debian-unpacked"), "the unpacked packages"
        )
        unpacked_only = {name: p for name, p in unpacked.items() if present.get(name) != p}
        _write_lock(LOCKS / "debian-build.lock", unpacked_only)
        _write_lock(LOCKS / "bootloader.lock", iso.read_loaders())
    elif lines := locks.find_differences(
        ramdisk.read_lock(lock) | ramdisk.read_site_lock(), present
    ):
        raise BadInput("the image's packages differ from its lock:\n  " + "\n  ".join(lines))
    _prepend_bytecode(out / f"{name}.initramfs", out / f"{name}.bytecode.cpio")
    iso.make_iso(out / f"{name}.kernel", out / f"{name}.initramfs", full, out / f"{name}.iso")
    result = manifest.Manifest(
        profile=profile.name,
        agent_version=fetched.agent_version,
        kernel=(manifests / "kernel-release").read_text().strip(),
        cmdline=full,
        inputs=digests if not update_lock else ramdisk.hash_inputs(),
        debian=tuple(p.to_line() for p in sorted(present.values())),
        python=tuple((manifests / "python-packages").read_text().split()),
        files={
            s: manifest.describe_file(out / f"{name}.{s}") for s in ("kernel", "initramfs", "iso")
        },
    )
    manifest.write(result, out / f"{name}.json")
    return out / f"{name}.json"


def _remove_repeats(path: Path) -> str:
    """Remove repeated lines: a package may be unpacked once in each phase that needs it."""
    return "\n".join(dict.fromkeys(path.read_text().splitlines()))


def _write_lock(path: Path, present: dict[str, locks.Package]) -> None:
    without_digest = [p.name for p in present.values() if p.sha256 == "-"]
    if without_digest:
        raise BadInput(
            f"no index has the digest of: {', '.join(without_digest)}; they cannot be locked"
        )
    head = "# name, version, sha256; written by `make image ARGS=--update-lock`\n"
    path.write_text(head + "".join(f"{p.to_line()}\n" for p in sorted(present.values())))


def _prepend_bytecode(initramfs: Path, bytecode: Path) -> None:
    """Put the archive of byte code in front of the ramdisk, and remove its file.

    An uncompressed archive may precede the compressed one, as for microcode (Linux,
    Documentation/driver-api/early-userspace/buffer-format.rst).
    """
    if not bytecode.is_file():
        return
    joined = initramfs.with_suffix(".joined")
    with joined.open("wb") as file:
        with bytecode.open("rb") as first:
            shutil.copyfileobj(first, file, 1 << 20)
        file.write(bytes(-file.tell() % 4))  # the next archive begins at a multiple of four bytes
        with initramfs.open("rb") as second:
            shutil.copyfileobj(second, file, 1 << 20)
    joined.replace(initramfs)
    bytecode.unlink()


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m images.build", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    image = commands.add_parser("image", help="build kernel, ramdisk, ISO and manifest")
    image.add_argument("--profile", choices=sorted(PROFILES), default="production")
    image.add_argument("--out", type=Path, default=ramdisk.OUT)
    image.add_argument("--cmdline", default=os.environ.get("IMAGE_CMDLINE", ""))
    image.add_argument("--update-lock", action="store_true")
    remade = commands.add_parser("iso", help="an ISO with another kernel command line")
    remade.add_argument("--from", dest="source", type=Path, required=True)
    remade.add_argument("--cmdline", default="", help="arguments after the profile's own")
    remade.add_argument("--out", type=Path, required=True)
    signed = commands.add_parser("uki", help="an ISO with one signed program for Secure Boot")
    signed.add_argument("--from", dest="source", type=Path, required=True)
    signed.add_argument("--cmdline", default="", help="arguments after the profile's own")
    signed.add_argument("--key", type=Path, required=True, help="private key, PEM")
    signed.add_argument("--cert", type=Path, required=True, help="its certificate, PEM")
    signed.add_argument("--out", type=Path, required=True)
    two = commands.add_parser("compare", help="how the contents of two images differ")
    two.add_argument("manifests", nargs=2, type=Path)
    lines = commands.add_parser("pin", help="the lines for a site's matrix overlay")
    lines.add_argument("manifest", type=Path)
    lines.add_argument("--evidence", default="built by this site from images/")
    options = parser.parse_args(arguments)
    try:
        return _run(options)
    except BadInput as error:
        sys.stderr.write(f"error: {error}\n")
        return 2


def _run(options: argparse.Namespace) -> int:
    if options.command == "image":
        manifest_path = build(
            PROFILES[options.profile],
            options.out.resolve(),
            update_lock=options.update_lock,
            cmdline=options.cmdline,
        )
        lines = manifest.render_pin(manifest.read(manifest_path), "built by this site")
        sys.stdout.write(f"{manifest_path}\n{lines}")
    elif options.command in {"iso", "uki"}:
        sys.stdout.write(manifest.render_pin(_remake(options), "built by this site"))
    elif options.command == "compare":
        differences = manifest.compare(*(manifest.read(path) for path in options.manifests))
        sys.stdout.write("\n".join(differences or ("the same inputs, the same packages",)) + "\n")
        return 1 if differences else 0
    else:
        sys.stdout.write(manifest.render_pin(manifest.read(options.manifest), options.evidence))
    return 0


def _remake(options: argparse.Namespace) -> manifest.Manifest:
    """Make another ISO from a built kernel and ramdisk, and write and return its manifest."""
    source = manifest.read(options.source)
    folder = options.source.parent
    manifest.check_files(source, folder)
    own = PROFILES[source.profile].cmdline if source.profile in PROFILES else ramdisk.CONSOLE
    kernel, initramfs = (folder / source.files[name].name for name in ("kernel", "initramfs"))
    full = " ".join(f"{own} {options.cmdline}".split())
    files = dict(source.files)
    if options.command == "uki":
        uki.require_tools(ramdisk.read_lock(LOCKS / "stub.lock"))
        program = options.out.with_suffix(".efi")
        signer = uki.SigningKey(options.key, options.cert)
        uki.make_program(kernel, initramfs, full, signer, program)
        uki.make_iso(program, options.out)
        files["uki"] = manifest.describe_file(program)
    else:
        iso.make_iso(kernel, initramfs, full, options.out)
    files["iso"] = manifest.describe_file(options.out)
    new = source.model_copy(update={"cmdline": full, "files": files})
    manifest.write(new, options.out.with_suffix(".json"))
    return new


if __name__ == "__main__":
    sys.exit(main())
