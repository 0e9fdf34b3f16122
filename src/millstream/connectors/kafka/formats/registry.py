"""A schema registry, as Confluent's HTTP API has it: schemas by their numbers, each asked for once."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from millstream.errors import BrokerAway, LoginRefused, NotThere, UnknownFormat
from millstream.secrets import Secret, value_of

_PATIENCE_S: Final = 10.0
_MOST_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Registry:
    """Schemas by number; what a number stands for never changes."""

    address: str
    password: Secret | None
    #: What makes a schema of its JSON.
    parse: Callable[[Any], Any]
    _known: dict[int, Any] = field(default_factory=dict)

    def schema(self, number: int) -> Any:
        """Return a schema.

        Raises:
            ValueError: The registry has none of that number, or not one of Avro.
            BrokerAway: It does not answer.
            LoginRefused: It wants another user or password.
        """
        if number not in self._known:
            self._known[number] = self._asked(number)
        return self._known[number]

    def latest(self, subject: str) -> tuple[int, Any]:
        """Return the newest schema of a subject, after its number.

        Raises:
            NotThere: The subject has no schema.
            BrokerAway: The registry does not answer.
            LoginRefused: It wants another user or password.
        """
        found = self._answer(f"subjects/{subject}/versions/latest")
        if found is None:
            msg = f'the schema registry at {self._host} has no schema of "{subject}"'
            raise NotThere(msg, hint="register one, or give the sink schema_file= too")
        return int(found["id"]), self._schema_of(found, int(found["id"]))

    def register(self, subject: str, schema: Any) -> int:
        """Register a schema, unless it is there, and return its number.

        Raises:
            UnknownFormat: The registry does not take it.
            BrokerAway: The registry does not answer.
            LoginRefused: It wants another user or password.
        """
        body = json.dumps({"schema": json.dumps(schema)}).encode()
        found = self._answer(f"subjects/{subject}/versions", body)
        if found is None:
            raise BrokerAway(f"the schema registry at {self._host} takes no schemas")
        return int(found["id"])

    def _asked(self, number: int) -> Any:
        found = self._answer(f"schemas/ids/{number}")
        if found is None:
            raise ValueError(f"its schema {number} is not in the registry")
        return self._schema_of(found, number)

    def _schema_of(self, found: Any, number: int) -> Any:
        if found.get("schemaType", "AVRO") != "AVRO":
            raise ValueError(f"its schema {number} is not Avro but {found['schemaType']}")
        return self.parse(json.loads(found["schema"]))

    @property
    def _host(self) -> str:
        return urlsplit(self.address).netloc.rpartition("@")[2]

    def _answer(self, what: str, body: bytes | None = None) -> Any:
        """Return what the registry answers; None if there is no such thing."""
        parts = urlsplit(self.address)
        url = urlunsplit((parts.scheme, self._host, f"{parts.path.rstrip('/')}/{what}", "", ""))
        headers = self._headers(parts.username)
        request = urllib.request.Request(url, body, headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:  # noqa: S310
                return json.loads(answer.read(_MOST_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                raise self._refused(error) from None
        except (OSError, ValueError) as error:
            msg = f"the schema registry at {self._host} does not answer: {error}"
            raise BrokerAway(msg, hint="is registry= right, and the registry running?") from None

    def _refused(self, error: urllib.error.HTTPError) -> Exception:
        if error.code in (401, 403):
            hint = 'registry="https://user@host:8081", registry_password=ms.secret(...)'
            return LoginRefused(f"the schema registry at {self._host} refuses the login", hint=hint)
        if error.code in (409, 422):
            why = error.read(_MOST_BYTES).decode(errors="replace")[:300]
            msg = f"the schema registry at {self._host} does not take the schema: {why}"
            return UnknownFormat(msg, hint="change the schema file so that its readers can go on")
        return BrokerAway(f"the schema registry at {self._host} answers with status {error.code}")

    def _headers(self, user: str | None) -> dict[str, str]:
        kind = "application/vnd.schemaregistry.v1+json"
        headers = {"Accept": kind, "Content-Type": kind}
        if user is not None and self.password is not None:
            token = base64.b64encode(f"{user}:{value_of(self.password)}".encode()).decode()
            headers["Authorization"] = f"Basic {token}"
        return headers
