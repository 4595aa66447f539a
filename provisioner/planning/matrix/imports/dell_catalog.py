"""Read Dell's update catalogue (Catalog.xml, plain or .gz): the packages for some systems.

The iDRAC takes Windows packages (packageType LW64) and never the Linux ones that stand beside
them. Most entries have an MD5 only: it proves nothing, and no digest is taken from it. A catalogue
lists several versions of one component; the newest by date is offered.
Source of the elements: catalogues as quoted in OSDeploy/OSD and in clients' tests.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator

from lxml import etree

from provisioner.model.input_error import InputError
from provisioner.planning.matrix.imports.statements import (
    Import,
    Statement,
    check_count,
    clean_file,
    clean_sha256,
    clean_text,
    clean_version,
)

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
    """Return the text of an element or of its Display element, on one line."""
    if element is None:
        return ""
    return " ".join(" ".join(str(t) for t in element.itertext()).split())
