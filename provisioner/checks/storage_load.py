"""Every NVMe drive reads without errors, and as fast as the drives of its fleet.

The check only reads (`--readonly`), so that it may run where an operating system is deployed. No
source publishes floors by drive model; errors, short reads and silent drives fail without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.tool_output import (
    find_document,
    parse_number,
    read_output,
    require_list,
    require_object,
    require_text,
)
from provisioner.checks.thresholds import check_threshold
from provisioner.model.base import Record
from provisioner.model.cohort import Evidence, Finding, Gate, Severity

# one job per drive: all drives read sequentially, then all together at random
_SEQUENTIAL = (
    "for d in /dev/nvme*n1; do printf -- ' --name=%s-sequential --filename=%s --rw=read --bs=1M"
    " --iodepth=32' ${d##*/} $d; done;"
)
_RANDOM = (
    " w=--wait_for_previous; for d in /dev/nvme*n1; do printf -- ' --name=%s-random --filename=%s"
    " --rw=randread --bs=4k --iodepth=64 %s' ${d##*/} $d $w; w=; done"
)
FIO = Command(
    name="storage",
    line="fio --output-format=json --readonly --direct=1 --ioengine=libaio --time_based"
    f" --ramp_time=5 --runtime=30 $({_SEQUENTIAL}{_RANDOM})",
    limit_s=900.0,
)
JOBS_MAX = 256


class FioJob(Record):
    """One job: the bytes and operations a second that it did."""

    name: str
    reads: bool
    writes: bool
    read_bytes_s: float
    read_iops: float
    write_bytes_s: float
    write_iops: float
    errors: int  # fio's error number, plus operations that were dropped or short


def read_jobs(text: str) -> tuple[FioJob, ...]:
    """Return all jobs of one fio document. Raises `Unreadable`."""
    document = find_document(text, "jobs", subject="fio")
    listed = require_list(document["jobs"], "jobs")
    if not 0 < len(listed) <= JOBS_MAX:
        raise Unreadable(f"fio: {len(listed)} jobs")
    general = document.get("global options", {})
    return tuple(
        _parse_job(require_object(job, "job"), require_object(general, "global options"))
        for job in listed
    )


def _parse_job(job: Mapping[str, Any], general: Mapping[str, Any]) -> FioJob:
    options = require_object(job.get("job options", {}), "job options")
    pattern = str(options.get("rw", general.get("rw", "read")))
    read = require_object(job.get("read"), "read")
    write = require_object(job.get("write", {}), "write")
    bad = sum(
        parse_number(half.get(k, 0), k) for half in (read, write) for k in ("short_ios", "drop_ios")
    )
    return FioJob(
        name=require_text(job.get("jobname"), "jobname")[:64],
        reads="read" in pattern or pattern in ("randrw", "rw"),
        writes="write" in pattern or pattern in ("randrw", "rw"),
        read_bytes_s=parse_number(read.get("bw_bytes"), "bw_bytes"),
        read_iops=parse_number(read.get("iops"), "iops"),
        write_bytes_s=parse_number(write.get("bw_bytes", 0), "bw_bytes"),
        write_iops=parse_number(write.get("iops", 0), "iops"),
        errors=int(parse_number(job.get("error"), "error")) + int(bad),
    )


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    jobs = read_jobs(read_output(evidence, FIO, any_exit=True))
    for job in jobs:
        if job.errors:
            yield fault(
                job.name, Severity.ISOLATE, "errors, or short or dropped I/O", job.errors, 0
            )
        elif (job.reads and job.read_bytes_s <= 0) or (job.writes and job.write_bytes_s <= 0):
            yield fault(job.name, Severity.ISOLATE, "the drive transferred no data")
    code = evidence[FIO.name].exit_code
    if code != 0 and not any(job.errors for job in jobs):
        yield fault("host", Severity.CONFIG, "fio ended with an error", code, 0)
    for key, value in _read_figures(jobs).items():
        threshold, _, part = key.partition("/")
        low = check_threshold(context, threshold, value)
        if low is not None:
            yield fault(part, Severity.ISOLATE, "the drive is below its floor", *low)


def _read_figures(jobs: tuple[FioJob, ...]) -> dict[str, float]:
    """Count reads of small random blocks as operations, and those of large blocks as bytes."""
    figures = {}
    for job in jobs:
        if "rand" in job.name:
            figures[f"storage_read_iops/{job.name}"] = job.read_iops
        else:
            figures[f"storage_read_gb_s/{job.name}"] = job.read_bytes_s / 1e9
    return figures


def _measure(evidence: Mapping[str, Evidence], _context: CheckContext) -> Mapping[str, float]:
    return _read_figures(read_jobs(read_output(evidence, FIO, any_exit=True)))


CHECK = Check(
    "storage_load",
    Gate.D,
    (FIO,),
    _findings,
    load=True,
    measure=_measure,
    thresholds=("storage_read_gb_s", "storage_read_iops"),
)
