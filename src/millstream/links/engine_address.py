"""Where the inboxes of an engine are, asked over HTTP: producers know engines by their URLs."""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request

from millstream.errors import InvalidAddress, NoAnswer
from millstream.links.network import Address, check_encrypted, network_is_trusted

_TIMEOUT_S = 10.0


def address_at(url: str) -> Address:
    """Return the address of an engine's inboxes; MILLSTREAM_TOKEN and MILLSTREAM_CA are used.

    Raises:
        NoAnswer: There is no response.
        InvalidAddress: Another program answers, the engine wants a token, or MILLSTREAM_CA holds
            no certificate.
        OpenNetwork: The token would travel unencrypted.
    """
    request = urllib.request.Request(f"{url.rstrip('/')}/engine")  # noqa: S310 (http alone, see `Directory`)
    token = os.environ.get("MILLSTREAM_TOKEN")
    if token:
        check_encrypted(url, trusted=network_is_trusted())
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(  # noqa: S310 (as above)
            request, timeout=_TIMEOUT_S, context=_trusted(url)
        ) as answer:
            inbox = json.load(answer)["inbox"]
            return Address(inbox["ip"], inbox["port"], inbox["node"], inbox.get("folder"))
    except urllib.error.HTTPError as error:
        hint = "set MILLSTREAM_TOKEN" if error.code in (401, 403) else "is it an engine?"
        raise InvalidAddress(f"{url} answers with status {error.code}", hint=hint) from error
    except OSError as error:
        raise NoAnswer(f"no response from {url}", hint="is the engine running there?") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidAddress(f"{url} is not an engine", hint="give an engine's URL") from error


def _trusted(url: str) -> ssl.SSLContext | None:
    """Return what verifies an engine's certificate: the machine's, or those of MILLSTREAM_CA."""
    named = os.environ.get("MILLSTREAM_CA")
    if not url.startswith("https://") or not named:
        return None
    try:
        return ssl.create_default_context(cafile=named)
    except (OSError, ssl.SSLError) as exc:
        msg = f'the certificates in "{named}" cannot be read: {exc.strerror or exc}'
        raise InvalidAddress(msg, hint="name a file in PEM format with MILLSTREAM_CA") from exc
