"""Runtimes that send to a source of a job: each message once in its journal, whoever is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import millstream as ms
from millstream import ingest
from millstream.actions import hosted, wire
from millstream.actions.bounds import MOST_NODES, MOST_WAITING
from millstream.actions.handshake import Introduction, read_secret, secret_file, secret_of
from millstream.actions.program import Program
from millstream.actions.settings import RuntimeSettings
from millstream.clock import SystemClock
from millstream.engine.inboxes.inboxes import Inboxes
from millstream.engine.inboxes.landing import Landing
from millstream.flow.flow import Flow
from millstream.flow.stages import Source
from millstream.journal.kinds.files.layout import dead_folder
from millstream.journal.kinds.files.reader import Reader
from millstream.links.host import Listening
from support.actions import ROOT, sdk_program
from support.engines import wait_until
from support.hostile_peers import flood, greeted, stall
from support.runtimes import Hosted, Raw, free_port

LIMIT_S = 180.0
NUMGEN = str(ROOT / "examples" / "simplepipe" / "numgen")


class Landed:
    """The inboxes of an engine, with a source that runtimes send to."""

    def __init__(
        self,
        folder: Path,
        format: str,
        columns: str,
        partitions: int,
        nodes: list[str] | None = None,
    ) -> None:
        self.at, self._folder = free_port(), folder
        inbox = ms.inbox(columns, runtimes=self.at, format=format, nodes=nodes)
        stage = Flow("counts").source("events", inbox, partitions=partitions).flow.stages["events"]
        assert isinstance(stage, Source)
        self.journal = folder / "job" / "journals" / "events"
        ingest.declare(stage, self.journal)
        self.inboxes = self._opened()

    def _opened(self) -> Inboxes:
        inboxes = Inboxes(self._folder, Listening(), node=0, of=1, clock=SystemClock())
        inboxes.open("counts", self._folder / "job", {})
        inboxes.start()
        wait_until(self._listening(inboxes), limit_s=LIMIT_S)
        return inboxes

    def _listening(self, inboxes: Inboxes) -> Any:
        def open_() -> bool:
            inboxes.tick()
            return inboxes.job("counts").status()[0].runtimes == self.at

        return open_

    def restart(self) -> None:
        self.inboxes.close()
        self.inboxes = self._opened()

    def rows(self, folder: Path | None = None) -> list[dict[str, Any]]:
        reader = Reader(folder or self.journal)
        parts = [reader.partition(number) for number in range(reader.description.partitions)]
        slices = [one for part in parts for one in part.read(part.begin, part.end)]
        return [row for one in slices if one.batch is not None for row in one.batch.to_pylist()]

    def greet(self, name: str) -> Raw:
        return Raw(self.at).send(wire.hello(wire.parsed_hello(name.encode())))


@pytest.fixture
def landed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Landed]:
    one = Landed(tmp_path, *request.param)
    yield one
    one.inboxes.close()


RAW = pytest.mark.parametrize("landed", [("raw", "value binary", 1)], indirect=True)
TWO = pytest.mark.parametrize("landed", [("raw", "value binary", 2)], indirect=True)
NAMED = pytest.mark.parametrize("landed", [("raw", "value binary", 1, ["s_n"])], indirect=True)
JSON = pytest.mark.parametrize("landed", [("json", "n long", 1)], indirect=True)


def values(landed: Landed) -> list[bytes]:
    return sorted(bytes(row["value"]) for row in landed.rows())


@RAW
def test_messages_are_acknowledged_once_they_are_durable_and_stored_once(landed: Landed) -> None:
    first = landed.greet("s_n#1").send(wire.messages([(1, b"a"), (2, b"b")]))
    while first.read(4) != wire.ack(2):
        pass
    assert values(landed) == [b"a", b"b"]

    again = landed.greet("s_n#1")  # a new connection of the same life: told what is done
    assert again.read(4) == wire.ack(2)
    assert first.closed()
    again.send(wire.messages([(1, b"a"), (2, b"b"), (3, b"c")]))
    while again.read(4) != wire.ack(3):
        pass

    landed.restart()
    after = landed.greet("s_n#1").send(wire.messages([(2, b"b"), (3, b"c"), (4, b"d")]))
    while after.read(4) != wire.ack(4):
        pass
    assert values(landed) == [b"a", b"b", b"c", b"d"]


@RAW
def test_what_is_repeated_on_a_connection_is_acknowledged_again(landed: Landed) -> None:
    one = landed.greet("s_n#1").send(wire.messages([(1, b"a"), (2, b"b")]))
    while one.read(4) != wire.ack(2):
        pass
    assert one.send(wire.messages([(1, b"a"), (2, b"b")])).read(4) == wire.ack(2)


@RAW
def test_ids_that_wrap_are_no_repetition_also_after_a_restart(landed: Landed) -> None:
    last = 2**32 - 1
    begin = landed.greet("s_n#1").send(wire.messages([(2**31 - 1, b"half")]))
    assert begin.read(4) == wire.ack(2**31 - 1)
    begin.send(wire.messages([(last - 1, b"y"), (last, b"z")]))
    while begin.read(4) != wire.ack(last):
        pass
    landed.restart()
    after = landed.greet("s_n#1").send(wire.messages([(last, b"z"), (1, b"one"), (2, b"two")]))
    while after.read(4) != wire.ack(2):
        pass
    assert values(landed) == sorted([b"half", b"y", b"z", b"one", b"two"])


@RAW
def test_a_spare_begins_at_one_and_fences_the_life_before(landed: Landed) -> None:
    old = landed.greet("s_n#1").send(wire.messages([(1, b"a")]))
    assert old.read(4) == wire.ack(1)
    new = landed.greet("s_n#2").send(wire.messages([(1, b"b")]))
    assert new.read(4) == wire.ack(1)
    assert old.closed()
    assert landed.greet("s_n#1").send(wire.messages([(2, b"ghost")])).closed()
    landed.restart()
    assert landed.greet("s_n#1").send(wire.messages([(2, b"ghost")])).closed()
    assert values(landed) == [b"a", b"b"]


@RAW
def test_of_a_sender_that_says_no_generation_nothing_is_taken_for_repeated(landed: Landed) -> None:
    for _ in range(2):
        one = landed.greet("foreign").send(wire.messages([(7, b"x")]))
        assert one.read(4) == wire.ack(7)
        one.close()
    assert values(landed) == [b"x", b"x"]


@TWO
def test_rows_of_several_partitions_are_each_there_once_after_a_restart(landed: Landed) -> None:
    sent = [(n, b"%04d" % n) for n in range(1, 301)]
    one = landed.greet("s_n#1").send(wire.messages(sent[:200]))
    while one.read(4) != wire.ack(200):
        pass
    landed.restart()
    again = landed.greet("s_n#1").send(wire.messages(sent))
    while again.read(4) != wire.ack(300):
        pass
    assert values(landed) == [payload for _, payload in sent]


@JSON
def test_a_message_that_is_no_row_is_a_dead_letter_and_acknowledged(landed: Landed) -> None:
    payloads = [b'{"n": 1}', b"no json", b"", b'{\n"n": 2}']
    one = landed.greet("s_n#1").send(wire.messages(list(enumerate(payloads, 1))))
    while one.read(4) != wire.ack(4):
        pass
    assert [row["n"] for row in landed.rows()] == [1, 2]
    letters = landed.rows(dead_folder(landed.journal))
    assert [(letter["origin"], letter["position"]) for letter in letters] == [
        ("runtime:s_n#1", 2),
        ("runtime:s_n#1", 3),
    ]


@RAW
def test_inboxes_that_take_nothing_make_runtimes_wait(landed: Landed) -> None:
    landed.inboxes.job("counts").pause()
    one = landed.greet("s_n#1").send(wire.messages([(1, b"a")]))
    assert one.silent()
    assert landed.rows() == []
    landed.inboxes.job("counts").resume()
    assert one.read(4) == wire.ack(1)
    assert values(landed) == [b"a"]


@RAW
def test_a_runtime_sends_to_a_job_whose_engine_comes_and_goes(
    landed: Landed, tmp_path: Path
) -> None:
    program = Program((NUMGEN, "3000", "0.01"))
    runtime = Hosted("s_numgen", program, tmp_path / "queue", outs=(landed.at,), generation=1)
    for share in (200, 1000):
        wait_until(lambda share=share: len(landed.rows()) >= share, limit_s=LIMIT_S)  # type: ignore[misc]
        landed.restart()
    wait_until(lambda: len(landed.rows()) >= 3000, limit_s=LIMIT_S)
    runtime.stop()
    assert [int.from_bytes(bytes(row["value"]), "big") for row in landed.rows()] == list(
        range(1, 3001)
    )


@NAMED
def test_a_source_that_names_its_nodes_wants_their_proof(landed: Landed, tmp_path: Path) -> None:
    secret = read_secret(secret_file(tmp_path / "job"))
    assert landed.greet("s_n#99").send(wire.messages([(1, b"forged")])).closed()
    stranger = Raw(landed.at).send(Introduction("s_n#99", b"a guess that is long enough").hello)
    stranger.read(64)
    assert stranger.send(bytes(32) + wire.messages([(1, b"forged")])).closed()
    assert Raw(landed.at).send(Introduction("s_other#1", secret).hello).closed()
    real = greeted(landed.at, "s_n#1", secret).send(wire.messages([(1, b"a")]))
    assert real.read(4) == wire.ack(1)
    runtime = Hosted(
        "s_n",
        Program((NUMGEN, "5", "0.01")),
        tmp_path / "queue",
        outs=(landed.at,),
        generation=2,
        secret=secret_file(tmp_path / "job"),
    )
    wait_until(lambda: len(landed.rows()) == 6, limit_s=LIMIT_S)
    runtime.stop()
    assert b"forged" not in values(landed)


@pytest.mark.parametrize(
    ("at", "nodes", "open_", "plain"),
    [
        ("127.0.0.1:5200", None, False, True),
        ("127.0.0.1:5200", ["s_n"], False, False),
        ("10.0.0.5:5200", None, False, False),
        ("10.0.0.5:5200", None, True, True),
    ],
)
def test_the_plain_protocol_is_for_this_host_and_by_wish(
    tmp_path: Path, at: str, nodes: list[str] | None, open_: bool, plain: bool
) -> None:
    inbox = ms.inbox("value binary", runtimes=at, format="raw", nodes=nodes)
    stage = Flow("counts").source("events", inbox).flow.stages["events"]
    assert isinstance(stage, Source)
    _, settings = ingest.declare(stage, tmp_path / "events")
    landing = Landing(
        "counts.events",
        settings,
        tmp_path / "events",
        connect=lambda _: pytest.fail("nobody connects"),
        highest=lambda _: -1,
        clock=SystemClock(),
        secret=secret_of(tmp_path),
        open_without_keys=open_,
    )
    assert landing.admission.plain is plain


@RAW
def test_strangers_at_a_landing_take_bounded_memory_and_keep_nobody_out(
    landed: Landed, tmp_path: Path
) -> None:
    landed.inboxes.close()
    script = Path(__file__).parents[1] / "support" / "landing_host.py"
    inboxes = Killable(sys.executable, str(script), str(tmp_path), ready=True)
    try:
        real = landed.greet("s_n#1").send(wire.messages([(1, b"a")]))
        assert real.read(4) == wire.ack(1)
        before = inboxes.memory
        silent = [Raw(landed.at) for _ in range(MOST_WAITING + 50)]
        flood(landed.at, MOST_NODES + 50)
        held = stall(landed.at, 8)
        assert inboxes.memory - before < 350 << 20  # 480 MB and more if each kept what it sent
        assert (landed.journal / "runtimes.json").stat().st_size < 1 << 20
        assert all(one.closed() for one in silent)
        real.send(wire.messages([(2, b"b")]))
        assert real.read(4) == wire.ack(2)
        for sock in held:
            sock.close()
    finally:
        inboxes.kill()


class Killable:
    """A process that can be killed and started again."""

    def __init__(self, *command: str, ready: bool = False) -> None:
        self._command, self._ready = command, ready
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE if self._ready else None
        )
        if self._process.stdout is not None:
            assert self._process.stdout.readline() == b"ready\n"

    @property
    def memory(self) -> int:
        return psutil.Process(self._process.pid).memory_info().rss

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(LIMIT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def again(self) -> None:
        self.kill()
        self._start()


@RAW
def test_a_chain_of_runtimes_and_the_inboxes_are_killed_and_each_number_is_there_once(
    landed: Landed, tmp_path: Path
) -> None:
    landed.inboxes.close()
    middle, script = free_port(), Path(__file__).parents[1] / "support" / "landing_host.py"
    inboxes = Killable(sys.executable, str(script), str(tmp_path), ready=True)
    settings = RuntimeSettings(
        "s_echo", sdk_program("echo"), tmp_path / "echo", middle, (landed.at,), generation=1
    )
    echo = Killable(*hosted.command(settings))
    source = Hosted(
        "s_numgen",
        Program((NUMGEN, "4000", "0.02")),
        tmp_path / "queue",
        outs=(middle,),
        generation=1,
    )
    try:
        for number, victim in enumerate((echo, inboxes, echo, inboxes), 1):
            wait_until(lambda share=400 * number: len(landed.rows()) >= share, limit_s=LIMIT_S)  # type: ignore[misc]
            victim.again()
        wait_until(lambda: len(landed.rows()) >= 4000, limit_s=LIMIT_S)
        source.stop()
    finally:
        echo.kill()
        inboxes.kill()
    assert [int.from_bytes(bytes(row["value"]), "big") for row in landed.rows()] == list(
        range(1, 4001)
    )


@JSON
def test_a_message_that_is_nested_deeply_is_a_dead_letter_and_acknowledged(landed: Landed) -> None:
    deep = b'{"n":' + b"[" * 3000 + b"]" * 3000 + b"}"
    one = landed.greet("s_n#1").send(wire.messages([(1, b'{"n":1}'), (2, deep), (3, b'{"n":3}')]))
    while one.read(4) != wire.ack(3):
        pass
    assert sorted(row["n"] for row in landed.rows()) == [1, 3]
    (letter,) = landed.rows(dead_folder(landed.journal))
    assert letter["reason"] == "malformed record: it is nested more than 200 deep"
