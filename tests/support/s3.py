"""A real S3 server for tests: versitygw, built once by Go from its module, over a folder.

It compares and writes in one step for If-None-Match, as Amazon's S3 does. (s3proxy from Maven
Central looks first and writes then: of 200 races of eight callers, 63 had several winners.)
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from millstream.spark.session.s3a import CLIENT, SDK
from millstream.testing.jars import cache, jars, made_once
from millstream.testing.kafka import free_port

VERSION = "v1.8.0"
_MODULE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
KEY, SECRET = "test-key", "test-secret"
_CLIENT_DIGEST = "95743aef3625c7f1d38d4562306affd109a17f49fe2bf18f29e837b7859aaf8f"
_SDK_DIGEST = "34f100e2881d8f114604632388849779582af714e47c1daf1f8845f5358948a5"


def s3_program() -> Path:
    """Return the server's program, which the first process that needs it builds into the cache."""
    return made_once(cache() / f"versitygw-{VERSION}", _built)


def _built(folder: Path) -> Path:
    go = shutil.which("go")
    if go is None:
        pytest.skip("cannot here: the S3 server is built by Go, which is not installed")
    settings = {"GOPATH": str(folder), "GOFLAGS": "-modcacherw", "CGO_ENABLED": "0"}
    settings |= {"GOTOOLCHAIN": "auto"}
    done = subprocess.run(
        [go, "install", _MODULE], env=os.environ | settings, capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"cannot here: {_MODULE} cannot be built: {done.stderr.decode()[-300:]}")
    return folder / "bin" / "versitygw"


class Server:
    """An S3 server with one bucket, whose process can be paused and started again."""

    def __init__(self, folder: Path, ip: str = "127.0.0.1") -> None:
        self._folder, self._ip = folder, ip
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.bucket = "bucket"
        for name in ("data/bucket", "meta"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    @property
    def endpoint(self) -> str:
        return f"http://{self._ip}:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """What clients need in their environment."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def new_address(self) -> str:
        """Return an address in the bucket that nobody else has."""
        return f"s3://{self.bucket}/{uuid.uuid4().hex[:10]}"

    def start(self) -> None:
        command = [str(s3_program()), "--port", f"{self._ip}:{self._port}", "--quiet", "posix"]
        command += ["--sidecar", str(self._folder / "meta"), str(self._folder / "data")]
        keys = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=os.environ | keys, stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + 30
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < until, "the S3 server does not answer"
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            socket.create_connection((self._ip, self._port), timeout=1).close()
        except OSError:
            return False
        return True


@contextmanager
def s3_server(folder: Path, ip: str = "127.0.0.1") -> Iterator[Server]:
    """Run a server for the length of a block, on an address of this host."""
    server = Server(folder, ip)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def s3_jars() -> tuple[Path, Path]:
    """Return the folders of Hadoop's jar for S3 and of Amazon's, fetched into the cache once."""
    return (
        jars("hadoop-aws-3.5.0-client", CLIENT, alone=True, digest=_CLIENT_DIGEST),
        jars("awssdk-s3-2.35.4", SDK, digest=_SDK_DIGEST),
    )


def s3a_jars(folder: Path) -> Path:
    """Return a folder with the jars that Spark needs for S3."""
    folder.mkdir()
    for jar in (jar for place in s3_jars() for jar in place.iterdir()):
        had = jar.name.startswith(("netty-", "slf4j-", "commons-codec-"))
        if not had or jar.name.startswith("netty-nio-client"):
            (folder / jar.name).symlink_to(jar)
    return folder
