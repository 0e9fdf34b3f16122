"""The client of one engine: requests, answers, and errors that come back as they were raised."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from millstream import errors
from millstream.engine import tokens
from millstream.engine.access.trust import trusted
from millstream.engine.http.openapi import JSON, OCTETS
from millstream.engine.jobs.status import EngineStatus, JobStatus
from millstream.engine.programs.contents import Content
from millstream.errors import (
    EngineAway,
    EngineError,
    InvalidAddress,
    MillstreamError,
    NoSuchAction,
    NoSuchJob,
)
from millstream.links.network import check_encrypted, network_is_trusted

DEFAULT: Final = "http://127.0.0.1:8340"
POLL_S: Final = 1.0
PATIENCE_S: Final = 60.0
PAUSE_S: Final = 0.2
_CONNECT_S: Final = 5.0
#: How much longer a driver may take to answer that asks Spark first.
PLANNING_S: Final = 120.0
PIECE: Final = 4 << 20
#: What needs a token though it changes nothing.
_GUARDED: Final = ("/bytes", "/audit", "/rows", "/dead")

Answer = TypeVar("Answer")
Progress = Callable[[JobStatus], None]
#: Given an offset and a limit, returns bytes.
Read = Callable[[int, int], bytes]
#: Called with how many bytes of how many are there.
Sent = Callable[[int, int], None]


class EngineClient:
    """One engine, asked over HTTP."""

    def __init__(
        self, url: str, token: str | None = None, *, timeout: float = 60.0, ca: Path | None = None
    ) -> None:
        """Ask the engine at `url`; nothing is sent yet.

        Without a token, that of an engine of ours on this host is looked up when it is first
        needed. `ca` has the certificates that verify the engine; without it, MILLSTREAM_CA names
        them, or the machine's are trusted.

        Raises:
            EngineError: `ca` holds no certificate.
        """
        self.url = _checked(url)
        self._token = self._given = token
        self._timeout = timeout
        # Proxies of the environment are not for this host; its certificates are.
        direct = {f"all://{urlsplit(self.url).hostname}": None} if self.local else None
        self._http = httpx.Client(
            base_url=self.url, timeout=timeout, mounts=direct, verify=trusted(ca)
        )

    def elsewhere(self, url: str) -> EngineClient:
        """Return the client of another engine, with the token that was given, or that one's own."""
        return EngineClient(url, self._given, timeout=self._timeout)

    @property
    def local(self) -> bool:
        host = urlsplit(self.url).hostname or ""
        with contextlib.suppress(ValueError):
            return ip_address(host).is_loopback
        return False

    def about(self) -> EngineStatus:
        return self.get("/engine", EngineStatus)

    # asking

    def get(self, path: str, kind: type[Answer], **query: Any) -> Answer:
        return self._ask("GET", path, kind, query)

    def get_slowly(self, path: str, kind: type[Answer], **query: Any) -> Answer:
        """Ask for what a driver asks Spark for."""
        return self._ask("GET", path, kind, query, extra=PLANNING_S)

    def post(
        self, path: str, kind: type[Answer], body: Any = None, *, extra: float = 0.0, **query: Any
    ) -> Answer:
        return self._ask("POST", path, kind, query, body, extra=extra)

    def delete(self, path: str, kind: type[Answer], **query: Any) -> Answer:
        return self._ask("DELETE", path, kind, query)

    def _ask(
        self,
        method: str,
        path: str,
        kind: type[Answer],
        query: Mapping[str, Any],
        body: Any = None,
        *,
        extra: float = 0.0,
    ) -> Answer:
        if body is None:
            return self._decoded(self._send(method, path, query, extra=extra), kind)
        # Bytes go as they are.
        media, content = (
            (OCTETS, body) if isinstance(body, bytes) else (JSON, msgspec.json.encode(body))
        )
        return self._decoded(self._send(method, path, query, content, media, extra=extra), kind)

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        content: bytes | None = None,
        media: str | None = None,
        *,
        extra: float = 0.0,
    ) -> httpx.Response:
        headers = self._headers(method, path)
        if media is not None:
            headers["Content-Type"] = media
        given = {name: _text(value) for name, value in query.items() if value is not None}
        limit = httpx.Timeout(
            self._timeout + extra + (float(query.get("limit", 0.0)) if method == "POST" else 0.0),
            connect=min(_CONNECT_S, self._timeout),
        )
        try:
            return self._http.request(
                method, path, params=given, headers=headers, content=content, timeout=limit
            )
        except (httpx.ReadTimeout, httpx.WriteTimeout) as exc:
            msg = f"the engine at {self.url} did not answer in {self._timeout:g} s"
            raise EngineAway(msg) from exc
        except httpx.HTTPError as exc:
            hint = "is it running? millstream engine starts one, --engine names another"
            msg = f"the engine at {self.url} cannot be reached: {str(exc) or type(exc).__name__}"
            raise EngineAway(msg, hint=hint) from exc

    def _decoded(self, answer: httpx.Response, kind: type[Answer]) -> Answer:
        try:
            if answer.is_success:
                # What is not JSON is wanted as it is.
                if kind is bytes:
                    return answer.content  # type: ignore[return-value]
                return msgspec.json.decode(answer.content, type=kind)
            problem = msgspec.json.decode(answer.content, type=_Problem)
        except msgspec.MsgspecError as exc:
            status = f"{answer.status_code} {answer.reason_phrase}"
            msg = f"{self.url} does not answer as an engine does: {status}"
            raise EngineError(msg, hint="is it one of this version?") from exc
        raise problem.as_error()

    # the bytes of programs

    def content(self, sha256: str) -> Content | None:
        """Return how much of a program is there, None if nothing is."""
        try:
            return self.get(content_path(sha256), Content)
        except NoSuchAction:
            return None

    def send_content(
        self, sha256: str, total: int, read: Read, *, progress: Sent | None = None
    ) -> None:
        """Bring the bytes of a program there, from where an earlier attempt has stopped.

        Raises:
            BadBinary: They do not have that hash, or are too many.
        """
        there = self.content(sha256)
        at = 0 if there is None else there.bytes
        while there is None or not there.whole:
            data = read(at, min(PIECE, total - at))
            there = self.post(content_path(sha256), Content, data, offset=at, bytes=total)
            at = there.bytes
            if progress is not None:
                progress(at, total)

    def read_content(self, sha256: str, offset: int, limit: int) -> bytes:
        """Return bytes of a program that is there."""
        return self._ask(
            "GET", f"{content_path(sha256)}/bytes", bytes, {"offset": offset, "limit": limit}
        )

    def _headers(self, method: str, path: str) -> dict[str, str]:
        if self._token is None and self.local and (method != "GET" or path.endswith(_GUARDED)):
            self._token = tokens.local_token(Path(self.about().data), self.url)
        if self._token is None:
            return {}
        check_encrypted(self.url, trusted=network_is_trusted())
        return {"Authorization": f"Bearer {self._token}"}

    def close(self) -> None:
        self._http.close()


