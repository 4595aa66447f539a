"""Any other service: only the behaviour that DSP0266 requires, with cautious limits."""

from __future__ import annotations

from provisioner.quirks.quirk import Quirk

QUIRK = Quirk(name="unknown", title="unknown vendor", force="none")
