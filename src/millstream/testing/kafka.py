"""A Kafka broker of your own, from Maven Central's jars: for trying and for tests.

    with broker(Path("/tmp/kafka")) as kafka:
        print(kafka.servers)                       # "127.0.0.1:41873"

`python -m millstream.testing.kafka [FOLDER] [--port 9092]` runs one until you press Ctrl-C. It is one
process that is broker and controller; its topics are in the folder, and are there again when it is
started again, also after `kill`. Without a port, a folder that has been used keeps its own.
"""

from __future__ import annotations

import argparse
import base64
import re
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from millstream.errors import RunError
from millstream.testing.jars import jars, java

VERSION: Final = "4.3.1"
#: The versions that are tested, with the digests of their jars.
VERSIONS: Final = {
    VERSION: "44703493f36fdd469de11f9582253b50704cb5332df129e4d05466fe817483f9",
    "3.9.1": "dfa43f0751f1d34a5c29e40c7e9321ec99bccaa61b1d30f1a98e1dfd5f1b37a4",
}
_LOGGER: Final = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"
_STARTS_WITHIN_S: Final = 60.0
#: Of a broker that is alone: no other has copies, and groups begin at once.
_ALONE: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "3",
    "auto.create.topics.enable": "false",
    # After a kill it is let in again once its session from before is over, 9 s by default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
_LOGGING: Final = """status = warn
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


def new_cluster_id() -> str:
    """Return an id as Kafka's own tool makes them: 16 bytes in base64 that begin with no dash."""
    return base64.urlsafe_b64encode(b"M" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


@dataclass
class Broker:
    """A broker whose process can be killed, paused and started again."""

    folder: Path
    port: int
    #: Of server.properties, beside or in place of ours.
    properties: Mapping[str, str] = field(default_factory=dict)
    #: The id of its cluster, which brokers that belong together share.
    cluster: str = field(default_factory=new_cluster_id)
    version: str = VERSION
    process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        """The address for clients, `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and return once it answers.

        Raises:
            RunError: It ends, or does not answer, or its version is not one of `VERSIONS`.
        """
        lib = kafka_jars(self.version)
        run = [java(), "-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        run += [
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
            "-cp",
            f"{lib}/*",
        ]
        settings = self.folder / "server.properties"
        if settings.exists():
            self._move(settings)
        else:
            self._describe(settings)
            made = ["kafka.tools.StorageTool", "format", "-t", self.cluster, "-c", str(settings)]
            self._checked(subprocess.run([*run, *made], capture_output=True, check=False))
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*run, "kafka.Kafka", str(settings)], stdout=log, stderr=log
            )
        until = time.monotonic() + _STARTS_WITHIN_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > until:
                raise RunError(f"the broker in {self.folder} does not start", hint=self._tail())
            time.sleep(0.05)

    def stop(self) -> None:
        """End it as an operator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let it stand still: connections stay, and nothing is answered."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(how)
        self.process.wait(60)

    def _describe(self, settings: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j2.properties").write_text(_LOGGING)
        controller = free_port()
        here = {
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
        }
        lines = (
            f"{name}={value}\n" for name, value in {**_ALONE, **here, **self.properties}.items()
        )
        settings.write_text("".join(lines))

    def _move(self, settings: Path) -> None:
        """Let it listen on our port, if that is another than the last time."""
        text, before = settings.read_text(), port_of(self.folder)
        if before not in (None, self.port):
            old, new = (f"PLAINTEXT://127.0.0.1:{one}" for one in (before, self.port))
            settings.write_text(re.sub(rf"\b{re.escape(old)}\b", new, text))

    def _checked(self, done: subprocess.CompletedProcess[bytes]) -> None:
        if done.returncode:
            (self.folder / "server.properties").unlink()
            said = (done.stdout + done.stderr).decode(errors="replace").strip()
            raise RunError("the broker's folder cannot be made", hint=said[-500:])

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _tail(self) -> str:
        log = self.folder / "log"
        return log.read_text(errors="replace")[-800:].strip() or f"see {log}"


def kafka_jars(version: str) -> Path:
    """Return the folder of a version's jars."""
    if version not in VERSIONS:
        msg = f"Kafka {version} is not a version that is known here"
        raise RunError(msg, hint=f"one of {', '.join(VERSIONS)}")
    named = (f"org.apache.kafka:kafka_2.13:{version}", _LOGGER)
    return jars(f"kafka-{version}", named, digest=VERSIONS[version])


def port_of(folder: Path) -> int | None:
    """Return the port that the broker of a folder listens on; None if there was never one."""
    settings = folder / "server.properties"
    listens = r"^advertised\.listeners=PLAINTEXT://127\.0\.0\.1:(\d+)"
    found = settings.exists() and re.search(listens, settings.read_text(), re.MULTILINE)
    return int(found[1]) if found else None


def free_port() -> int:
    """Return a port of this host that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@contextmanager
def broker(
    folder: Path,
    *,
    port: int | None = None,
    properties: Mapping[str, str] | None = None,
    version: str = VERSION,
) -> Iterator[Broker]:
    """Run a broker for as long as it is needed, with its topics in a folder.

    Args:
        folder: Where its topics are; they are there again the next time.
        port: Where it listens; the port of the last time, or a free one, if it is left out.
        properties: Settings of server.properties, used when the folder is new.
        version: One of `VERSIONS`.
    """
    found = Broker(
        folder, port or port_of(folder) or free_port(), properties or {}, version=version
    )
    try:
        found.start()
        yield found
    finally:
        if found.process is not None and found.process.poll() is None:
            found.stop()


def main() -> None:
    """Run a broker until it is interrupted."""
    parser = argparse.ArgumentParser(prog="python -m millstream.testing.kafka")
    parser.add_argument("folder", nargs="?", default=".millstream/kafka", type=Path)
    parser.add_argument("--port", default=9092, type=int)
    given = parser.parse_args()
    print("kafka: starting (the first time, 46 jars are fetched)")  # noqa: T201
    # As brokers are by default: who tries a flow has not made its topics.
    made = {"auto.create.topics.enable": "true"}
    with broker(given.folder.absolute(), port=given.port, properties=made) as running:
        print(f"kafka: {running.servers}, its topics are in {given.folder}; Ctrl-C ends it")  # noqa: T201
        try:
            assert running.process is not None
            running.process.wait()
        except KeyboardInterrupt:
            print("kafka: ending")  # noqa: T201


if __name__ == "__main__":
    main()
