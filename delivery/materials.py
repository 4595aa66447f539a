"""Writes the bill of materials: CycloneDX 1.6, each package with version, licence and digests.

The digests are those of the lock: of every file that the index has for this version, since which of
them is installed depends on the machine. So they stand at the reference to the distribution, as the
project's own generator writes them, and not at the package.
"""

from __future__ import annotations

import importlib.metadata
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import (
    ExternalReference,
    ExternalReferenceType,
    HashAlgorithm,
    HashType,
    XsUri,
)
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from delivery.lock import Package, find_direct, read_requirements
from delivery.sources import NAME, DeliveryError

LICENSE_MAX = 100  # characters: longer ones are a licence's whole text
CLASSIFIER = "License :: "


def write_materials(packages: Sequence[Package], version: str, epoch: int) -> str:
    """Return the bill of materials as JSON, valid by the published schema."""
    root = Component(
        name=NAME,
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref=NAME,
        licenses=[LicenseFactory().make_from_string("Apache-2.0")],
        purl=PackageURL("pypi", name=NAME, version=version),
    )
    components = {package.name: _describe(package) for package in packages}
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, _identify(packages, version)),
        metadata=BomMetaData(component=root, timestamp=datetime.fromtimestamp(epoch, UTC)),
        components=components.values(),
    )
    bom.register_dependency(root, [components[n] for n in find_direct(read_requirements())])
    for package in packages:
        needs = [components[n] for n in package.requires]
        bom.register_dependency(components[package.name], needs)
    text = JsonV1Dot6(bom).output_as_string(indent=1) + "\n"
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem is not None:
        raise DeliveryError(f"the bill of materials does not follow its schema: {problem}")
    return text


def _identify(packages: Sequence[Package], version: str) -> str:
    listed = " ".join(f"{package.name}=={package.version}" for package in packages)
    return f"{NAME}=={version} {listed}"


def _describe(package: Package) -> Component:
    name = package.name
    digests = [HashType(alg=HashAlgorithm.SHA_256, content=d) for d in package.digests]
    index = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION,
        url=XsUri(f"https://pypi.org/simple/{name}/"),
        hashes=digests,
    )
    license_text = _read_license(name)
    return Component(
        name=name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{name}=={package.version}",
        licenses=[LicenseFactory().make_from_string(license_text)] if license_text else [],
        purl=PackageURL("pypi", name=name, version=package.version),
        external_references=[index],
    )


def _read_license(name: str) -> str:
    """Return the licence that the package declares: SPDX, or the words of its classifier."""
    metadata = importlib.metadata.metadata(name)
    if expression := metadata.get_all("License-Expression"):
        return str(expression[0])
    short = "".join(metadata.get_all("License") or [])
    if 0 < len(short) <= LICENSE_MAX and "\n" not in short and short != "UNKNOWN":
        return short
    classifiers = metadata.get_all("Classifier") or []
    licenses = [c for c in classifiers if c.startswith(CLASSIFIER) and c.count("::") > 1]
    return " and ".join(c.rpartition(" :: ")[2] for c in licenses)
