"""Runtimes with real programs, real sockets and real disks."""

from __future__ import annotations

import errno
import os
import socket
import time
from contextlib import suppress

import pytest

from millstream.actions import wire
from millstream.actions.queue import Queue
from millstream.actions.wire import Hello
from millstream.errors import AlreadyWriting, Fenced
from millstream.journal.kinds.files.dead import dead_counts
from millstream.storage.disk import RealFile
from support.actions import python, sdk_program
from support.runtimes import Hosted, Raw, RawDownstream, free_port, wait_until

WRAP = 2**32


@pytest.fixture
def host(tmp_path):
    hosted: list[Hosted] = []

    def start(name, program, **settings) -> Hosted:
        one = Hosted(name, program, tmp_path / name, **settings)
        hosted.append(one)
        return one

    yield start
    for one in hosted:
        one.stop()


@pytest.fixture
def down():
    one = RawDownstream()
    yield one
    one.close()


def number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def numgen(tmp_path, count: int, pause: float = 0.0):
    return python(
        tmp_path,
        """
        for n in range(1, int(sys.argv[1]) + 1):
            action.write_message(n.to_bytes(4, "big"))
            if float(sys.argv[2]):
                action.flush(); time.sleep(float(sys.argv[2]))
        action.flush()
        if float(sys.argv[2]): time.sleep(60)
        """,
        str(count),
        str(pause),
    )


def collector(tmp_path, file):
    return python(
        tmp_path,
        """
        with open(sys.argv[1], "ab", buffering=0) as out:
            while (m := action.read_message()) is not None:
                out.write(m); action.ack_message()
        """,
        str(file),
    )


def collected(file) -> list[int]:
    data = file.read_bytes() if file.exists() else b""
    return [int.from_bytes(data[i : i + 4], "big") for i in range(0, len(data) - 3, 4)]


def test_a_chain_of_source_processor_and_sink(host, tmp_path):
    middle, end, file = free_port(), free_port(), tmp_path / "numbers"
    host("p_sink", collector(tmp_path, file), listens=end)
    host("p_filter", sdk_program("filter", "2"), listens=middle, outs=(end,))
    source = host("p_numgen", numgen(tmp_path, 2000), outs=(middle,), once=True)
    source.join()
    wait_until(lambda: len(collected(file)) == 1000)
    assert collected(file) == list(range(2, 2001, 2))


def test_a_source_says_hello_and_numbers_its_messages(host, down, tmp_path):
    host("simplepipe_numgen", numgen(tmp_path, 3), outs=(down.address,), generation=2)
    link = down.accept()
    assert link.hello == Hello("simplepipe_numgen", 2)
    assert link.read(16).hex() == "00000001000000000000000400000001"
    assert link.messages(2) == [(2, number(2)), (3, number(3))]


def test_a_ping_tells_the_oldest_message_and_whether_the_action_runs(host, down, tmp_path):
    service = tmp_path / "service.sock"
    one = host("s_a", numgen(tmp_path, 3, 0.01), outs=(down.address,), service=str(service))
    link = down.accept()
    link.messages(3)
    supervisor = Raw(service).send(wire.ping())
    assert supervisor.read(5) == wire.pong(1)
    link.ack(2)
    wait_until(lambda: supervisor.send(wire.ping()).read(5) == wire.pong(3))
    link.ack(3)
    wait_until(lambda: supervisor.send(wire.ping()).read(5) == wire.pong(0))
    os.kill(one.runtime._program.child.pid, 9)
    wait_until(
        lambda: supervisor.send(wire.ping()).read(1) == wire.REFUSED or not supervisor.read(4)
    )
    assert Raw(service).send(b"\x07\x01").read(1) == wire.UNKNOWN
    assert Raw(service).send(b"\x02" + b"\xff" * 8).read(1) == wire.REFUSED


def test_inputs_that_gave_nothing_are_acknowledged_at_once(host, tmp_path, down):
    port = free_port()
    host("s_f", sdk_program("filter", "100"), listens=port, outs=(down.address,))
    up = Raw(port).send(wire.hello(Hello("s_up", 1)))
    up.send(b"".join(wire.message(i, number(i)) for i in range(1, 6)))
    acked = 0
    while acked < 5:
        acked = int.from_bytes(up.read(4), "big")
    link = down.accept()
    up.send(wire.message(6, number(100)) + wire.message(7, number(101)))
    assert link.message() == (1, number(100))
    assert up.silent()
    link.ack(1)
    while acked < 7:
        acked = int.from_bytes(up.read(4), "big")
    assert acked == 7


