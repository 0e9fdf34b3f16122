"""Replacing the running version: what `switch/machine.py` decides, carried out on queries."""
