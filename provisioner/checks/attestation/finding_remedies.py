"""The step that would settle each finding about signed evidence, for the person who reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from provisioner.model.attestation import Effect, Finding, FindingName

_ANEW = "Give with --nonce the one that was sent; if none was, collect the report with one."
_ISOLATE = "Take the device out of use and look at its firmware; it did not start the golden one."
_RIM = "Fetch the manifest anew from the maker, and compare its SHA-256 with the matrix."
_CHAIN = "Give the whole chain that came with this report."
_LOGS = "Collect quote and event log of one boot again; if it stays, look at what the board boots."
_MAKERS = "docs/agent.md names the step for each finding about an endorsement key."

REMEDIES: Mapping[FindingName, str] = {
    FindingName.NONCE: _ANEW,
    FindingName.REPLAYED: _ANEW + " If it stays, a program between you and the device answers.",
    FindingName.SIGNATURE: "Give the report as it was collected, with the chain that came with it.",
    FindingName.MALFORMED: "Give the file as it was collected: binary, hex, base64 or JSON.",
    FindingName.TRAILING_BYTES: "Give one report in each file, as it was collected.",
    FindingName.UNSIGNED: "Ask for signed measurements.",
    FindingName.VERSION: "Collect the report with SPDM 1.1 or 1.2; do not edit it.",
    FindingName.CHAIN: _CHAIN,
    FindingName.NOT_VALID: "Give with --at the time at which the report was collected.",
    FindingName.ANCHOR: "Look where the chain came from. A maker that you trust: --anchor.",
    FindingName.ALGORITHM: _CHAIN + " Its keys must be P-384.",
    FindingName.IDENTITY: "Ask each device by itself; if it stays, one answers for another.",
    FindingName.FWID: _CHAIN + " If it stays, the device started other firmware than certified.",
    FindingName.REVOCATION: "Give answers of the maker's responder: --ocsp, or --references.",
    FindingName.REVOCATION_ENDED: "Fetch the OCSP answer anew.",
    FindingName.REVOCATION_UNKNOWN: "Ask the responder that the maker documents for this issuer.",
    FindingName.REVOKED: "Take the device out of use, and ask its maker.",
    FindingName.NOT_THE_PIN: "Bring the device to the pinned version, or correct the pin.",
    FindingName.MEASUREMENT: _ISOLATE,
    FindingName.NVDEC: "Collect the report with a driver that states the decoder's state.",
    FindingName.REFERENCE_MISSING: "Give the manifest of each version that the report states: "
    "--rim; or golden values from a witness (`provisioner attest admit`).",
    FindingName.ATTESTER_MISSING: "Look why the device gives no report: dark, disabled or absent.",
    FindingName.RIM_DIGEST: _RIM,
    FindingName.RIM_SIGNATURE: _RIM,
    FindingName.RIM_ANCHOR: _RIM,
    FindingName.RIM_CHAIN: _RIM,
    FindingName.RIM_EXPIRED: "Give with --admitted the day on which a person admitted it, or fetch "
    "one whose signer is valid.",
    FindingName.RIM_STRUCTURE: "Give a signed swidtag: XML, its base64, or the RIM service's JSON.",
    FindingName.RIM_OTHER: "Give the manifest of this product, board and version.",
    FindingName.RIM_NOT_ADMITTED: _RIM,
    FindingName.LOG: _LOGS,
    FindingName.AK: "Give the SHA-256 of the key that was enrolled for this board: --expect ak=.",
    FindingName.AK_UNBOUND: _MAKERS,
    FindingName.EK_MISSING: _MAKERS,
    FindingName.EK_UNFIT: _MAKERS,
    FindingName.EK_MAKER: _MAKERS,
    FindingName.EK_BOARD: _MAKERS,
    FindingName.EK_REVOKED: _MAKERS,
    FindingName.EK_LIST_ENDED: _MAKERS,
    FindingName.EK_LIST_UNFIT: _MAKERS,
    FindingName.RESET: "Find out who reset the board; then give the counter that you expect.",
    FindingName.CONTRADICTION: _LOGS,
}
# findings that are only ever noted
NOTED = frozenset(
    {
        FindingName.FWID_NOT_STATED,
        FindingName.ADDED_ANCHOR,
        FindingName.NVDEC_SKIPPED,
        FindingName.RIM_EXPIRED_SINCE,
        FindingName.RESET_UNCOUNTED,
    }
)


def list_remedies(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return the steps that would settle the findings of one component, each once."""
    steps = (REMEDIES.get(f.name) for f in findings if f.effect is not Effect.NOTES)
    return tuple(dict.fromkeys(step for step in steps if step))