def test_an_input_is_acknowledged_when_all_downstreams_have_what_was_made_of_it(
    host, tmp_path, down
):
    port, other = free_port(), RawDownstream()
    host(
        "s_e",
        sdk_program("split", contract="stream"),
        listens=port,
        outs=(down.address, other.address),
    )
    up = Raw(port).send(
        wire.hello(Hello("s_up", 1)) + wire.message(1, b"a,b") + wire.message(2, b"c")
    )
    one, two = down.accept(), other.accept()
    assert one.messages(3) == two.messages(3) == [(1, b"a"), (2, b"b"), (3, b"c")]
    one.ack(3)
    two.ack(1)
    assert up.silent()
    two.ack(2)
    assert up.read(4) == wire.ack(1)
    two.ack(3)
    assert up.read(4) == wire.ack(2)
    other.close()


def test_unacknowledged_output_of_a_source_outlives_its_runtime(host, down, tmp_path):
    first = host("s_a", numgen(tmp_path, 5), outs=(down.address,))
    link = down.accept()
    assert len(link.messages(5)) == 5
    link.ack(2)
    wait_until(lambda: first.runtime._queue.trimmed == 2)
    first.stop()
    host("s_a", numgen(tmp_path, 0), outs=(down.address,))
    again = down.accept()
    assert again.hello == link.hello
    assert again.messages(3) == [(3, number(3)), (4, number(4)), (5, number(5))]


def test_what_comes_again_after_a_restart_is_not_done_again(host, down, tmp_path):
    port = free_port()
    hello = wire.hello(Hello("s_up", 1))
    messages = b"".join(wire.message(i, b"%d" % i) for i in range(1, 4))
    first = host("s_e", sdk_program("echo"), listens=port, outs=(down.address,))
    up = Raw(port).send(hello + messages)
    link = down.accept()
    assert len(link.messages(3)) == 3
    link.ack(2)
    assert up.read(4)
    wait_until(lambda: first.runtime._queue.trimmed == 2)
    first.stop()
    second = host("s_e", sdk_program("echo"), listens=port, outs=(down.address,))
    again = Raw(port).send(hello + messages + wire.message(4, b"4"))
    assert again.read(4) == wire.ack(2)
    link = down.accept()
    assert link.messages(2) == [(3, b"3"), (4, b"4")]
    link.ack(4)
    acked = b""
    while acked != wire.ack(4):
        acked = again.read(4)
    assert second.runtime.statistics().repeated == 3


def test_what_is_repeated_on_a_connection_is_acknowledged_again(host, tmp_path):
    port = free_port()
    host("s_f", sdk_program("filter", "100"), listens=port, outs=(free_port(),))
    messages = b"".join(wire.message(i, number(i)) for i in range(1, 4))
    up = Raw(port).send(wire.hello(Hello("s_up", 1)) + messages)
    while up.read(4) != wire.ack(3):
        pass
    assert up.send(messages).read(4) == wire.ack(3)


def test_all_done_but_not_acknowledged_before_a_crash_is_acknowledged_after_it(
    host, down, tmp_path
):
    port, hello = free_port(), wire.hello(Hello("s_up", 1))
    first = host("s_e", sdk_program("echo"), listens=port, outs=(down.address,))
    up = Raw(port).send(hello + wire.message(1, b"x"))
    link = down.accept()
    link.message()
    up.close()  # the acknowledgement has nowhere to go
    link.ack(1)
    wait_until(lambda: first.runtime._queue.oldest == 0)
    first.stop()
    host("s_e", sdk_program("echo"), listens=port, outs=(down.address,))
    assert Raw(port).send(hello + wire.message(1, b"x")).read(4) == wire.ack(1)


def test_a_sender_without_generation_is_never_taken_for_repeating(host, down, tmp_path):
    port, hello = free_port(), wire.hello(Hello("s_up"))
    host("s_e", sdk_program("echo"), listens=port, outs=(down.address,))
    Raw(port).send(hello + wire.message(1, b"x"))
    link = down.accept()
    assert link.message() == (1, b"x")
    up = Raw(port).send(hello + wire.message(1, b"y"))
    assert link.message() == (2, b"y")
    link.ack(1)  # what the first connection sent: not its id 1
    assert up.silent()
    link.ack(2)
    assert up.read(4) == wire.ack(1)


def test_a_replaced_runtime_is_fenced_also_after_a_restart(host, down, tmp_path):
    port = free_port()
    first = host("s_e", sdk_program("echo"), listens=port, outs=(down.address,))
    old = Raw(port).send(wire.hello(Hello("s_up", 1)) + wire.message(1, b"old"))
    link = down.accept()
    assert link.message() == (1, b"old")
    new = Raw(port).send(wire.hello(Hello("s_up", 2)) + wire.message(1, b"new"))
    assert link.message() == (2, b"new")
    assert old.closed()
    assert Raw(port).send(wire.hello(Hello("s_up", 1)) + wire.message(2, b"ghost")).closed()
    new.send(wire.message(2, b"more"))
    assert link.message() == (3, b"more")
    assert any("was replaced by generation 2" in line for line in first.log)
    first.stop()
    host("s_e", sdk_program("echo"), listens=port, outs=(down.address,))
    assert Raw(port).send(wire.hello(Hello("s_up", 1)) + wire.message(2, b"ghost")).closed()


