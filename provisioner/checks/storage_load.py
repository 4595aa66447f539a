"""T12: every NVMe drive reads without an error, as fast as its fleet.

Reading only (`--readonly`): the check may run where an operating system is deployed. Floors by
drive model are published by nobody; errors, short reads and silent drives fail without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.json_in_text import document_with
from provisioner.checks.readers.reading import mapping, number, sequence, text_of, word
from provisioner.checks.thresholds import misses
from provisioner.model.base import Record
from provisioner.model.health import Evidence, Finding, Gate, Severity

# one job for each drive: all read one after the other's blocks, then, together again, at random
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


class Job(Record):
    """One job: bytes and operations a second of what it did."""

    name: str
    reads: bool
    writes: bool
    read_bytes_s: float
    read_iops: float
    write_bytes_s: float
    write_iops: float
    errors: int  # fio's error number, and operations that were dropped or short


def jobs_of(text: str) -> tuple[Job, ...]:
    """All jobs of one fio document. Raises `Unreadable`."""
    document = document_with(text, "jobs", what="fio")
    listed = sequence(document["jobs"], "jobs")
    if not 0 < len(listed) <= JOBS_MAX:
        raise Unreadable(f"fio: {len(listed)} jobs")
    general = document.get("global options", {})
    return tuple(_job(mapping(job, "job"), mapping(general, "global options")) for job in listed)


def _job(job: Mapping[str, Any], general: Mapping[str, Any]) -> Job:
    options = mapping(job.get("job options", {}), "job options")
    pattern = str(options.get("rw", general.get("rw", "read")))
    read, write = mapping(job.get("read"), "read"), mapping(job.get("write", {}), "write")
    bad = sum(
        number(half.get(k, 0), k) for half in (read, write) for k in ("short_ios", "drop_ios")
    )
    return Job(
        name=word(job.get("jobname"), "jobname")[:64],
        reads="read" in pattern or pattern in ("randrw", "rw"),
        writes="write" in pattern or pattern in ("randrw", "rw"),
        read_bytes_s=number(read.get("bw_bytes"), "bw_bytes"),
        read_iops=number(read.get("iops"), "iops"),
        write_bytes_s=number(write.get("bw_bytes", 0), "bw_bytes"),
        write_iops=number(write.get("iops", 0), "iops"),
        errors=int(number(job.get("error"), "error")) + int(bad),
    )


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    jobs = jobs_of(text_of(evidence, FIO, any_exit=True))
    for job in jobs:
        if job.errors:
            yield fault(
                job.name, Severity.ISOLATE, "errors, or short or dropped I/O", job.errors, 0
            )
        elif (job.reads and job.read_bytes_s <= 0) or (job.writes and job.write_bytes_s <= 0):
            yield fault(job.name, Severity.ISOLATE, "the drive did nothing")
    code = evidence[FIO.name].exit_code
    if code != 0 and not any(job.errors for job in jobs):
        yield fault("host", Severity.CONFIG, "fio ended with an error", code, 0)
    for key, value in _figures(jobs).items():
        threshold, _, part = key.partition("/")
        low = misses(context, threshold, value)
        if low is not None:
            yield fault(part, Severity.ISOLATE, "the drive is below its floor", *low)


def _figures(jobs: tuple[Job, ...]) -> dict[str, float]:
    """Reads of small random blocks count as operations, of large ones as bytes."""
    found = {}
    for job in jobs:
        if "rand" in job.name:
            found[f"storage_read_iops/{job.name}"] = job.read_iops
        else:
            found[f"storage_read_gb_s/{job.name}"] = job.read_bytes_s / 1e9
    return found


def _measure(evidence: Mapping[str, Evidence], _context: CheckContext) -> Mapping[str, float]:
    return _figures(jobs_of(text_of(evidence, FIO, any_exit=True)))


CHECK = Check(
    "storage_load",
    Gate.D,
    (FIO,),
    _findings,
    load=True,
    measure=_measure,
    thresholds=("storage_read_gb_s", "storage_read_iops"),
)
