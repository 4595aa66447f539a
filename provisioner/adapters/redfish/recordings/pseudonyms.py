"""Takes a site's own values out of Redfish resources: the same value gets the same pseudonym.

Three passes. The first replaces values by the names of their properties (serial numbers, names of
hosts and people, asset tags) and by their form (MAC and IP addresses, UUIDs, hosts in URLs), and
removes secrets. The second replaces each value of the first wherever else it stands, as a service
tag does in a host's name or in a path. The third withholds every resource in which one of them is
still found. Pseudonyms are made with a keyed hash: without the key they lead back to nothing. They
keep the form of the value, and a MAC address its maker's first three bytes.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.adapters.redfish.parsing import text

REMOVED = "removed"

# Matched against the last segment of a property's name: "Users.2.SHA256Password" is Dell's.
_SECRET = re.compile(
    r"(passw(or)?d|passphrase|secret|token|salt|community(name|string)?|credentials?|v3key"
    r"|(private|public|encryption|ipmi|auth|api|ssh|licen[cs]e)_?key|licen[cs]estring"
    r"|entitlementid|certificatestring|pass(word)?hash|securitypolicymessage)$",
    re.IGNORECASE,
)
# kind -> names of the properties that hold such a value
_NAMED: Mapping[str, re.Pattern[str]] = {
    "serial number": re.compile(
        r"(serial(number|num|no)?|servicetag|uniqueid|nodeid|(?<!sub)systemid|servicecode|ppin)$",
        re.IGNORECASE,
    ),
    "GUID": re.compile(r"(uuid|guid|wwnn?|wwpn|wwid|duid)$", re.IGNORECASE),
    "MAC address": re.compile(r"mac(addr(ess)?)?$", re.IGNORECASE),
    "user": re.compile(r"(user|username|login(name)?)$", re.IGNORECASE),
    "name": re.compile(
        r"(hostname|fqdn|domain(name)?|racname|dnsname|(?<!reported)assettag|contact(info|name)?"
        r"|owner(name)?|e?mail(address)?|ntp(servers?)?\d?|nameservers|(smtp|syslog|remote|proxy|"
        r"dns|ldap|kerberos|radius|tacacs)\w*(server|address|host|domain)\w*\d?|trapdest\w*"
        r"|destination|clientoriginipaddress|datacenter|rackname|aislename|roomname|sitename)$",
        re.IGNORECASE,
    ),
}
_PLACES = frozenset({"PostalAddress", "Placement", "Contacts"})  # all texts below are names
_VERSIONED = re.compile(
    r"version|revision|build|release|mask|@odata|schema|registry", re.IGNORECASE
)
_SETTING = re.compile(
    r"(en|dis)abled?|true|false|none|on|off|auto|default|null|\*+|0+", re.IGNORECASE
)
_DEFAULT_USERS = frozenset({"root", "admin", "administrator", "userid", "anonymous", "operator"})
# hosts of makers and standards: they say nothing of a site
_PUBLIC = re.compile(
    r"(^|[.@])((dell|hpe?|nvidia|mellanox|lenovo|supermicro|ami|microsoft|openssh)\.com"
    r"|(dmtf|ietf|libssh)\.org|openbmc-project\.xyz)$",
    re.IGNORECASE,
)
_MAC = re.compile(
    r"(?<![0-9a-f:-])(?:[0-9a-f]{2}[:-]){5,19}[0-9a-f]{2}(?![0-9a-f:-])", re.IGNORECASE
)
_UUID = re.compile(
    r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])", re.IGNORECASE
)
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_IPV6 = re.compile(r"(?i)(?<![\w:.])[0-9a-f:]*:[0-9a-f:]*:[0-9a-f:.]*(?![\w:])")
_HOST = re.compile(r"(?<=://)([^/\s:\[\]@]+)")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+")
_ELSEWHERE_MIN = 5  # characters: a shorter value is a word of other texts too
_SERIAL_MIN = 4  # characters
_DISTINCT_MIN = 8  # characters: a shorter one is replaced where it stands as a word of its own

Json = Mapping[str, Any]


@dataclass
class _Value:
    kind: str
    pseudonym: str


@dataclass
class Pseudonyms:
    """Replaces the values of any number of trees under one key."""

    key: bytes
    removed: int = 0
    _values: dict[str, _Value] = field(default_factory=dict)  # by the original

    def count_kinds(self) -> dict[str, int]:
        """Return how many distinct values of each kind have a pseudonym."""
        return dict(Counter(value.kind for value in self._values.values()))

    def replace_all(self, tree: Mapping[str, Json]) -> tuple[dict[str, Json], dict[str, str]]:
        """Return the tree without a site's values, and the paths withheld with their reasons."""
        first = {path: self._replace(body, "", placed=False) for path, body in tree.items()}
        sought = self._sought()
        again = _make_replacer(sought)
        left = _compile(sought, _spell_within)
        replaced: dict[str, Json] = {}
        withheld: dict[str, str] = {}
        for path, body in first.items():
            clean_path = again(path)
            clean = _map_texts(body, again)
            match = left and left.search(json.dumps([clean_path, clean], ensure_ascii=False))
            if match:
                kind = next(v.kind for s, v in sought.items() if s.lower() == match[0].lower())
                withheld[f"resource {len(withheld) + 1}"] = f"a {kind} could not be taken out"
            else:
                replaced[clean_path] = clean
        return replaced, withheld

    def _replace(self, value: Any, name: str, *, placed: bool) -> Any:
        if isinstance(value, Mapping):
            return {
                inner: self._replace(one, inner, placed=placed or inner in _PLACES)
                for inner, one in value.items()
            }
        if isinstance(value, list):
            return [self._replace(one, name, placed=placed) for one in value]
        return self._replace_text(value, name, placed=placed) if isinstance(value, str) else value

    def _replace_text(self, value: str, name: str, *, placed: bool) -> str:
        last = name.rpartition(".")[2]
        if text(value) is None or _SETTING.fullmatch(value.strip()):
            return value
        if value.startswith("/") or name.startswith("@"):
            return value  # a path: the second pass looks into it
        if _SECRET.search(last):
            self.removed += 1
            return REMOVED
        by_form = self._replace_forms(value, name)
        if by_form != value:
            return by_form
        if _is_address(value):
            return value  # one that says nothing of a site
        kind = next((kind for kind, names in _NAMED.items() if names.search(last)), None)
        if placed:
            kind = "name"
        if kind is None or _is_public(kind, value):
            return value
        bare = value.strip()
        return value.replace(bare, self._name(kind, bare))

    def _replace_forms(self, value: str, name: str) -> str:
        value = _UUID.sub(lambda m: self._name_hex("GUID", m[0]), value)
        value = _MAC.sub(lambda m: self._name_hex("MAC address", m[0]), value)
        value = _MAIL.sub(lambda m: self._name_public(m[0], m[0].rpartition("@")[2]), value)
        value = _HOST.sub(lambda m: self._name_host(m[0]), value)
        if not _VERSIONED.search(name):
            value = _IPV4.sub(lambda m: self._name_address(m[0]), value)
            value = _IPV6.sub(lambda m: self._name_address(m[0]), value)
        return value

    def _name_hex(self, kind: str, value: str) -> str:
        return self._name(kind, value) if value.strip("0fF:-") else value

    def _name_public(self, value: str, host: str) -> str:
        return value if _PUBLIC.search(host) else self._name("name", value)

    def _name_host(self, host: str) -> str:
        if _IPV4.fullmatch(host):
            return host  # by its own form
        return host if "." not in host else self._name_public(host, host)

    def _name_address(self, value: str) -> str:
        try:
            address = ipaddress.ip_address(value)
        except ValueError:
            return value
        if address.is_unspecified or address.is_loopback or address.is_multicast:
            return value
        if address.version == 4 and (address.is_link_local or value.startswith("255.")):
            return value
        return self._name("IP address", value)

    def _name(self, kind: str, value: str) -> str:
        """Return the value's pseudonym; every spelling with another case has the same one."""
        one = self._values.get(value)
        if one is None:
            digest = hmac.new(self.key, f"{kind} {value.lower()}".encode(), "sha512").digest()
            one = self._values[value] = _Value(kind, _MAKERS[kind](value, digest))
        return one.pseudonym

    def _sought(self) -> dict[str, _Value]:
        """Return the values that are looked for elsewhere, MAC addresses without colons too."""
        sought: dict[str, _Value] = {}
        for original, one in self._values.items():
            forms = {original: one.pseudonym}
            if one.kind == "MAC address":
                bare = re.sub("[:-]", "", original)
                forms[bare] = re.sub("[:-]", "", one.pseudonym)
            for form, pseudonym in forms.items():
                distinct = len(form) >= _ELSEWHERE_MIN and any(c.isdigit() for c in form)
                if distinct and form.lower() != pseudonym.lower():
                    sought[form] = _Value(one.kind, pseudonym)
        return sought


