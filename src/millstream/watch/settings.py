"""The settings of watchers: one peers.yaml for all devices.

    devices:
      A:
        address: tcp://10.0.0.1:7400  # where the others reach it
        listen: tcp://0.0.0.0:7400    # where it listens, if that is somewhere else
        key: "..."                    # its public key; by default that in <keys>/A.pub
      B: {address: "tcp://10.0.0.2:7400"}
    keys: keys                        # the folder of A.key (on A alone), A.pub, B.pub
    periods:                          # see choice.py; also: stash_again, ping_again, resync_again,
      ping: 30 s                      # limit
      resync: 60 s
    limits:                           # changes: entries of the change log; log, piece and message:
      changes: 100_000                # bytes of the log on disk, of a piece of a RESYNC, and of
      log: 4_000_000                  # the largest message that is accepted; runs: how many may be
                                      # known before peers' new ones are refused
    recall: 10 min                    # how long events are remembered; by default a pattern's span
    skew: 1 s                         # how far clocks may differ where devices stamp events
    key_owner: true                   # all events of a key come to one device
    across: seed                      # accept patterns that are not sound across devices
    sensors:                          # who takes which sensors; names may have * and ?
      A: [gate, "north-*"]
      B: [south]
    inputs: {...}                     # addresses by names; also under a device, for that device
    outputs: {...}                    # alone

Every mistake is reported with file, line and column.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import yaml

from millstream.clock import MICROSECOND
from millstream.errors import FlowError, InvalidAddress, InvalidKey, InvalidSettings, Where
from millstream.flow import document
from millstream.flow.document import Entry
from millstream.flow.durations import duration
from millstream.links import network
from millstream.links.keys import NAME, public_of, read_public
from millstream.watch.choice import Periods
from millstream.watch.room import MOST_RUNS

_PERIODS: Final = ("ping", "resync", "stash_again", "ping_again", "resync_again", "limit")
_SKEW: Final = timedelta(seconds=1)
_LIMITS: Final = ("changes", "log", "piece", "message", "runs")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is kept, and how much goes over the network at once."""

    changes: int = 100_000
    log: int = 4_000_000
    piece: int = 1_000_000
    message: int = 8_000_000
    runs: int = MOST_RUNS

    def __post_init__(self) -> None:
        for name in _LIMITS:
            if getattr(self, name) <= 0:
                msg = f'the limit "{name}" is {getattr(self, name)}'
                raise InvalidSettings(msg, hint="expected a number above 0")
        if 2 * self.piece > self.message:
            msg = f'the limit "piece" ({self.piece}) is above half of "message" ({self.message})'
            raise InvalidSettings(msg, hint="expected a smaller piece: one event may exceed it")