def test_a_queue_is_not_given_to_an_earlier_life(host, tmp_path):
    host("s_a", numgen(tmp_path, 1), outs=(free_port(),), generation=3).stop()
    with pytest.raises(Fenced, match="is of generation 3, not 2"):
        host("s_a", numgen(tmp_path, 1), outs=(free_port(),), generation=2)


def test_two_runtimes_do_not_share_a_queue(host, tmp_path):
    host("s_a", numgen(tmp_path, 1), outs=(free_port(),))
    with pytest.raises(AlreadyWriting):
        host("s_a", numgen(tmp_path, 1), outs=(free_port(),))


def test_change_out_sends_everything_unacknowledged_to_the_new_one(host, down, tmp_path):
    service, spare = tmp_path / "service.sock", RawDownstream()
    one = host("s_a", numgen(tmp_path, 5), outs=(down.address,), service=str(service))
    link = down.accept()
    link.messages(5)
    link.ack(2)
    wait_until(lambda: one.runtime._queue.trimmed == 2)
    supervisor = Raw(service)
    assert supervisor.send(wire.change_out("10.0.0.1:1", spare.address)).read(1) == wire.REFUSED
    assert supervisor.send(wire.change_out(down.address, spare.address)).read(1) == wire.DONE
    assert supervisor.send(wire.change_out(down.address, spare.address)).read(1) == wire.DONE
    assert link.closed()
    assert spare.accept().messages(3) == [(3, number(3)), (4, number(4)), (5, number(5))]
    one.stop()
    host("s_a", numgen(tmp_path, 0), outs=(down.address,))  # told as before: it knows better
    assert spare.accept().messages(3)[0] == (3, number(3))
    spare.close()


def test_ids_go_around_the_wrap_on_both_sides(host, down, tmp_path):
    port, folder = free_port(), tmp_path / "s_e"
    queue = Queue(folder)
    queue._state.last = queue._state.trimmed = WRAP - 3
    queue._begin_segment()
    queue.close()
    for file in sorted(folder.glob("*.queue"))[:-1]:
        file.unlink()
    host("s_e", sdk_program("echo"), listens=port, outs=(down.address,))
    ids = [WRAP - 2, WRAP - 1, 1, 2, 3]
    up = Raw(port).send(
        wire.hello(Hello("s_up", 1)) + b"".join(wire.message(i, b"%d" % i) for i in ids)
    )
    link = down.accept()
    assert link.messages(5) == [(i, b"%d" % i) for i in ids]
    link.ack(1)
    acked = b""
    while acked != wire.ack(1):
        acked = up.read(4)
    link.ack(3)
    while acked != wire.ack(3):
        acked = up.read(4)


def test_a_message_that_kills_the_program_becomes_a_dead_letter(host, down, tmp_path):
    port = free_port()
    one = host("s_f", sdk_program("filter", "1"), listens=port, outs=(down.address,), attempts=2)
    up = Raw(port).send(wire.hello(Hello("s_up", 1)))
    up.send(wire.message(1, number(1)) + wire.message(2, b"fatal") + wire.message(3, number(3)))
    link = down.accept()
    assert link.messages(2) == [(1, number(1)), (2, number(3))]
    link.ack(2)
    acked = b""
    while acked != wire.ack(3):
        acked = up.read(4)
    assert sum(dead_counts(tmp_path / "s_f").values()) == 1
    assert one.runtime.statistics().failed == 1


def test_a_program_that_is_killed_is_given_its_inputs_again(host, down, tmp_path):
    port = free_port()
    one = host("s_s", sdk_program("slow", "5"), listens=port, outs=(down.address,))
    Raw(port).send(
        wire.hello(Hello("s_up", 1)) + b"".join(wire.message(i, b"%d" % i) for i in range(1, 101))
    )
    link = down.accept()
    for _ in range(3):
        wait_until(lambda: one.runtime._program.child is not None)
        pid = one.runtime._program.child.pid
        link.messages(10)
        os.kill(pid, 9)
        wait_until(
            lambda pid=pid: (
                one.runtime._program.child is not None and one.runtime._program.child.pid != pid
            )
        )
    rest = link.messages(70)
    assert rest[-1] == (100, b"100")


