"""A simulated MGS: `lctl` for nodemaps, as a shell that takes one line of commands.

Behaviour: Lustre Operations Manual, "Mapping UIDs and GIDs with Nodemap" and "Managing Security"
(doc.lustre.org): a NID is in one nodemap, only a whole range is deleted, its clients fall to
`default`, and a nodemap without fileset shows the whole file system. Words and exit codes:
lustre/utils/obd.c (`jt_nodemap_*`), outputs: lustre/ptlrpc/nodemap_lproc.c. What is chosen here:
one Lustre before 2.17 (`listed` False: a plain fileset, which is lost at a restart unless it was
set with `set_param -P`) and one after it, and what a client may read while a nodemap is open.
"""

from __future__ import annotations

import fnmatch
import ipaddress
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field

_EXIST = 17  # errno of Linux
_INVALID = 22
_NONE = 2
_FLAGS = {"admin": "admin_nodemap", "trusted": "trusted_nodemap"}
ALL_ROLES = "file_perms,dne_ops,quota_ops,byfid_ops,chlg_ops,fscrypt_admin"
Range = tuple[int, str, str, str]  # id, first address, last address, network


class LctlError(Exception):
    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


@dataclass
class SimulatedNodemap:
    number: int
    params: dict[str, str]
    ranges: list[Range] = field(default_factory=list)
    filesets: list[str] = field(default_factory=list)  # the primary one first, "" for none
    idmap: list[str] = field(default_factory=list)


