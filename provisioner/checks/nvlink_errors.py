"""NVLinks have carried their traffic without errors, and a load test adds none.

Before a load, fewer than ten errors of a kind pass: that is facebookresearch/gcm's limit; Imbue
warns from five on. During a load none may occur. Errors that FEC corrected do not count; a link
recovery does, and so does an effective bit error rate, which remains after correction. Drivers
differ in their counters: three in Hopper's first drivers, a dozen since.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.counter_growth import compute_growth_per_device, find_before_load
from provisioner.checks.readers.smi_query import NOT_THERE
from provisioner.checks.readers.tool_output import (
    parse_documents,
    parse_number,
    parse_whole,
    read_output,
    require_list,
    require_object,
    split_lines,
)
from provisioner.checks.thresholds import check_threshold, require_threshold
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

NVLINK_ERRORS = Command(name="nvlink_errors", line="nvidia-smi nvlink -e", limit_s=60.0)

_GPU = re.compile(r"GPU (\d{1,3}): ")
_LINK = re.compile(r"Link (\d{1,3}): ([A-Za-z][A-Za-z /]{1,60}?)(?: - (\d{1,3}))?: (\S{1,40})$")
_DOWN = re.compile(r"Link (\d{1,3}): <?(?:inactive|disabled|off)>?$", re.IGNORECASE)
_TRAFFIC = ("packets", "bytes", "blocks", "codewords")  # these grow on a working link
_CORRECTED = "FEC"
_RATE = "BER"

Link = tuple[dict[str, int], dict[str, float]]  # counters and rates, by name


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    text = read_output(evidence, NVLINK_ERRORS)
    for gpu, link in _find_down_links(text):
        yield fault(f"GPU {gpu} link {link}", Severity.ISOLATE, "the NVLink is down")
    links = _read(text)
    gpus = {part.partition(" link ")[0] for part in links}
    if len(gpus) != context.gpus:
        yield fault("host", Severity.ISOLATE, "GPUs that count errors", len(gpus), context.gpus)
    for part, (_, rates) in links.items():
        for name, rate in rates.items():
            if not name.startswith("Effective"):
                continue
            if missed := check_threshold(context, "nvlink_effective_ber", rate):
                yield fault(part, Severity.ISOLATE, name, *missed)
    before = find_before_load(evidence, NVLINK_ERRORS)
    counted = {part: counters for part, (counters, _) in links.items()}
    if before is None:
        most = require_threshold(context, "nvlink_errors")
        prefix = ""
    else:
        had = _read(read_output(before, NVLINK_ERRORS))
        counted = compute_growth_per_device(
            {p: c for p, (c, _) in had.items()}, counted, "nvidia-smi nvlink -e"
        )
        most = 0.0
        prefix = "new "
    for part, counters in counted.items():
        for name, value in counters.items():
            if value > most and not _is_harmless(name):
                yield fault(part, Severity.ISOLATE, prefix + name, value, f"at most {most:.0f}")


def _is_harmless(name: str) -> bool:
    return name.startswith(_CORRECTED) or name.lower().endswith(_TRAFFIC)


def _read(text: str) -> dict[str, Link]:
    """Return "GPU 0 link 3" -> its counters and rates; all links must have the same ones."""
    links = _parse_dcgmi(text) if text.lstrip().startswith("{") else _parse_smi(text)
    names = {(frozenset(counters), frozenset(rates)) for counters, rates in links.values()}
    per_gpu: dict[str, int] = {}
    for part in links:
        gpu = part.partition(" link ")[0]
        per_gpu[gpu] = per_gpu.get(gpu, 0) + 1
    bare = any(all(map(_is_harmless, counters)) for counters, _ in links.values())
    if not links or bare or len(names) != 1 or len(set(per_gpu.values())) != 1:
        raise Unreadable("nvidia-smi nvlink -e: the links do not all report the same counters")
    return links


def _find_down_links(text: str) -> Iterator[tuple[str, str]]:
    """Yield (GPU, link) of links that are reported as down, and so have no counters."""
    gpu = ""
    for line in split_lines(text):
        if match := _GPU.match(line.strip()):
            gpu = match[1]
        elif match := _DOWN.match(line.strip()):
            yield gpu, match[1]


def _parse_smi(text: str) -> dict[str, Link]:
    links: dict[str, Link] = {}
    gpu = ""
    for line in split_lines(text):
        bare = line.strip()
        if match := _GPU.match(bare):
            gpu = f"GPU {match[1]}"
            if any(part.startswith(gpu + " ") for part in links):
                raise Unreadable("nvidia-smi nvlink -e: one GPU is listed twice")
        elif gpu and (match := _LINK.match(bare)):
            counters, rates = links.setdefault(f"{gpu} link {match[1]}", ({}, {}))
            name = match[2] + (f" {match[3]}" if match[3] else "")
            if match[4] in NOT_THERE:
                continue  # a counter that this GPU does not have
            if name in counters or name in rates:
                raise Unreadable("nvidia-smi nvlink -e: one counter is listed twice")
            if match[2].endswith(_RATE):
                rates[name] = parse_number(match[4], name)
            else:
                counters[name] = parse_whole(match[4], name)
        elif not (gpu and _DOWN.match(bare)):
            raise Unreadable(f"nvidia-smi nvlink -e: cannot read {bare[:60]!r}")
    return links


def _parse_dcgmi(text: str) -> dict[str, Link]:
    """Parse `dcgmi nvlink -e -j -g N`: one document per GPU."""
    links: dict[str, Link] = {}
    for _, document in parse_documents(text, "dcgmi nvlink"):
        whole_one = require_object(document, "dcgmi nvlink")
        heads = [str(h) for h in require_list(whole_one.get("header"), "header")]
        gpu = next((h for h in heads if re.fullmatch(r"GPU \d{1,3}", h)), None)
        if gpu is None:
            raise Unreadable("dcgmi nvlink: it does not report which GPU")
        for link, facts in require_object(whole_one.get("body"), "body").items():
            children = require_object(require_object(facts, link).get("children"), "children")
            part = f"{gpu} link {link.removeprefix('Link ')}"
            if part in links:
                raise Unreadable(f"dcgmi nvlink: {part[:40]} is listed twice")
            links[part] = (
                {
                    name: parse_whole(str(require_object(value, name).get("value")), name)
                    for name, value in children.items()
                    if require_object(value, name).get("value") not in NOT_THERE
                },
                {},
            )
    return links


CHECK = Check(
    "nvlink_errors",
    Gate.A,
    (NVLINK_ERRORS,),
    _findings,
    after_load=True,
    thresholds=("nvlink_errors", "nvlink_effective_ber"),
)
