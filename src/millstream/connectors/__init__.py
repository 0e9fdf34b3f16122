"""Connectors: a file or folder for every system that events come from or results go to.

`<system>/__init__.py` describes a source or sink of the system, without Spark and without reading
anything: a frozen dataclass, the function that users call, its YAML, and the `connector` that an
entry point of the group "millstream.connectors" names. `origin.py` brings a source's rows into its
journal, `target.py` writes a sink's results; both are loaded when a flow runs.

docs/contributing/adding_a_connector.md adds one, step by step.
"""