class SimulatedMgs:
    """`log` has every command that changed something, in its order.

    Faults, for tests: `lose` (the answer of so many changing lines is lost after they were made),
    `cut` (the last characters of outputs are missing), `fail` (a word of a command: it fails).
    """

    def __init__(self, *, listed: bool = True, roles: bool = True) -> None:
        self.listed = listed
        self.roles = roles
        self.active = True
        self.nodemaps: dict[str, SimulatedNodemap] = {}
        self.kept: dict[str, str] = {}  # filesets of `set_param -P`
        self.log: list[list[str]] = []
        self.lines = 0
        self.lose = 0
        self.cut = 0
        self.fail = ""
        self.silent = False
        self.on_change: list[Callable[[], None]] = []
        self._ids = 0
        self._range_ids = 0
        self._add("default", number=0)
        self.nodemaps["default"].params["deny_unknown"] = "1"
        self._add("servers")
        self.nodemaps["servers"].params |= {"admin_nodemap": "1", "trusted_nodemap": "1"}
        self.nodemaps["servers"].ranges.append(self._range("192.0.2.[1-3]@tcp"))

    # --- for judges

    def list_readable(self, address: str, net: str = "tcp") -> set[str]:
        """Return the directories that a client of this NID may mount and read."""
        if not self.active:
            return {"/"}
        one = self._classify(address, net)
        values = one.params
        shut = values["admin_nodemap"] == values["trusted_nodemap"] == "0"
        if shut and values["deny_unknown"] == "1" and not one.idmap:
            return set()
        return {f for f in one.filesets if f} or {"/"}

    def restart(self) -> None:
        """Restart the MGS: before Lustre 2.17 only a fileset of `set_param -P` comes back."""
        if not self.listed:
            for name, one in self.nodemaps.items():
                one.filesets = [self.kept[name]] if name in self.kept else []

    # --- the shell

    def run(self, line: str) -> tuple[int, str, str]:
        """Return (exit code, stdout, stderr) of `lctl A && lctl B && echo C`."""
        self.lines += 1
        out = ""
        before = len(self.log)
        for part in _split(shlex.split(line)):
            if part[0] == "echo":
                out += " ".join(part[1:]) + "\n"
                continue
            try:
                if self.fail and self.fail in " ".join(part):
                    raise LctlError(5, f"error: {part[1]}: Input/output error")
                out += self._lctl(part[1:])
            except LctlError as problem:
                return problem.code, out, f"{problem}\n"
        if len(self.log) > before and self.lose:
            self.lose -= 1
            raise ConnectionResetError("the connection was lost")
        return 0, out[: len(out) - self.cut] if self.cut else out, ""

    def _lctl(self, words: list[str]) -> str:
        verb, *given = words
        if verb == "get_param":
            return "".join(self._print(pattern) for pattern in given)
        options = dict(zip(given[::2], given[1::2], strict=False))
        match verb:
            case "nodemap_add":
                self._make(given[0])
            case "nodemap_del":
                self._find(given[0])
                if given[0] == "default":
                    raise LctlError(_INVALID, "nodemap_del: Invalid argument")
                del self.nodemaps[given[0]]
            case "nodemap_add_range":
                self._add_range(options)
            case "nodemap_del_range":
                self._del_range(options)
            case "nodemap_modify":
                self._modify(options)
            case "nodemap_set_fileset":
                self._set_fileset(self._find(options["--name"]), options["--fileset"])
            case "nodemap_fileset_del" if self.listed:
                one = self._find(options["--name"])
                one.filesets = [f if f != options["--fileset"] else "" for f in one.filesets]
            case "set_param":
                self._keep(given)
            case _:
                raise LctlError(1, f"unknown command: {verb}")
        self.log.append(words)
        for listener in self.on_change:
            listener()
        return ""

    # --- commands

    def _make(self, name: str) -> None:
        if name in self.nodemaps:
            raise LctlError(1, f"error: {name} existing nodemap name")
        if not re.fullmatch(r"[A-Za-z0-9_]{1,16}", name):
            raise LctlError(256 - _INVALID, "nodemap_add: Invalid argument")
        self._add(name)

    def _add(self, name: str, number: int | None = None) -> None:
        self._ids += 1
        params = {"admin_nodemap": "0", "trusted_nodemap": "0", "deny_unknown": "0"}
        params |= {"squash_uid": "65534", "squash_gid": "65534"}
        if self.roles:
            params |= {"rbac": ALL_ROLES, "readonly_mount": "0"}
        self.nodemaps[name] = SimulatedNodemap(self._ids if number is None else number, params)

    def _add_range(self, options: dict[str, str]) -> None:
        one = self._find(options["--name"])
        new = self._range(options["--range"])
        for other in self.nodemaps.values():
            for held in other.ranges:
                if held[3] == new[3] and _overlap(held, new):
                    words = f"cannot add range '{options['--range']}' to nodemap"
                    detail = f"error: nodemap_add_range: {words} '{options['--name']}': rc = -17"
                    raise LctlError(256 - _EXIST, detail)
        one.ranges.append(new)

    def _del_range(self, options: dict[str, str]) -> None:
        one = self._find(options["--name"])
        given = self._range(options["--range"])
        same = [r for r in one.ranges if r[1:] == given[1:]]
        if not same:
            words = f"cannot delete range '{options['--range']}' to nodemap '{options['--name']}'"
            raise LctlError(256 - _INVALID, f"error: nodemap_del_range: {words}: rc = -22")
        one.ranges.remove(same[0])

    def _modify(self, options: dict[str, str]) -> None:
        one = self._find(options["--name"])
        name = _FLAGS.get(options["--property"], options["--property"])
        value = options["--value"]
        if name not in one.params:
            raise LctlError(1, f"error: nodemap_modify: unknown property '{name}'")
        if name.startswith("squash_") and value == "0":
            raise LctlError(256 - _INVALID, "nodemap_modify: Invalid argument")
        one.params[name] = value

    def _set_fileset(self, one: SimulatedNodemap, path: str) -> None:
        if path in ("", "clear"):
            one.filesets = ["", *one.filesets[1:]]
        elif path.startswith("/"):
            one.filesets = [path, *one.filesets[1:]]
        else:
            raise LctlError(256 - _INVALID, "nodemap_set_fileset: Invalid argument")

    def _keep(self, given: list[str]) -> None:
        """`set_param -P nodemap.X.fileset=PATH`, `set_param -P -d nodemap.X.fileset`."""
        parameter, _, path = given[-1].partition("=")
        name = parameter.split(".")[1]
        if "-d" in given:
            self.kept.pop(name, None)
        else:
            self._set_fileset(self._find(name), path)
            self.kept[name] = path

    # --- outputs

    def _print(self, pattern: str) -> str:
        if pattern == "nodemap.active":
            return f"nodemap.active={int(self.active)}\n"
        printed = [
            f"nodemap.{name}.{parameter}={value}\n"
            for name, one in sorted(self.nodemaps.items())
            for parameter, value in self._values(name, one).items()
            if fnmatch.fnmatchcase(f"nodemap.{name}.{parameter}", pattern)
        ]
        if not printed:
            path = pattern.replace(".", "/")
            words = f"error: get_param: param_path '{path}': No such file or directory"
            raise LctlError(_NONE, words)
        return "".join(printed)

    def _values(self, name: str, one: SimulatedNodemap) -> dict[str, str]:
        values = {"id": str(one.number), **one.params, "fileset": self._filesets(one)}
        if name != "default":
            entries = [
                f"{{ id: {r[0]}, start_nid: {r[1]}@{r[3]}, end_nid: {r[2]}@{r[3]} }}"
                for r in one.ranges
            ]
            values |= {"ranges": _list(entries), "idmap": _list(one.idmap)}
        return values

    def _filesets(self, one: SimulatedNodemap) -> str:
        if not self.listed:
            return one.filesets[0] if one.filesets else ""
        kinds = ["primary", *["alternate"] * len(one.filesets)]
        return _list([f"{{ {k}:\t{f} }}" for k, f in zip(kinds, one.filesets, strict=False) if f])

    # --- NIDs

    def _find(self, name: str) -> SimulatedNodemap:
        if name not in self.nodemaps:
            raise LctlError(_NONE, f"error: {name} not existing nodemap name")
        return self.nodemaps[name]

    def _classify(self, address: str, net: str) -> SimulatedNodemap:
        own = (0, address, address, net)
        for one in self.nodemaps.values():
            if any(r[3] == net and _overlap(r, own) for r in one.ranges):
                return one
        return self.nodemaps["default"]

    def _range(self, text: str) -> Range:
        """Return `10.0.[2-3].[0-255]@tcp` as a range; it has to be contiguous."""
        address, _, net = text.partition("@")
        spans = []
        for part in address.split("."):
            first, _, last = part.strip("[]").partition("-")
            spans.append((int(first), int(last or first)))
        wide = next((i for i, (a, b) in enumerate(spans) if a != b), 4)
        if len(spans) != 4 or any(s != (0, 255) for s in spans[wide + 1 :]):
            raise LctlError(
                256 - _INVALID, f"error: nodemap_add_range: range '{text}' not contiguous"
            )
        self._range_ids += 1
        low, high = (".".join(str(s[i]) for s in spans) for i in (0, 1))
        return self._range_ids, low, high, net


def _overlap(one: Range, other: Range) -> bool:
    a, b, c, d = (ipaddress.ip_address(x) for x in (one[1], one[2], other[1], other[2]))
    return int(a) <= int(d) and int(c) <= int(b)


def _list(entries: list[str]) -> str:
    return "\n[\n" + ",\n".join(f" {e}" for e in entries) + "\n]"


def _split(words: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "&&":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts
