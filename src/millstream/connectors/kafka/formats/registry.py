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

from millstream.errors import BrokerAway, LoginRefused
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

    def _asked(self, number: int) -> Any:
        parts = urlsplit(self.address)
        host = parts.netloc.rpartition("@")[2]
        path = f"{parts.path.rstrip('/')}/schemas/ids/{number}"
        url = urlunsplit((parts.scheme, host, path, "", ""))
        request = urllib.request.Request(url, headers=self._headers(parts.username))  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:  # noqa: S310
                found = json.loads(answer.read(_MOST_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error.code, number) from None
        except (OSError, ValueError) as error:
            msg = f"the schema registry at {host} does not answer: {error}"
            raise BrokerAway(msg, hint="is registry= right, and the registry running?") from None
        if found.get("schemaType", "AVRO") != "AVRO":
            raise ValueError(f"its schema {number} is not Avro but {found['schemaType']}")
        return self.parse(json.loads(found["schema"]))

    def _refused(self, code: int, number: int) -> Exception:
        if code == 404:
            return ValueError(f"its schema {number} is not in the registry")
        host = urlsplit(self.address).netloc.rpartition("@")[2]
        if code in (401, 403):
            hint = 'registry="https://user@host:8081", registry_password=ms.secret(...)'
            return LoginRefused(f"the schema registry at {host} refuses the login", hint=hint)
        return BrokerAway(f"the schema registry at {host} answers with status {code}")

    def _headers(self, user: str | None) -> dict[str, str]:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if user is not None and self.password is not None:
            token = base64.b64encode(f"{user}:{value_of(self.password)}".encode()).decode()
            headers["Authorization"] = f"Basic {token}"
        return headers
