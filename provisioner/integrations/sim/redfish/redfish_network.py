"""Network settings and the clock of a simulated BMC.

source: the trees of a DGX H100, a PowerEdge R750 and a BlueField-3 (mockups): NTP has NTPServers
and ProtocolEnabled; DMTF schemas ManagerNetworkProtocol and Manager (DateTime may be written).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from provisioner.integrations.sim.hardware.parts import Bmc
from provisioner.integrations.sim.redfish.redfish_service import RedfishService
from provisioner.integrations.sim.redfish.redfish_tree import (
    ROOT,
    Answer,
    Change,
    Json,
    Request,
    answer_done,
    make_answer,
    make_error,
    make_patch_check,
)
from provisioner.integrations.sim.redfish.tasks import format_time

# ------------------------------------------------------------------------------
# The certificate of a simulated BMC's web server: requests for it, and its replacement.
#
# source: the trees of a PowerEdge R750, a DGX H100 and a BlueField-3 (mockups), which have
# CertificateService with GenerateCSR and ReplaceCertificate, and one certificate of HTTPS; required
# parameters from the DGX's ActionInfo; answers from DMTF's schema CertificateService 1.0.4. An
# iDRAC below 6.00.02 presents a new certificate only after a restart (Dell's cmdlet
# Invoke-ReplaceCertificateREDFISH says so): the trouble `late_certificate`.


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


# ------------------------------------------------------------------------------
# Syslog servers of a simulated iLO and of a Supermicro BMC.
#
# source: captured NetworkProtocol of an iLO 5 (Oem.Hpe, HpeiLOManagerNetworkService 2.2.0);
# stmcginnis/gofish, oem/smc/syslog.go and its recorded bodies (Syslog 1.0.1: text; 1.0.2: a list)


def show_hpe_syslog(service: RedfishService) -> Json:
    """The vendor's part of an iLO's NetworkProtocol; {} of any other BMC."""
    if service.shape.name != "hpe":
        return {}
    bmc = service.bmc
    return {
        "Oem": {
            "Hpe": {
                "RemoteSyslogEnabled": bmc.syslog_on,
                "RemoteSyslogServer": "".join(bmc.syslog_servers[:1]),
                "RemoteSyslogPort": 514,
            }
        }
    }


def change_hpe_syslog(bmc: Bmc, body: Json) -> Answer | None:
    """Take the vendor's part of a request."""
    oem = body.get("Oem")
    asked = oem.get("Hpe") if isinstance(oem, dict) else None
    if not isinstance(asked, dict):
        return None
    for name in asked:
        if not name.startswith("RemoteSyslog"):
            return make_error(400, "PropertyUnknown", name, prop=name)
    return _change(bmc, asked, "RemoteSyslogEnabled", "RemoteSyslogServer")


def mount_smc_syslog(service: RedfishService, manager: str) -> Json:
    """Mount a Supermicro BMC's resource; return the part of the manager that names it."""
    if service.shape.name != "supermicro":
        return {}
    bmc = service.bmc
    path = f"{manager}/Oem/Supermicro/Syslog"

    def read() -> Json:
        entries = [{"ServerIP": name, "Port": 514} for name in bmc.syslog_servers]
        listed: Json = {"SyslogServer": entries}
        single: Json = {"SyslogServer": "".join(bmc.syslog_servers[:1]), "SyslogPortNumber": 514}
        return {
            "@odata.type": f"#Syslog.v1_0_{2 if bmc.syslog_listed else 1}.Syslog",
            "Id": "Syslog",
            "Name": "Syslog",
            "EnableSyslog": bmc.syslog_on,
            **(listed if bmc.syslog_listed else single),
        }

    def change(body: Json, _: Request) -> Answer | None:
        asked = dict(body)
        servers = asked.get("SyslogServer")
        if servers is not None and isinstance(servers, list) is not bmc.syslog_listed:
            return make_error(400, "PropertyValueTypeError", str(servers), "SyslogServer")
        return _change(bmc, asked, "EnableSyslog", "SyslogServer")

    service.tree.add_live(path, read, patch=change)
    return {"Oem": {"Supermicro": {"Syslog": {"@odata.id": path}}}}


def _change(bmc: Bmc, asked: Json, switch: str, servers: str) -> Answer | None:
    on = asked.get(switch, bmc.syslog_on)
    if not isinstance(on, bool):
        return make_error(400, "PropertyValueTypeError", str(on), switch)
    bmc.syslog_on = on
    named = asked.get(servers)
    if isinstance(named, str):
        bmc.syslog_servers = (named,) if named else ()
    elif isinstance(named, list):
        bmc.syslog_servers = tuple(str(entry["ServerIP"]) for entry in named)
    return None


_OK: Json = {"State": "Enabled", "Health": "OK"}
_TAKEN = ("NTP", "IPMI", "SSH")
_CHECK_TIME = make_patch_check("DateTime")


def show_time(service: RedfishService) -> Json:
    """The manager's clock, which may be wrong."""
    now = service.clock.now() + service.bmc.clock_offset_s
    return {"DateTime": format_time(now), "DateTimeLocalOffset": "+00:00"}


