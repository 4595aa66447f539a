"""Decides which values of Redfish resources belong to a site: by a property's name, and by form.

The names are those of Redfish's schemas, of Dell's attributes ("Users.2.SHA256Password": the last
segment counts, for a few groups the first one) and of the captured trees. A value that tells of the
product alone, such as a maker's host or a default user, is nobody's.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from provisioner.adapters.redfish.parsing import is_placeholder

_SECRET = re.compile(
    r"(passw(or)?d|passphrase|secret|token|salt|community(name|string)?|credentials?|v3key"
    r"|(private|public|encryption|ipmi|auth|api|ssh|product|host|licen[cs]e)_?key|licen[cs]estring"
    r"|keystring|certificatestring|pass(word)?hash|securitypolicymessage)$",
    re.IGNORECASE,
)
# kind -> names of the properties that hold such a value
_NAMED: Mapping[str, re.Pattern[str]] = {
    "serial number": re.compile(
        r"(serial(number|num|no)?|servicetag|uniqueid|nodeid|(?<!sub)systemid|servicecode|ppin)$",
        re.IGNORECASE,
    ),
    "licence": re.compile(
        r"(entitlementid|licen[cs]e(list|id|number)|registrationid)$", re.IGNORECASE
    ),
    "GUID": re.compile(
        r"(uuid|guid|wwnn?|wwpn|wwid|duid|engineid|architectureid|fingerprint|thumbprint)$",
        re.IGNORECASE,
    ),
    "MAC address": re.compile(r"mac(addr(ess)?)?$", re.IGNORECASE),
    "user": re.compile(r"(user|username|login(name)?)$", re.IGNORECASE),
    "name": re.compile(
        r"(hostname|fqdn|domain(name)?|racname|dnsname|(?<!reported)assettag|contact(info|name)?"
        r"|owner(name)?|e?mail(address)?|ntp(servers?)?\d?|nameservers|(smtp|syslog|remote|proxy|"
        r"dns|ldap|kerberos|radius|tacacs)\w*(server|address|host|domain)\w*\d?|trapdest\w*"
        r"|destination|clientoriginipaddress|datacenter(name)?|rackname|aislename|roomname|sitename"
        r"|^(secure)?servers?\d?|servername|systemname|domaincontroller\d?|globalcatalog\d?"
        r"|^dn|(base|bind)dn|distinguishednames?|serviceaddress(es)?|remotegroup|realm"
        r"|searchdomains?|alternativenames?|sharename|sys(tem)?location|custommsg"
        r"|messagesubjectprefix)$",
        re.IGNORECASE,
    ),
}
# Dell's groups of attributes that a site fills in; the kind of a contract is no name
_SITE_GROUP = re.compile(
    r"(ADGroup|UserDomain|LDAPRoleGroup|GroupManager|CustomAsset|(Owner|Lease|ServiceContract"
    r"|Outsource|(Ext)?Warranty|Acquisition|Depreciation)Info)\.[^.]+\."
    r"(?!\w*(type|unit|enable|privilege)$)",
    re.IGNORECASE,
)
# all texts below are names: of places and people, and in the subjects of certificates
PLACES = frozenset({"PostalAddress", "Placement", "Contacts"})
SUBJECTS = frozenset({"Subject", "Issuer"})
REMOVED_NUMBERS = frozenset({"Latitude", "Longitude", "AltitudeMeters"})
_SUBJECT = re.compile(
    r"((subject|issuer)\w*(organi[sz]ation|commonname|locality|state|unit)\w*|commonname"
    r"|owner(name)?)$",
    re.IGNORECASE,
)
_VERSIONED = re.compile(
    r"version|revision|build|release|mask|ncsi|@odata|schema|registry", re.IGNORECASE
)
_SETTING = re.compile(
    r"(en|dis)abled?|true|false|yes|no|none|on|off|auto|default|\*+|0+|srv:system|system|localhost",
    re.IGNORECASE,
)
_DEFAULT_USERS = frozenset({"root", "admin", "administrator", "userid", "anonymous", "operator"})
# hosts of makers and standards: they say nothing of a site
_PUBLIC_HOST = re.compile(
    r"(^|[.@])((dell|hpe?|nvidia|mellanox|lenovo|supermicro|ami|megarac|microsoft|openssh)\.com"
    r"|(dmtf|ietf|libssh)\.org|openbmc-project\.xyz)$",
    re.IGNORECASE,
)
# in the subjects of certificates that come with a product, and as owners of its keys
_MAKER = re.compile(
    r"\b(dell|hpe?|hewlett|nvidia|mellanox|lenovo|super ?micro|ami|american megatrends|microsoft"
    r"|vmware|canonical|red ?hat|suse|openbmc|intel|inventec|quanta|wistron|wiwynn|foxconn|gigabyte"
    r"|asus|broadcom)\b",
    re.IGNORECASE,
)
_SERIAL_MIN = 4  # characters
_LETTERS_MIN = 6  # of a serial number without a digit
_DIGITS_MIN = 6  # of a number that is a serial number


def find_kind(name: str, value: str, group: str = "") -> str | None:
    """Return the kind of a value that its property's name makes one of the site; None: none.

    `group`: the name in `PLACES` or `SUBJECTS` that it stands below.
    """
    last = name.rpartition(".")[2]
    if group in SUBJECTS or _SUBJECT.search(last):
        return None if _is_makers(value) or is_public_host(value) else "name"
    if group in PLACES or _SITE_GROUP.match(name):
        return "name"
    kind = next((kind for kind, names in _NAMED.items() if names.search(last)), None)
    return None if kind is None or _is_public(kind, value) else kind


def is_secret(name: str) -> bool:
    """Return whether the property of this name holds a secret."""
    return _SECRET.search(name.rpartition(".")[2]) is not None


def is_version(name: str) -> bool:
    """Return whether four numbers with dots in this property are no address."""
    return _VERSIONED.search(name) is not None


def is_setting(value: str) -> bool:
    """Return whether the value is a placeholder or a common setting, whatever its property."""
    return is_placeholder(value) or _SETTING.fullmatch(value.strip()) is not None


def _is_public(kind: str, value: str) -> bool:
    """Return whether a value of this kind says nothing of a site."""
    if kind == "user":
        return value.lower() in _DEFAULT_USERS
    if kind == "serial number":
        return len(value) < _SERIAL_MIN or not (_has_digit(value) or is_letter_serial(value))
    if kind in ("GUID", "licence"):
        return len(value) < _SERIAL_MIN or not _has_digit(value)
    if kind == "MAC address":
        return re.fullmatch("[0-9a-fA-F]{12}", value) is None
    return is_public_host(value)


def _is_makers(value: str) -> bool:
    """Return whether a text names a maker, and is no host's name."""
    return _MAKER.search(value) is not None and not (
        " " not in value and re.search(r"[-.\d]", value)
    )


def is_public_host(host: str) -> bool:
    """Return whether a host or the domain of a mail address is a maker's or a standard's."""
    return _PUBLIC_HOST.search(host) is not None


def is_public_address(value: str) -> bool:
    """Return whether the text is an address that any site may have, or no address at all."""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return True
    if address.is_unspecified or address.is_loopback or address.is_multicast:
        return True
    return address.version == 4 and (address.is_link_local or value.startswith("255."))


def is_site_number(name: str, value: int) -> bool:
    return len(str(abs(value))) >= _DIGITS_MIN and find_kind(name, str(value)) in (
        "serial number",
        "licence",
    )


def is_letter_serial(value: str) -> bool:
    """Return whether capitals alone are a serial number: Dell's service tags have no vowels."""
    return len(value) >= _LETTERS_MIN and re.fullmatch("[B-DF-HJ-NP-TV-Z]+", value) is not None


def _has_digit(value: str) -> bool:
    return any(c.isdigit() for c in value)
