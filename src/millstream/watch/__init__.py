"""Watchers: patterns matched at the network's edge, by devices that keep each other's runs.

runs.py says which of two states of a run wins, matcher.py keeps the runs of a pattern, device.py
puts both behind a change log that peers follow. None of these reads a clock, a socket or a file.
"""
