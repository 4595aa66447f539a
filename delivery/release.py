"""Makes a release: its files in one folder, the list of their digests, and a signature of the list.

    python -m delivery.release dist/release --part deb --part image --key minisign.key

The signature is minisign's (Ed25519): one file that is verified without a network and without any
service. The secret key is read by minisign alone, which asks for its password at the terminal.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from delivery.chart import build_chart
from delivery.image import build_image
from delivery.lock import read_packages, write_requirements
from delivery.materials import write_materials
from delivery.package import build_package
from delivery.sources import NAME, ROOT, SOURCES, DeliveryError, read_epoch, read_version, run_tool
from delivery.wheel import build_wheel

SUMS = "SHA256SUMS"
# forms that take minutes, and tools of Debian's
PARTS = {"deb": build_package, "image": build_image}
RECIPES = (
    "delivery",
    "images/daemon",
    "requirements.lock",
)  # they shape a release beside the sources


def build_release(folder: Path, epoch: int) -> None:
    """Write the wheel, its packages with digests, the bill of materials and the Helm chart."""
    version = read_version()
    packages = read_packages()
    build_wheel(folder, epoch)
    requirements = folder / f"{NAME}-{version}.requirements.txt"
    requirements.write_text(write_requirements(packages), encoding="utf-8")
    materials = folder / f"{NAME}-{version}.cdx.json"
    materials.write_text(write_materials(packages, version, epoch), encoding="utf-8")
    build_chart(folder, epoch)


def write_sums(folder: Path) -> Path:
    """Write the list of digests of all files in the folder, as sha256sum reads it."""
    files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith(SUMS))
    lines = [f"{_hash_file(path)}  {path.name}\n" for path in files]
    sums = folder / SUMS
    sums.write_text("".join(lines), encoding="utf-8")
    return sums


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sign_sums(sums: Path, key: Path, comment: str) -> Path:
    """Sign the list with minisign, which asks for the key's password if it has one."""
    if shutil.which("minisign") is None:
        raise DeliveryError("minisign is not installed: apt-get install minisign")
    command = ["minisign", "-S", "-s", str(key), "-m", str(sums), "-t", comment]
    ended = subprocess.run(command, check=False)  # noqa: S603
    if ended.returncode != 0:
        raise DeliveryError("minisign did not sign the list: see its message above")
    return sums.with_name(sums.name + ".minisig")


def require_commit(root: Path = ROOT) -> str:
    """Return the commit. Raises DeliveryError where files differ from it."""
    changed = run_tool(["git", "status", "--porcelain", "--", *SOURCES, *RECIPES], folder=root)
    if changed:
        raise DeliveryError(f"a release is made of a commit; these files differ:\n{changed}")
    return run_tool(["git", "rev-parse", "HEAD"], folder=root).strip()


def main() -> int:
    """Make the release that the arguments describe. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="make release")
    parser.add_argument("folder", type=Path, help="folder of the release; emptied first")
    parser.add_argument("--part", action="append", choices=sorted(PARTS), default=[])
    parser.add_argument("--key", type=Path, help="minisign's secret key; without it, unsigned")
    options = parser.parse_args()
    try:
        commit = require_commit()
        shutil.rmtree(options.folder, ignore_errors=True)
        build_release(options.folder, read_epoch())
        for part in options.part:
            PARTS[part](options.folder, read_epoch())
        sums = write_sums(options.folder)
        sys.stdout.write(sums.read_text(encoding="utf-8"))
        if options.key is None:
            sys.stdout.write("not signed: name minisign's secret key (KEY=FILE)\n")
            return 0
        sign_sums(sums, options.key, f"{NAME} {read_version()} of commit {commit}")
    except DeliveryError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
