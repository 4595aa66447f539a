"""Read one imported file: its format is found by its content, and by its name for plain text."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.model.input_error import InputError
from provisioner.planning.matrix.imports.boot_streams import is_boot_stream, parse_boot_stream
from provisioner.planning.matrix.imports.component_names import PCI_DEVICES, check_train, find_kind
from provisioner.planning.matrix.imports.dell_catalog import read_catalog
from provisioner.planning.matrix.imports.json_documents import (
    make_contents,
    name_parts,
    read_document,
)
from provisioner.planning.matrix.imports.pldm_packages import is_package, parse_package
from provisioner.planning.matrix.imports.statements import (
    Import,
    Statement,
    clean_text,
    clean_version,
)
from provisioner.planning.matrix.imports.version_tables import read_table


def read_import(
    source: str,
    content: bytes,
    *,
    sha256: str,
    maps: Mapping[str, str],
    systems: tuple[str, ...] = (),
) -> Import:
    """Return everything that a file states. Raises InputError.

    `source` is its name without folders, `sha256` the digest of the whole file, `maps` the
    component kinds that a person gave to names.
    """
    clean_text(source, "file name", source)
    if is_package(content):
        return _read_package(source, content, sha256, maps)
    if is_boot_stream(content):
        return _read_boot_stream(source, content, sha256, maps)
    if source.lower().endswith((".xml", ".gz")):
        return read_catalog(source, content, systems=systems)
    if source.lower().endswith(".json"):
        return read_document(source, content, maps=maps)
    if source.lower().endswith(".csv"):
        return read_table(source, content, maps=maps)
    raise InputError(
        source,
        "",
        "its format is not known",
        "It is a PLDM package, a BFB, Catalog.xml(.gz), a .csv or a .json of the documented forms.",
    )


def _read_package(source: str, content: bytes, sha256: str, maps: Mapping[str, str]) -> Import:
    package = parse_package(source, content)
    version = clean_version(source, "package version", package.version)
    statements: list[Statement] = []
    named: list[tuple[str, str]] = []
    for record in package.records:
        set_name = clean_text(source, "record", record.set_name)
        nic = PCI_DEVICES.get(record.pci_device or 0, "")
        versions = [package.components[index].version for index in record.components]
        if nic and len(versions) == 1:
            clean = clean_version(source, set_name, versions[0])
            kind = maps.get(set_name) or check_train(nic, clean)
            statements.append(Statement(set_name or nic, clean, kind, source, sha256))
        else:
            named += zip(name_parts(set_name, len(versions)), versions, strict=True)
    parts, contents = make_contents(source, version, named, (source, sha256), maps)
    return Import(source, f"PLDM package {version}", (*dict.fromkeys(statements), *parts), contents)


def _read_boot_stream(source: str, content: bytes, sha256: str, maps: Mapping[str, str]) -> Import:
    stream = parse_boot_stream(source, content)
    notes: tuple[str, ...] = ()
    statements: list[Statement] = []
    if stream.release:
        whole = Statement(source, stream.release, "bluefield.bundle", source, sha256)
        statements.append(whole)
    else:
        notes = ("the file name has no release: give it the name that NVIDIA gave it",)
    for name, stated in stream.components:
        text = clean_text(source, "version list", name)
        version = clean_version(source, text, stated)
        if version:
            statements.append(Statement(text, version, find_kind(text, version, maps)))
    return Import(source, "BlueField boot stream", tuple(statements), notes=notes)
