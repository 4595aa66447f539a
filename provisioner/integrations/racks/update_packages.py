"""What a campaign writes and what has to run afterwards: packages, and the proof by exact versions.

Pure. A bundle runs when every inventory id that its package names is listed, and each shows one of
the versions that are named for it: order is proved by no grammar here, equality by all. One bundle
may hold two versions for one part, by SKU; any third is drift.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from provisioner.model.base import Record

Exact = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=128)]


class PackageFile(Record):
    """One file: sent to a BMC from here, or fetched by NVOS from `url`.

    `part`: NVOS' name of the component (BMC, EROT, FPGA, BIOS, CPLD1), or a shelf's flash, where
    the two take different files.
    """

    part: str = Field(default="", max_length=32, pattern=r"^[A-Za-z0-9]*$")
    file: str = Field(default="", max_length=256)
    url: str = Field(default="", max_length=1024, pattern=r"^(https?://[^\s/@?#]+/[^\s@?#]+)?$")
    sha256: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not (self.file or self.url):
            raise ValueError("a file needs `file` or `url`")
        if self.file and not self.sha256:
            raise ValueError(f"{self.file}: a file needs its `sha256`")
        return self

    @property
    def remote_name(self) -> str:
        """Return the name that the file has on a switch which fetched it."""
        return self.url.rpartition("/")[2]


class Package(Record):
    """The files of one component of a kind, and the versions that run once they do.

    `versions`: allowed ones by inventory id; `*` in an id stands for any. `part_numbers`: of the
    controllers or supplies of a shelf that the files are for.
    """

    files: tuple[PackageFile, ...] = Field(min_length=1, max_length=8)
    versions: Mapping[Exact, tuple[Exact, ...]] = Field(min_length=1, max_length=64)
    part_numbers: tuple[Exact, ...] = Field(default=(), max_length=16)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for ident, allowed in self.versions.items():
            if not 0 < len(allowed) <= 16:
                raise ValueError(f"{ident}: it needs 1 to 16 versions")
        return self


SECOND_FLASH = "FW_PMC_alt"  # docs.nvidia.com, nvfwupd guide: Delta's shelf lists both
FLASHES = ("FW_PMC_primary", SECOND_FLASH)


def find_missed(package: Package, running: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each id that does not run what it has to, or is not listed.

    Of a shelf's controller both flashes that are listed have to be named: it may start from each.
    """
    named = {one for one in FLASHES if is_pinned(one, {"": package})}
    for ident in FLASHES if named else ():
        if ident in running and ident not in named:
            yield f"{ident} runs {running[ident]}, and the package names no version of it"
    for pattern, allowed in package.versions.items():
        listed = [ident for ident in running if fnmatchcase(ident, pattern)]
        if not listed:
            yield f"{pattern} is not listed"
        for ident in listed:
            if running[ident].strip() not in allowed:
                wanted = " or ".join(allowed)
                yield f"{ident} runs {running[ident]}, and {wanted} has to"


def is_pinned(ident: str, packages: Mapping[str, Package]) -> bool:
    """Return whether a package names this inventory id."""
    return any(fnmatchcase(ident, each) for one in packages.values() for each in one.versions)


def find_surplus(
    before: Mapping[str, str], after: Mapping[str, str], packages: Mapping[str, Package]
) -> Iterator[str]:
    """Yield what changed beside the campaign: a push without targets may write other parts too."""
    for ident, version in after.items():
        was = before.get(ident, version)
        if was != version and not is_pinned(ident, packages):
            yield f"{ident} changed from {was} to {version}, which no package names"
