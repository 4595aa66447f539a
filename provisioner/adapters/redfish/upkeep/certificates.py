"""A BMC's own TLS certificate: the request that it makes for its key, and the answer put into it.

The key never leaves the BMC. CertificateService is DMTF's (1.0.4, DSP8010), as the captured trees
of a PowerEdge R750, a DGX H100 and a BlueField-3 have it; the parameters are those that a DGX lists
as required. An iLO has both actions at its HttpsCert instead (HPE's reference of iLO 5 and 6): the
request appears in a property some time after it was asked for, and the import resets the iLO.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.adapters.redfish.messages import body_of
from provisioner.adapters.redfish.parsing import Json, as_object, at, link, objects, path_of
from provisioner.adapters.redfish.service import Service, action_of, target_of
from provisioner.adapters.redfish.walk import Walk
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Reply

# ------------------------------------------------------------------------------
# The lockdown of a BMC: lifted for our own work, and restored afterwards.
#
# source: iDRAC9 User's Guide, "System Configuration Lockdown mode"; libredfish, which switches it
# by a PATCH of the manager's attributes; captured tree of a PowerEdge R750, which has the
# attribute.


async def is_locked(service: Service) -> bool | None:
    """Return whether the BMC refuses changes now; None if its vendor has no such mode."""
    attribute = await _find_attribute(service)
    lockdown = service.quirk.lockdown
    if attribute is None or lockdown is None:
        return None
    return attribute[2] == lockdown.locked


async def set_lockdown(service: Service, *, locked: bool) -> Blocker | None:
    """Lock or unlock the BMC, and read it back; one that is so already is sent nothing."""
    attribute = await _find_attribute(service)
    lockdown = service.quirk.lockdown
    if attribute is None or lockdown is None:
        return None
    path, name, value = attribute
    wanted = lockdown.locked if locked else lockdown.unlocked
    if value == wanted:
        return None
    reply = await service.patch(path, {"Attributes": {name: wanted}}, "lockdown")
    if isinstance(reply, Blocker):
        return reply
    after = await _find_attribute(service)
    if after is not None and after[2] == wanted:
        return None
    return Blocker(
        reason=Reason.REFUSED,
        subject="lockdown",
        detail=f"the BMC took {name} = {wanted}, and shows {after[2] if after else 'nothing'}",
        unblock=f"Set {lockdown.title} in the BMC by hand, then retry.",
    )


async def _find_attribute(service: Service) -> tuple[str, str, object] | None:
    """Return path, name and value of the attribute that shows the lockdown."""
    lockdown = service.quirk.lockdown
    manager = await service.read_manager() if lockdown is not None else None
    if lockdown is None or manager is None:
        return None
    for one in objects(at(manager.data, *lockdown.links) or []):
        path = path_of(one)
        listed = as_object((await service.get(path)).get("Attributes")) if path else {}
        for name, value in listed.items():
            if path is not None and re.search(lockdown.attribute, name):
                return path, name, value
    return None


READS = 60  # of an iLO's request: its key of RSA takes up to minutes
READ_S = 5.0
REQUEST_MAX = 16_384  # characters; one of RSA-4096 has some 1,700
_REQUEST = re.compile(
    r"-----BEGIN (NEW )?CERTIFICATE REQUEST-----[A-Za-z0-9+/=\s]*"
    r"-----END (NEW )?CERTIFICATE REQUEST-----"
)
_SUBJECT = {
    "C": "Country",
    "ST": "State",
    "L": "City",
    "O": "Organization",
    "OU": "OrganizationalUnit",
}
_OF_HPE = {"Organization": "OrgName", "OrganizationalUnit": "OrgUnit"}


@dataclass(frozen=True)
class CertificateDoor:
    """Where a BMC takes requests and certificates."""

    request: str  # target of the action that makes a request
    install: str  # target of the action that takes the certificate
    collection: str = ""  # of the certificates of its HTTPS; "": an iLO
    member: str = ""  # the certificate that is replaced
    resource: str = ""  # an iLO's HttpsCert


async def find_door(service: Service) -> CertificateDoor | Blocker:
    """Return where the BMC's certificate is exchanged; a refusal if it offers no way."""
    walk = service.walk()
    root = await walk.read_root()
    manager = await service.read_manager()
    if manager is None:
        return service.not_offered("BMC", "manager")
    door = await _find_hpe(walk, manager.data) or await _find_standard(walk, root, manager.data)
    if door is None:
        return service.not_offered(
            "certificate", "certificate of its HTTPS to be requested and replaced"
        )
    return door


