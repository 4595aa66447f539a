"""Takes a site's own values out of Redfish resources: the same value gets the same pseudonym.

Three passes. The first replaces values by the names of their properties (serial numbers, names of
hosts and people, asset tags; `site_values`) and by their form (MAC and IP addresses, UUIDs, hosts
in URLs), and removes secrets. The second replaces each value of the first wherever else it stands,
as a service tag does in a host's name, in a path, or in hex in an SNMP engine's id; a MAC address
without colons is known by a maker's bytes that the tree has elsewhere. The third withholds every
resource in which one of them is still found. Pseudonyms are made with a keyed hash: without the key
they lead back to nothing. They keep the form of the value (`pseudonym_forms`).
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

from provisioner.integrations.recordings import site_values
from provisioner.model.location import is_ip_address

# ------------------------------------------------------------------------------
# Makes pseudonyms of the same form as the value: deterministic, by a keyed hash.
#
# Two spellings of one MAC address, GUID or IP address get the same pseudonym in their spelling. A
# MAC address keeps its maker's first three bytes.


_HEX = "0123456789abcdefABCDEF"
_MAKER_DIGITS = 6  # of a MAC address
_MAC_DIGITS = 12


def make_pseudonym(key: bytes, kind: str, value: str) -> str:
    spelled = f"{kind} {_normalise(kind, value)}".encode(errors="surrogatepass")
    return _MAKERS[kind](value, hmac.new(key, spelled, "sha512").digest())


def list_spellings(kind: str, value: str) -> list[str]:
    """Return other spellings in which the same value may stand elsewhere."""
    digits = re.sub("[^0-9a-fA-F]", "", value)
    if kind == "MAC address" and len(digits) == _MAC_DIGITS:
        pairs = [digits[n : n + 2] for n in range(0, _MAC_DIGITS, 2)]
        fours = [digits[n : n + 4] for n in range(0, _MAC_DIGITS, 4)]
        return [digits, ":".join(pairs), "-".join(pairs), ".".join(fours)]
    if kind == "MAC address":
        return [digits]
    return []


def _normalise(kind: str, value: str) -> str:
    if kind in ("MAC address", "GUID"):
        bare = value[2:] if value[:2].lower() == "0x" else value
        if not re.search("[g-z]", bare, re.IGNORECASE):
            return re.sub("[^0-9a-f]", "", bare.lower())
    if kind == "IP address":
        return str(ipaddress.ip_address(value))
    return value.lower()


def _keep_form(value: str, digest: bytes) -> str:
    """Return text of the same length: a digit for a digit, a letter for a letter."""
    if value[:2].lower() == "0x":
        return _keep_hex(value, digest, 0)
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


def _keep_hex(value: str, digest: bytes, kept: int) -> str:
    """Return hex digits for hex digits, after the first `kept`; "0x" and separators stay."""
    digits = digest.hex()
    start = 2 if value[:2].lower() == "0x" else 0
    made = [value[:start]]
    passed = 0
    for c in value[start:]:
        if c in _HEX:
            made.append(c if passed < kept else digits[passed % len(digits)])
            passed += 1
        else:
            made.append(c)
    whole = "".join(made)
    return whole.upper() if value.upper() == value else whole


def _make_guid(value: str, digest: bytes) -> str:
    return _keep_hex(value, digest, 0)


def _make_mac(value: str, digest: bytes) -> str:
    whole = sum(c in _HEX for c in value) == _MAC_DIGITS
    return _keep_hex(value, digest, _MAKER_DIGITS if whole else 0)


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
    "licence": _keep_form,
    "GUID": _make_guid,
    "MAC address": _make_mac,
    "IP address": _make_address,
    "name": _make_name,
    "user": _make_user,
}


REMOVED = "removed"

_MAC = re.compile(
    r"(?<![0-9a-f:-])(?:[0-9a-f]{2}[:-]){5,19}[0-9a-f]{2}(?![0-9a-f:-])", re.IGNORECASE
)
_MAC_IN_BRACKETS = re.compile(r"(?<=\bMAC\()[0-9a-f]{12}(?=[,)])", re.IGNORECASE)  # UEFI's
_UUID = re.compile(
    r"(?<![0-9a-f])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f])", re.IGNORECASE
)
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
_IPV6 = re.compile(r"(?i)(?<![\w:.])[0-9a-f:]*:[0-9a-f:]*:[0-9a-f:.]*(?![\w:])")
_LOGIN = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_HOST = re.compile(r"(?:(?<=://)|(?<=://removed@))([^/\s:\[\]@{}?#]+)")
_SHARE = re.compile(r"(?<=^\\\\)[^\\\s]+|^[\w-]+(?:\.[\w-]+)+(?=:/[^/])")
_KEY_OF_QUERY = re.compile(
    r"(?<=[?&])([\w.-]*(?:token|key|secret|password|sig(?:nature)?)=)[^&\s]+", re.IGNORECASE
)
_MAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+")
_ACCOUNT = re.compile(r"(?<=/Accounts/)[^/#]+")
_ELSEWHERE_MIN = 5  # characters: a shorter value is a word of other texts too
_DISTINCT_MIN = 8  # characters: a shorter one is replaced where it stands as a word of its own
_DIGITS_DISTINCT_MIN = 12  # of a number
_SECRET_MIN = 8  # characters
_HIDDEN = "secret"

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
        return dict(Counter(one.kind for one in self._values.values() if one.kind != _HIDDEN))

    def replace_all(self, tree: Mapping[str, Json]) -> tuple[dict[str, Json], dict[str, str]]:
        """Return the tree without a site's values, and the paths withheld with their reasons."""
        first = {self._replace_path(path): self._replace(body, "") for path, body in tree.items()}
        self._name_bare_macs(tree)
        replacer = _Replacer(self._list_sought(), self._list_plain())
        replaced: dict[str, Json] = {}
        withheld: dict[str, str] = {}
        for path, body in first.items():
            clean_path = replacer.replace(path, "")
            clean = replacer.replace_in(body, account="/Accounts/" in path)
            if kind := replacer.find_left(clean_path, clean):
                withheld[f"resource {len(withheld) + 1}"] = f"a {kind} could not be taken out"
            else:
                replaced[clean_path] = clean
        return replaced, withheld

    def _replace(self, value: Any, name: str, group: str = "") -> Any:
        if isinstance(value, Mapping):
            return {
                self._replace_path(inner): self._replace(
                    one, inner, group or _find_group(name, inner)
                )
                for inner, one in value.items()
            }
        if isinstance(value, list):
            return [self._replace(one, name, group) for one in value]
        if isinstance(value, str):
            return self._replace_text(value, name, group)
        if isinstance(value, bool) or value is None:
            return value
        if name in site_values.REMOVED_NUMBERS:
            self.removed += 1
            return None
        if isinstance(value, int) and site_values.is_site_number(name, value):
            return int(self._name("serial number", str(value)))
        return value

    def _replace_text(self, value: str, name: str, group: str) -> str:
        if site_values.is_setting(value):
            return value
        if value.startswith("/") or name.startswith("@"):
            return self._replace_path(value)
        bare = value.strip()
        if site_values.is_secret(name):
            self.removed += 1
            if len(bare) >= _SECRET_MIN and bare.isprintable() and re.search(r"\d", bare):
                self._values[bare] = _Value(_HIDDEN, REMOVED)
            return REMOVED
        kind = site_values.find_kind(name, bare, group)
        by_form = self._replace_forms(value, name)
        if by_form != value and not (kind == "name" and _says_more(bare)):
            return by_form
        if kind is None or is_ip_address(bare):
            return value  # an address here says nothing of a site
        return value.replace(bare, self._name(kind, bare))

    def _replace_path(self, value: str) -> str:
        """Return a path or a property's name without UUIDs and MACs; four numbers are versions."""
        value = _UUID.sub(lambda m: self._name_hex("GUID", m[0]), value)
        return _MAC.sub(lambda m: self._name_hex("MAC address", m[0]), value)

    def _replace_forms(self, value: str, name: str) -> str:
        value = self._replace_path(value)
        value = _MAC_IN_BRACKETS.sub(lambda m: self._name_hex("MAC address", m[0]), value)
        value = _LOGIN.sub(REMOVED, value)
        value = _KEY_OF_QUERY.sub(rf"\1{REMOVED}", value)
        value = _HOST.sub(lambda m: self._name_host(m[0]), value)
        value = _SHARE.sub(lambda m: self._name_host(m[0]), value)
        value = _MAIL.sub(lambda m: self._name_mail(m[0]), value)
        if not site_values.is_version(name):
            value = _IPV4.sub(lambda m: self._name_address(m[0]), value)
            value = _IPV6.sub(lambda m: self._name_address(m[0]), value)
        return value

    def _name_hex(self, kind: str, value: str) -> str:
        return self._name(kind, value) if value.strip("0fF:-") else value

    def _name_mail(self, value: str) -> str:
        host = value.rpartition("@")[2]
        if value.startswith(f"{REMOVED}@") or site_values.is_public_host(host):
            return value
        return self._name("name", value)

    def _name_host(self, host: str) -> str:
        if _IPV4.fullmatch(host) or site_values.is_setting(host):
            return host  # by its own form
        return host if site_values.is_public_host(host) else self._name("name", host)

    def _name_address(self, value: str) -> str:
        return value if site_values.is_public_address(value) else self._name("IP address", value)

    def _name_bare_macs(self, tree: Mapping[str, Json]) -> None:
        """Give pseudonyms to MACs without colons whose maker's bytes the tree has elsewhere."""
        macs = (
            re.sub("[^0-9a-f]", "", original.lower())
            for original, one in self._values.items()
            if one.kind == "MAC address"
        )
        makers = {digits[:6] for digits in macs if len(digits) == _MAC_DIGITS}
        if not makers:
            return
        either = "|".join(f"{maker}|{maker[:4]}[.]{maker[4:]}" for maker in sorted(makers))
        bare = re.compile(
            rf"(?i)(?<![0-9a-f.])(?:{either})[0-9a-f]{{2}}[.]?[0-9a-f]{{4}}(?![0-9a-f.])"
        )
        for match in bare.findall(json.dumps(tree, ensure_ascii=False)):
            self._name("MAC address", match)

    def _name(self, kind: str, value: str) -> str:
        """Return the value's pseudonym; every spelling with another case has the same one."""
        one = self._values.get(value)
        if one is None:
            one = self._values[value] = _Value(kind, make_pseudonym(self.key, kind, value))
        return one.pseudonym

    def _list_sought(self) -> dict[str, _Value]:
        sought: dict[str, _Value] = {}
        for original, one in self._values.items():
            forms = {original: one.pseudonym}
            for form in list_spellings(one.kind, original):
                forms[form] = make_pseudonym(self.key, one.kind, form)
            if one.kind in ("serial number", "name") and original.isascii():
                forms[original.encode().hex()] = one.pseudonym.encode().hex()
            for form, pseudonym in forms.items():
                if _is_distinct(form, one.kind) and form.lower() != pseudonym.lower():
                    sought[form] = _Value(one.kind, pseudonym)
        return sought

    def _list_plain(self) -> dict[str, str]:
        """Return the names and users that are words as well: replaced as whole values alone."""
        return {
            original.lower(): one.pseudonym
            for original, one in self._values.items()
            if one.kind in ("name", "user") and not original.isdigit() and original.isprintable()
        }


