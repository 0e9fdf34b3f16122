"""One side of a followed partition, as a program: `host DATA NETWORK KEYS`, or `follow COPY ADDRESS KEYS`.

KEYS is a folder with engine.key, which both sides have, and known/ with the producers' public
halves.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from millstream.links.follower import Follower
from millstream.links.host import Listening
from millstream.links.keys import read_key
from millstream.links.listener import Security
from millstream.links.network import Address
from support.links import TARGET, hosted, journal


def host(data: str, network: str, keys: str) -> None:
    security = Security.read(read_key(Path(keys) / "engine.key"), Path(keys) / "known")
    found = hosted(Path(data), Listening(network=network, security=security))
    print(found.address, flush=True)
    time.sleep(3600)


def follow(copy: str, address: str, keys: str) -> None:
    own = read_key(Path(keys) / "engine.key")
    follower = Follower(
        journal(Path(copy)), TARGET, 0, Address.parse(address), keys=own, server=own.public
    )
    follower.start()
    while True:
        found = follower.statistics()
        print(json.dumps({"end": found.end, "live": found.live, "error": found.error}), flush=True)
        time.sleep(0.05)


if __name__ == "__main__":
    {"host": host, "follow": follow}[sys.argv[1]](*sys.argv[2:])
