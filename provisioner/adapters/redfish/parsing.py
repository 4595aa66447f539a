"""Single values out of a device's JSON. Pure; everything is hostile until it went through here.

Nothing in this module raises for any JSON value: what cannot be read is None, and the caller says
so in a Gap.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from provisioner.ports.wire import parse_sound

Json = Mapping[str, Any]

TEXT_MAX = 512  # longest version seen is under 80 characters; a longer one is not a version
MEMBERS_MAX = 2048  # of one collection; the largest inventory seen has 106
_PATH_MAX = 1024
_UNPACKED_MAX = 32 * 1024 * 1024

# what services print when they have nothing to say (docs/sources/bmc-faults.md#v6 and #v7)
_PLACEHOLDER = re.compile(
    r"""\s*(|n/?\.?a\.?|nil|null|none|unknown|not\ (present|available|applicable|specified)
    |(version\ )?not\ available|no\ valid\ .*|default\ string|to\ be\ filled.*|invalid
    |[-*.?]+|0{8,}|-\*|cpldserialnumber)\s*""",
    re.IGNORECASE | re.VERBOSE,
)


def is_placeholder(value: str) -> bool:
    """Return whether a text stands for no value."""
    return _PLACEHOLDER.fullmatch(value) is not None


def as_object(value: Any) -> Json:
    """A JSON object, or an empty one."""
    return value if isinstance(value, Mapping) else {}


def objects(value: Any, limit: int = MEMBERS_MAX) -> Iterator[Json]:
    """The objects in a list (or a single object in place of a list), at most `limit`."""
    items = value if isinstance(value, list) else [value]
    for item in items[:limit]:
        if isinstance(item, Mapping):
            yield item


def text(value: Any) -> str | None:
    """Text or a number as trimmed text; None for placeholders, other types and overlong text."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        # Python raises ValueError for an integer of thousands of digits
        trimmed = str(value).strip()
    except ValueError:
        return None
    if len(trimmed) > TEXT_MAX or not trimmed.isprintable() or _PLACEHOLDER.fullmatch(trimmed):
        return None
    try:
        trimmed.encode()  # JSON can spell half of a surrogate pair, which nothing can store
    except UnicodeEncodeError:
        return None
    return trimmed


def truth(value: Any) -> bool | None:
    """A boolean, also when spelled as text; None for anything else."""
    if isinstance(value, bool):
        return value
    spelled = {"true": True, "false": False}
    return spelled.get(value.strip().lower()) if isinstance(value, str) else None


