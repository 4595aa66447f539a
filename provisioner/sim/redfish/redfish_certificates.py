"""The certificate of a simulated BMC's web server: requests for it, and its replacement.

source: the trees of a PowerEdge R750, a DGX H100 and a BlueField-3 (mockups), which have
CertificateService with GenerateCSR and ReplaceCertificate, and one certificate of HTTPS; required
parameters from the DGX's ActionInfo; answers from DMTF's schema CertificateService 1.0.4. An iDRAC
below 6.00.02 presents a new certificate only after a restart (Dell's cmdlet
Invoke-ReplaceCertificateREDFISH says so): the trouble `late_certificate`.
"""

from __future__ import annotations

from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from provisioner.sim.redfish.redfish_answers import (
    Answer,
    Json,
    answer_done,
    make_answer,
    make_error,
)
from provisioner.sim.redfish.redfish_service import RedfishService
from provisioner.sim.redfish.redfish_tree import ROOT, Request

CERTIFIED = ("dell", "ami_dgx", "nvidia_openbmc")
SERVICE = f"{ROOT}/CertificateService"
_PARTS = {
    "CommonName": NameOID.COMMON_NAME,
    "Country": NameOID.COUNTRY_NAME,
    "State": NameOID.STATE_OR_PROVINCE_NAME,
    "City": NameOID.LOCALITY_NAME,
    "Organization": NameOID.ORGANIZATION_NAME,
    "OrganizationalUnit": NameOID.ORGANIZATIONAL_UNIT_NAME,
}
_NOT_IN_LIST = "ActionParameterValueNotInList"
_PEM = serialization.Encoding.PEM


class CertificateStore:
    """The key of the newest request, and the certificate that the BMC was given for it."""

    def __init__(self, service: RedfishService, collection: str) -> None:
        self._bmc = service.bmc
        self._collection = collection
        self._member = f"{collection}/1"
        self._key: Any = None
        self._bmc.on_reset.append(self._restart)

    def request(self, request: Request) -> Answer:
        """GenerateCSR: a new key; the one before it is forgotten."""
        body = request.json or {}
        for name in (*_PARTS, "CertificateCollection"):
            if name not in body:
                return make_error(400, "ActionParameterMissing", "GenerateCSR", name)
        if body["CertificateCollection"] != {"@odata.id": self._collection}:
            text = str(body["CertificateCollection"])
            return make_error(400, _NOT_IN_LIST, text, "CertificateCollection", "GenerateCSR")
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(oid, str(body[n])) for n, oid in _PARTS.items()])
        csr = x509.CertificateSigningRequestBuilder().subject_name(subject)
        text = csr.sign(self._key, hashes.SHA256()).public_bytes(_PEM).decode()
        answer = {"CSRString": text, "CertificateCollection": {"@odata.id": self._collection}}
        return make_answer(200, answer)

    def replace(self, request: Request) -> Answer:
        """ReplaceCertificate: only for the newest request's key."""
        body = request.json or {}
        if body.get("CertificateUri") != {"@odata.id": self._member}:
            text = str(body.get("CertificateUri"))
            return make_error(400, _NOT_IN_LIST, text, "CertificateUri", "ReplaceCertificate")
        text = str(body.get("CertificateString"))
        try:
            key = x509.load_pem_x509_certificate(text.encode()).public_key()
        except ValueError:
            return make_error(400, _NOT_IN_LIST, text[:40], "CertificateString", "Replace")
        if self._key is None or key != self._key.public_key():
            return make_error(500, "InternalError")
        private = self._key.private_bytes(
            _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        if "same_certificate" in self._bmc.troubles:
            return answer_done()
        if "late_certificate" in self._bmc.troubles:
            self._bmc.certificate_next = (text.encode(), private)
        else:
            self._present(text.encode(), private)
        return answer_done()

    def show(self) -> Json:
        """The certificate of HTTPS."""
        shown = {"CertificateString": self._bmc.certificate.decode(), "CertificateType": "PEM"}
        return {
            "@odata.type": "#Certificate.v1_2_1.Certificate",
            "Id": "1",
            "Name": "HTTPS Certificate",
            **(shown if self._bmc.certificate else {}),
        }

    def _restart(self, _: float) -> None:
        if self._bmc.certificate_next is not None:
            self._present(*self._bmc.certificate_next)
            self._bmc.certificate_next = None

    def _present(self, certificate: bytes, key: bytes) -> None:
        self._bmc.certificate = certificate
        for tell in self._bmc.on_certificate:
            tell(certificate, key)


def mount_certificates(service: RedfishService, manager: str) -> None:
    """CertificateService, and the certificates of a manager's HTTPS."""
    tree = service.tree
    collection = f"{manager}/NetworkProtocol/HTTPS/Certificates"
    store = CertificateStore(service, collection)
    actions = {"GenerateCSR": store.request, "ReplaceCertificate": store.replace}
    targets = {n: f"{SERVICE}/Actions/CertificateService.{n}" for n in actions}
    for name, act in actions.items():
        tree.add_action(targets[name], act)
    tree.add_fixed(
        SERVICE,
        {
            "@odata.type": "#CertificateService.v1_0_4.CertificateService",
            "Id": "CertificateService",
            "Name": "Certificate Service",
            "Actions": {f"#CertificateService.{n}": {"target": t} for n, t in targets.items()},
        },
    )
    tree.add_collection(collection, "CertificateCollection", lambda: ["1"])
    tree.add_live(f"{collection}/1", store.show)
