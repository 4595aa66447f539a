"""Kernel modules for the kernel of the next boot: built by DKMS, found, and signed by a known key.

Formats: dkms(8) of 2.8 (Ubuntu 22.04) and 3.0 (Debian 12, Ubuntu 24.04), modinfo(8), GRUB's
/etc/default/grub, the kernel's /proc/keys and the EFI variable SecureBoot (UEFI, 3.3).
"""

from __future__ import annotations

import glob
import os
import re

from ansible_collections.provisioner.fleet.plugins.module_utils import tools

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
DIFFERS = "differs"  # installed, and not byte by byte what was built: signed, stripped, or another
_STATUS = re.compile(
    r"(?P<module>[^,/:\s]+)(?:/|, )(?P<version>[^,:\s]+)"
    r"(?:, (?P<kernel>[^,:\s]+), [^,:\s]+)?: (?P<state>[a-z-]+)(?P<remarks>( \([^()]*\))*)"
    r"(?: from \S+)?"
)
# dkms.in, do_status and module_status_built_extra of 2.8 to 3.2
_REMARKS = (
    (re.compile(r"original.modules? exists?", re.IGNORECASE), ""),
    (re.compile(r"differences? between|diff between", re.IGNORECASE), DIFFERS),
    (re.compile(r"missing", re.IGNORECASE), "incomplete"),
)
# the tool's words beside its rows; of "broken" its row tells already
_ADVICE = re.compile(r"Deprecated feature: |Warning: |Manual intervention is required!$")
_BROKEN = re.compile(r"Error! (?P<module>[^/\s]+)/(?P<version>\S+): Missing the module source")
_DEFAULT = re.compile(r"\s*GRUB_DEFAULT=[\"']?([^\"'\n]*)[\"']?\s*$")
_KEY = re.compile(r"asymmetri (?P<name>.+?): 0*(?P<id>[0-9a-f]+): X509")
# of DKMS: Ubuntu's shim-signed, and dkms 3.0 elsewhere (/etc/dkms/framework.conf)
CERTIFICATES = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")


def parse_status(text):
    """Return (module, version, kernel, state) of each row of `dkms status`; kernel "" for none.

    A remark behind "installed" is a state of its own, unless it says nothing of the module. Raises
    `Unreadable` at a line of no known form: a row that is passed over is a module that nobody
    misses.
    """
    rows, others = [], []
    for line in filter(None, map(str.strip, text.splitlines())):
        match = _STATUS.fullmatch(line)
        state = _read_state(match) if match else ""
        if state:
            rows.append((match["module"], match["version"], match["kernel"] or "", state))
        elif not _ADVICE.match(line):
            others.append(line)
    broken = {(module, version) for module, version, _, state in rows if state == "broken"}
    for line in others:
        match = _BROKEN.match(line)
        if not match or (match["module"], match["version"]) not in broken:
            shown = tools.replace_control_characters(line)[:120]
            raise tools.Unreadable(f"dkms status: a line of no known form, {shown!r}")
    return rows


def _read_state(match):
    """Return a row's state, "" for one with a remark of no known meaning."""
    state = match["state"]
    for remark in re.findall(r"\(([^()]*)\)", match["remarks"]):
        known = [meaning for pattern, meaning in _REMARKS if pattern.search(remark)]
        if not known:
            return ""
        if known[0] and state in ("installed", DIFFERS):
            state = known[0]
    return state


def find_unbuilt(rows, kernel):
    """Return the modules of DKMS whose newest version is not installed for a kernel, sorted.

    A module of an earlier version that is still installed is another module.
    """
    newest = find_newest(rows)
    built = {
        (module, version)
        for module, version, built_for, state in rows
        if built_for == kernel and state in ("installed", DIFFERS)
    }
    return sorted(
        module if len({v for m, v, _, _ in rows if m == module}) == 1 else f"{module}/{version}"
        for module, version in newest.items()
        if (module, version) not in built
    )


def find_newest(rows):
    """Return the newest version that DKMS has of each module: the one that was added last."""
    newest = {}
    for module, version, _, _ in rows:
        newest[module] = sort_kernels({version, newest.get(module, version)})[-1]
    return newest


def sort_kernels(names):
    """Return kernel versions from the oldest to the newest."""
    return sorted(
        names,
        key=lambda n: [(int(p), "") if p.isdigit() else (-1, p) for p in re.findall(r"\d+|\D+", n)],
    )


