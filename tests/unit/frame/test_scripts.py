"""The scripts around the project: what they trust when they fetch something."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"
SHOW = 'source "$0"; echo "$UV_SYSTEM_CERTS|$UV_NATIVE_TLS|${PIP_CERT:-}|${CURL_CA_BUNDLE:-}"'


def sourced(**given: str) -> list[str]:
    """Return what the scripts hand on to uv, pip and curl in an environment."""
    command = ["bash", "-euo", "pipefail", "-c", SHOW, str(SCRIPTS / "certificates")]
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=True)
    return done.stdout.strip().split("|")


def test_what_fetches_trusts_the_authorities_of_the_machine(tmp_path: Path) -> None:
    ours = tmp_path / "company.pem"
    ours.write_text("")
    assert sourced(SSL_CERT_FILE=str(ours)) == ["true", "true", str(ours), str(ours)]
    bundle = sourced()[2]
    assert bundle == "" or Path(bundle).is_file()


def test_what_the_user_has_set_stays() -> None:
    assert sourced(UV_SYSTEM_CERTS="false", PIP_CERT="/mine.pem")[:3] == [
        "false",
        "false",
        "/mine.pem",
    ]


@pytest.mark.parametrize("script", ["bootstrap", "lock", "page", "release", "lowest"])
def test_a_script_that_fetches_has_it(script: str) -> None:
    text = (SCRIPTS / script).read_text()
    assert re.search(r"^source scripts/certificates$", text, flags=re.MULTILINE)
