"""What a connection may ask for that has no key: rows are taken, and nothing else is done."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from millstream.journal import journal_at
from millstream.journal.kinds.files.replica_chunk import Reached
from millstream.journal.kinds.files.retention import committed
from millstream.links import envelope, follow
from millstream.links.client import connect
from millstream.links.host import Host
from support.links import TARGET, batch, declare, entries, hosted, journal, letters, rows, stored
from support.links_service import TESTS

NOBODY = 65534


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    declare(tmp_path)
    host = hosted(tmp_path)
    with connect(tmp_path) as client:
        client.send(TARGET, rows(0, 100))
    yield host
    host.close()


def requests() -> list[tuple[envelope.Request, Any]]:
    """Return what somebody may want of an inbox beside sending rows, with a body."""
    reached = follow.CopyReached.of(Reached())
    staged = envelope.StagedRows("x", 0, 1, 1, 1, None, None, 1, 0)
    return [
        (follow.Follow(1, TARGET, 0, reached, 0.0), None),
        (follow.Passed(2, TARGET, 0, {}, 50), None),
        (follow.Level(3, TARGET, 0, 1 << 61, 100), None),
        (envelope.PutDeadLetter(4, TARGET, 0, "till-1", [(1, "no", "{}")]), None),
        (envelope.Instruct(5, TARGET, 0, "x", -1, 0, "END_OF_STREAM"), None),
        (envelope.Instruct(6, TARGET, 0, "x", -1, 0, "WATERMARK", 1 << 61), None),
        (envelope.Stage(7, TARGET, 0, "x", 1, 5, 0), batch(0, 5).serialize().to_pybytes()),
        (envelope.Publish(8, TARGET, 0, "x", 1, [staged]), None),
    ]


def answers(address: str) -> list[envelope.Answer]:
    """Ask for all of it over TCP, last of all that rows are taken; return the answers."""
    header = envelope.Rows(9, TARGET, 0, "x", -1, 0, 5, 0)
    found = []
    with zmq.Context() as context, context.socket(zmq.DEALER) as sock:
        sock.linger = 0
        sock.connect(address)
        for request, body in [*requests(), (header, batch(100, 105).serialize().to_pybytes())]:
            sock.send_multipart(envelope.frames_of(request, body))
            assert sock.poll(60_000), f"no answer to {request}"
            found.append(envelope.decode_answer(sock.recv_multipart()[0]))
    return found


def check(found: list[envelope.Answer], data: Path) -> None:
    *refused, taken = found
    assert [one.error for one in refused if isinstance(one, envelope.Refusal)] == (
        ["NotAllowed"] * len(requests())
    )
    assert isinstance(taken, envelope.Taken)
    assert taken.taken == 5
    assert stored(data) == [list(range(105))]
    assert {kind.name for kind, _, _ in entries(data)} == {"ROWS"}
    assert letters(data) == []
    assert [one.reader for one in committed(journal(data))] == ["group"]


def test_a_connection_without_a_key_may_send_rows_and_nothing_else(
    host: Host, tmp_path: Path
) -> None:
    journal_at(journal(tmp_path)).commit_for(0, {"group": 10})
    check(answers(str(host.address)), tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="cannot here: only root becomes another user")
def test_neither_does_another_user_of_this_host(host: Host, tmp_path: Path) -> None:
    journal_at(journal(tmp_path)).commit_for(0, {"group": 10})
    program = f"""if True:
        import os, pickle, sys
        from integration.test_links_rights import answers
        os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
        sys.stdout.buffer.write(pickle.dumps(answers("{host.address}")))
    """
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": TESTS},
        stdout=subprocess.PIPE,
        check=True,
        timeout=240,
    )
    check(pickle.loads(done.stdout), tmp_path)


def test_the_owner_may_do_it_all_by_the_same_address(host: Host, tmp_path: Path) -> None:
    with connect(str(host.address)) as client:
        client.send(TARGET, rows(100, 105))
        client.end(TARGET)
    assert entries(tmp_path)[-1][0].name == "END_OF_STREAM"


def test_a_client_without_a_key_hears_what_it_may_not(host: Host, tmp_path: Path) -> None:
    (tmp_path / "f" / f"inbox_{host.address.port}").unlink()
    program = f"""if True:
        from millstream.errors import NotAllowed
        import millstream as ms
        with ms.connect("{host.address}") as c:
            try:
                c.end("f.s")
            except NotAllowed as error:
                print(error, "|", error.hint)
    """
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, timeout=240, text=True
    )
    assert done.stdout.startswith('a connection without a key may not end or advance "f.s" |')