def _is_number(value: str, one: _Value) -> bool:
    """Return whether the value is digits: within a longer number they are something else."""
    return one.kind == "IP address" or value.isdigit()


def _compile(
    sought: Mapping[str, _Value], spell: Callable[[str, _Value], str]
) -> re.Pattern[str] | None:
    """Return a pattern of all values, the longest first; None without a value."""
    patterns = [spell(one, sought[one]) for one in sorted(sought, key=len, reverse=True)]
    return re.compile("|".join(patterns), re.IGNORECASE) if patterns else None


def _make_replacer(sought: Mapping[str, _Value]) -> Callable[[str], str]:
    """Return a function that replaces every value of the first pass within a text."""
    pattern = _compile(sought, _spell_apart)
    if pattern is None:
        return lambda value: value
    pseudonyms = {original.lower(): one.pseudonym for original, one in sought.items()}
    return lambda value: pattern.sub(lambda m: pseudonyms[m[0].lower()], value)


def _spell_within(value: str, one: _Value) -> str:
    """Return a pattern that matches a value even within another word."""
    if _is_number(value, one):
        return rf"(?<![\w.]){re.escape(value)}(?!\w)"
    return re.escape(value)


def _spell_apart(value: str, one: _Value) -> str:
    """Return a pattern that matches a value as a word, or anywhere if it is long."""
    if _is_number(value, one):
        return _spell_within(value, one)
    if len(value) < _DISTINCT_MIN:
        return rf"(?<![^\W_]){re.escape(value)}(?![^\W_])"
    return re.escape(value)


