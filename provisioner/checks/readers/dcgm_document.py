"""Parses the documents of `dcgmi diag -j` and `dcgmi mndiag -j` into one form.

"DCGM GPU Diagnostic" is the form of DCGM 1 to 3: results name GPUs in `gpu_ids` or not at all, and
warnings are texts. "DCGM Diagnostic" is the form of DCGM 4: one result per entity, warnings with
ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Unreadable
from provisioner.checks.readers.tool_output import (
    find_document,
    parse_whole,
    require_list,
    require_object,
    require_text,
)
from provisioner.model.base import Record

# ------------------------------------------------------------------------------
# Parses the output of gpu_burn: progress that overwrites itself, then a verdict on each GPU.
#
# wilicc/gpu-burn gpu_burn-drv.cpp: "N (F Gflop/s) - ...  errors: N - ...  temps: N C - ...", with
# "(WARNING!)" behind errors and "(DIED!)" behind a GPU whose process ended.


GPUS_MAX = 64
_PROGRESS = re.compile(r"([0-9.]{1,6})%\s+proc'd: (.{1,4000}?)\s+errors: (.{1,2000}?)\s+temps: ")
_CELL = re.compile(r"^(-?\d{1,18})\s*\((\d{1,9}) Gflop/s\)\s*(\(DIED!\))?$")
_ERRORS = re.compile(r"^(-?\d{1,18})\s*(\(WARNING!\)|\(DIED!\))?$")
_TESTED = re.compile(r"^Tested (\d{1,3}) GPUs:$", re.MULTILINE)
_VERDICT = re.compile(r"^\s*GPU (\d{1,3}): (OK|FAULTY)\s*$", re.MULTILINE)


class BurnResult(Record):
    """The result of one GPU: its errors over the whole burn, and its last speed."""

    gpu: int
    ok: bool
    died: bool
    errors: int
    gflop_s: int  # 0 where it never reported a speed


def read(text: str) -> tuple[BurnResult, ...]:
    """Return the results of all GPUs in order. Raises `Unreadable`."""
    tested = list(_TESTED.finditer(text))
    if len(tested) != 1:
        tail = " ".join(text[-160:].split())
        raise Unreadable(f"gpu_burn: not exactly one verdict in it: {tail}")
    count = parse_whole(tested[0][1], "GPUs")
    verdicts = {int(m[1]): m[2] == "OK" for m in _VERDICT.finditer(text, tested[0].end())}
    if not 0 < count <= GPUS_MAX or set(verdicts) != set(range(count)):
        raise Unreadable(f"gpu_burn: verdicts on {len(verdicts)} of {count} GPUs")
    errors = [0] * count
    speeds = [0] * count
    died = [False] * count
    has_progress = False
    for match in _PROGRESS.finditer(text, 0, tested[0].start()):
        for gpu, (calculated, speed) in enumerate(_parse_cells(match[2], _CELL, count)):
            died[gpu] |= calculated.startswith("-") or "DIED" in match[2].split(" - ")[gpu]
            speeds[gpu] = int(speed) or speeds[gpu]
        for gpu, (wrong, note) in enumerate(_parse_cells(match[3], _ERRORS, count)):
            errors[gpu] = max(errors[gpu], int(wrong))  # -1: it died
            died[gpu] |= "DIED" in note
        has_progress = True
    if not has_progress:
        raise Unreadable("gpu_burn: no progress in it")
    return tuple(
        BurnResult(gpu=n, ok=verdicts[n], died=died[n], errors=errors[n], gflop_s=speeds[n])
        for n in range(count)
    )


def _parse_cells(listed: str, pattern: re.Pattern[str], count: int) -> list[tuple[str, str]]:
    cells = [pattern.match(cell.strip()) for cell in listed.split(" - ")]
    if len(cells) != count:
        raise Unreadable(f"gpu_burn: progress of {len(cells)} GPUs, it tested {count}")
    parsed = []
    for cell in cells:
        if cell is None:
            raise Unreadable("gpu_burn: progress that cannot be read")
        parsed.append((cell[1], cell[2] or ""))
    return parsed


OLD = "DCGM GPU Diagnostic"
NEW = "DCGM Diagnostic"
MANY = "DCGM Multi-Node Diagnostic"
IDS_MAX = 64  # GPUs that one result may name

# name that 3.x shows for a test -> name of the plugin, which 4.x shows
_PLUGINS = {
    "gpu memory": "memory",
    "pcie": "pcie",
    "diagnostic": "diagnostic",
    "gpu diagnostic": "diagnostic",
    "memory bandwidth": "memory_bandwidth",
    "targeted stress": "targeted_stress",
    "targeted power": "targeted_power",
    "sm stress": "sm_stress",
    "memtest": "memtest",
    "pulse test": "pulse_test",
    "eud test": "eud",
}


class DcgmWarning(Record):
    """One warning of DCGM. `severity` is None where the document gives none."""

    words: str
    severity: int | None = None
    error_id: str = ""


class Result(Record):
    """One result of a test; `parts` is () where it names no part."""

    parts: tuple[str, ...]  # "GPU 3", "node7 GPU 3"
    status: str  # lower case
    warnings: tuple[DcgmWarning, ...] = ()
    info: tuple[str, ...] = ()


class Test(Record):
    """One test by its plugin: "software", "memory", "pcie"... `title` is DCGM's display name."""

    name: str
    title: str
    results: tuple[Result, ...]
    summary: str = "pass"  # lower case
    messages: tuple[str, ...] = ()  # texts of the summary: some faults appear only there


