"""The password of the sushy-tools emulator that `conftest.py` starts."""

PASSWORD = "tested with sushy"