def show_console(service: RedfishService) -> Json:
    """The manager's serial console, as far as its vendor's tree shows one."""
    types = (*(service.shape.console_types or ()), *service.bmc.console_types)
    if service.shape.console_types is None and not types:
        return {}
    console = {"ServiceEnabled": bool(types), "ConnectTypesSupported": list(types)}
    return {"SerialConsole": {**console, "MaxConcurrentSessions": len(types)}}


def show_system_console(service: RedfishService) -> Json:
    """The system's serial console over SSH, while a server offers it (a BlueField-3's form)."""
    bmc = service.bmc
    if not bmc.console_port:
        return {}
    ssh = {
        "HotKeySequenceDisplay": "Press ~. to exit console",
        "Port": bmc.console_port,
        "ServiceEnabled": bmc.protocols["SSH"],
    }
    return {"SerialConsole": {"MaxConcurrentSessions": 15, "SSH": ssh}}


def change_time(service: RedfishService) -> Change:
    """What a PATCH of the manager does: it sets the clock, unless NTP does."""
    bmc = service.bmc

    def change(body: Json, request: Request) -> Answer | None:
        if (refused := _CHECK_TIME(body)) is not None:
            return refused
        if bmc.ntp_enabled and bmc.ntp_servers:
            return make_error(400, "PropertyNotWritable", "DateTime", prop="DateTime")
        try:
            bmc.clock_offset_s = datetime.fromisoformat(body["DateTime"]).timestamp() - request.now
        except (TypeError, ValueError):
            text = str(body["DateTime"])
            return make_error(400, "PropertyValueFormatError", text, "DateTime", prop="DateTime")
        return None

    return change


def mount_network(service: RedfishService, manager: str) -> None:
    """EthernetInterfaces and NetworkProtocol of a BMC."""
    tree = service.tree
    bmc = service.bmc
    tree.add_collection(
        f"{manager}/EthernetInterfaces", "EthernetInterfaceCollection", lambda: ["1"]
    )
    tree.add_fixed(
        f"{manager}/EthernetInterfaces/1",
        {
            "@odata.type": "#EthernetInterface.v1_6_0.EthernetInterface",
            "Id": "1",
            "Name": "Manager Ethernet Interface",
            "InterfaceEnabled": True,
            "MACAddress": bmc.mac,
            "PermanentMACAddress": bmc.mac,
            "Status": _OK,
            "SpeedMbps": 1000,
        },
    )

    listed = {"@odata.id": f"{manager}/NetworkProtocol/HTTPS/Certificates"}
    certificates = {"Certificates": listed} if service.shape.name in CERTIFIED else {}

    def read() -> Json:
        ntp = {"ProtocolEnabled": bmc.ntp_enabled, "NTPServers": list(bmc.ntp_servers)}
        return {
            "@odata.type": "#ManagerNetworkProtocol.v1_8_0.ManagerNetworkProtocol",
            "Id": "NetworkProtocol",
            "Name": "Manager Network Protocol",
            "Status": _OK,
            "HTTP": {"ProtocolEnabled": False, "Port": 80},
            "HTTPS": {"ProtocolEnabled": True, "Port": 443, **certificates},
            "NTP": ntp,
            **{n: {"ProtocolEnabled": on} for n, on in bmc.protocols.items()},
            **show_hpe_syslog(service),
        }

    def change(body: Json, _: Request) -> Answer | None:
        own = ("Oem",) if service.shape.name == "hpe" else ()
        refused = make_patch_check(*_TAKEN, *own)(body)
        return (
            refused
            or change_hpe_syslog(bmc, body)
            or _set_protocols(bmc, body)
            or _set_ntp(bmc, body)
        )

    tree.add_live(f"{manager}/NetworkProtocol", read, patch=change)
    if service.shape.name in CERTIFIED:
        mount_certificates(service, manager)


def _set_protocols(bmc: Bmc, body: Json) -> Answer | None:
    """Switch IPMI over LAN and SSH, which all captured trees list with ProtocolEnabled."""
    for name in bmc.protocols:
        asked = body.get(name, {})
        enable = asked.get("ProtocolEnabled", bmc.protocols[name])
        if not isinstance(enable, bool):
            return make_error(400, "PropertyValueTypeError", str(enable), "ProtocolEnabled")
        bmc.protocols[name] = enable
    return None


def _set_ntp(bmc: Bmc, body: Json) -> Answer | None:
    asked = body.get("NTP", {})
    for name in asked:
        if name not in ("ProtocolEnabled", "NTPServers"):
            return make_error(400, "PropertyUnknown", name, prop=name)
    bmc.ntp_enabled = bool(asked.get("ProtocolEnabled", bmc.ntp_enabled))
    servers = asked.get("NTPServers", bmc.ntp_servers)
    bmc.ntp_servers = _change_elements(bmc.ntp_servers, servers)
    if bmc.ntp_enabled and bmc.ntp_servers:
        bmc.clock_offset_s = 0.0  # its servers are right
    return None


def _change_elements(present: Sequence[str], asked: Sequence[Any]) -> tuple[str, ...]:
    """Return an array after a PATCH: `{}` leaves an element as it is, null removes it.

    source: DSP0266 1.20, PATCH (update): array properties
    """
    changed = [present[n] if e == {} and n < len(present) else e for n, e in enumerate(asked)]
    return tuple(element for element in changed if element)
