"""The host's own report: the commands of docs/in-band.md, run and parsed."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.diagnostics import collect_measurements
from provisioner.adapters.redfish.parsing import at, link, objects
from provisioner.adapters.redfish.parsing import text as text_of
from provisioner.adapters.redfish.service import raise_unread
from provisioner.checks import attested_firmware
from provisioner.checks.attestation.certificate_chains import (
    ANSWER_BYTES_MAX,
    ANSWERS_MAX,
    parse_answer,
    parse_certificates,
)
from provisioner.checks.attestation.evidence_containers import read_manifest_file
from provisioner.checks.attestation.reference_manifests import SIZE_MAX
from provisioner.checks.check import CheckContext, Command
from provisioner.checks.collected_reports import (
    KINDS,
    NONCE,
    find_answer,
    read_evidences,
    select_admitted,
    wrap_output,
)
from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site
from provisioner.model.certificate import Unacceptable
from provisioner.model.cohort import Evidence
from provisioner.model.input_error import InputError
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Clock, PortError, ShellCommand, ShellOutput, Unreachable

# ------------------------------------------------------------------------------
# Files of references: manifests (RIM) and OCSP answers, as a bundle carries them to a site.
#
# A connected machine fetches them; here they are read from a folder, each time anew.


ANSWER = ".ocsp"  # the suffix of OCSP answers; every other file of a folder is a manifest
FILES_MAX = 4096


def list_references(directory: Path) -> list[Path]:
    """Return the files of a folder of references, by name. Raises InputError."""
    try:
        paths = sorted(path for path in directory.iterdir() if path.is_file())
    except OSError as error:
        problem = f"it cannot be read ({error.strerror or error})"
        raise InputError(str(directory), "", problem, "Name a folder of references.") from None
    if len(paths) > FILES_MAX:
        raise InputError(str(directory), "", f"it has over {FILES_MAX} files", "Use several.")
    return paths


def read_reference(path: Path) -> bytes:
    """Return the content of one file. Raises InputError."""
    largest = ANSWER_BYTES_MAX if path.suffix == ANSWER else 2 * SIZE_MAX
    try:
        with path.open("rb") as file:
            raw = file.read(largest + 1)
    except OSError as error:
        problem = f"it cannot be read ({error.strerror or error})"
        raise InputError(str(path), "", problem, "Check it.") from None
    if len(raw) > largest:
        raise InputError(str(path), "", f"it has more than {largest} bytes", "Check it.")
    return raw


def attach_answers(evidence: Evidence, directory: str) -> Evidence:
    """Return evidence of roots of trust with the answers about their certificates.

    They are stored with it, so that an auditor judges by the same ones. A folder or a file that
    cannot be read gives no answer.
    """
    if not directory or evidence.truncated:
        return evidence
    document = json.loads(evidence.text)
    answers = select_answers(directory, _list_serials(document.get("components", ())))
    if not answers:
        return evidence
    document["ocsp"] = [base64.b64encode(raw).decode() for raw in answers]
    return evidence.model_copy(update={"text": json.dumps(document)})


def select_answers(directory: str, serials: Iterable[int]) -> list[bytes]:
    """Return the OCSP answers of a folder about certificates with these serial numbers."""
    asked = set(serials)
    if not directory or not asked:
        return []
    answers = [raw for number, raw in _read_answers(directory) if number in asked]
    return answers[:ANSWERS_MAX]


def select_manifests(directory: str, digests: Collection[str]) -> list[tuple[str, bytes]]:
    """Return the manifests of a folder with these digests (SHA-256), each with its id."""
    if not directory or not digests:
        return []
    manifests = []
    for path in _list_files(directory):
        if path.suffix == ANSWER:
            continue
        try:
            rows = read_manifest_file(read_reference(path), path.stem)
        except InputError:
            continue
        manifests += [row for row in rows if hashlib.sha256(row[1]).hexdigest() in digests]
    return manifests


def _list_files(directory: str) -> list[Path]:
    """Return the files of a folder; none if it cannot be read."""
    try:
        return list_references(Path(directory))
    except InputError:
        return []


def _list_serials(rows: Iterable[Any]) -> Iterable[int]:
    for row in rows:
        try:
            chain = parse_certificates(str(row.get("certificates") or "").encode())
        except Unacceptable:
            continue
        yield from (certificate.serial_number for certificate in chain)


def _read_answers(directory: str) -> Iterable[tuple[int, bytes]]:
    for path in _list_files(directory):
        if path.suffix != ANSWER:
            continue
        try:
            raw = read_reference(path)
            yield parse_answer(raw).serial_number, raw
        except (InputError, ValueError):
            continue


# ------------------------------------------------------------------------------
# The end of a host's serial console, as evidence of a boot that failed.


SHOWN = 3  # lines in a sentence; the whole is `provisioner node console`
EVIDENCE_LINES = 2000  # of a case
_WORDS_MAX = 300


async def describe_console(site: Site, node: Node) -> str:
    """Return the last lines of the console as the end of a sentence; "" if none is stored."""
    if site.consoles is None:
        return ""
    lines = await site.consoles.list_lines(node.id, -1, SHOWN)
    if not lines:
        return ""
    words = " | ".join(line.text for line in lines)[-_WORDS_MAX:]
    return f"; its console ends with: {words}"


async def read_console_text(site: Site, node: Node) -> str:
    """Return the last lines with their times, for the evidence of a case; "" if none is stored."""
    if site.consoles is None:
        return ""
    lines = await site.consoles.list_lines(node.id, -1, EVIDENCE_LINES)
    return "\n".join(f"{line.at:.3f} {line.text}" for line in lines)


BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
REBOOT = "shutdown -r now"
# A tool that changes the host holds this lock, and all processes that a play starts in a host carry
# the play's mark in their environment. Both outlive the connection and the caller of the play.
PROBE = (
    "l=/run/lock/provisioner-tools; [ ! -e $l ] || flock -n -E 75 $l true || echo $l is held; "
    "grep -lsz '^PROVISIONER_RUN=.' /proc/[0-9]*/environ; echo looked"
)
TEXT_MAX = 4 * 1024 * 1024  # of one command's output; dmesg after a month is below 1 MB


async def run_commands(
    site: Site, node: Node, commands: Sequence[tuple[str, str, float]]
) -> Mapping[str, Evidence] | Blocker:
    """Run (name, command, limit in seconds) on a host, as root; raw outputs by name.

    The outputs are evidence: they are judged elsewhere. A Blocker: the host was not reached.
    """
    listed = [ShellCommand(*command) for command in commands]
    try:
        outputs = await site.shell.run(node.id, node.address, listed)
    except PortError as error:
        return blocked(error, f"{node.id}/ssh")
    return {c.name: _evidence(c.line, o) for c, o in zip(listed, outputs, strict=True)}


def _evidence(command: str, output: ShellOutput) -> Evidence:
    text = output.stdout or output.stderr
    return Evidence(
        source=command,
        exit_code=output.exit_code,
        text=text[:TEXT_MAX],
        truncated=output.truncated or len(text) > TEXT_MAX,
    )


async def until_quiet(site: Site, node: Node, limit_s: float) -> Blocker | None:
    """Wait until no process that a play started runs in the host any more.

    A Blocker: one still runs, or it cannot be determined; then nothing may be repeated there.
    """
    until = site.clock.now() + limit_s
    while True:
        outputs = await run_commands(site, node, [("probe", PROBE, 30.0)])
        if isinstance(outputs, Blocker):
            return outputs
        *busy, last = outputs["probe"].text.split("\n")[:-1] or [""]
        if outputs["probe"].exit_code == 0 and last == "looked" and not busy:
            return None
        if site.clock.now() >= until:
            return Blocker(
                reason=Reason.UPDATE_STALLED,
                subject=f"{node.id}/host",
                detail=f"a play may still be at work there: {' '.join((*busy, last))!r:.200}",
                unblock="Look at these processes in the host; when they are gone, it goes on.",
            )
        await site.clock.sleep(site.settings.poll_s)


async def restart_system(site: Site, node: Node) -> Blocker | None:
    """Ask the host's system to restart; whether it did is seen by its boot id."""
    try:
        outputs = await site.shell.run(
            node.id, node.address, [ShellCommand("reboot", REBOOT, 60.0)]
        )
    except Unreachable as error:
        return None if error.maybe_executed else blocked(error, f"{node.id}/ssh")
    except PortError as error:
        return blocked(error, f"{node.id}/ssh")
    if outputs[0].exit_code in (0, None):  # None: the connection went before the answer
        return None
    return Blocker(
        reason=Reason.REFUSED,
        subject=f"{node.id}/host",
        detail=f"shutdown ended with {outputs[0].exit_code}: {outputs[0].stderr!r:.200}",
        unblock="Look at the host's log, then retry the node.",
    )


