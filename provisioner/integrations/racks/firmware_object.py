"""NVIDIA's firmware object (the "SOT" JSON of a rack): read with bounds, kept whole, written again.

Format: nv-rms, "Firmware Sources and Manifests"; infra-controller, "SOT firmware-object JSON". Real
files differ from it: a location that is null, no digest, no SKU, one GPU with two versions, a
shelf's firmware under the compute tray. Types that nobody knows are refused, never guessed, and
nothing is dropped in silence: `not_kept` has each field that the format does not know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import Field

from provisioner.integrations.racks.identity import Kind
from provisioner.model.base import Record
from provisioner.model.input_error import InputError

BYTES_MAX = 8 * 2**20  # public samples have some 100 KiB
DEPTH_MAX = 24  # the format has 12
LISTED_MAX = 512  # of anything that is listed
FILES_MAX = 8192  # and parts, of a whole document
TEXT_MAX = 2048
_REMEDY = "Take the complete document of the release; docs/racks.md has its limits."
SKU_TYPES = {
    "compute node": Kind.COMPUTE_TRAY,
    "compute tray": Kind.COMPUTE_TRAY,
    "vrnvl72 compute node": Kind.COMPUTE_TRAY,
    "switch tray": Kind.NVLINK_SWITCH,
    "power shelf": Kind.POWER_SHELF,
}
PLACES = frozenset({"http", "https", "artifactory", "jfrog", "file"})
ROLES = {
    one.lower(): one for one in ("Firmware", "Firmware-Recovery", "Certificate", "Binary", "Misc")
}
PAYLOADS = frozenset({"Firmware", "Binary", ""})  # "": some files print no role
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SHELF_COMPONENT = re.compile(r"power ?shelf|\bPMC\b|\bPSU\b", re.IGNORECASE)


class RackFile(Record):
    """One file of a component. `place` is where it can be fetched, "" where nobody says it."""

    name: str = Field(default="", max_length=TEXT_MAX)
    place: str = Field(default="", max_length=TEXT_MAX)
    place_type: str = Field(default="", max_length=16)
    role: str = Field(default="", max_length=32)
    only_named: bool = False  # in `FileNames` alone: no location is given
    sha256: str = Field(default="", pattern=r"^([0-9a-f]{64})?$")

    @property
    def is_payload(self) -> bool:
        """Whether it may be written to a machine: a recovery image or a certificate never is."""
        return self.role in PAYLOADS and bool(self.name)


class Part(Record):
    """A part inside a component; it may stand twice with two versions: one of them, by SKU."""

    component: str = Field(min_length=1, max_length=TEXT_MAX)
    version: str = Field(default="", max_length=TEXT_MAX)
    sku_id: str = Field(default="", max_length=TEXT_MAX)
    file_names: tuple[str, ...] = Field(default=(), max_length=LISTED_MAX)


class Component(Record):
    """A firmware or a software of a board. `kind` is that of the machine which it is for."""

    component: str = Field(min_length=1, max_length=TEXT_MAX)
    kind: Kind
    version: str = Field(default="", max_length=TEXT_MAX)
    channel: str = Field(default="", max_length=TEXT_MAX)  # `Type`: Prod, Beta
    bundle: str = Field(default="", max_length=TEXT_MAX)
    software: bool = False
    file_names: tuple[str, ...] = Field(default=(), max_length=LISTED_MAX)
    files: tuple[RackFile, ...] = Field(default=(), max_length=LISTED_MAX)
    parts: tuple[Part, ...] = Field(default=(), max_length=LISTED_MAX)


class Board(Record):
    """A board SKU as it is listed."""

    name: str = Field(default="", max_length=TEXT_MAX)
    sku_id: str = Field(default="", max_length=TEXT_MAX)
    board_type: str = Field(max_length=TEXT_MAX)  # as it is written
    components: tuple[Component, ...] = Field(default=(), max_length=LISTED_MAX)


class RackFirmware(Record):
    """All firmware of one release of a rack."""

    product: str = Field(min_length=1, max_length=TEXT_MAX)
    milestone: str = Field(min_length=1, max_length=TEXT_MAX)
    state: str = Field(default="", max_length=TEXT_MAX)
    boards: tuple[Board, ...] = Field(min_length=1, max_length=LISTED_MAX)
    not_kept: tuple[str, ...] = ()

    def list_files(self) -> Iterator[tuple[Component, RackFile]]:
        """Yield each file with its component."""
        for board in self.boards:
            for component in board.components:
                yield from ((component, file) for file in component.files)


def read_firmware_object(source: str, content: bytes) -> RackFirmware:
    """Return the release of a firmware object. Raises InputError that names the field."""
    return _Reader(source).read(content)


class _Reader:
    """One reading; each error names where in the document it is."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._not_kept: dict[str, None] = {}

    def read(self, content: bytes) -> RackFirmware:
        document = self._parse(content)
        self._note(document, "", ("ProductName", "Milestones"))
        milestones = self._list(document, "Milestones", "")
        if len(milestones) != 1:
            raise self._refuse("Milestones", f"it has {len(milestones)}, and one is needed")
        where = "Milestones[0]"
        only = self._object(milestones[0], where)
        self._note(only, where, ("Name", "State", "BoardSKUs"))
        boards = [
            self._read_board(self._object(one, f"{where}.BoardSKUs[{n}]"), n)
            for n, one in enumerate(self._list(only, "BoardSKUs", where))
        ]
        if not boards:
            raise self._refuse(f"{where}.BoardSKUs", "it is empty")
        count = sum(len(c.files) + len(c.parts) for b in boards for c in b.components)
        if count > FILES_MAX:
            raise self._refuse(where, f"it lists more than {FILES_MAX} files and parts")
        return RackFirmware(
            product=self._text(document, "ProductName", "", needed=True),
            milestone=self._text(only, "Name", where, needed=True),
            state=self._text(only, "State", where),
            boards=tuple(boards),
            not_kept=tuple(self._not_kept)[:LISTED_MAX],
        )

    def _parse(self, content: bytes) -> Mapping[str, Any]:
        if len(content) > BYTES_MAX:
            raise self._refuse("", f"it is larger than {BYTES_MAX} bytes")
        depth = deepest = 0
        for byte in content.translate(None, delete=_NO_BRACKETS):  # those in texts count too
            depth += byte in b"[{"
            depth -= byte in b"]}"
            deepest = max(deepest, depth)
        if deepest > DEPTH_MAX:
            raise self._refuse("", f"it is nested more than {DEPTH_MAX} deep")
        try:
            parsed = json.loads(content.decode("utf-8-sig"), object_pairs_hook=self._pairs)
        except (ValueError, RecursionError) as error:
            raise self._refuse("", f"is no JSON: {str(error)[:200]}") from None
        return self._object(parsed, "")

    def _pairs(self, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a key stands twice in one object")
        return found

    def _read_board(self, board: Mapping[str, Any], number: int) -> Board:
        where = f"Milestones[0].BoardSKUs[{number}]"
        self._note(board, where, ("Name", "SKUID", "Type", "Components"))
        board_type = self._text(board, "Type", where, needed=True)
        kind = SKU_TYPES.get(board_type.lower())
        if kind is None:
            raise self._refuse(f"{where}.Type", f"nobody knows a board of type {board_type}")
        listed = self._object(board.get("Components"), f"{where}.Components")
        self._note(listed, f"{where}.Components", ("Firmware", "Software"))
        components = [
            self._read_component(one, kind, f"{where}.Components.{name}[{n}]", name)
            for name in ("Firmware", "Software")
            for n, one in enumerate(self._list(listed, name, f"{where}.Components"))
        ]
        return Board(
            name=self._text(board, "Name", where),
            sku_id=self._text(board, "SKUID", where),
            board_type=board_type,
            components=tuple(components),
        )

    def _read_component(self, value: object, kind: Kind, where: str, group: str) -> Component:
        one = self._object(value, where)
        known = ("Component", "Version", "Type", "Bundle", "FileNames", "Locations")
        self._note(one, where, (*known, "SubComponents"))
        name = self._text(one, "Component", where, needed=True)
        if _SHELF_COMPONENT.search(name):
            kind = Kind.POWER_SHELF  # listed under the compute tray in real files
        names = self._names(one, where)
        parts = tuple(
            self._read_part(each, f"{where}.SubComponents[{n}]")
            for n, each in enumerate(self._list(one, "SubComponents", where))
        )
        files = [
            self._read_file(each, f"{where}.Locations[{n}]")
            for n, each in enumerate(self._list(one, "Locations", where))
        ]
        located = {file.name for file in files}
        named = dict.fromkeys([*names, *(name for part in parts for name in part.file_names)])
        files += [RackFile(name=name, only_named=True) for name in named if name not in located]
        return Component(
            component=name,
            kind=kind,
            version=self._text(one, "Version", where),
            channel=self._text(one, "Type", where),
            bundle=self._text(one, "Bundle", where),
            software=group == "Software",
            file_names=names,
            files=tuple(files),
            parts=parts,
        )

    def _read_part(self, value: object, where: str) -> Part:
        one = self._object(value, where)
        self._note(one, where, ("Component", "Version", "SKUID", "FileNames"))
        return Part(
            component=self._text(one, "Component", where, needed=True),
            version=self._text(one, "Version", where),
            sku_id=self._text(one, "SKUID", where),
            file_names=self._names(one, where),
        )

    def _read_file(self, value: object, where: str) -> RackFile:
        one = self._object(value, where)
        self._note(one, where, ("Location", "LocationType", "FileName", "Type", "Sha256"))
        place = self._text(one, "Location", where)
        place_type = self._text(one, "LocationType", where).lower()
        if place_type and place_type not in PLACES:
            raise self._refuse(f"{where}.LocationType", f"nobody knows {place_type}")
        role = self._text(one, "Type", where)
        if role and role.lower() not in ROLES:
            raise self._refuse(f"{where}.Type", f"nobody knows a file of type {role}")
        digest = self._text(one, "Sha256", where)
        if digest and not _SHA256.fullmatch(digest):
            raise self._refuse(f"{where}.Sha256", "it is no SHA-256 in hexadecimal")
        try:
            parts = urlsplit(place)
            secret = parts.username is not None or parts.password is not None
        except ValueError:
            raise self._refuse(f"{where}.Location", "it is no address") from None
        if secret:
            raise self._refuse(f"{where}.Location", "it holds a login")
        named = self._text(one, "FileName", where) or parts.path.rpartition("/")[2]
        return RackFile(
            name=self._check_name(unquote(named), where),
            place=place,
            place_type=place_type,
            role=ROLES.get(role.lower(), ""),
            sha256=digest.lower(),
        )

    def _check_name(self, name: str, where: str) -> str:
        if "/" in name or "\\" in name or name in {".", ".."} or not name.isprintable():
            raise self._refuse(f"{where}.FileName", "it is no plain file name")
        return name

    def _names(self, one: Mapping[str, Any], where: str) -> tuple[str, ...]:
        listed = self._list(one, "FileNames", where)
        if not all(isinstance(each, str) and len(each) <= TEXT_MAX for each in listed):
            raise self._refuse(f"{where}.FileNames", "it lists what is no text")
        return tuple(self._check_name(unquote(each), where) for each in listed)

    def _note(self, one: Mapping[str, Any], where: str, known: Sequence[str]) -> None:
        """Remember fields that are not kept, without the numbers of their list."""
        pattern = re.sub(r"\[\d+\]", "[]", where)
        for key in list(one)[:LISTED_MAX]:
            if key not in known and one[key] not in (None, "", [], {}):
                self._not_kept[f"{pattern}.{key[:64]}".lstrip(".")] = None

    def _object(self, value: object, where: str) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise self._refuse(where, "it is no object")
        return value

    def _list(self, one: Mapping[str, Any], key: str, where: str) -> list[Any]:
        value = one.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > LISTED_MAX:
            raise self._refuse(f"{where}.{key}", f"it is no list of at most {LISTED_MAX}")
        return value

    def _text(self, one: Mapping[str, Any], key: str, where: str, *, needed: bool = False) -> str:
        value = one.get(key)
        if value is None:
            value = ""
        if not isinstance(value, str) or len(value) > TEXT_MAX or not value.isprintable():
            raise self._refuse(f"{where}.{key}", "it is no text of one line")
        if needed and not value.strip():
            raise self._refuse(f"{where}.{key}", "it is missing")
        return value.strip()

    def _refuse(self, where: str, problem: str) -> InputError:
        return InputError(self._source, where.lstrip("."), problem, _REMEDY)


def write_firmware_object(firmware: RackFirmware) -> dict[str, Any]:
    """Return the firmware object of a release, as `read_firmware_object` reads it."""
    return {
        "ProductName": firmware.product,
        "Milestones": [
            {
                "Name": firmware.milestone,
                "State": firmware.state,
                "BoardSKUs": [_write_board(board) for board in firmware.boards],
            }
        ],
    }


def _write_board(board: Board) -> dict[str, Any]:
    groups: dict[str, list[dict[str, Any]]] = {"Firmware": [], "Software": []}
    for each in board.components:
        groups["Software" if each.software else "Firmware"].append(_write_component(each))
    return {
        "Name": board.name,
        "SKUID": board.sku_id,
        "Type": board.board_type,
        "Components": groups,
    }


def _write_component(component: Component) -> dict[str, Any]:
    return {
        "Component": component.component,
        "Version": component.version,
        "Type": component.channel,
        "Bundle": component.bundle,
        "FileNames": list(component.file_names),
        "Locations": [
            {
                "Location": file.place or None,
                "LocationType": file.place_type,
                "FileName": file.name,
                "Type": file.role,
                **({"Sha256": file.sha256} if file.sha256 else {}),
            }
            for file in component.files
            if file.sha256 or not file.only_named
        ],
        "SubComponents": [
            {
                "Component": part.component,
                "Version": part.version,
                **({"SKUID": part.sku_id} if part.sku_id else {}),
                **({"FileNames": list(part.file_names)} if part.file_names else {}),
            }
            for part in component.parts
        ],
    }


def pin_files(
    firmware: RackFirmware, digests: Mapping[str, str]
) -> tuple[RackFirmware, tuple[str, ...]]:
    """Give each payload its digest by file name; return also what speaks against the release."""
    problems: list[str] = []

    def pin(file: RackFile) -> RackFile:
        found = digests.get(file.name)
        if file.sha256 and found and found != file.sha256:
            problems.append(f"{file.name}: the file's SHA-256 is another than the document's")
        elif file.is_payload and not (file.sha256 or found):
            problems.append(f"{file.name}: no SHA-256 is given, and the file is not there")
        pinned = {"sha256": found, "only_named": False}
        return file if file.sha256 or not found else file.model_copy(update=pinned)

    boards = tuple(
        board.model_copy(
            update={
                "components": tuple(
                    c.model_copy(update={"files": tuple(pin(file) for file in c.files)})
                    for c in board.components
                )
            }
        )
        for board in firmware.boards
    )
    return firmware.model_copy(update={"boards": boards}), tuple(dict.fromkeys(problems))


def find_swapped(firmware: RackFirmware, contents: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """Return each file that holds another component's firmware than the one that it is listed for.

    `contents`: the versions inside a package, by file name. Labels have been swapped in published
    bundles, so only the versions decide: those of this component alone against those of its
    board's others alone. A file without such a version proves nothing, and is not named.
    """
    problems: list[str] = []
    for board in firmware.boards:
        known = [(each, _versions_of(each)) for each in board.components]
        for component, own in known:
            others = {
                version: other.component
                for other, versions in known
                if other is not component
                for version in versions - own
            }
            shared = {v for other, versions in known if other is not component for v in versions}
            for file in component.files:
                inside = {_plain(version) for version in contents.get(file.name, ())}
                strange = sorted(inside & others.keys())
                if file.is_payload and strange and not inside & (own - shared):
                    problems.append(
                        f"{file.name}: it is listed for {component.component} and holds "
                        f"{others[strange[0]]}'s {strange[0]}"
                    )
    return tuple(dict.fromkeys(problems))


def _versions_of(component: Component) -> frozenset[str]:
    said = (component.version, *(part.version for part in component.parts))
    return frozenset(_plain(version) for version in said if version)


def _plain(version: str) -> str:
    """Return a version without case and without the prefix that a switch's BIOS prints."""
    return version.strip().lower().removeprefix("0actv_")
