"""Verbs that run something: the daemon, the demonstration, the simulator, the doctor, intake."""
