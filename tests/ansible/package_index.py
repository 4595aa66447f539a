"""Package indexes as a judge of the roles: names, versions, dependencies and conflicts are real.

`indexes/` holds small ones, each entry with its published page; a person gives others by
PACKAGE_INDEXES (a folder of `Packages` files as apt mirrors have them). The packages themselves
are built here and are empty.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent / "indexes"
ENVIRONMENT = "PACKAGE_INDEXES"
# packages of the host software; of everything else an index leaves, `base-system` stands in
SCOPE = re.compile(
    r"(lib)?nvidia-.*|cuda-drivers.*|linux-(modules|objects|signatures)-nvidia-.*|nvlsm.*"
    r"|xserver-xorg-video-nvidia.*|(lib)?xnvctrl.*|libcuda\d.*|libnv.*|firmware-nvidia-.*"
    r"|doca-.*|mlnx-.*|ofed-scripts|knem.*|kernel-mft.*|mft.*|datacenter-gpu-manager.*|libnccl\d.*"
    r"|beegfs-.*|lib(egl|gl|gles|glx|vdpau).*-?nvidia.*|nvidia.*"
)
FIELDS = ("Depends", "Pre-Depends", "Conflicts", "Breaks", "Replaces", "Provides")
_RELATION = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9.+-]*)(?::\w+)?(?: ?\((?P<by>[<>=]+) ?(?P<v>.+)\))?"
)


@dataclass(frozen=True)
class Entry:
    """One package of an index."""

    name: str
    version: str
    relations: tuple[tuple[str, str], ...]  # field and value, as the index has them

    def field(self, name: str) -> str:
        return dict(self.relations).get(name, "")


def read_entries(text: str) -> Iterator[Entry]:
    """The packages of a `Packages` file."""
    for paragraph in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        for line in paragraph.splitlines():
            name, colon, value = line.partition(":")
            if colon and not line.startswith((" ", "#")):
                fields[name] = value.strip()
        if fields.get("Package") and fields.get("Version"):
            relations = tuple((f, fields[f]) for f in FIELDS if fields.get(f))
            yield Entry(fields["Package"], fields["Version"], relations)


def read_indexes(folder: Path) -> list[Entry]:
    """All packages in scope of the `Packages` files below a folder, gzip and xz too."""
    entries: dict[tuple[str, str], Entry] = {}
    for path in sorted(folder.rglob("*Packages*")):
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        elif path.suffix == ".xz":
            content = lzma.decompress(content)
        for entry in read_entries(content.decode("utf-8", errors="replace")):
            if SCOPE.fullmatch(entry.name):
                entries.setdefault((entry.name, entry.version), entry)
    return list(entries.values())


def find_given_indexes() -> Path | None:
    """The folder that a person gave, if there is one."""
    given = os.environ.get(ENVIRONMENT, "")
    return Path(given) if given and Path(given).is_dir() else None


def list_server_drivers(entries: Iterable[Entry]) -> list[tuple[str, str]]:
    """Ubuntu's driver packages for servers, one version of each branch, oldest branch first.

    A transitional package, which depends on another branch's, is none.
    """
    versions: dict[str, str] = {}
    for entry in entries:
        branch = re.fullmatch(r"nvidia-driver-(\d{3})-server", entry.name)
        if branch and f"nvidia-dkms-{branch[1]}-server" in entry.field("Depends"):
            versions[entry.name] = max(entry.version, versions.get(entry.name, ""))
    return sorted(versions.items())


def build_base(entries: Iterable[Entry]) -> Entry:
    """One package that provides every dependency that the entries leave open."""
    listed = list(entries)
    offered = {e.name for e in listed}
    for entry in listed:
        offered |= {name for name, _, _ in _relations(entry.field("Provides"))}
    provided: dict[str, str] = {}
    for entry in listed:
        for field in ("Depends", "Pre-Depends"):
            for group in entry.field(field).split(","):
                options = list(_relations(group.replace("|", ",")))
                if options and not any(name in offered for name, _, _ in options):
                    name, by, version = options[0]
                    text = _fitting(by, version)
                    provided[f"{name}{text}"] = name
    value = ", ".join(sorted(provided))
    return Entry("base-system", "1", (("Provides", value),) if value else ())


def _relations(text: str) -> Iterator[tuple[str, str, str]]:
    for part in text.split(","):
        if match := _RELATION.match(part.strip()):
            yield match["name"], match["by"] or "", (match["v"] or "").strip()


def _fitting(by: str, version: str) -> str:
    if not by:
        return " (= 99:0)"
    return {"=": f" (= {version})", "<<": " (= 0)", "<=": f" (= {version})"}.get(by, " (= 99:0)")


def make_mirror(folder: Path, entries: Iterable[Entry], scripts: dict[str, str]) -> None:
    """A folder that apt reads as a repository, of packages that hold nothing.

    `scripts` are post-installation scripts by a pattern of names: the effects of a maintainer's.
    """
    folder.mkdir(parents=True)
    index = []
    for entry in entries:
        control = f"Package: {entry.name}\nVersion: {entry.version}\nArchitecture: all\n"
        control += "Maintainer: test <test@example.invalid>\nDescription: empty\n"
        control += "".join(f"{field}: {value}\n" for field, value in entry.relations)
        script = next((s for p, s in scripts.items() if re.fullmatch(p, entry.name)), "")
        content = build_package(control, script)
        file = f"{entry.name}_{entry.version.replace(':', '')}.deb"
        (folder / file).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        index.append(f"{control}Filename: ./{file}\nSize: {len(content)}\nSHA256: {digest}\n")
    (folder / "Packages").write_text("\n".join(index))


def build_package(control: str, postinst: str = "") -> bytes:
    """A binary package, deb(5): an ar archive of a version and two tar archives."""
    members = {"control": (control.encode(), 0o644)}
    if postinst:
        members["postinst"] = (postinst.encode(), 0o755)
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar": _tar(members),
        "data.tar": _tar({}),
    }
    content = b"!<arch>\n"
    for name, data in parts.items():
        content += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        content += data + b"\n" * (len(data) % 2)
    return content


def _tar(members: dict[str, tuple[bytes, int]]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        root = tarfile.TarInfo("./")
        root.type = tarfile.DIRTYPE
        root.mode = 0o755
        archive.addfile(root)
        for name, (data, mode) in members.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(data)
            info.mode = mode
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()
