"""A process that hosts the inboxes of a flow, to be killed: FOLDER PORT."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from millstream.links.host import Host, Listening, declared_inboxes

folder, port = Path(sys.argv[1]), int(sys.argv[2])
host = Host(folder, declared_inboxes(folder), listening_at=Listening(port=port))
print(host.address, flush=True)
signal.pause()
