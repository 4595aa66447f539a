"""Any other service: what DSP0266 promises, asked for carefully, and nothing beyond it."""

from __future__ import annotations

from provisioner.quirks.quirk import Quirk

QUIRK = Quirk(name="unknown", title="unknown vendor", force="none")
