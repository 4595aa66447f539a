"""Reports of devices with the chains that came in other files. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.checks.attestation.certificate_chains import verify_chain
from provisioner.checks.attestation.device_reports import Evidence
from provisioner.checks.attestation.evidence_containers import Chained, Contents
from provisioner.checks.attestation.spdm_messages import is_signed_by, parse_signed_measurements
from provisioner.model.certificate import Unacceptable


def pair_evidence(contents: Sequence[tuple[str, Contents]]) -> tuple[Evidence, ...]:
    """Return each report with its chain, in the order of the files.

    A report that came without a chain gets the one whose leaf signed it; else the one at the same
    place among the chains, so that a wrong chain is reported and not passed over.
    """
    chains = [c for _, content in contents for c in content.chains]
    alone = sum(len(content.reports) for _, content in contents)
    place = 0
    rows: list[Evidence] = []
    for source, content in contents:
        rows += (_with_source(e, source, n) for n, e in enumerate(content.paired))
        for report in content.reports:
            chain = _choose_chain(report, chains, place, alone)
            rows.append(Evidence(report, chain.certificates, chain.problem, source))
            place += 1
    return tuple(rows)


def _with_source(evidence: Evidence, source: str, number: int) -> Evidence:
    label = f"{source}#{number}"
    return Evidence(evidence.report, evidence.certificates, evidence.problem, label)


def _choose_chain(report: bytes, chains: Sequence[Chained], place: int, reports: int) -> Chained:
    if not chains:
        return Chained(())
    for chain in chains:
        if chain.problem is None and _signed_by(report, chain):
            return chain
    return chains[place] if len(chains) == reports else chains[0]


def _signed_by(report: bytes, chain: Chained) -> bool:
    try:
        key = verify_chain(chain.certificates, (), 0.0).key
        return key is not None and is_signed_by(parse_signed_measurements(report), key)
    except Unacceptable:
        return False