async def boot_id(site: Site, node: Node) -> str | None:
    """Return the host's boot id, or None while its system does not answer."""
    outputs = await run_commands(site, node, [("boot_id", BOOT_ID, 20.0)])
    if isinstance(outputs, Blocker) or outputs["boot_id"].exit_code != 0:
        return None
    return outputs["boot_id"].text.strip() or None


# ------------------------------------------------------------------------------
# Commands of checks that a host's BMC answers: read whole, and kept as they came.


HOST = "host"  # the BMC's name in every node
MEMBERS_MAX = 8  # systems or managers of one BMC; a DGX H100 has two of each


async def ask_bmc(
    site: Site, node: Node, commands: Sequence[Command]
) -> dict[str, Evidence] | Blocker:
    """Return outputs by name; a Blocker if the BMC does not answer at all."""
    outputs: dict[str, Evidence] = {}
    for command in commands:
        try:
            client = await site.reach.redfish(node, HOST)
            if isinstance(client, Blocker):
                return client
            text = json.dumps(await _answer(site, client, command))
        except PortError as error:
            return blocked(error, f"{node.id}/{HOST}")
        evidence = _limit_text(command.line, text)
        if command.line.startswith(attested_firmware.SOURCE):
            evidence = attach_answers(evidence, site.settings.attestation_references)
        outputs[command.name] = evidence
    return outputs