def read_tests(text: str) -> tuple[Test, ...]:
    """Return the tests of one node. Raises `Unreadable`."""
    document = find_document(text, OLD, NEW, subject="dcgmi")
    new = NEW in document
    body = require_object(document[NEW if new else OLD], "dcgmi")
    error = body.get("runtime_error", document.get("runtime_error"))
    if error:
        raise Unreadable(f"dcgmi could not run: {str(error)[:200]}")
    tests = []
    for category, test in _walk_tests(body):
        title = require_text(test.get("name"), "name")
        software = not new and category.lower() == "deployment"
        name = "software" if software else _PLUGINS.get(title.lower(), title.lower())
        tests.append(_parse_test(name, title, test, {}))
    if not tests:
        raise Unreadable("dcgmi: no test in it")
    return tuple(tests)


def read_multi_node_tests(
    text: str,
) -> tuple[tuple[Test, ...], tuple[str, ...], tuple[DcgmWarning, ...]]:
    """Return the tests, host names and errors of a multi-node run. Raises `Unreadable`."""
    document = find_document(text, MANY, subject="dcgmi mndiag")
    if document.get("runtime_error"):
        raise Unreadable(f"dcgmi mndiag could not run: {str(document['runtime_error'])[:200]}")
    hosts: dict[object, str] = {}
    for listed in require_list(document.get("hosts"), "hosts"):
        host = require_object(listed, "host")
        hosts[_require_name(host.get("host_id"), "host_id")] = require_text(
            host.get("hostname"), "hostname"
        )
    host_count = require_object(document.get("metadata"), "metadata").get("num_hosts")
    if host_count != len(hosts):
        raise Unreadable(f"dcgmi mndiag: {len(hosts)} hosts are listed, num_hosts is {host_count}")
    tests = [
        _parse_test(require_text(t.get("name"), "name").lower(), str(t.get("name")), t, hosts)
        for _, t in _walk_tests(document)
    ]
    if not tests:
        raise Unreadable("dcgmi mndiag: no test in it")
    errors = tuple(
        _parse_warning(e) for e in require_list(document.get("global_errors", []), "errors")
    )
    return tuple(tests), tuple(hosts.values()), errors


def _walk_tests(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for listed in require_list(body.get("test_categories"), "test_categories"):
        category = require_object(listed, "category")
        name = require_text(category.get("category"), "category")
        for test in require_list(category.get("tests"), "tests"):
            yield name, require_object(test, "test")


def _parse_test(
    name: str, title: str, test: Mapping[str, Any], hosts: Mapping[object, str]
) -> Test:
    listed = require_list(test.get("results"), "results")
    if not listed:
        raise Unreadable(f"dcgmi: {title[:40]} has no result")
    summary = require_object(test.get("test_summary", {}), "test_summary")
    status = require_text(summary.get("status", "Pass"), "status").lower()
    own = str(test.get("status", "pass")).lower()  # a multi-node test has a status of its own
    messages = [*_read_texts(summary.get("info")), *(w.words for w in _parse_warnings(summary))]
    if isinstance(test.get("mpi_error"), dict):
        status = "mpi error"
        messages = [*messages, str(test["mpi_error"].get("warning", ""))]
    return Test(
        name=name[:64],
        title=title[:64],
        results=tuple(_parse_result(require_object(r, "result"), hosts) for r in listed),
        summary=status if status != "pass" else own,
        messages=tuple(messages),
    )


def _parse_result(result: Mapping[str, Any], hosts: Mapping[object, str]) -> Result:
    return Result(
        parts=_parse_parts(result, hosts),
        status=require_text(result.get("status"), "status").strip().lower(),
        warnings=_parse_warnings(result),
        info=_read_texts(result.get("info")),
    )


def _parse_parts(result: Mapping[str, Any], hosts: Mapping[object, str]) -> tuple[str, ...]:
    host = ""
    if hosts:
        host_id = _require_name(result.get("host_id"), "host_id")
        if host_id not in hosts:
            raise Unreadable(f"dcgmi mndiag: a result of host {host_id}, which is not listed")
        host = hosts[host_id] + " "
    if "entity_id" in result:
        group = require_text(result.get("entity_group", "GPU"), "entity_group")
        return (f"{host}{group} {_require_name(result['entity_id'], 'entity_id')}",)
    gpu_ids = result.get("gpu_ids", result.get("gpu_id"))
    if gpu_ids is None:
        return ()
    ids = [i.strip() for i in str(_require_name(gpu_ids, "gpu_ids")).split(",")]
    if len(ids) > IDS_MAX or not all(i.isascii() and i.isdecimal() for i in ids):
        raise Unreadable(f"dcgmi: gpu_ids {str(gpu_ids)[:40]!r}")
    return tuple(f"{host}GPU {i}" for i in ids)


def _require_name(value: Any, subject: str) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str) or len(str(value)) > 400:
        raise Unreadable(f"dcgmi: {subject} is no name")
    return value


def _parse_warnings(holder: Mapping[str, Any]) -> tuple[DcgmWarning, ...]:
    listed = holder.get("warnings", holder.get("warning"))
    if listed is None:
        return ()
    return tuple(_parse_warning(w) for w in (listed if isinstance(listed, list) else [listed]))


def _parse_warning(listed: Any) -> DcgmWarning:
    if not isinstance(listed, dict):
        return DcgmWarning(words=str(listed))
    code = listed.get("error_severity")
    return DcgmWarning(
        words=str(listed.get("warning", "no text")),
        severity=code if isinstance(code, int) and not isinstance(code, bool) else None,
        error_id=str(listed.get("error_id", "?"))[:12],
    )


def _read_texts(listed: Any) -> tuple[str, ...]:
    if listed is None:
        return ()
    return tuple(str(t) for t in (listed if isinstance(listed, list) else [listed]))