@dataclass(frozen=True, slots=True)
class Peer:
    """A device: where others reach it, its public key (Z85), and the file that has it."""

    name: str
    address: str
    public: bytes | None = None
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """What a watcher is configured with; `peers` are the other devices, `devices` all of them."""

    device: str
    listen: str | None = None
    devices: tuple[str, ...] = ()
    peers: tuple[Peer, ...] = ()
    keys: Path | None = None
    periods: Periods = field(default_factory=Periods)
    limits: Limits = field(default_factory=Limits)
    recall: timedelta | None = None
    skew: timedelta = _SKEW
    key_owner: bool = False
    across: str | None = None
    sensors: tuple[tuple[str, tuple[str, ...]], ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    public: bytes | None = None
    """The public half of this device's key, as the others know it."""

    @property
    def key(self) -> Path | None:
        """The file of this device's key."""
        return None if self.keys is None else self.keys / f"{self.device}.key"


def taker(sensor: str, settings: Settings, present: Collection[str]) -> str | None:
    """Return the device that takes a sensor now: its own, or the next one that is present.

    None: no device is named for the sensor, or none is present.
    """
    owner = _owner(sensor, settings)
    if owner is None:
        return None
    at = settings.devices.index(owner)
    order = settings.devices[at:] + settings.devices[:at]
    return next((device for device in order if device in present), None)


def _owner(sensor: str, settings: Settings) -> str | None:
    # A name says more than a wildcard, and a long one more than a short one.
    found = [
        ("*" not in name and "?" not in name, len(name), device)
        for device, names in settings.sensors
        for name in names
        if fnmatchcase(sensor, name)
    ]
    return max(found, key=lambda one: one[:2], default=(False, 0, None))[2]


# reading


def read(path: Path, device: str) -> Settings:
    """Return the settings in a file, as they are for a device.

    Raises:
        InvalidSettings: Something in the file is missing, unknown or impossible.
    """
    try:
        return _settings(document.read(path, '"devices"'), path.parent, device)
    except InvalidSettings:
        raise
    except FlowError as error:
        raise InvalidSettings(error.message, hint=error.hint, where=error.where) from error


def _settings(entry: Entry, folder: Path, device: str) -> Settings:
    entries = entry.entries("devices", "device")
    if device not in entries:
        close = get_close_matches(device, entries, n=1)
        every = f"its devices are {', '.join(entries)}" if entries else 'expected "devices:"'
        hint = f'did you mean "{close[0]}"?' if close else every
        raise InvalidSettings(
            f'{entry.title} has no device "{device}"', hint=hint, where=entry.where
        )
    named = entry.text("keys")
    keys = None if named is None else folder / named
    peers = {name: _peer(name, one, keys) for name, one in entries.items()}
    _check_apart(peers, entries)
    own = entries[device]
    listen = own.text("listen") or peers[device].address
    _check_address(own, "listen", listen)
    found = Settings(
        device,
        listen,
        tuple(entries),
        tuple(peer for peer in peers.values() if peer.name != device),
        keys,
        _periods(entry),
        _limits(entry),
        _length(entry, "recall"),
        _length(entry, "skew") or _SKEW,
        entry.flag("key_owner"),
        _across(entry),
        _sensors(entry, tuple(entries)),
        {**_plain(entry, "inputs"), **_plain(own, "inputs")},
        {**_plain(entry, "outputs"), **_plain(own, "outputs")},
        peers[device].public,
    )
    for one in entries.values():
        for known in ("listen", "inputs", "outputs"):
            one.get(known)  # of others they are of no interest
        one.finish()
    entry.finish()
    return found


def _peer(name: str, entry: Entry, keys: Path | None) -> Peer:
    if not NAME.fullmatch(name):
        hint = 'expected letters, digits, ".", "_" and "-", the first a letter or digit'
        raise InvalidSettings(f'"{name}" is not a name for a device', hint=hint, where=entry.where)
    address = entry.needed("address", "tcp://host:port")
    _check_address(entry, "address", address)
    given = entry.text("key")
    try:
        if given is not None:
            return Peer(name, address, public_of(given))
        if keys is None:
            return Peer(name, address)
        file = keys / f"{name}.pub"
        return Peer(name, address, read_public(file).public, file)
    except InvalidKey as error:
        place = _place(entry, "key") if given is not None else entry.where
        raise InvalidSettings(error.message, hint=error.hint, where=place) from error


def _check_apart(peers: Mapping[str, Peer], entries: Mapping[str, Entry]) -> None:
    """Two devices have neither an address nor a key in common."""
    for what in ("address", "public"):
        taken: dict[object, str] = {}
        for name, peer in peers.items():
            value = getattr(peer, what)
            if value is not None and value in taken:
                word = "address" if what == "address" else "key"
                msg = f'device "{name}" has the {word} of device "{taken[value]}"'
                hint = f"expected {'an address' if what == 'address' else 'a key'} of its own"
                raise InvalidSettings(msg, hint=hint, where=_place(entries[name], word))
            taken[value] = name


def _check_address(entry: Entry, key: str, text: str) -> None:
    """An address that can be parsed; its host may be unknown until its network is there."""
    try:
        network.split(text)
    except InvalidAddress as error:
        raise InvalidSettings(error.message, hint=error.hint, where=_place(entry, key)) from error


def _periods(entry: Entry) -> Periods:
    node = entry.get("periods")
    if node is None:
        return Periods()
    inner = Entry(entry.file, '"periods"', node, node.start_mark)
    found = {name: _length(inner, name) for name in _PERIODS}
    inner.finish()
    try:
        return Periods(**{k: one // MICROSECOND for k, one in found.items() if one is not None})
    except InvalidSettings as error:
        raise InvalidSettings(error.message, hint=error.hint, where=inner.where) from error


def _limits(entry: Entry) -> Limits:
    node = entry.get("limits")
    if node is None:
        return Limits()
    inner = Entry(entry.file, '"limits"', node, node.start_mark)
    found = inner.given(whole=_LIMITS)
    inner.finish()
    try:
        return Limits(**found)
    except InvalidSettings as error:
        raise InvalidSettings(error.message, hint=error.hint, where=inner.where) from error


def _length(entry: Entry, key: str) -> timedelta | None:
    text = entry.text(key)
    try:
        return None if text is None else duration(text)
    except FlowError as error:
        raise InvalidSettings(error.message, hint=error.hint, where=_place(entry, key)) from error


def _across(entry: Entry) -> str | None:
    found = entry.text("across")
    if found not in (None, "seed"):
        hint = 'expected "seed", or nothing: then patterns have to be sound across devices'
        raise InvalidSettings(f'"across" is "{found}"', hint=hint, where=_place(entry, "across"))
    return found


def _sensors(entry: Entry, devices: tuple[str, ...]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    node = entry.get("sensors")
    if node is None:
        return ()
    inner = Entry(entry.file, '"sensors"', node, node.start_mark)
    found: dict[str, tuple[str, ...]] = {}
    taken: dict[str, str] = {}
    for device in inner.values:
        if device not in devices:
            close = get_close_matches(device, devices, n=1)
            hint = f'did you mean "{close[0]}"?' if close else f"devices are {', '.join(devices)}"
            msg = f'"sensors" names "{device}", which is no device'
            raise InvalidSettings(msg, hint=hint, where=_place(inner, device))
        found[device] = tuple(inner.texts(device) or ())
        for name in found[device]:
            if name in taken:
                msg = f'sensor "{name}" is given to "{taken[name]}" and to "{device}"'
                hint = "give it to one: the next device takes it when that one is away"
                raise InvalidSettings(msg, hint=hint, where=_place(inner, device))
            taken[name] = device
    return tuple(found.items())


def _plain(entry: Entry, key: str) -> dict[str, Any]:
    """Return what is under a key as plain Python."""
    node = entry.get(key)
    if node is None:
        return {}
    Entry(entry.file, f'"{key}"', node, node.start_mark)  # refuses what is not a mapping
    loader = yaml.SafeLoader("")
    try:
        found = loader.construct_document(node)
    finally:
        loader.dispose()
    return {str(name): value for name, value in found.items()}


def _place(entry: Entry, key: str) -> Where:
    return entry.file.where(entry.values[key][0].start_mark) if key in entry.values else entry.where
