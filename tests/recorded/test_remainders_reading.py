"""Accounts and subscriptions as the handed-over trees of real BMCs show them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from tree_transport import ADDRESS, TreeTransport, tree_of

from provisioner import quirks
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.upkeep.bmc_time import fingerprint_key, read_remainders

sys.path.append(str(Path(__file__).parents[1] / "real"))
from static_tree import recorded_tree

# who may log in, beside the account that a site uses: read from the trees
ENABLED = {
    "dell": {"root", "tests_admin"},  # of sixteen slots
    "nvidia_viking": {"admin", "S6AmJsX9uejbhS2r", "tests_admin"},  # the second: the host interface
    "nvidia_dpu": {"root", "NvBluefieldUefi0", "NvBluefieldUefi1"},
}


@pytest.mark.parametrize("name", ENABLED)
def test_who_may_log_in_is_read_from_a_real_tree(name: str, tmp_path: Path) -> None:
    tree = tree_of(recorded_tree(name, tmp_path))
    quirk = quirks.identify(json.loads(tree["/redfish/v1"]))

    reading = asyncio.run(read_remainders(Service(TreeTransport(tree), ADDRESS, quirk)))

    assert reading.accounts is not None
    assert {a.name for a in reading.accounts} == ENABLED[name]
    assert reading.destinations == ()  # Dell's one is a stream that was open
    assert reading.waiting == {}


def test_ssh_keys_of_accounts_are_read_as_ssh_keygen_names_them() -> None:
    """source: DMTF ManagerAccount 1.9 and Key 1.0; no recorded tree shows keys.

    The key and its fingerprint are those that github.com publishes for its hosts.
    """
    line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl mal"
    root = "/redfish/v1"
    accounts = f"{root}/AccountService/Accounts"
    tree = {
        root: {"AccountService": {"@odata.id": f"{root}/AccountService"}},
        f"{root}/AccountService": {"Accounts": {"@odata.id": accounts}},
        accounts: {"Members": [{"@odata.id": f"{accounts}/1"}, {"@odata.id": f"{accounts}/2"}]},
        f"{accounts}/1": {"UserName": "root", "Keys": {"@odata.id": f"{accounts}/1/Keys"}},
        f"{accounts}/2": {"UserName": "bare"},
        f"{accounts}/1/Keys": {"Members": [{"@odata.id": f"{accounts}/1/Keys/1"}]},
        f"{accounts}/1/Keys/1": {"KeyType": "SSH", "KeyString": line},
    }
    texts = {path: json.dumps({"@odata.id": path, **body}) for path, body in tree.items()}
    service = Service(TreeTransport(texts), ADDRESS, quirks.ALL["unknown"])

    reading = asyncio.run(read_remainders(service))

    assert reading.accounts is not None
    assert {a.name: a.keys for a in reading.accounts} == {
        "root": ("SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU",),
        "bare": None,
    }


@pytest.mark.parametrize("line", [None, 7, "", "ssh-rsa", "ssh-rsa AAAA", "\ud800"])
def test_a_key_that_is_no_key_is_named_too(line: object) -> None:
    assert fingerprint_key(line).startswith(("unreadable ", "a key that is not shown"))
