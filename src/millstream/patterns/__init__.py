"""Patterns over event streams.

A pattern is described in pattern.py. compile.py makes an automaton of it, which automaton.py runs
event by event, and kernel/ over columns.
"""
