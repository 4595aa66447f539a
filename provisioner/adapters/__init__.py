"""The outside world behind our ports: devices, files, mail, other systems. Adapters know nothing of
one another.
"""
