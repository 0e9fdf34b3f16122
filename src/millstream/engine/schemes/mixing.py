"""Schemes that mix runtimes with stages in Spark: a processor without an address is a stage.

    numgen (runtime)─▶inbox "filter2_in"─▶stage "filter2"─▶journal "filter2_out"─▶printer (runtime)
                              Spark, every message once

What the stages of a scheme are is a flow like any other; its rows are messages, in the column
"value".
"""

from __future__ import annotations

from millstream.actions.scheme import Scheme
from millstream.connectors.inbox import inbox
from millstream.flow.flow import Flow
from millstream.flow.stream import Stream


def stages(scheme: Scheme) -> tuple[str, ...]:
    """Return the nodes that are stages in Spark: processors without addresses."""
    plain = [node.name for node in scheme.nodes if not node.addresses]
    return tuple(name for name in plain if scheme.role(name) == "processor")


def source_of(node: str) -> str:
    """Return the source of a stage that runtimes send to."""
    return f"{node}_in"


def journal_of(node: str) -> str:
    """Return the journal of a stage that is sent to runtimes."""
    return f"{node}_out"


def sending(scheme: Scheme) -> tuple[str, ...]:
    """Return the stages that runtimes get messages of."""
    inside = stages(scheme)
    return tuple(
        name for name in inside if any(one not in inside for one in scheme.downstreams(name))
    )


def flow_of(scheme: Scheme) -> Flow | None:
    """Return the stages of a scheme as a flow; None if it has none.

    Raises:
        FlowError: A node cannot be a stage: of its name, for example.
    """
    inside = stages(scheme)
    if not inside:
        return None
    building = _Building(scheme, inside)
    for name in inside:
        building.stream(name)
    return building.flow


class _Building:
    def __init__(self, scheme: Scheme, inside: tuple[str, ...]) -> None:
        self.flow = Flow(scheme.name)
        self._scheme, self._inside = scheme, inside
        self._known: dict[str, Stream] = {}

    def stream(self, name: str) -> Stream:
        """Return what comes out of a node."""
        if name not in self._known:
            self._known[name] = self._built(name)
        return self._known[name]

    def _built(self, name: str) -> Stream:
        node = self._scheme.node(name)
        made = self._merged(name).action(
            name,
            [node.action, *node.args],
            input="value",
            output="value binary",
            format="raw",
            contract=node.contract,
            env=dict(node.env),
            conn_whitelist=node.conn_whitelist,
            sandbox=node.sandbox,
        )
        return made.journal(journal_of(name)) if name in sending(self._scheme) else made

    def _merged(self, name: str) -> Stream:
        upstreams = self._scheme.upstreams(name)
        inputs = [self.stream(one) for one in upstreams if one in self._inside]
        if any(one not in self._inside for one in upstreams):
            nodes = [f"{self._scheme.name}_{one}" for one in upstreams if one not in self._inside]
            messages = inbox("value binary", runtimes=":0", format="raw", nodes=nodes)
            inputs.append(self.flow.source(source_of(name), messages))
        return inputs[0] if len(inputs) == 1 else self.flow.merge(f"{name}_all", *inputs)
