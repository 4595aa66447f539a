"""A MAAS: its machines are read by GET alone, with an API key of a user.

Its lists have no pages, so that machines are asked for by availability zone. BMC addresses are not
read: `op=power_parameters`, which has them, gives the BMCs' passwords as well.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from provisioner.integrations.inventories.deciding.belief import Belief
from provisioner.integrations.inventories.deciding.maas_machines import (
    TenantField,
    ZoneMeaning,
    list_machines,
    list_zones,
    read_machine,
)
from provisioner.integrations.inventories.record_service import RecordService
from provisioner.model.input_error import InputError
from provisioner.ports import Secret
from provisioner.ports.errors import Malformed

ANSWER_MAX = 256 * 2**20  # bytes: a zone's machines with all their disks and interfaces
ROOT = "/MAAS"
API = "/api/2.0"


class Maas:
    """One MAAS. Methods raise `PortError`."""

    def __init__(self, url: str, key: Secret, ca_file: str | None = None) -> None:
        """`key`: "consumer:token:secret", as `maas apikey` and the user's page print it."""
        self._parts = key.reveal().split(":")
        if len(self._parts) != 3 or not all(p.isalnum() for p in self._parts):
            problem = "it has no API key: three words with colons between"
            remedy = "Copy the key as the page of your MAAS user shows it."
            raise InputError("--key-file", "", problem, remedy)
        root = url.rstrip("/").removesuffix(API)
        if not urlsplit(root).path:
            root += ROOT
        self._service = RecordService(
            "MAAS",
            root,
            login="--key-file",
            ca_file=ca_file,
            answer_max=ANSWER_MAX,
            sign=self._sign,
        )

    def read(self, tenant: TenantField, zone: ZoneMeaning) -> tuple[Belief, ...]:
        """Return the record of every machine that the key's user may see."""
        try:
            machines = {
                str(machine["system_id"]): machine
                for name in list_zones(self._service.get(f"{API}/zones/"))
                for machine in list_machines(
                    self._service.get(f"{API}/machines/?zone={quote(name, safe='')}")
                )
            }
        except ValueError as error:
            raise Malformed(f"MAAS: {error}") from None
        return tuple(read_machine(m, tenant, zone) for _, m in sorted(machines.items()))

    def _sign(self) -> Mapping[str, str]:
        """Return the header of one request: OAuth 1.0 with the method PLAINTEXT (RFC 5849, 3.4.4).

        MAAS has no consumer secret: the signature is "&" and the token's secret, percent-encoded.
        """
        consumer, token, secret = self._parts
        fields = {
            "oauth_version": "1.0",
            "oauth_signature_method": "PLAINTEXT",
            "oauth_consumer_key": consumer,
            "oauth_token": token,
            "oauth_signature": f"&{secret}",
            "oauth_nonce": secrets.token_hex(16),
            "oauth_timestamp": str(int(time.time())),
        }
        pairs = ", ".join(f'{name}="{quote(value, safe="")}"' for name, value in fields.items())
        return {"Authorization": f"OAuth {pairs}"}
