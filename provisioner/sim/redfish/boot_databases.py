"""The key databases of Secure Boot: PK, KEK and db hold certificates, dbx digests of loaders.

Resources as DMTF's SecureBootDatabase 1.0, Certificate 1.5 and Signature 1.0 define them; of the
simulated vendors only a DGX H100 has them in a captured tree. The keys are the simulator's. Beside
each database its `…Default` stands, as that tree has it, and HPE documents it
(HPEDevCom/redfishdocs, securebootdatabases).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache, partial

from provisioner.sim.hardware.bios import Bios
from provisioner.sim.hardware.device_authority import issue
from provisioner.sim.redfish.redfish_answers import Json
from provisioner.sim.redfish.redfish_tree import Resource, Tree

DATABASES = ("PK", "KEK", "db", "dbx")
_REVOKED = 5  # loaders; a genuine dbx has some 400
_OWNER = "77fa9abd-0359-4d32-bd60-28f4e78f784b"  # Microsoft's GUID of an owner (UEFI)


@cache
def make_boot_key(name: str) -> str:
    """Return a certificate for a database, as PEM."""
    return issue(f"secure boot/{name}", f"Simulated {name}", None, is_ca=True).pem


@cache
def list_makers_keys() -> Mapping[str, tuple[str, ...]]:
    """Return the entries of each database as the maker delivers them."""
    revoked = (hashlib.sha256(f"revoked loader {n}".encode()).hexdigest() for n in range(_REVOKED))
    return {
        "PK": (make_boot_key("platform key"),),
        "KEK": (make_boot_key("key exchange key"),),
        "db": (make_boot_key("maker of systems"), make_boot_key("maker of option ROMs")),
        "dbx": tuple(revoked),
    }


def list_makers_entries(name: str) -> Mapping[str, Json]:
    """Return the entries of one database as the maker delivers them, as a BMC shows them."""
    bios = Bios()
    return {
        f"{kind}/{number}": _show_entry(bios, kind, name, kind, number)
        for kind in ("Certificates", "Signatures")
        for number in _list_ids(bios, name, kind)
    }


def mount_boot_databases(tree: Tree, path: str, bios: Bios) -> None:
    """Put the databases and their entries into the tree."""
    names = [*DATABASES, *(f"{name}Default" for name in DATABASES)]
    tree.add_collection(path, "SecureBootDatabaseCollection", lambda: names, partial=False)
    for name in names:
        tree.add_live(f"{path}/{name}", partial(_show_database, path, name), partial=False)
        for kind, schema in (("Certificates", "Certificate"), ("Signatures", "Signature")):
            at = f"{path}/{name}/{kind}"
            tree.add_collection(
                at,
                f"{schema}Collection",
                partial(_list_ids, bios, name, kind),
                resolve=partial(_resolve, bios, at, name, kind),
                partial=False,
            )


def _show_database(path: str, name: str) -> Json:
    return {
        "@odata.type": "#SecureBootDatabase.v1_0_0.SecureBootDatabase",
        "Id": name,
        "Name": f"UEFI {name}",
        "DatabaseId": name,
        "Certificates": {"@odata.id": f"{path}/{name}/Certificates"},
        "Signatures": {"@odata.id": f"{path}/{name}/Signatures"},
    }


def _list_entries(bios: Bios, name: str, kind: str) -> list[str]:
    bare = name.removesuffix("Default")
    keys = bios.boot_keys if bios.boot_keys is not None and bare == name else list_makers_keys()
    is_certificate = kind == "Certificates"
    return [one for one in keys.get(bare, ()) if one.startswith("-----") is is_certificate]


def _list_ids(bios: Bios, name: str, kind: str) -> list[str]:
    return [str(n) for n in range(1, len(_list_entries(bios, name, kind)) + 1)]


def _resolve(bios: Bios, path: str, name: str, kind: str, number: str) -> Resource | None:
    if number not in _list_ids(bios, name, kind):
        return None
    return Resource(partial(_show_entry, bios, path, name, kind, number), partial=False)


def _show_entry(bios: Bios, path: str, name: str, kind: str, number: str) -> Json:
    entry = _list_entries(bios, name, kind)[int(number) - 1]
    shown: Json = {
        "@odata.id": f"{path}/{number}",
        "@odata.type": "#Signature.v1_0_0.Signature",
        "Id": number,
        "Name": f"{name} {number}",
        "UefiSignatureOwner": _OWNER,
    }
    if kind == "Certificates":
        shown["@odata.type"] = "#Certificate.v1_5_0.Certificate"
        return {**shown, "CertificateString": entry, "CertificateType": "PEM"}
    return {
        **shown,
        "SignatureString": entry,
        "SignatureType": "EFI_CERT_SHA256_GUID",
        "SignatureTypeRegistry": "UEFI",
    }