class _Problem(msgspec.Struct):
    error: str
    message: str
    hint: str | None = None
    where: str | None = None

    def as_error(self) -> MillstreamError:
        """Return the error that the engine has raised."""
        kind = getattr(errors, self.error, None)
        if not (isinstance(kind, type) and issubclass(kind, MillstreamError)):
            kind = EngineError
        error = MillstreamError.__new__(kind)
        if self.where is not None:
            error.add_note(f"  {self.where}")
        MillstreamError.__init__(error, self.message, hint=self.hint)
        if issubclass(kind, errors.FlowError):
            error.where = None  # type: ignore[attr-defined]  # its place is a note already
        return error


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        hint = f"it is written like {DEFAULT}"
        raise InvalidAddress(f'"{url}" is not the address of an engine', hint=hint)
    return url.rstrip("/").replace("://localhost", "://127.0.0.1", 1)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def job_path(job: str, what: str | None = None) -> str:
    if "/" in job or job in ("", ".", ".."):
        raise NoSuchJob(f'there is no job "{job}"', hint="millstream jobs lists them")
    path = f"/jobs/{quote(job, safe='')}"
    return path if what is None else f"{path}/{what}"


def journal_path(job: str, journal: str, what: str | None = None) -> str:
    path = f"{job_path(job)}/journals/{quote(journal, safe='')}"
    return path if what is None else f"{path}/{what}"


def state_path(job: str, stage: str) -> str:
    return f"{job_path(job)}/state/{quote(stage, safe='')}/rows"


def content_path(sha256: str) -> str:
    return f"/contents/{sha256}"
