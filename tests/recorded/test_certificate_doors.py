"""Where BMCs take requests for certificates: on HPE's documented resources, and recorded trees.

The iLO's resources and actions are those of HPE's reference of iLO 5 (HpeHttpsCert 2.0.0).
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from scripted_bmc import V1, Bmc, go_on, reply, run
from tree_transport import ADDRESS, TreeTransport, tree_of

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.upkeep.certificates import (
    CertificateDoor,
    find_door,
    install_certificate,
    make_request,
    read_request,
)
from provisioner.model.outcome import Blocker, Reason

SUBJECT = {"C": "DE", "ST": "Hessen", "L": "Frankfurt", "O": "Example", "OU": "Compute"}
CSR = "-----BEGIN CERTIFICATE REQUEST-----\nMIIB\n-----END CERTIFICATE REQUEST-----\n"
HTTPS = f"{V1}/Managers/1/SecurityService/HttpsCert"


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def ilo(csr: str | None = None) -> dict[str, Any]:
    names = ("GenerateCSR", "ImportCertificate")
    actions = {f"#HpeHttpsCert.{n}": {"target": f"{HTTPS}/Actions/HpeHttpsCert.{n}"} for n in names}
    security = f"{V1}/Managers/1/SecurityService"
    return {
        V1: {
            "Vendor": "HPE",
            "Systems": link(f"{V1}/Systems"),
            "Managers": link(f"{V1}/Managers"),
        },
        f"{V1}/Systems": {"Members": [link(f"{V1}/Systems/1")]},
        f"{V1}/Systems/1": {"@odata.type": "#ComputerSystem.v1_13_0.ComputerSystem", "Id": "1"},
        f"{V1}/Managers": {"Members": [link(f"{V1}/Managers/1")]},
        f"{V1}/Managers/1": {
            "@odata.type": "#Manager.v1_5_1.Manager",
            "Id": "1",
            "Oem": {"Hpe": {"Links": {"SecurityService": link(security)}}},
        },
        security: {"Id": "SecurityService", "Links": {"HttpsCert": link(HTTPS)}},
        HTTPS: {"Id": "HttpsCert", "CertificateSigningRequest": csr, "Actions": actions},
    }


def client_of(bmc: Any, root: dict[str, Any]) -> Redfish:
    return Redfish(bmc, ADDRESS, quirks.identify(root), go_on)


@pytest.mark.parametrize("before", [None, CSR.replace("MIIB", "MIIA")])
def test_an_ilo_shows_its_request_some_time_after_it_was_asked(before: str | None) -> None:
    tree = ilo(before)
    reads = 0

    def show(_call: Any) -> Any:
        nonlocal reads
        reads += 1
        shown = CSR if reads > 4 else before
        return reply(200, {**tree[HTTPS], "CertificateSigningRequest": shown})

    generate = f"{HTTPS}/Actions/HpeHttpsCert.GenerateCSR"
    bring = f"{HTTPS}/Actions/HpeHttpsCert.ImportCertificate"
    answers = {
        f"GET {HTTPS}": show,
        f"POST {generate}": reply(200, {}),
        f"POST {bring}": reply(200, {}),
    }
    bmc = Bmc(tree, answers)
    service = client_of(bmc, tree[V1]).service
    door = run(find_door(service))
    assert isinstance(door, CertificateDoor)
    assert run(make_request(service, door, "ilo.example", SUBJECT)) == CSR
    assert not isinstance(run(install_certificate(service, door, "PEM")), Blocker)
    asked, brought = bmc.sent
    assert asked.body == {
        "CommonName": "ilo.example",
        "Country": "DE",
        "State": "Hessen",
        "City": "Frankfurt",
        "OrgName": "Example",
        "OrgUnit": "Compute",
    }
    assert (brought.path, brought.body) == (bring, {"Certificate": "PEM"})


def test_an_ilo_that_shows_no_new_request_is_named() -> None:
    tree = ilo(CSR)  # an older one: its key was replaced by the action
    answers = {f"POST {HTTPS}/Actions/HpeHttpsCert.GenerateCSR": reply(200, {})}
    service = client_of(Bmc(tree, answers), tree[V1]).service
    door = run(find_door(service))
    problem = run(make_request(service, door, "ilo.example", SUBJECT))
    assert isinstance(problem, Blocker)
    assert problem.reason is Reason.REFUSED


@pytest.mark.parametrize("text", [None, 7, "", "MIIB", CSR + "\u00e4", "x" * 20_000 + CSR])
def test_what_is_no_request_is_none(text: Any) -> None:
    assert read_request(text) == ""


def test_a_request_between_other_text_is_read() -> None:
    assert read_request(f"Request:\n{CSR}\n\n") == CSR


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("dell", "iDRAC.Embedded.1/NetworkProtocol/HTTPS/Certificates/SecurityCertificate.2"),
        ("nvidia_viking", "BMC/NetworkProtocol/HTTPS/Certificates/1"),
        ("nvidia_dpu", "Bluefield_BMC/NetworkProtocol/HTTPS/Certificates/1"),
    ],
)
def test_recorded_trees_show_their_door(name: str, member: str, tmp_path: Path) -> None:
    archive = Path(os.environ.get("PROVISIONER_MOCKUPS", "")) / f"{name}.tar.gz"
    if not archive.is_file():
        pytest.skip(f"no recorded tree {name}: set PROVISIONER_MOCKUPS to a folder that has it")
    with tarfile.open(archive) as tar:
        parts = ("CertificateService", "Managers", "Systems")
        tar.extractall(
            tmp_path,
            [
                one
                for one in tar.getmembers()
                if one.name.endswith("redfish/v1/index.json")
                or any(f"redfish/v1/{part}/" in one.name for part in parts)
            ],
        )
    folder = next(p.parent for p in tmp_path.rglob("redfish") if p.is_dir())
    tree = tree_of(folder)
    service = client_of(TreeTransport(tree), json.loads(tree[V1])).service
    door = run(find_door(service))
    actions = f"{V1}/CertificateService/Actions/CertificateService"
    assert door == CertificateDoor(
        f"{actions}.GenerateCSR",
        f"{actions}.ReplaceCertificate",
        f"{V1}/Managers/{member.rpartition('/')[0]}",
        f"{V1}/Managers/{member}",
    )