class _Replacer:
    """Replaces the values of the first pass within texts, and finds those that are left."""

    def __init__(self, sought: Mapping[str, _Value], plain: Mapping[str, str]) -> None:
        self._kinds = {original.lower(): one.kind for original, one in sought.items()}
        self._pseudonyms = {original.lower(): one.pseudonym for original, one in sought.items()}
        self._plain = plain
        others = {text: one for text, one in sought.items() if one.kind != "IP address"}
        self._all = _compile(sought, _spell_apart)
        self._no_addresses = _compile(others, _spell_apart)
        self._left = _compile(sought, _spell_within)
        self._left_of_versions = _compile(others, _spell_within)

    def replace(self, value: str, name: str, *, account: bool = False) -> str:
        """Return a text without the values; `account`: of a resource of an account."""
        plain = self._plain.get(value.lower())
        if plain and (account or name.lower() in ("commonname", "hostname", "fqdn")):
            return plain
        if "/Accounts/" in value:
            value = _ACCOUNT.sub(lambda m: self._plain.get(m[0].lower(), m[0]), value)
        pattern = self._no_addresses if site_values.is_version(name) else self._all
        return pattern.sub(lambda m: self._spell(m[0]), value) if pattern else value

    def _spell(self, original: str) -> str:
        pseudonym = self._pseudonyms[original.lower()]
        if self._kinds[original.lower()] not in ("MAC address", "GUID"):
            return pseudonym
        return pseudonym.upper() if original.isupper() else pseudonym.lower()

    def replace_in(self, value: Any, name: str = "", *, account: bool) -> Any:
        if isinstance(value, Mapping):
            return {
                self.replace(inner, ""): self.replace_in(one, inner, account=account)
                for inner, one in value.items()
            }
        if isinstance(value, list):
            return [self.replace_in(one, name, account=account) for one in value]
        return self.replace(value, name, account=account) if isinstance(value, str) else value

    def find_left(self, path: str, body: Json) -> str | None:
        """Return the kind of a value that is still there, even within a word; None: none."""
        texts: tuple[list[str], list[str]] = ([path], [])
        _list_texts(body, "", texts)
        for pattern, some in zip((self._left, self._left_of_versions), texts, strict=True):
            if pattern and (match := pattern.search("\n".join(some))):
                return self._kinds[match[0].lower()]
        return None


