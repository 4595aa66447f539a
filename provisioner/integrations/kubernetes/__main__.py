"""`python -m provisioner.integrations.kubernetes`: run the operator until it is stopped."""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> int:
    """Run the operator; return 2 where it cannot begin."""
    try:
        import_module("kopf")
    except ModuleNotFoundError:
        sys.stderr.write("it needs Kopf: pip install 'gpu-provisioner[kubernetes]'\n")
        return 2
    code: int = import_module("provisioner.integrations.kubernetes.serving").main()
    return code


if __name__ == "__main__":
    sys.exit(main())
