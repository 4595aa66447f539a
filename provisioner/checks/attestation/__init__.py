"""Verifiers of signed evidence: SPDM measurements, reference manifests, TPM quotes. Pure.

Law: bytes, pinned keys and the time come in, verdicts go out; no network, no clock, no file. Every
byte is hostile: lengths are bounded before they are used, and nothing is taken from evidence whose
signature does not chain to a pinned key.
"""
