"""Integrations: all of one system outside is in one folder here, and its `__init__` registers it.

The core never imports one of these: it finds them by the entry points in pyproject.toml
(`provisioner/runtime/integrations.py`), as it finds those of other packages. An integration sees
ports, model, settings, runtime, and the few shared clients that the import contract names.
"""
