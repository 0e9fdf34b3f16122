"""The client for asyncio: the same promises, awaited.

async with ms.connect_async("tcp://host:port") as c:
    await c.send("flights.departures", rows)
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from os import PathLike
from typing import Any

from millstream.links.admission import Numbers
from millstream.links.client import Client, connect
from millstream.links.earlier import timeout_by_its_earlier_name


class AsyncClient:
    """A client for asyncio: the same promises, awaited."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @timeout_by_its_earlier_name
    async def send(
        self,
        target: str,
        rows: Any,
        *,
        numbers: Numbers | None = None,
        timeout: float | None = None,
    ) -> int:
        """Send rows; see `Client.send`."""
        sent = await self.send_nowait(target, rows, numbers=numbers)
        try:
            # A thread is needed to hand rows over, and none to wait: thousands may send at once.
            return await asyncio.wait_for(
                sent, self._client.timeout if timeout is None else timeout
            )
        except TimeoutError:
            raise self._client.no_room(target) from None

    async def send_nowait(
        self, target: str, rows: Any, *, numbers: Numbers | None = None
    ) -> asyncio.Future[int]:
        """Hand rows over; awaiting the call waits for room, awaiting its result for the journal."""
        future = await asyncio.to_thread(self._client.send_nowait, target, rows, numbers=numbers)
        return asyncio.wrap_future(future)

    async def end(self, target: str) -> None:
        """End a source; see `Client.end`."""
        await asyncio.to_thread(self._client.end, target)

    async def watermark(self, target: str, moment: datetime | str) -> None:
        """Raise a source's watermark; see `Client.watermark`."""
        await asyncio.to_thread(self._client.watermark, target, moment)

    async def flush(self) -> None:
        """Wait until all that was handed over is in the journal."""
        await asyncio.to_thread(self._client.flush)

    async def close(self) -> None:
        """Flush and close."""
        await asyncio.to_thread(self._client.close)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: object, *error: object) -> None:
        if kind is None:
            await self.close()
        else:
            await asyncio.to_thread(self._client.abort)


def connect_async(where: str | PathLike[str] = ".millstream", **options: Any) -> AsyncClient:
    """Connect as `connect` does, for asyncio: `async with ms.connect_async(...) as c`."""
    return AsyncClient(connect(where, **options))