async def _find_standard(walk: Walk, root: Json, manager: Json) -> CertificateDoor | None:
    actions = await _read(walk, link(root, "CertificateService"))
    request = target_of(action_of(actions, "CertificateService.GenerateCSR"))
    install = target_of(action_of(actions, "CertificateService.ReplaceCertificate"))
    protocols = await _read(walk, link(manager, "NetworkProtocol"))
    collection = link(at(protocols, "HTTPS"), "Certificates")
    if request is None or install is None or collection is None:
        return None
    listed = objects((await _read(walk, collection)).get("Members") or [])
    member = next((path for path in map(path_of, listed) if path is not None), None)
    return None if member is None else CertificateDoor(request, install, collection, member)


async def _find_hpe(walk: Walk, manager: Json) -> CertificateDoor | None:
    security = await _read(walk, link(at(manager, "Oem", "Hpe", "Links"), "SecurityService"))
    resource = link(at(security, "Links"), "HttpsCert")
    actions = await _read(walk, resource)
    request = target_of(action_of(actions, "HpeHttpsCert.GenerateCSR"))
    install = target_of(action_of(actions, "HpeHttpsCert.ImportCertificate"))
    if resource is None or request is None or install is None:
        return None
    return CertificateDoor(request, install, resource=resource)


async def _read(walk: Walk, path: str | None) -> Json:
    return {} if path is None else (await walk.read(path)).data


async def make_request(
    service: Service, door: CertificateDoor, host: str, subject: Mapping[str, str]
) -> str | Blocker:
    """Let the BMC make a key and a request for it; PKCS#10 in PEM."""
    names = {_SUBJECT[key]: value for key, value in subject.items()}
    if door.resource:
        return await _make_hpe_request(service, door, host, names)
    body = {"CertificateCollection": {"@odata.id": door.collection}, "CommonName": host, **names}
    reply = await service.post(door.request, body, "certificate")
    if isinstance(reply, Blocker):
        return reply
    return read_request(body_of(reply).get("CSRString")) or _no_request()


async def _make_hpe_request(
    service: Service, door: CertificateDoor, host: str, names: Mapping[str, str]
) -> str | Blocker:
    before = read_request((await service.get(door.resource)).get("CertificateSigningRequest"))
    body = {"CommonName": host, **{_OF_HPE.get(n, n): value for n, value in names.items()}}
    reply = await service.post(door.request, body, "certificate")
    if isinstance(reply, Blocker):
        return reply
    for _ in range(READS):
        await service.pause(READ_S)
        resource = await service.peek(door.resource)
        shown = read_request(resource.get("CertificateSigningRequest"))
        if shown and shown != before:
            return shown
    return _no_request()


async def install_certificate(
    service: Service, door: CertificateDoor, certificate: str
) -> Reply | Blocker:
    """Give the BMC the certificate for its newest request; which one it presents shows later."""
    if door.resource:
        return await service.post(door.install, {"Certificate": certificate}, "certificate")
    body = {
        "CertificateString": certificate,
        "CertificateType": "PEM",
        "CertificateUri": {"@odata.id": door.member},
    }
    return await service.post(door.install, body, "certificate")


def read_request(value: Any) -> str:
    """Return a request for a certificate (PEM) that a BMC shows; "" if it is none."""
    if not isinstance(value, str) or len(value) > REQUEST_MAX or not value.isascii():
        return ""
    shape = _REQUEST.search(value)
    return "" if shape is None else shape[0] + "\n"


def _no_request() -> Blocker:
    return Blocker(
        reason=Reason.REFUSED,
        subject="certificate",
        detail="the BMC accepted to make a request for a certificate, and shows none",
        unblock="Look at the BMC's event log; it is tried again by itself.",
    )
