"""Route of air-gap bundles: the site's key signs the list of a bundle's files.

The files themselves stay on the machine that packs them (`provisioner bundle create`).
"""

from __future__ import annotations

import json

from provisioner.api.changes import Outcome
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal
from provisioner.api.route import OPERATORS, Effect, Route
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.agent import MANIFEST_PAYLOAD, BundleManifest


async def seal_bundle(ask: Ask) -> Reply:
    """Ask for the signature of a bundle's list."""
    if ask.parts.signer is None:
        detail = "This process has no signing key"
        raise build_refusal(409, "vault", detail, "Ask the daemon of the site.")
    manifest = ask.body.model_dump(mode="json")
    kind = ChangeKind.BUNDLE_SEAL
    return await ask.parts.works.submit_change(ask, kind, ask.body.site, "", manifest)


async def seal_manifest(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Sign the list."""
    assert parts.signer is not None
    manifest = BundleManifest.model_validate_json(json.dumps(dict(asked.arguments)))
    sealed = parts.signer.seal(MANIFEST_PAYLOAD, manifest.model_dump_json().encode())
    result = {"envelope": json.loads(sealed), "files": len(manifest.files)}
    return Outcome(RequestState.DONE, result)


ROUTES = (
    Route(
        "POST",
        "/bundles/seal",
        "seal_bundle",
        "site",
        "Sign the list of a bundle's files with the site's key.",
        OPERATORS,
        seal_bundle,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        body=BundleManifest,
        refusals={409: "The process has no signing key."},
        example={
            "site": "lab",
            "made_at": "2027-01-15T08:00:00Z",
            "files": [{"path": "artifacts/nic.bin", "size": 8, "sha256": "0" * 64}],
        },
        site=True,
    ),
)
