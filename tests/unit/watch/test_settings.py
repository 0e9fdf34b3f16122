"""peers.yaml: what is read, what is refused and where, and who takes a sensor."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidSettings
from millstream.links.keys import new_keys, read_public
from millstream.watch.choice import Periods
from millstream.watch.settings import Limits, Settings, read, taker
from unit.docs.blocks import DOCS, blocks

S = 1_000_000
DEVICES = """\
devices:
  A: {address: "tcp://10.0.0.1:7400"}
  B: {address: "tcp://b.plant.example:7400"}
  C: {address: "tcp://[fd00::3]:7400", listen: "tcp://0.0.0.0:7401"}
"""
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(text: str) -> Path:
        (tmp_path / "peers.yaml").write_text(text)
        return tmp_path / "peers.yaml"

    return written


def test_one_file_serves_all_devices(write: Write) -> None:
    file = write(DEVICES)
    a, c = read(file, "A"), read(file, "C")
    assert (a.device, a.listen, a.devices) == ("A", "tcp://10.0.0.1:7400", ("A", "B", "C"))
    assert [peer.name for peer in a.peers] == ["B", "C"]
    assert [peer.name for peer in c.peers] == ["A", "B"]
    assert c.listen == "tcp://0.0.0.0:7401"
    assert a.periods == Periods()
    assert a.limits == Limits()
    assert (a.recall, a.skew, a.key_owner, a.across) == (None, timedelta(seconds=1), False, None)


def test_everything_can_be_set(write: Write) -> None:
    found = read(
        write(
            DEVICES
            + """\
periods: {ping: 3 s, resync: 1 min, stash_again: 500 ms, ping_again: 1 s, resync_again: 2 s,
          limit: 1 s}
limits: {changes: 1_000, log: 4_000_000, piece: 10_000, message: 1_000_000}
recall: 1 h 30 min
skew: 250 ms
key_owner: yes
across: seed
sensors: {A: [gate, "north-*"], B: south}
inputs: {lines: stdin, heat: "mqtt://broker/heat"}
outputs: {shown: stdout}
"""
        ),
        "B",
    )
    assert found.periods == Periods(3 * S, 60 * S, S // 2, S, 2 * S, S)
    assert found.limits == Limits(1000, 4_000_000, 10_000, 1_000_000)
    assert (found.recall, found.skew) == (timedelta(minutes=90), timedelta(milliseconds=250))
    assert (found.key_owner, found.across) == (True, "seed")
    assert found.sensors == (("A", ("gate", "north-*")), ("B", ("south",)))
    assert found.inputs == {"lines": "stdin", "heat": "mqtt://broker/heat"}
    assert found.outputs == {"shown": "stdout"}


def test_the_file_in_the_guide_is_read(tmp_path: Path) -> None:
    for name in "ABC":
        new_keys(tmp_path / "keys", name)
    (block,) = [one for one in blocks(DOCS / "guide" / "replication.md") if one.file is not None]
    (tmp_path / "peers.yaml").write_text(block.text)
    found = {name: read(tmp_path / "peers.yaml", name) for name in "ABC"}
    assert all(taker("north-1", one, "BC") == "B" for one in found.values())


def test_a_device_has_inputs_of_its_own(write: Write) -> None:
    file = write(
        """\
devices:
  A: {address: "tcp://10.0.0.1:7400", inputs: {web: "http://10.0.0.1:8710"}}
  B: {address: "tcp://10.0.0.2:7400"}