async def ask_roots(client: Redfish, patterns: Sequence[str], clock: Clock) -> Evidence:
    """Return the signed measurements of the roots of trust whose names match, as a check would.

    Raises `PortError` if the BMC does not answer.
    """
    line = attested_firmware.SOURCE + " ".join(sorted(patterns))
    return _limit_text(line, json.dumps(await _measure(client, patterns, clock)))


async def read_resets(client: Redfish) -> dict[str, str]:
    """Return `LastResetTime` of the systems and managers that a BMC shows, by path."""
    walk = client.service.walk()
    root = await walk.read_root()
    shown = {}
    for collection in ("Systems", "Managers"):
        for member in (await walk.read_linked(root, collection))[:MEMBERS_MAX]:
            if at := text_of(member.data.get("LastResetTime")):
                shown[member.path] = at
    return shown


async def shows_tpm(client: Redfish) -> bool:
    """Return whether a system of this BMC lists an enabled TPM 2.0 among its `TrustedModules`.

    Raises `PortError` if none does, and not all systems could be read.
    """
    walk = client.service.walk()
    systems = (await walk.read_linked(await walk.read_root(), "Systems"))[:MEMBERS_MAX]
    is_shown = any(
        module.get("InterfaceType") == "TPM2_0" and at(module, "Status", "State") == "Enabled"
        for system in systems
        for module in objects(system.data.get("TrustedModules"))
    )
    if not is_shown:
        raise_unread(walk.unread)
    return is_shown


async def read_secure_boot(client: Redfish) -> bool | None:
    """Return `SecureBootCurrentBoot` of the host; None if no system, or several, state it."""
    walk = client.service.walk()
    systems = (await walk.read_linked(await walk.read_root(), "Systems"))[:MEMBERS_MAX]
    paths = [path for system in systems if (path := link(system.data, "SecureBoot")) is not None]
    bodies = [(await walk.read(path)).data for path in paths]
    states = {"Enabled": True, "Disabled": False}
    shown = [states.get(str(body.get("SecureBootCurrentBoot"))) for body in bodies]
    stated = [state for state in shown if state is not None]
    return stated[0] if len(stated) == 1 else None


async def _measure(client: Redfish, patterns: Sequence[str], clock: Clock) -> dict[str, Any]:
    return await collect_measurements(client.service, patterns, clock.sleep, clock.now())


def _limit_text(source: str, text: str) -> Evidence:
    return Evidence(
        source=source, exit_code=0, text=text[:TEXT_MAX], truncated=len(text) > TEXT_MAX
    )


async def _answer(site: Site, client: Redfish, command: Command) -> dict[str, Any]:
    """The resources that a command names, or the signed measurements that it asks for."""
    if command.line.startswith(attested_firmware.SOURCE):
        patterns = command.line.removeprefix(attested_firmware.SOURCE).split()
        return await _measure(client, patterns, site.clock)
    reading = await client.read_resources(command.line)
    gaps = [[g.source, g.reason.value, g.detail] for g in reading.gaps]
    return {"resources": dict(reading.resources), "gaps": gaps}


# ------------------------------------------------------------------------------
# Commands inside a host that ask its devices for signed reports: a fresh nonce each time.
#
# The output is stored with the nonce, the time, and the manifests and OCSP answers at hand, so that
# an auditor judges by the same ones.


async def ask_host(
    site: Site, node: Node, commands: Sequence[Command], context: CheckContext
) -> Mapping[str, Evidence] | Blocker:
    """Run commands on a host, those that ask devices with a nonce of ours; outputs by name."""
    nonces = {c.name: secrets.token_hex(32) for c in commands if c.asks}
    asked_at = site.clock.now()
    listed = [
        (c.name, c.line.replace(NONCE, nonces.get(c.name, NONCE)), c.limit_s) for c in commands
    ]
    outputs = await run_commands(site, node, listed)
    if isinstance(outputs, Blocker):
        return outputs
    directory = site.settings.attestation_references
    return {
        name: _attach(output, nonces[name], asked_at, directory, context)
        if name in nonces
        else output
        for name, output in outputs.items()
    }


def _attach(
    output: Evidence, nonce: str, asked_at: float, directory: str, context: CheckContext
) -> Evidence:
    if output.exit_code is None or output.truncated:
        return output
    admitted = {digest for kind in KINDS for digest in select_admitted(kind, context).manifests}
    text = wrap_output(
        output.text,
        output.exit_code,
        nonce,
        asked_at,
        select_manifests(directory, admitted),
        select_answers(directory, _list_serials_inband(output.text)),
    )
    return output.model_copy(
        update={"text": text[:TEXT_MAX], "exit_code": 0, "truncated": len(text) > TEXT_MAX}
    )


def _list_serials_inband(printed: str) -> Iterable[int]:
    """Return the serial numbers of the certificates that came with the reports."""
    answer = find_answer(printed)
    if answer is None:
        return ()
    return [c.serial_number for report in read_evidences(answer) for c in report.certificates]
