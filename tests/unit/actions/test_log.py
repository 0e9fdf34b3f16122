from __future__ import annotations

from millstream.actions.log import LogLines


def test_lines_are_passed_on_whole():
    got: list[str] = []
    lines = LogLines(got.append)
    for piece in (b"one\ntw", b"o\n\nthr", b"ee"):
        lines.feed(piece, 0.0)
    assert got == ["one", "two", ""]
    lines.close()
    assert got == ["one", "two", "", "three"]
    assert lines.tail == ["one", "two", "", "three"]


def test_a_flood_is_counted_and_its_end_remembered():
    got: list[str] = []
    lines = LogLines(got.append, burst=10, per_second=1.0)
    for number in range(1000):
        lines.feed(b"".join(b"%d\n" % (number * 100 + i) for i in range(100)), 0.0)
    assert got == [str(i) for i in range(10)]
    assert lines.tail[-1] == "99999"
    assert lines.left_out == 100_000 - 10
    lines.feed(b"later\n", 60.0)
    assert got[10:] == ["... 99,990 lines left out", "later"]


def test_a_line_without_end_is_cut():
    got: list[str] = []
    lines = LogLines(got.append, burst=5, per_second=0.0)
    for _ in range(1000):
        lines.feed(b"x" * 10_000, 0.0)
    assert len(got) == 5
    assert all(len(line) <= 4096 for line in got)
    assert len(lines._rest) <= 8192
    assert len(lines.tail[-1]) <= 4096


def test_bytes_that_are_no_text_do_no_harm():
    got: list[str] = []
    LogLines(got.append).feed(b"\xff\xfe\r\n", 0.0)
    assert got == ["��"]