def _list_texts(value: Any, name: str, texts: tuple[list[str], list[str]]) -> None:
    """Append all texts and names to the first list, and those of versions to the second."""
    if isinstance(value, Mapping):
        for inner, one in value.items():
            texts[0].append(inner)
            _list_texts(one, inner, texts)
    elif isinstance(value, list):
        for one in value:
            _list_texts(one, name, texts)
    elif isinstance(value, str):
        texts[site_values.is_version(name)].append(value)


def _find_group(outer: str, name: str) -> str:
    """Return the name of a group whose texts all belong to a site, "" for another."""
    if name in site_values.PLACES or name in site_values.SUBJECTS:
        return name
    return "PostalAddress" if (outer, name) == ("Location", "Info") else ""


def _is_distinct(form: str, kind: str) -> bool:
    """Return whether a value is looked for in other texts: it is no common word of them."""
    if len(form) < _ELSEWHERE_MIN:
        return False
    if any(c.isdigit() for c in form):
        return True
    if kind == "serial number":
        return site_values.is_letter_serial(form)
    return kind == "name" and re.fullmatch(r"\w+([-.]\w+)+", form) is not None


def _is_number(value: str, one: _Value) -> bool:
    """Return whether the value is few digits: within a longer number they are something else."""
    return one.kind == "IP address" or (value.isdigit() and len(value) < _DIGITS_DISTINCT_MIN)


def _compile(
    sought: Mapping[str, _Value], spell: Callable[[str, _Value], str]
) -> re.Pattern[str] | None:
    """Return a pattern of all values, the longest first; None without a value."""
    patterns = [spell(one, sought[one]) for one in sorted(sought, key=len, reverse=True)]
    return re.compile("|".join(patterns), re.IGNORECASE) if patterns else None


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


def _says_more(value: str) -> bool:
    """Return whether a name has more in it than addresses: "acme-10.0.0.5", and no URL."""
    if "://" in value:
        return False
    for form in (_UUID, _MAC, _MAIL, _IPV4, _IPV6):
        value = form.sub("", value)
    return any(c.isalnum() for c in value)
