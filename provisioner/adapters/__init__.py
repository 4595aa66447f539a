"""The outside world behind our ports: devices, files, mail, other systems.

Adapters are independent of one another; an import contract holds them apart.
"""