def choose_kernel(kernels, default, running):
    """Return the kernel that GRUB boots next. Raises `Refused` where its choice names none.

    Without any kernel in /boot it is the running one: another loader keeps them elsewhere.
    """
    ordered = sort_kernels(kernels)
    if not ordered:
        return running
    if default in ("", "0"):
        return ordered[-1]
    named = [name for name in reversed(ordered) if name in default]
    if not named:
        raise tools.Refused(
            f"GRUB_DEFAULT={default} names no kernel: the next one is unknown"[:200]
        )
    return named[0]


def read_next_kernel(root="/"):
    """Return the kernel of the next boot, from /boot and GRUB's settings."""
    names = [p.rpartition("/vmlinuz-")[2] for p in glob.glob(os.path.join(root, "boot/vmlinuz-*"))]
    default = ""
    settings = [os.path.join(root, "etc/default/grub")]
    for path in settings + sorted(glob.glob(os.path.join(root, "etc/default/grub.d/*.cfg"))):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                matches = [_DEFAULT.match(line) for line in file]
        except OSError:
            continue
        default = next((m[1] for m in reversed(matches) if m), default)
    if default == "saved":
        saved = tools.read(["grub-editenv", "-", "list"], exits=(0, 1))
        rows = [line.partition("=") for line in saved.splitlines()]
        default = next((value for name, _, value in rows if name == "saved_entry"), "")
    return choose_kernel(names, default, os.uname().release)


def is_secure_boot_on(path=SECURE_BOOT):
    """Return whether the firmware verifies each program: the last byte of its variable.

    Only a machine without UEFI, or one that shows its variables and has no such one, is known to do
    without. What cannot be read counts as on: then only modules pass that boot either way.
    """
    variables = os.path.dirname(path)
    try:
        with open(path, "rb") as file:
            value = file.read(16)
    except FileNotFoundError:
        has_uefi = os.path.isdir(os.path.dirname(variables))
        return has_uefi and not (os.path.isdir(variables) and os.listdir(variables))
    except OSError:
        return True
    return len(value) != 5 or value[4] != 0


def parse_keys(text):
    """Return name -> identifiers of the X.509 keys in /proc/keys (subject key identifiers)."""
    keys = {}
    for match in _KEY.finditer(text):
        keys.setdefault(match["name"], set()).add(match["id"])
    return keys


def parse_certificate(text):
    """Return (common name, serial, subject key identifier) from `openssl x509 -noout -text`.

    Raises `Unreadable` where one is missing.
    """
    name = re.search(r"Subject:.*?CN\s*=\s*([^,\n]+)", text)
    serial = re.search(r"Serial Number:\s*(?:\d+ \(0x)?([0-9a-f:]+)", text)
    key = re.search(r"Subject Key Identifier:[^\n]*\n\s*([0-9A-F:]+)", text)
    if not (name and serial and key):
        raise tools.Unreadable("openssl x509: no name, serial or subject key identifier")
    return name[1].strip(), _strip_hex(serial[1]), _strip_hex(key[1])


def read_certificates(paths=CERTIFICATES):
    """Return the certificates with which DKMS signs on this host."""
    rows = []
    for path in paths:
        if os.path.exists(path):
            line = ["openssl", "x509", "-inform", "DER", "-in", path, "-noout", "-text"]
            rows.append(parse_certificate(tools.read(line)))
    return rows


def find_identifiers(signer, keys):
    """Return the identifiers of the keys whose certificates have this common name.

    The kernel names a key by its common name, with "ORGANISATION: " before it where the two begin
    differently (x509_fabricate_name in crypto/asymmetric_keys/x509_cert_parser.c).
    """
    names = [name for name in keys if name == signer or name.endswith(f": {signer}")]
    return set().union(*(keys[name] for name in names))


def find_signature_fault(signer, serial, keys, certificates):
    """Return why the kernel would refuse a module's signature; "" if it would not.

    `serial` is modinfo's `sig_key`, the serial of the signer's certificate. A name alone proves
    nothing for DKMS's own key, which is made anew with each system: then the certificate links the
    serial to the identifier of the enrolled key.
    """
    if not signer:
        return "not signed"
    enrolled = find_identifiers(signer, keys)
    if not enrolled:
        return f"signed by {signer!r}, a key that is not enrolled"
    own = [row for row in certificates if row[0] == signer]
    if own and _strip_hex(serial) not in {row[1] for row in own}:
        return f"signed by another key than this host's {signer!r}"
    if own and not any(row[1] == _strip_hex(serial) and row[2] in enrolled for row in own):
        return f"signed by a newer {signer!r} than the enrolled one"
    return ""


def _strip_hex(text):
    return text.replace(":", "").strip().lower().lstrip("0")