def number(value: Any) -> float | None:
    """A finite number, also when spelled as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        parsed = float(value)
    except (ValueError, OverflowError):
        return None
    return parsed if abs(parsed) < 1e15 else None  # also refuses nan and infinities


def at(value: Any, *keys: str) -> Any:
    """What lies under `keys` in nested objects; None as soon as something else is met."""
    for key in keys:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def path_of(value: Any) -> str | None:
    """The path of a link (`{"@odata.id": ...}` or text), on this same service; else None.

    Absolute links are cut to their path: a service behind another name must not send us elsewhere.
    """
    target = value.get("@odata.id") if isinstance(value, Mapping) else value
    if not isinstance(target, str) or not 0 < len(target) <= _PATH_MAX:
        return None
    target = target.strip()
    if not target.isprintable() or not target.isascii() or " " in target or ".." in target:
        return None
    if not target.startswith("/"):
        try:
            parts = urlsplit(target)
        except ValueError:
            return None
        if parts.scheme not in ("http", "https"):
            return None
        target = parts.path + (f"?{parts.query}" if parts.query else "")
    if not target.startswith("/") or target.startswith("//"):
        return None
    return target.split("#", 1)[0]


def link(resource: Any, *keys: str) -> str | None:
    """The path of the link under `keys`."""
    return path_of(at(resource, *keys))


def name_of(path: str) -> str:
    """Return the last segment of a path: by convention the Id, used only if there is no Id."""
    return path.rstrip("/").rsplit("/", 1)[-1]


def mac(value: Any) -> str | None:
    """A MAC address, lowercase with colons, from any common notation."""
    notation = text(value)
    digits = re.sub(r"[^0-9a-f]", "", notation.lower()) if notation else ""
    if len(digits) != 12 or digits in ("0" * 12, "f" * 12):
        return None
    return ":".join(digits[i : i + 2] for i in range(0, 12, 2))


def mac_of_guid(value: Any) -> str | None:
    """The base MAC inside a 64-bit GUID with 03:00 or ff:fe in its middle (EUI-64), else None."""
    notation = text(value)
    digits = re.sub(r"[^0-9a-f]", "", notation.lower()) if notation else ""
    if len(digits) != 16 or digits[6:10] not in ("0300", "fffe"):
        return None
    return mac(digits[:6] + digits[10:])


def parse_fields(body: bytes) -> tuple[Any, tuple[str, ...]]:
    """Return the JSON value of a body without its damaged fields, and the names of those.

    A field is lost alone if its text has bytes that are no UTF-8, bare control characters
    (idrac_exporter#192, libredfish#108) or escapes that JSON does not have, if its value is
    missing, or is none of JSON's words and numbers, or if it is there twice with two values (RFC
    8259, 4: unpredictable). A comma too many and bytes of no text between two tokens are passed
    over. Raises ValueError or RecursionError for all else.
    """
    try:  # nearly every body is sound, and is parsed at a fifth of the cost
        return parse_sound(body.removeprefix(BOM_UTF8).decode()), ()
    except ValueError:
        return _read_damaged(body)


def _read_damaged(body: bytes) -> tuple[Any, tuple[str, ...]]:
    lost: dict[str, None] = {}
    try:
        decoded = body.decode("utf-8-sig")
        sound = _is_strict(decoded)
    except UnicodeDecodeError:
        decoded = body.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
        sound = False

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        built: dict[str, Any] = {}
        for key, value in pairs:
            damaged = not sound and (_is_damaged(key) or _is_damaged(value))
            twice = key in built and built[key] != value
            if damaged or twice or _is_no_number(value):
                lost[ascii(key)[1:-1][:60]] = None
                built[key] = _LOST
            else:
                built.setdefault(key, value)
        return {key: value for key, value in built.items() if value is not _LOST}

    try:
        return json.loads(decoded, strict=False, object_pairs_hook=build), tuple(lost)
    except ValueError as error:
        if len(decoded) > _MENDED_MAX or decoded.lstrip()[:1] not in ("{", "["):
            raise
        lost.clear()
        mended = _mark_damage(decoded)
        sound = sound and _MARK not in mended and _is_strict(mended)
        try:
            return json.loads(mended, strict=False, object_pairs_hook=build), tuple(lost)
        except ValueError:
            raise error from None  # its place is one of the BMC's own text


_LOST = object()
_MARK = "\udc80"  # stands for an escape that is none; like a byte that is no UTF-8
_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9A-Fa-f]{4})|\\u?')
# a string without its end goes on to the end of the text, so that none is begun twice
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[][{}:,]|[^\s"][^][{}:,"]*', re.DOTALL)
_MARKS = ("}", "]", ",", ":")
_OPEN = ("", "{", "[", ",", ":")
_MENDED_MAX = 1024 * 1024  # characters; the longest resource seen is a tenth of it
_WORD = re.compile(r"true|false|null|-?(0|[1-9]\d{0,400})(\.\d+)?([eE][-+]?\d+)?")


def _mark_damage(decoded: str) -> str:
    """Return a text in which each value that is no JSON is NaN, which costs its field alone.

    Bytes of no text are passed over between two tokens; alone in a value's place, they were it.
    """
    tokens = [""]
    inside = [""]
    stray = False
    for match in _TOKEN.finditer(decoded.rstrip("\0 \t\r\n")):
        word = match[0].rstrip()
        before = tokens[-1]
        if _STRAY.fullmatch(word):
            stray = True
            continue
        if stray and word not in _MARKS and before not in _OPEN:  # it stood for a comma or a colon
            is_key = inside[-1] == "{" and before[0] == '"' and tokens[-2] in ("{", ",")
            tokens.append(":" if is_key else ",")
        if word[0] == '"':
            word = _ESCAPE.sub(lambda m: m[0] if m[1] else _MARK, word)
        elif word in ("{", "["):
            inside.append(word)
        elif word in ("}", "]", ","):
            listed = inside[-1] == "[" and before in ("[", ",")
            if before == ":" or (listed and (stray or word == ",")):
                tokens.append("NaN")
            elif word == "," and before in ("{", ","):
                continue
            elif before == ",":
                tokens.pop()
            if word != "," and len(inside) > 1:
                inside.pop()
        elif word != ":" and not _WORD.fullmatch(word):
            word = "NaN"
        stray = False
        tokens.append(word)
    return "".join(tokens)


# bare control characters, apart from the three of whitespace that stand between tokens too
_CONTROL = re.compile(r"[\x00-\x1f]")
_DAMAGED = re.compile(r"[\x00-\x1f\udc80-\udcff]")
_STRAY = re.compile(r"[\x00-\x1f\x7f\udc80-\udcff\s]+")


def _is_strict(decoded: str) -> bool:
    """Return whether no string has a bare control character, which escapes do not count as."""
    if _CONTROL.search(decoded) is None:
        return True
    try:
        json.loads(decoded)
    except ValueError as error:
        return "control character" not in str(error)
    return True


def _is_damaged(value: Any) -> bool:
    if isinstance(value, list):
        return any(_is_damaged(v) for v in value if isinstance(v, str | list))
    return isinstance(value, str) and _DAMAGED.search(value) is not None


def _is_no_number(value: Any) -> bool:
    if isinstance(value, list):
        return any(_is_no_number(v) for v in value if isinstance(v, float | list))
    return isinstance(value, float) and not math.isfinite(value)


def unpack(body: bytes) -> bytes:
    """Return what gzip has packed, within bounds. Raises ValueError for all else.

    HPE serves its registries so, without a Content-Encoding that says it.
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
            unpacked = file.read(_UNPACKED_MAX + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"packed by gzip, and damaged: {error}") from None
    if len(unpacked) > _UNPACKED_MAX:
        raise ValueError(f"packed by gzip, and over {_UNPACKED_MAX} bytes")
    return unpacked
