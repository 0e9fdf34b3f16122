"""A job with a secret: it is used, and found nowhere."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO

import httpx
import psycopg
import pytest

from support.engines import wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.postgres,
    pytest.mark.slow,
]

VALUE = "hush-4711-nobody-knows"
NEXT = "hush-0815-nobody-knows"
FLOW = """
import millstream as ms

flow = ms.Flow("shop")
sales = flow.source("sales", ms.inbox("shop string, at timestamp"), time="at", key="shop")
sales.sink("rows", ms.postgres("{url}", table="sold", password=ms.secret("till-password")))
"""
MILLSTREAM = [sys.executable, "-m", "millstream"]


@pytest.fixture
def guarded(postgres: str) -> Iterator[str]:
    """The address of a database whose user "till" needs a password."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        (file,) = connection.execute("SHOW hba_file").fetchone() or ("",)
        before = Path(file).read_text()
        Path(file).write_text(f"host all till 127.0.0.1/32 scram-sha-256\n{before}")
        connection.execute(f"CREATE ROLE till SUPERUSER LOGIN PASSWORD '{VALUE}'")
        connection.execute("SELECT pg_reload_conf()")
        yield postgres.replace("postgres@", "till@")
        Path(file).write_text(before)
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("DROP TABLE IF EXISTS sold, millstream_epochs; DROP ROLE till")


@contextmanager
def engine(data: Path, log: IO[bytes]) -> Iterator[str]:
    command = [*MILLSTREAM, "engine", "--data", str(data), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()
            process.wait(120)


def called(*words: object, code: int = 0, given: str = "") -> str:
    command = [*MILLSTREAM, *map(str, words)]
    found = subprocess.run(command, capture_output=True, text=True, input=given, timeout=240)
    assert found.returncode == code, found.stdout + found.stderr
    return found.stdout + found.stderr


def stored(url: str) -> int:
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT to_regclass('sold')").fetchone()
        if found is None or found[0] is None:
            return 0
        rows = connection.execute("SELECT count(*) FROM sold").fetchone()
    return 0 if rows is None else int(rows[0])


def everything(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Return every file below a folder, and what is in archives and databases."""
    for file in (one for one in folder.rglob("*") if one.is_file()):
        content = file.read_bytes()
        yield str(file), content
        if zipfile.is_zipfile(BytesIO(content)):
            with zipfile.ZipFile(BytesIO(content)) as archive:
                yield from ((f"{file}/{name}", archive.read(name)) for name in archive.namelist())
        if file.name == "jobs.sqlite":
            with closing(sqlite3.connect(file)) as store:
                packages = [row[0] for row in store.execute("SELECT package FROM versions")]
            for package in packages:
                with zipfile.ZipFile(BytesIO(package)) as archive:
                    yield from ((f"{file}/{one}", archive.read(one)) for one in archive.namelist())


@pytest.mark.long
def test_a_secret_is_used_rotated_without_a_restart_and_found_nowhere(
    tmp_path: Path, guarded: str, postgres: str
) -> None:
    os.environ.pop("MILLSTREAM_SECRETS", None)
    data, flow, log = tmp_path / "engine", tmp_path / "flow.py", tmp_path / "engine.log"
    flow.write_text(FLOW.format(url=guarded))
    row = '{"shop": "north", "at": "2024-05-04 09:00"}\n'
    answers: list[str] = []
    with log.open("wb") as errors, engine(data, errors) as url:
        at = ("--engine", url)
        refused = called("deploy", flow, *at, code=1)
        assert 'secret "till-password" has no value here' in refused
        secrets = data / "secrets"
        secrets.touch(mode=0o600)
        secrets.write_text(f"till-password = {VALUE}\n")
        answers.append(called("deploy", flow, *at))
        called("send", "shop.sales", *at, given=row)
        wait_until(lambda: stored(postgres) == 1, what="the first row")
        pid = httpx.get(f"{url}/jobs/shop").json()["pid"]
        # Rotated: the database and the file first, and no restart.
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(f"ALTER ROLE till PASSWORD '{NEXT}'")
        secrets.write_text(f"till-password = {NEXT}\n")
        called("send", "shop.sales", *at, given=row.replace("09:00", "09:01"))
        wait_until(lambda: stored(postgres) == 2, what="the second row")
        assert httpx.get(f"{url}/jobs/shop").json()["pid"] == pid
        # A wrong one: the error is shown without it.
        secrets.write_text("till-password = hush-wrong\n")
        called("send", "shop.sales", *at, given=row.replace("09:00", "09:02"))
        wait_until(
            lambda: "authentication failed" in str(httpx.get(f"{url}/jobs/shop").json()["reason"]),
            what="the refusal of the database",
        )
        token = {"Authorization": f"Bearer {(data / 'token').read_text().strip()}"}
        paths = httpx.get(f"{url}/openapi.json").json()["paths"]
        reads = [path for path, known in paths.items() if "get" in known]
        for path in reads:
            filled = path.format_map(
                defaultdict(lambda: "x", job="shop", journal="shop.sales", sha256="0" * 64)
            )
            filled = filled.replace("/live", "/live?once=true")  # who asks for more waits forever
            answers.append(httpx.get(f"{url}{filled}", headers=token, timeout=150).text)
        answers.append(called("plan", flow, "--quick", "--json"))
        secrets.unlink()
    found = [*everything(tmp_path), *(("answer", one.encode()) for one in answers)]
    assert len(found) > 30
    for place, content in found:
        assert not [one for one in (VALUE, NEXT, "hush-wrong") if one.encode() in content], place
