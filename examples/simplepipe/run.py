"""Run the simplepipe: a scheme of runtimes, each a process of its own, without Spark.

    python examples/simplepipe/run.py            until both printers have all numbers
    python examples/simplepipe/run.py --kill     the same, while runtimes are killed one after the other

A runtime that is killed is started again with its queue; some lose their machine, queue and all,
and are replaced at their spare address by a later generation, of which their upstreams are told.
"""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from millstream.actions import supervision, wire
from millstream.actions.scheme import Scheme, load

HERE = Path(__file__).resolve().parent


def runtime_arguments(
    scheme: Scheme,
    name: str,
    *,
    folder: Path,
    addresses: dict[str, str] | None = None,
    generation: int = 1,
) -> list[str]:
    """Return the arguments of `millstream runtime` for a node.

    Args:
        scheme: The scheme.
        name: The node.
        folder: Where runtimes keep their queues and service sockets.
        addresses: Where nodes are that are not at their first address: spares.
        generation: Which life of the node this is.
    """
    node, places = (
        scheme.node(name),
        {one.name: one.addresses[0] for one in scheme.nodes if one.addresses},
    )
    places |= addresses or {}
    whole = f"{scheme.name}_{name}"
    arguments = ["--action", node.action, "--name", whole, "--contract", node.contract]
    # A queue belongs to a place: a spare has a disk of its own.
    place = places.get(name, "here").replace(":", "-")
    arguments += ["--queue", str(folder / whole / place), "--generation", str(generation)]
    arguments += ["--service-sock", str(folder / f"{whole}.sock")]
    if scheme.upstreams(name):
        arguments += ["--in", places[name]]
    for target in scheme.downstreams(name):
        arguments += ["--out", places[target]]
    for key, value in node.env:
        arguments += ["--env", f"{key}={value}"]
    if node.conn_whitelist == ():
        arguments.append("--no-network")
    for address in node.conn_whitelist or ():
        arguments += ["--conn-whitelist", address]
    return [*arguments, "--", *node.args] if node.args else arguments


class Pipe:
    """The runtimes of a scheme, as processes."""

    def __init__(self, scheme: Scheme, folder: Path, cwd: Path) -> None:
        self.scheme = scheme
        self.folder = folder
        self.cwd = cwd
        self.addresses: dict[str, str] = {}
        self.generations = dict.fromkeys((node.name for node in scheme.nodes), 1)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, *names: str) -> None:
        for name in names or self.generations:
            arguments = runtime_arguments(
                self.scheme,
                name,
                folder=self.folder,
                addresses=self.addresses,
                generation=self.generations[name],
            )
            command = [sys.executable, "-m", "millstream", "runtime", *arguments]
            with (self.folder / f"{name}.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(command, cwd=self.cwd, stderr=log)

    def kill(self, *names: str) -> None:
        for name in names or self.generations:
            self.processes[name].kill()
            self.processes[name].wait()

    def move(self, name: str) -> None:
        """Replace a node whose machine is lost: at its next address, by its next generation."""
        self.kill(name)
        node, old = (
            self.scheme.node(name),
            self.addresses.get(name) or self.scheme.node(name).addresses[0],
        )
        new = node.addresses[(node.addresses.index(old) + 1) % len(node.addresses)]
        self.generations[name] += 1
        self.addresses[name] = new
        self.start(name)
        for upstream in self.scheme.upstreams(name):
            self.tell(upstream, wire.change_out(old, new))

    def tell(
        self, name: str, command: bytes, seconds: float = 20.0, patience: float = 5.0
    ) -> bytes:
        """Give a runtime a command; return its answer."""
        until = time.monotonic() + seconds
        while True:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(patience)
                try:
                    sock.connect(str(self.folder / f"{self.scheme.name}_{name}.sock"))
                    sock.sendall(command)
                    return sock.recv(16)
                except OSError:
                    if time.monotonic() > until:
                        raise
            time.sleep(0.1)

    def close(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(20)


class Supervisor:
    """Keeps the runtimes of a pipe running, by the rules of millstream.actions.supervision."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        #: Nodes whose machine cannot be reached: they cannot be stopped either.
        self.cut_off: dict[str, subprocess.Popen[bytes]] = {}
        self.state, orders = supervision.begin(pipe.scheme, time.monotonic())
        self.obey(orders)

    def step(self) -> None:
        """Look after everybody once."""
        for name, process in list(self.pipe.processes.items()):
            if process.poll() is not None:
                generation = self.state.lives[name].generation
                self.state, orders = supervision.exited(
                    self.state, name, generation, time.monotonic()
                )
                self.obey(orders)
        self.state, orders = supervision.ticked(self.state, time.monotonic())
        self.obey(orders)

    def obey(self, orders: list[supervision.Order]) -> None:
        for order in orders:
            match order:
                case supervision.Start(node, address, generation, _):
                    self.pipe.generations[node], self.pipe.addresses[node] = generation, address
                    self.pipe.start(node)
                case supervision.Stop(node, _):
                    if node not in self.cut_off:
                        self.pipe.kill(node)
                case supervision.AskPing(node):
                    if self._answers(node, wire.ping()):
                        self.state = supervision.answered(
                            self.state, node, self.state.lives[node].generation
                        )
                case supervision.TellChange(node, old, new):
                    if self._answers(node, wire.change_out(old, new)):
                        self.state = supervision.changed(self.state, node, old, new)

    def _answers(self, node: str, command: bytes) -> bool:
        try:
            return bool(self.pipe.tell(node, command, seconds=0.0, patience=0.5))
        except OSError:
            return False


def first_arrivals(file: Path) -> list[int]:
    """Return the numbers in a printer's file, each where it came first."""
    text = file.read_text() if file.exists() else ""
    return list(dict.fromkeys(int(line) for line in text.split("\n")[:-1]))


def build() -> None:
    subprocess.run(["go", "build", "-o", "filter", "."], cwd=HERE / "filter", check=True)


def main() -> None:
    build()
    scheme = load(HERE / "scheme.yaml")
    count = int(scheme.node("numgen").args[0])
    for folder in ("out", ".millstream"):
        shutil.rmtree(HERE / folder, ignore_errors=True)
    pipe = Pipe(scheme, HERE / ".millstream", HERE)
    pipe.start()
    chance, killed = random.Random(), 0
    try:
        while len(first_arrivals(HERE / "out" / "printer6")) < count // 6:
            time.sleep(1)
            if "--kill" in sys.argv and killed < 8:
                name, killed = chance.choice(list(pipe.generations)), killed + 1
                if name.startswith("filter") and chance.random() < 0.5:
                    pipe.move(name)
                else:
                    pipe.kill(name)
                    pipe.start(name)
                print(f"killed {name}, which is generation {pipe.generations[name]} now")
            print(f"printer2 {len(first_arrivals(HERE / 'out' / 'printer2')):,}", end="  ")
            print(f"printer6 {len(first_arrivals(HERE / 'out' / 'printer6')):,}", flush=True)
        assert first_arrivals(HERE / "out" / "printer6") == list(range(6, count + 1, 6))
        assert first_arrivals(HERE / "out" / "printer2") == list(range(2, count + 1, 2))
        print(f"all of {count:,} numbers arrived, in order")
    finally:
        pipe.close()


if __name__ == "__main__":
    main()