def _is_address(value: str) -> bool:
    try:
        ipaddress.ip_address(value.strip())
    except ValueError:
        return False
    return True


def _is_public(kind: str, value: str) -> bool:
    if kind == "user":
        return value.lower() in _DEFAULT_USERS
    if kind in ("serial number", "GUID"):
        return len(value) < _SERIAL_MIN or not any(c.isdigit() for c in value)
    if kind == "MAC address":
        return re.fullmatch("[0-9a-fA-F]{12}", value) is None
    return _PUBLIC.search(value) is not None


def _keep_form(value: str, digest: bytes) -> str:
    """Return text of the same length: a digit for a digit, a letter for a letter."""
    if value[:2].lower() == "0x":
        return _keep_hex(value, digest, 2)
    made = []
    for number, c in enumerate(value):
        one = digest[number % len(digest)]
        if not c.isalnum() or not c.isascii():
            made.append(c)
        elif c.isdigit():
            made.append(str(one % 10))
        else:
            letter = chr(ord("A") + one % 26)
            made.append(letter if c.isupper() else letter.lower())
    return "".join(made)


def _keep_hex(value: str, digest: bytes, start: int = 0) -> str:
    """Return hex digits for hex digits from `start` on."""
    digits = digest.hex()
    made = "".join(
        c if n < start or c not in "0123456789abcdefABCDEF" else digits[n % len(digits)]
        for n, c in enumerate(value)
    )
    return made.upper() if value.upper() == value else made


def _make_guid(value: str, digest: bytes) -> str:
    return _keep_hex(value, digest, 2 if value.lower().startswith("0x") else 0)


def _make_mac(value: str, digest: bytes) -> str:
    maker = 8 if value[2:3] in (":", "-") else 6
    return _keep_hex(value, digest, maker if len(value) in (12, 17) else 0)


def _make_address(value: str, digest: bytes) -> str:
    number = int.from_bytes(digest[:8], "big")
    address = ipaddress.ip_address(value)
    if address.version == 4:  # RFC 2544: a network for measurements, of no site
        network = ipaddress.ip_network("198.18.0.0/15")
        return str(network[1 + number % (network.num_addresses - 2)])
    network6 = "fe80::/64" if address.is_link_local else "2001:db8::/64"  # RFC 3849
    return str(ipaddress.IPv6Network(network6)[number])


def _make_name(_value: str, digest: bytes) -> str:
    return f"name-{digest.hex()[:8]}"


def _make_user(_value: str, digest: bytes) -> str:
    return f"user-{digest.hex()[:8]}"


_MAKERS: Mapping[str, Callable[[str, bytes], str]] = {
    "serial number": _keep_form,
    "GUID": _make_guid,
    "MAC address": _make_mac,
    "IP address": _make_address,
    "name": _make_name,
    "user": _make_user,
}


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return {change(name): _map_texts(one, change) for name, one in value.items()}
    if isinstance(value, list):
        return [_map_texts(one, change) for one in value]
    return change(value) if isinstance(value, str) else value
