"""A case as text for people."""

from provisioner.cli.client.campaign_views import count_evidence, list_case_lines
from provisioner.model.case import Case, Origin, Service, Stage


def test_evidence_is_counted_by_kind_and_the_way_to_it_is_named() -> None:
    evidence = {"check ecc": "0" * 64, "check nvlink": "1" * 64, "inventory": "2" * 64}
    case = Case(
        id="n1-c0001",
        node="n1",
        origin=Origin.TENANT,
        service=Service.DRAIN,
        stage=Stage.HARDWARE,
        opened_at=1.0,
        reason="jobs lose a GPU",
        evidence=evidence,
    )

    assert count_evidence(evidence) == "2 check, 1 inventory"
    lines = list(list_case_lines(case))
    assert "evidence: 2 check, 1 inventory; `provisioner case bundle n1-c0001`" in lines
    assert not any("000000" in line for line in lines)  # digests are in -o json
