"""Patterns over event streams: pattern.py describes, compile.py makes an automaton of it, automaton.py and kernel.py run it."""