def test_a_program_that_hangs_is_started_again(host, down, tmp_path):
    port = free_port()
    program = python(
        tmp_path,
        """
        hang = not os.path.exists("hung")
        open("hung", "w").close()
        while (m := action.read_message()) is not None:
            if hang: time.sleep(600)
            action.write_message(m)
        """,
    )
    host("s_h", program, listens=port, outs=(down.address,), time_limit_s=3.0)
    Raw(port).send(wire.hello(Hello("s_up", 1)) + wire.message(1, b"x"))
    assert down.accept().message() == (1, b"x")


def cpu_of(waiting):
    """Return what this process has used meanwhile; other threads of the tests may have their share."""
    before = time.process_time()
    waiting()
    return time.process_time() - before


def test_an_idle_runtime_uses_no_cpu(host, down, tmp_path):
    port = free_port()
    host("s_e", sdk_program("echo"), listens=port, outs=(down.address,))
    Raw(port).send(wire.hello(Hello("s_up", 1)) + wire.message(1, b"x"))
    down.accept().message()
    wait_until(lambda: cpu_of(lambda: time.sleep(1.0)) < 0.02)


def test_a_full_disk_stops_the_flow_and_loses_nothing(host, down, tmp_path, monkeypatch):
    port, full = free_port(), [False]
    append = RealFile.append

    def appending(self, buffers):
        if full[0]:
            raise OSError(errno.ENOSPC, "no room")
        append(self, buffers)

    one = host("s_e", sdk_program("echo"), listens=port, outs=(down.address,))
    up = Raw(port).send(wire.hello(Hello("s_up", 1)) + wire.message(1, b"1"))
    link = down.accept()
    assert link.message() == (1, b"1")
    monkeypatch.setattr(RealFile, "append", appending)
    full[0] = True
    up.send(wire.message(2, b"2") + wire.message(3, b"3"))
    wait_until(lambda: any("is full" in line for line in one.log))
    wait_until(lambda: cpu_of(lambda: link.silent(0.4)) < 0.1)
    assert link.silent(0.1)
    full[0] = False
    assert link.messages(2) == [(2, b"2"), (3, b"3")]


def test_rubbish_closes_its_connection_and_nothing_else(host, down, tmp_path):
    port = free_port()
    host("s_e", sdk_program("echo"), listens=port, outs=(down.address,))
    up = Raw(port).send(wire.hello(Hello("s_up", 1)))
    assert Raw(port).send(b"GET / HTTP/1.1\r\n\r\n").closed()
    assert Raw(port).send(wire.hello(Hello("s_x", 1)) + b"\xff" * 12).closed()
    up.send(wire.message(1, b"x"))
    assert down.accept().message() == (1, b"x")


def test_a_queue_at_its_limit_holds_the_upstreams_back(host, tmp_path):
    port, nobody = free_port(), free_port()
    one = host("s_e", sdk_program("echo"), listens=port, outs=(nobody,), queue_bytes=1 << 20)
    up = Raw(port).send(wire.hello(Hello("s_up", 1)))
    data = memoryview(b"".join(wire.message(i, bytes(100_000)) for i in range(1, 401)))
    up.sock.setblocking(False)
    sent, until = 0, time.monotonic() + 2.0
    while time.monotonic() < until and sent < len(data):
        try:
            sent += up.sock.send(data[sent:])
        except BlockingIOError:
            time.sleep(0.02)
    assert sent < len(data)
    assert one.runtime._queue.size < 16 << 20


def test_a_source_that_is_drained_ends_when_all_that_it_made_was_taken(host, tmp_path, down):
    one = host("p_numgen", numgen(tmp_path, 10_000, 0.01), outs=(down.address,))
    link = down.accept()
    ids = [id_ for id_, _ in link.messages(3)]
    one.runtime.drain()
    wait_until(lambda: "the program has ended" in one.log)
    assert not one.done  # what is not acknowledged keeps it
    with suppress(OSError):  # closed, when all is taken
        while not one.done:
            link.ack(ids[-1])
            if not link.silent():
                if not link.sock.recv(1, socket.MSG_PEEK):
                    break
                ids.append(link.message()[0])
    one.join()
    assert ids == list(range(1, len(ids) + 1))
    assert one.runtime.cut_short

    again = host("p_numgen", numgen(tmp_path, 10_000, 0.01), outs=(down.address,), drain=True)
    again.join()
    assert again.runtime.statistics().starts == 0


def test_a_source_that_ended_by_itself_was_not_cut_short(host, tmp_path, down):
    one = host("p_numgen", numgen(tmp_path, 3), outs=(down.address,), once=True)
    link = down.accept()
    assert [id_ for id_, _ in link.messages(3)] == [1, 2, 3]
    wait_until(lambda: "the program has ended" in one.log)
    one.runtime.drain()
    link.ack(3)
    one.join()
    assert not one.runtime.cut_short
