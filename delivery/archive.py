"""Packs folders into tar archives whose bytes depend on the files alone."""

from __future__ import annotations

import tarfile
from pathlib import Path


def pack_tree(folder: Path, tar: Path, epoch: int, inside: str | None = None) -> None:
    """Write a folder as a tar archive: sorted, owned by root, every time that of the commit."""

    def set_plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = epoch
        if not member.issym():
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        return member

    name = folder.name if inside is None else inside
    with tarfile.open(tar, "w", format=tarfile.GNU_FORMAT) as archive:
        for path in (folder, *sorted(folder.rglob("*"))):
            target = str(Path(name) / path.relative_to(folder))
            if target != ".":
                archive.add(path, target, recursive=False, filter=set_plain)