inputs: {web: "http://127.0.0.1:8710", lines: stdin}
"""
    )
    assert read(file, "A").inputs == {"web": "http://10.0.0.1:8710", "lines": "stdin"}
    assert read(file, "B").inputs == {"web": "http://127.0.0.1:8710", "lines": "stdin"}


def test_public_keys_are_found_in_the_folder_or_in_the_file(write: Write, tmp_path: Path) -> None:
    for name in "AB":
        new_keys(tmp_path / "keys", name)
    new_keys(tmp_path / "elsewhere", "C")
    public = {
        name: read_public(tmp_path / folder / f"{name}.pub").public
        for folder, name in (("keys", "A"), ("keys", "B"), ("elsewhere", "C"))
    }
    text = DEVICES.replace('listen: "tcp://0.0.0.0:7401"', f'key: "{public["C"].decode()}"')
    found = read(write(f"{text}keys: keys\n"), "A")
    assert {peer.name: peer.public for peer in found.peers} == {name: public[name] for name in "BC"}
    assert found.key == tmp_path / "keys" / "A.key"


@pytest.mark.parametrize(
    ("text", "fact", "hint", "line"),
    [
        (f"{DEVICES}periodes: {{}}", 'has "periodes", which means', '"periods"', 5),
        (f"{DEVICES}periods:\n  pnig: 1 s", 'has "pnig", which means', '"ping"', 6),
        (f"{DEVICES}periods:\n  ping: soon", '"soon" is not a length', "a number and a unit", 6),
        (f"{DEVICES}periods:\n  ping: 2 min", '"ping" (2 min) is not below', "is 1 min", 6),
        (f"{DEVICES}periods:\n  limit: 0 s", '"limit" has no length', "a length of time", 6),
        (f"{DEVICES}limits:\n  piece: 7_000_000", '"piece" (7000000) is above', "smaller", 6),
        (f"{DEVICES}limits: {{log: many}}", '"log" of "limits" is "many"', "whole number", 5),
        (f"{DEVICES}across: sometimes", '"across" is "sometimes"', '"seed"', 5),
        (f"{DEVICES}sensors:\n  AA: [x]", '"sensors" names "AA"', 'mean "A"', 6),
        (f"{DEVICES}sensors:\n  A: x\n  B: [x]", 'to "A" and to "B"', "give it to one", 7),
        (f"{DEVICES}inputs: [stdin]", '"inputs" is a list', "names with values", 5),
        (f"{DEVICES}sensors: [x]", '"sensors" is a list', "names with values", 5),
        (f"{DEVICES}keys: none", "cannot be read", "millstream keys new", 2),
        (f'{DEVICES}  D: {{addres: "tcp://h:1"}}', 'has "addres", which', '"address"', 5),
        (f'{DEVICES}  D: {{address: "h:1"}}', '"h:1" is not an address', "tcp://host:port", 5),
        (f'{DEVICES}  D: {{address: "tcp://h:1", key: x}}', '"x" is not a public key', "40", 5),
        (f'{DEVICES}  D: {{address: "tcp://10.0.0.1:7400"}}', 'address of device "A"', "own", 5),
        (f'{DEVICES}  "a b": {{address: "tcp://h:1"}}', "not a name for a device", "letters", 5),
        ("devices: {B: {address: x}}", 'has no device "A"', "its devices are B", 1),
        ("{", "is not YAML", None, 1),
    ],
)
def test_a_mistake_has_its_place_and_a_hint(
    write: Write, text: str, fact: str, hint: str | None, line: int
) -> None:
    with pytest.raises(InvalidSettings) as caught:
        read(write(text), "A")
    error = caught.value
    assert fact in error.message
    assert hint is None or hint in (error.hint or "")
    assert error.where is not None
    assert error.where.line == line


# who takes a sensor

SHARED = Settings(
    "A", devices=("A", "B", "C"), sensors=(("A", ("gate", "north-*")), ("C", ("*", "north-7")))
)


def test_a_sensor_goes_to_its_device_and_to_the_next_one_while_that_is_away() -> None:
    assert taker("gate", SHARED, ["A", "B", "C"]) == "A"
    assert taker("gate", SHARED, ["B", "C"]) == "B"
    assert taker("gate", SHARED, ["C"]) == "C"
    assert taker("roof", SHARED, ["A", "B"]) == "A"
    assert taker("gate", SHARED, []) is None


def test_a_name_counts_more_than_a_wildcard_and_a_longer_one_more() -> None:
    present = ["A", "B", "C"]
    assert taker("north-1", SHARED, present) == "A"
    assert taker("north-7", SHARED, present) == "C"


def test_a_sensor_that_nobody_is_named_for_has_no_taker() -> None:
    assert taker("gate", Settings("A", devices=("A",)), ["A"]) is None


@given(present=st.sets(st.sampled_from("ABC")), sensor=st.sampled_from(["gate", "north-7", "x"]))
def test_devices_that_agree_who_is_present_agree_who_takes_a_sensor(
    present: set[str], sensor: str
) -> None:
    takers = {
        taker(sensor, Settings(device, devices=SHARED.devices, sensors=SHARED.sensors), present)
        for device in "ABC"
    }
    assert len(takers) == 1
    assert takers <= present | {None}
    assert (takers == {None}) == (not present)
