"""Read three JSON documents of NVIDIA's tools and releases.

* The firmware object ("ProductName", "Milestones") that rack management takes. Only compute trays
  and the channel "Prod" are used; recovery images and certificates are no payload.
  Source: github.com/dsx-ai-factory/nv-rms, firmware sources and manifests.
* The contents of a package as `fwpkg-unpack --show_pkg_content` prints them.
  Source: github.com/NVIDIA/fwpkg_unpack, README.
* `nvfwupd show_version -j`. Only "Pkg Version" is read: "Sys Version" is the node's, and
  "Up-To-Date" says "No" of equal versions. "N/A" means that the package has no such part.
  Source: NVIDIA's nvfwupd guide, JSON output options.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lxml import etree

from provisioner.integrations.published_versions.deciding.statements import (
    HGX_PARTS,
    Contents,
    Import,
    Statement,
    check_count,
    clean_file,
    clean_sha256,
    clean_text,
    clean_version,
    find_kind,
)
from provisioner.model.input_error import InputError

# ------------------------------------------------------------------------------
# Read Dell's update catalogue (Catalog.xml, plain or .gz): the packages for some systems.
#
# The iDRAC takes Windows packages (packageType LW64) and never the Linux ones that stand beside
# them. Most entries have an MD5 only: it proves nothing, and no digest is taken from it. A
# catalogue lists several versions of one component; the newest by date is offered. Source of the
# elements: catalogues as quoted in OSDeploy/OSD and in clients' tests.


SIZE_MAX = 256 * 1024 * 1024  # Dell's whole catalogue is some 60 MB of UTF-16
IDRAC_PACKAGE = "LW64"
_NAME_KINDS = {"BIOS": "host.bios"}  # by ComponentType; firmware is known by its name
_GZIP = b"\x1f\x8b"
_REMEDY = "Take Catalog.xml as Dell publishes it."


def read_catalog(source: str, content: bytes, *, systems: tuple[str, ...]) -> Import:
    """Return the packages for systems, by their model names or Ids. Raises InputError."""
    if not systems:
        raise InputError(
            source, "", "a catalogue is for all systems", "Name the model: --system XE9680."
        )
    raw = _decompress(source, content)
    if b"<manifest" in raw[:1024]:  # Dell's root is Manifest
        return _read_hpe(source, raw, systems)
    newest: dict[tuple[str, str], tuple[str, Statement]] = {}
    skipped = 0
    for entry in _iterate_entries(source, raw):
        if not _is_for(entry, systems):
            continue
        if entry.get("packageType") != IDRAC_PACKAGE:
            skipped += 1
            continue
        date, statement = _read_entry(source, entry)
        key = (statement.kind, statement.name)
        if statement.version and (key not in newest or newest[key][0] < date):
            newest[key] = (date, statement)
    statements = tuple(statement for _, statement in newest.values())
    check_count(source, statements)
    notes = [f"{skipped} packages are not for the iDRAC (no {IDRAC_PACKAGE})"] if skipped else []
    notes += [f"{s.file}: no SHA-256 (Dell's MD5 is no proof)" for s in statements if not s.sha256]
    if not statements:
        notes.append(f"nothing in it is for {', '.join(systems)}")
    return Import(source, "Dell catalogue", statements, notes=tuple(notes))


def _decompress(source: str, content: bytes) -> bytes:
    if bytes(content[:2]) != _GZIP:
        raw = bytes(content[: SIZE_MAX + 1])
    else:
        stream = zlib.decompressobj(wbits=31)
        try:
            raw = stream.decompress(bytes(content), SIZE_MAX + 1)
        except zlib.error:
            raise InputError(source, "", "it cannot be decompressed", _REMEDY) from None
        if not stream.eof and len(raw) <= SIZE_MAX:
            raise InputError(source, "", "the compressed file is cut off", _REMEDY)
    if len(raw) > SIZE_MAX:
        raise InputError(source, "", f"it is larger than {SIZE_MAX} bytes", _REMEDY)
    return raw


def _iterate_entries(source: str, raw: bytes) -> Iterator[etree._Element]:
    """Yield each package; the tree before it is forgotten, so that memory stays small."""
    events = etree.iterparse(
        io.BytesIO(raw),
        events=("start", "end"),
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
    )
    root = None
    try:
        for event, element in events:
            if root is None:
                root = element
                _check_root(source, root)
            elif event == "end" and _local(element) == "SoftwareComponent":
                yield element
                element.clear(keep_tail=False)
                while element.getprevious() is not None:
                    del element.getparent()[0]
    except (etree.LxmlError, ValueError) as error:
        problem = f"it is not XML: {' '.join(str(error).split())[:120]}"
        raise InputError(source, "", problem, _REMEDY) from None


def _read_hpe(source: str, raw: bytes, systems: tuple[str, ...]) -> Import:
    """Return the packages of HPE's repository for system ROM families (`--system U54`).

    Source: manifest/meta.xml of a Service Pack for ProLiant: product_version with name_xlate,
    version and products/product (rom).
    """
    parser = etree.XMLPullParser(
        events=("start", "end"),
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
    )
    statements: list[Statement] = []
    try:
        parser.feed(raw)
        parser.close()
        for event, element in parser.read_events():
            if event == "start" and element.getparent() is None:
                if element.getroottree().docinfo.internalDTD is not None:
                    remedy = "Remove the DOCTYPE and entities."
                    raise InputError(source, "", "it has a document type", remedy)
            elif event == "end" and _local(element) == "product_version":
                statements += _read_hpe_entry(source, element, systems)
    except (etree.LxmlError, ValueError) as error:
        problem = f"it is not XML: {' '.join(str(error).split())[:120]}"
        raise InputError(source, "", problem, "Take meta.xml as HPE publishes it.") from None
    check_count(source, statements)
    return Import(source, "HPE repository", tuple(statements))


def _read_hpe_entry(
    source: str, entry: etree._Element, systems: tuple[str, ...]
) -> list[Statement]:
    families = {
        e.get("rom", "").casefold() for e in entry.iter() if _local(e) == "product" and e.get("rom")
    }
    if not families & {name.casefold() for name in systems}:
        return []
    names = [e for e in entry.iter() if _local(e) == "name_xlate" and e.get("lang") == "en"]
    version = next((e for e in entry.iter() if _local(e) == "version"), None)
    if not names or version is None:
        return []
    name = clean_text(source, "name_xlate", _text_of(names[0]))
    stated = clean_version(source, name, version.get("value") or "")
    kind = "host.bios" if "ROM Flash" in name else find_kind(name, stated, {})
    return [Statement(name, stated, kind, row=f"{name} {stated}"[:200])] if stated else []


def _check_root(source: str, root: etree._Element) -> None:
    if root.getroottree().docinfo.internalDTD is not None:
        raise InputError(source, "", "it has a document type", "Remove the DOCTYPE and entities.")
    if _local(root) != "Manifest":
        raise InputError(source, "", f"it is a {_local(root)[:40]}, no Manifest", _REMEDY)


def _is_for(entry: etree._Element, systems: tuple[str, ...]) -> bool:
    names: set[str] = set()
    for model in _find_all(entry, "SupportedSystems", "Model"):
        names.add(model.get("systemID", "").lower())
        names |= {_text_of(model).lower()}
    return any(
        system.lower() in names or f"poweredge {system.lower()}" in names for system in systems
    )


def _read_entry(source: str, entry: etree._Element) -> tuple[str, Statement]:
    where = f"line {entry.sourceline}" if entry.sourceline else ""
    name = clean_text(source, where, _text_of(_first(entry, "Name")))
    version = clean_version(source, where, entry.get("vendorVersion", ""))
    component_type = (_first_or_self(entry, "ComponentType")).get("value", "")
    category = _text_of(_first(entry, "Category"))
    digest = next(
        (
            h.text or ""
            for h in _find_all(entry, "Cryptography", "Hash")
            if h.get("algorithm", "").upper() == "SHA256"
        ),
        "",
    )
    kind = _NAME_KINDS.get(component_type, "")
    if not kind and "idrac" in f"{name} {category}".lower():
        kind = "host.bmc"
    statement = Statement(
        name=name,
        version=version,
        kind=kind,
        file=clean_file(source, where, entry.get("path", "")),
        sha256=clean_sha256(source, where, digest),
    )
    return clean_text(source, where, entry.get("dateTime", "")), statement


def _local(element: etree._Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _first(entry: etree._Element, name: str) -> etree._Element | None:
    return next((child for child in entry if _local(child) == name), None)


def _first_or_self(entry: etree._Element, name: str) -> etree._Element:
    child = _first(entry, name)
    return entry if child is None else child


def _find_all(entry: etree._Element, parent: str, name: str) -> Iterator[etree._Element]:
    for child in entry:
        if _local(child) == parent:
            yield from (e for e in child.iter() if _local(e) == name)


def _text_of(element: etree._Element | None) -> str:
    if element is None:
        return ""
    return " ".join(" ".join(str(t) for t in element.itertext()).split())


JSON_DOCUMENTS_SIZE_MAX = 16 * 1024 * 1024
PAYLOADS = frozenset({"", "firmware"})
_JSON_DOCUMENTS_REMEDY = "Take the complete document, as the tool or the release process wrote it."


def read_document(source: str, content: bytes, *, maps: Mapping[str, str]) -> Import:
    """Return the versions of one of the three documents. Raises InputError."""
    if len(content) > JSON_DOCUMENTS_SIZE_MAX:
        raise InputError(
            source, "", f"it is larger than {JSON_DOCUMENTS_SIZE_MAX} bytes", _JSON_DOCUMENTS_REMEDY
        )
    try:
        document = json.loads(bytes(content).decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise InputError(source, "", "this is no JSON document", _JSON_DOCUMENTS_REMEDY) from None
    if not isinstance(document, dict):
        raise InputError(source, "", "this is no JSON object", _JSON_DOCUMENTS_REMEDY)
    if "Milestones" in document:
        result = _read_firmware_object(source, document, maps)
    elif "FirmwareDeviceRecords" in document:
        result = _read_package_listing(source, document, maps)
    elif "Firmware Devices" in document:
        result = _read_installed_listing(source, document, maps)
    elif document.get("release_product") == "nvidia-driver":
        result = _read_driver_release(source, document)
    else:
        raise InputError(
            source,
            "",
            "it is no firmware object, package listing, `nvfwupd` output or driver release",
            "It has Milestones, FirmwareDeviceRecords, Firmware Devices or release_product.",
        )
    check_count(source, result.statements)
    return result


def make_contents(
    source: str,
    version: str,
    named: Sequence[tuple[str, str]],
    file: tuple[str, str],
    maps: Mapping[str, str],
) -> tuple[tuple[Statement, ...], tuple[Contents, ...]]:
    """Return the parts of a package: of an HGX package its contents, else pins with its file."""
    name, sha256 = file
    is_hgx = version.removeprefix("DGX-").startswith("HGX-")
    parts: list[Statement] = []
    for part, part_version in dict.fromkeys(named):
        where = f"component {part[:40]}"
        clean = clean_version(source, where, part_version)
        text = clean_text(source, where, part)
        hgx_kind = HGX_PARTS.get(text.lower(), "") if is_hgx else ""
        kind = maps.get(text) or hgx_kind or ("" if is_hgx else find_kind(text, clean, maps))
        if clean:
            own = ("", "") if is_hgx else (name, sha256)
            parts.append(Statement(text, clean, kind, *own))
    if not is_hgx:
        return tuple(parts), ()
    whole = Statement(version, version, "hgx.bundle", name, sha256)
    return (whole,), (Contents("hgx.bundle", version, tuple(parts)),)


def _read_firmware_object(source: str, document: dict[str, Any], maps: Mapping[str, str]) -> Import:
    milestones = _list(source, "Milestones", document.get("Milestones"))
    if len(milestones) != 1:
        problem = f"it has {len(milestones)} milestones"
        raise InputError(source, "Milestones", problem, "Keep the one that is released.")
    notes: list[str] = []
    statements: list[Statement] = []
    for number, sku in enumerate(_list(source, "BoardSKUs", milestones[0].get("BoardSKUs"))):
        where = f"BoardSKUs[{number}]"
        sku_type = clean_text(source, where, sku.get("Type") or "")
        if "compute" not in sku_type.lower():
            notes.append(f"{where} is a {sku_type or 'board without a type'}: not a compute tray")
            continue
        components = sku.get("Components")
        firmware = components.get("Firmware") if isinstance(components, dict) else None
        for entry in _list(source, f"{where}.Components.Firmware", firmware):
            statements += _read_firmware_entry(source, where, entry, maps, notes)
    return Import(source, "firmware object", tuple(statements), notes=tuple(notes))


def _read_firmware_entry(
    source: str, where: str, entry: dict[str, Any], maps: Mapping[str, str], notes: list[str]
) -> list[Statement]:
    name = clean_text(source, where, entry.get("Component") or "")
    channel = clean_text(source, where, entry.get("Type") or "")
    if channel.lower() != "prod":
        notes.append(f"{name}: channel {channel or '(none)'} is not Prod")
        return []
    payloads = [
        location
        for location in _list(source, f"{where} {name}", entry.get("Locations") or [])
        if clean_text(source, where, location.get("Type") or "").lower() in PAYLOADS
    ]
    file = ""
    sha256 = ""
    if len(payloads) == 1:
        path = payloads[0].get("Location") or payloads[0].get("FileName") or ""
        file = clean_file(source, where, path)
        sha256 = clean_sha256(source, where, payloads[0].get("Sha256") or "")
    elif payloads:
        notes.append(f"{name}: {len(payloads)} payloads, no file is taken")
    listed = _list(source, f"{where} {name}", entry.get("SubComponents") or [])
    versions = [(s.get("Component"), s.get("Version")) for s in listed]
    versions = versions or [(entry.get("Component"), entry.get("Version"))]
    statements: list[Statement] = []
    for part, part_version in versions:
        part_name = clean_text(source, where, part or "")
        version = clean_version(source, where, part_version or "")
        if version:
            kind = find_kind(part_name, version, maps)
            statements.append(Statement(part_name, version, kind, file, sha256))
    return statements


def _read_package_listing(source: str, document: dict[str, Any], maps: Mapping[str, str]) -> Import:
    header = document.get("PackageHeaderInformation")
    if not isinstance(header, dict):
        raise InputError(
            source, "PackageHeaderInformation", "it is missing", _JSON_DOCUMENTS_REMEDY
        )
    version = clean_version(source, "package", header.get("PackageVersionString") or "")
    sha256 = clean_sha256(source, "package", header.get("PackageSHA256") or "")
    named: list[tuple[str, str]] = []
    for record in _list(source, "FirmwareDeviceRecords", document["FirmwareDeviceRecords"]):
        set_name = clean_text(source, "record", record.get("ComponentImageSetVersionString") or "")
        parts = _list(source, "Components", record.get("Components") or [])
        versions = [
            clean_version(source, set_name, p.get("ComponentVersionString") or "") for p in parts
        ]
        named += zip(name_parts(set_name, len(versions)), versions, strict=True)
    statements, contents = make_contents(source, version, named, ("", sha256), maps)
    return Import(source, "package listing", statements, contents)


def name_parts(set_name: str, count: int) -> tuple[str, ...]:
    """Return the names of a record's components: "ERoT,GPU:GH100_0200:" names two of them.

    Components without a name of their own have the record's.
    """
    names = tuple(name.strip() for name in set_name.partition(":")[0].split(","))
    if len(names) == count and all(names):
        return names
    return tuple(f"{set_name or 'component'} [{number}]" for number in range(count))


def _read_installed_listing(
    source: str, document: dict[str, Any], maps: Mapping[str, str]
) -> Import:
    packages = document.get("Packages")
    if not isinstance(packages, list) or len(packages) != 1:
        raise InputError(
            source, "Packages", "it compares not with exactly one package", "Name one with -p."
        )
    statements: list[Statement] = []
    absent = 0
    for device in _list(source, "Firmware Devices", document["Firmware Devices"]):
        name = clean_text(source, "AP Name", device.get("AP Name") or "")
        version = clean_version(source, name, device.get("Pkg Version") or "")
        absent += not version
        if version:
            statements.append(Statement(name, version, find_kind(name, version, maps)))
    notes = [f"{absent} parts of the node are not in the package"] if absent else []
    return Import(source, "nvfwupd output", tuple(statements), notes=tuple(notes))


def _read_driver_release(source: str, document: dict[str, Any]) -> Import:
    """Return the driver and Fabric Manager of developer.download.nvidia.com's redistrib JSON."""
    statements = []
    named = (("nvidia_driver", "host.driver"), ("fabricmanager", "host.fabric_manager"))
    for name, kind in named:
        part = document.get(name)
        version = clean_version(source, name, part.get("version")) if isinstance(part, dict) else ""
        if version:
            day = clean_text(source, "release_date", document.get("release_date") or "")
            statements.append(Statement(name, version, kind, row=f"{name} {version}, {day}"))
    return Import(source, "driver release", tuple(statements))


def _list(source: str, where: str, value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InputError(source, where, "this is no list of objects", _JSON_DOCUMENTS_REMEDY)
    return value
