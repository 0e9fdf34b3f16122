"""A flow whose checkpoints are on S3 is killed, moves to another host, and loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from millstream.cli.checkpoint import read
from millstream.spark.inspection.opened import opened
from millstream.spark.inspection.place import job_place
from millstream.spark.inspection.verify import verify
from millstream.storage import S3, storage_at
from support import s3 as s3_support
from support.crash import expected, prepared, results
from support.s3 import Server, s3a_jars

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def s3_jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return s3a_jars(tmp_path_factory.mktemp("jars") / "s3a")


def start(root: Path, storage: str, jars: Path, fail_at: str = "") -> subprocess.Popen[bytes]:
    environment = os.environ | {"MILLSTREAM_S3_JARS": str(jars), "MILLSTREAM_FAIL_AT": fail_at}
    if not fail_at:
        del environment["MILLSTREAM_FAIL_AT"]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        # As secrets: from the others, Spark would take the keys itself.
        environment[f"MILLSTREAM_SECRET_{name}"] = environment.pop(name)
    command = [sys.executable, "-m", "millstream", "run", "flow.py", "--until-end", "--json"]
    command += ["--rows-per-batch", "1500", "--storage", storage]
    with (root / "output.txt").open("ab") as output:
        return subprocess.Popen(
            command, cwd=root, env=environment, stdout=output, stderr=output, start_new_session=True
        )


def ended(root: Path, process: subprocess.Popen[bytes]) -> int:
    try:
        watch_commands(process)
        return process.wait(400)
    finally:
        with suppress(ProcessLookupError):  # its Java
            os.killpg(process.pid, signal.SIGKILL)
        print((root / "output.txt").read_text()[-3000:])


def watch_commands(process: subprocess.Popen[bytes]) -> None:
    """Look at the command line of Java, as every user of the host can: it has no keys."""
    seen = ""
    while "java" not in seen and process.poll() is None:
        with suppress(psutil.Error):
            children = psutil.Process(process.pid).children(recursive=True)
            seen = "\n".join(" ".join(child.cmdline()) for child in children)
        time.sleep(0.05)
    assert "java" in seen
    assert s3_support.SECRET not in seen


def command(root: Path, jars: Path, *words: str) -> int:
    """Run a command that looks at the job, and print what it prints."""
    environment = os.environ | {"MILLSTREAM_S3_JARS": str(jars)}
    done = subprocess.run(
        [sys.executable, "-m", "millstream", *words],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    print(done.stdout, done.stderr[-3000:])
    return done.returncode


POINTS = {
    "once": ("logged-decision:3",),
    "often": ("logged:2", "staged:2", "decided:3", "logged-decision:3", "before-commit:4"),
}


@pytest.mark.long
@pytest.mark.parametrize("kills", ["once", pytest.param("often", marks=pytest.mark.soak)])
def test_a_flow_that_is_killed_goes_on_with_its_checkpoint_on_s3(
    kills: str, tmp_path: Path, s3: Server, s3_jars: Path
) -> None:
    rows, storage = prepared(tmp_path, 2_000), s3.new_address()
    for point in POINTS[kills]:
        assert ended(tmp_path, start(tmp_path, storage, s3_jars, point)) == 137
    assert ended(tmp_path, start(tmp_path, storage, s3_jars)) == 0
    parquet, jsonl = results(tmp_path)
    assert parquet == expected(rows)
    assert jsonl == expected(rows)
    log = storage_at(f"{storage}/crash").list("log")
    assert len(log) > 5
    shown = read("crash.minutes", tmp_path / "nothing", f"{storage}/")
    assert shown["batch"] == shown["logged"] > 0
    assert shown["generation"] >= len(POINTS[kills])
    place = job_place(tmp_path / ".millstream", "crash", storage)
    assert "minutes" in place.current
    for group in place.current:
        found = verify(opened(place, group), tmp_path)
        assert found.faults == ()
        assert found.batches > 0
    assert command(tmp_path, s3_jars, "checkpoint", "verify", "crash", "--storage", storage) == 0
    if kills == "often":
        words = ("state", "show", "crash", "totals", "--storage", storage, "--key", "k1")
        assert command(tmp_path, s3_jars, *words) == 0
        (damaged, *_) = (one for one in place.storage.sizes("groups") if "/keys/totals/" in one)
        place.storage.put(damaged, b"cut")
        words = ("checkpoint", "verify", "crash", "--storage", storage)
        assert command(tmp_path, s3_jars, *words) == 1
    state = list(tmp_path.glob(".millstream/crash/groups/*/*/state"))
    assert state == [], "nothing of Spark's is local"
    assert list(tmp_path.glob(".millstream/crash/groups/*/*/keys")) == []
    bucket = storage_at(storage)
    assert isinstance(bucket, S3)
    stored = [one["path"] for page in bucket._store.list(bucket.prefix) for one in page]
    assert [path for path in stored if "/keys/totals/" in path], "where its large state is"
