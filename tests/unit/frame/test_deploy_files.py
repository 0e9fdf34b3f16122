"""The unit for systemd and the Dockerfile: what keeps an engine in its place is in them, and they are well formed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from configparser import RawConfigParser
from pathlib import Path

import pytest
import typer.main

from millstream.cli.app import app

DEPLOY = Path(__file__).parents[3] / "docs" / "deploy"
UNIT = DEPLOY / "millstream.service"

#: What must be as it is, and why it may not go.
ESSENTIAL = {
    "User": "millstream",  # not root
    "StateDirectoryMode": "0700",  # the data folder is for its owner
    "UMask": "0077",
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",  # none at all
    "AmbientCapabilities": "",
    "ProtectSystem": "strict",  # a read-only file system
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ProtectProc": "invisible",
    "ProtectKernelTunables": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectControlGroups": "yes",
    "RestrictSUIDSGID": "yes",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "SystemCallArchitectures": "native",
    "LimitCORE": "0",  # a core has secrets in it
    "OOMPolicy": "continue",  # a driver that takes too much is no reason to stop the engine
    "Restart": "always",
}


def service() -> dict[str, str]:
    unit = RawConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    return dict(unit["Service"])


def test_the_unit_keeps_the_engine_in_its_place() -> None:
    found = service()
    assert {key: found.get(key) for key in ESSENTIAL} == ESSENTIAL
    assert found["SystemCallFilter"].startswith("@system-service")
    assert int(found["TasksMax"]) >= 1_000
    assert re.fullmatch(r"[1-9][0-9]%", found["MemoryMax"])
    assert found["ReadWritePaths"] == "/var/lib/millstream"


def test_the_unit_calls_a_command_that_there_is() -> None:
    checked_options(service()["ExecStart"])


def checked_options(command: str) -> None:
    """Check the options of `millstream engine` in a command."""
    known = {
        option
        for one in typer.main.get_command(app).commands["engine"].params  # type: ignore[attr-defined]
        for option in one.opts
    }
    assert "millstream engine" in command
    given = re.findall(r"--[a-z-]+", command.split("millstream engine", 1)[1])
    assert given
    assert set(given) <= known


@pytest.fixture
def runnable(tmp_path: Path) -> Path:
    """The unit with a user and a program that are on this machine."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("cannot here: there is no systemd-analyze")
    text = UNIT.read_text().replace("User=millstream", "User=daemon")
    file = tmp_path / "millstream.service"
    file.write_text(text.replace("/opt/millstream/bin/millstream", "/bin/true"))
    return file


def test_systemd_finds_nothing_wrong_with_the_unit(runnable: Path) -> None:
    command = ["systemd-analyze", "verify", "--man=no", str(runnable)]
    found = subprocess.run(command, capture_output=True, text=True)
    ours = [line for line in found.stderr.splitlines() if runnable.name in line]
    assert (found.returncode, ours) == (0, [])


def test_systemd_finds_the_service_well_protected(runnable: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=30", str(runnable)]
    found = subprocess.run(command, capture_output=True, text=True)
    if "unrecognized option" in found.stderr:
        pytest.skip("cannot here: this systemd-analyze reads no files")
    assert found.returncode == 0, found.stdout[-300:]


# the image


def instructions() -> Iterator[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    for line in text.replace("\\\n", "").splitlines():
        if line.strip():
            name, _, rest = line.partition(" ")
            yield name, " ".join(rest.split())


def test_the_image_runs_as_nobody_special_and_brings_only_what_is_pinned() -> None:
    found = list(instructions())
    names = [name for name, _ in found]
    assert set(names) <= {
        "FROM",
        "RUN",
        "COPY",
        "ENV",
        "USER",
        "WORKDIR",
        "VOLUME",
        "EXPOSE",
        "STOPSIGNAL",
        "HEALTHCHECK",
        "ENTRYPOINT",
    }
    (base,) = [rest for name, rest in found if name == "FROM"]
    assert re.fullmatch(r"python:3\.\d+-slim-[a-z]+", base)
    # By number, so that Kubernetes can see that it is not root; and nothing is run after that.
    assert [rest for name, rest in found if name == "USER"] == ["1000:1000"]
    assert "RUN" not in names[names.index("USER") :]
    runs = " ".join(rest for name, rest in found if name == "RUN")
    assert "--require-hashes" in runs
    assert "-perm /6000" in runs, "nothing gives other rights than the user's"
    assert not re.search(r"curl|wget|sudo|ADD ", runs)


def test_the_image_writes_below_its_volume_and_tmp_alone() -> None:
    found = list(instructions())
    environment = " ".join(rest for name, rest in found if name == "ENV")
    assert "HOME=/data" in environment
    assert "XDG_CACHE_HOME=/data/" in environment
    assert ("VOLUME", "/data") in found
    usage = (DEPLOY / "Dockerfile").read_text().split("FROM")[0]
    for option in ("--read-only", "--tmpfs /tmp", "--cap-drop ALL", "no-new-privileges"):
        assert option in usage, option
    for option in ("--memory", "--pids-limit"):
        assert option in usage, option


def test_the_image_starts_a_command_that_there_is() -> None:
    (entry,) = [rest for name, rest in instructions() if name == "ENTRYPOINT"]
    checked_options(entry)
