"""Where the inboxes of an engine are, asked over HTTP: producers know engines by their URLs."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request

from millstream.errors import InvalidAddress, NoAnswer
from millstream.links.network import Address

_TIMEOUT_S = 10.0


def address_at(url: str) -> Address:
    """Return the address of an engine's inboxes; MILLSTREAM_TOKEN is used if it is set.

    Raises:
        NoAnswer: There is no response.
        InvalidAddress: Another program answers, or the engine wants a token.
    """
    request = urllib.request.Request(f"{url.rstrip('/')}/engine")  # noqa: S310 (http alone, see `Directory`)
    token = os.environ.get("MILLSTREAM_TOKEN")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 (as above)
            inbox = json.load(answer)["inbox"]
            return Address(inbox["ip"], inbox["port"], inbox["node"], inbox.get("folder"))
    except urllib.error.HTTPError as error:
        hint = "set MILLSTREAM_TOKEN" if error.code in (401, 403) else "is it an engine?"
        raise InvalidAddress(f"{url} answers with status {error.code}", hint=hint) from error
    except OSError as error:
        raise NoAnswer(f"no response from {url}", hint="is the engine running there?") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidAddress(f"{url} is not an engine", hint="give an engine's URL") from error
