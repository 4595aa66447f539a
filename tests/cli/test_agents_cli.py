"""`provisioner agents`: the authority that images trust, and the agents that came."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

from cryptography import x509
from program import run

from provisioner.adapters.agent.tls import open_authority
from provisioner.model.agent import AgentSession
from provisioner.model.node import Node, NodeKind
from provisioner.runtime.whole_files import write_private
from provisioner.store.database.data_directory import SealedFile
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.sql_store import open_store


def test_the_authority_is_printed_in_both_forms(tmp_path: Path):
    (tmp_path / "var").mkdir(mode=0o700)
    key = MasterKey.generate()
    write_private(tmp_path / "var" / "master.key", key.text().encode())
    open_authority(tmp_path / "var", SealedFile(tmp_path / "var", key))
    asyncio.run(open_store(tmp_path / "var" / "provisioner.db").close())
    first, again = (run(["agents", "ca", "--data", "var"], tmp_path) for _ in range(2))
    words = ["agents", "ca", "--data", "var", "--kernel", "https://192.0.2.1:6385"]
    kernel = run(words, tmp_path).stdout.split()

    assert first.returncode == 0
    assert first.stdout == again.stdout == (tmp_path / "var" / "agent-ca.pem").read_text()
    assert kernel[0] == "ipa-api-url=https://192.0.2.1:6385"
    der = base64.b64decode(kernel[1].removeprefix("provisioner-ca="))
    assert x509.load_der_x509_certificate(der).subject.rfc4514_string() == "CN=provisioner agents"


def test_agents_are_listed_with_what_they_do(tmp_path: Path):
    async def prepare() -> None:
        store = open_store(tmp_path / "var" / "provisioner.db")
        session = AgentSession(node="", uuid="u", macs=(), expected_at=1.0, until=2.0)
        for name, changes in (
            ("a", {"handed_at": 1.0, "seen_at": 1.7e9, "url": "https://192.0.2.9:9999"}),
            ("b", {"dismissed": True}),
            ("c", {}),
            ("d", {"until": 9e12}),
            ("e", {"until": 9e12, "handed_at": 1.0, "peer": "192.0.2.8"}),
            ("f", {"until": 9e12, "handed_at": 1.0}),  # its token is in its image
        ):
            await store.nodes.add(Node(id=name, kind=NodeKind.HOST))
            await store.agents.put_session(session.model_copy(update={"node": name, **changes}))
        await store.close()

    (tmp_path / "var").mkdir(mode=0o700)
    asyncio.run(prepare())
    told = json.loads(run(["agents", "list", "--data", "var", "--json"], tmp_path).stdout)
    table = run(["agents", "list", "--data", "var"], tmp_path).stdout

    assert [(a["node"], a["state"]) for a in told] == [
        ("a", "up"),
        ("b", "dismissed"),
        ("c", "never came"),
        ("d", "expected"),
        ("e", "looked up"),
        ("f", "expected"),
    ]
    assert "https://192.0.2.9:9999" in table
    assert "2023-11-14" in table
