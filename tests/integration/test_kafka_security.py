"""Sources over TLS and with logins, on a broker of their own; what is wrong is said clearly."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import millstream as ms
from millstream.errors import SourceFailed
from millstream.testing.kafka import broker, free_port
from support.kafka import new_topic, produce
from support.kafka_source import DDL, KafkaCase, event

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def authority(folder: Path, name: str) -> Path:
    """Make an authority; the file of its certificate is returned, its key is beside it."""
    made = folder / f"{name}.pem"
    key = str(folder / f"{name}.key")
    new = ("-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", str(made), "-days", "2")
    openssl("req", "-x509", *new, "-subj", f"/CN={name}")
    return made


def signed(folder: Path, name: str, ca: Path) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1; return its file and that of its key."""
    key, request, made = (folder / f"{name}{end}" for end in (".key", ".csr", ".pem"))
    new = ("-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(request))
    openssl("req", *new, "-subj", f"/CN={name}")
    names = folder / f"{name}.ext"
    names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    given = ("-in", str(request), "-CA", str(ca), "-CAkey", str(ca.with_suffix(".key")))
    made_of = ("-CAcreateserial", "-days", "2", "-extfile", str(names), "-out", str(made))
    openssl("x509", "-req", *given, *made_of)
    return made, key


@dataclass(frozen=True)
class Secured:
    """Addresses of one broker, and its topic of three rows."""

    topic: str
    tls: str
    login: str
    folder: Path
    ca: str

    def spec(self, servers: str, **options: Any) -> Any:
        return ms.kafka(self.topic, DDL, servers=servers, stop="latest", **options)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    ca = authority(folder, "ca")
    authority(folder, "other")
    certificate, key = signed(folder, "broker", ca)
    signed(folder, "client", ca)
    (folder / "broker.both").write_text(key.read_text() + certificate.read_text())
    plain, tls, login, controller = (free_port() for _ in range(4))
    here = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{tls},SASL_SSL://127.0.0.1:{login}"
    properties = {
        "listeners": f"{here},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": here,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.both"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
    with broker(folder / "kafka", port=plain, properties=properties) as running:
        admin = AdminClient({"bootstrap.servers": running.servers})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion("shop", info, b"right")
        for made in admin.alter_user_scram_credentials([user]).values():
            made.result(30)
        topic = new_topic(running.servers)
        produce(running.servers, topic, [event(n) for n in range(3)])
        yield Secured(topic, f"127.0.0.1:{tls}", f"127.0.0.1:{login}", folder, str(ca))
        running.kill()  # quicker than an orderly end


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KafkaCase:
    monkeypatch.setenv("MILLSTREAM_SECRET_RIGHT", "right")
    monkeypatch.setenv("MILLSTREAM_SECRET_WRONG", "wrong")
    return KafkaCase(tmp_path / "check" / "journals" / "events")


def test_a_login_over_tls(secured: Secured, case: KafkaCase) -> None:
    case.read(secured.spec(secured.login, user="shop", password=ms.secret("right"), ca=secured.ca))
    assert case.numbers() == [0, 1, 2]


def test_a_client_with_a_certificate(
    secured: Secured, case: KafkaCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_SECRET_KEY", (secured.folder / "client.key").read_text())
    shown = str(secured.folder / "client.pem")
    options = {"ca": secured.ca, "certificate": shown, "certificate_key": ms.secret("key")}
    case.read(secured.spec(secured.tls, **options))
    assert case.numbers() == [0, 1, 2]


def test_a_wrong_password_is_a_refused_login(secured: Secured, case: KafkaCase) -> None:
    spec = secured.spec(secured.login, user="shop", password=ms.secret("wrong"), ca=secured.ca)
    with pytest.raises(SourceFailed, match="refuses the login") as error:
        case.read(spec)
    assert "user, password and mechanism" in str(error.value.hint)
    assert "wrong" not in str(error.value)


def test_an_authority_that_did_not_sign_the_broker_is_named_as_the_reason(
    secured: Secured, case: KafkaCase
) -> None:
    other = str(secured.folder / "other.pem")
    spec = secured.spec(secured.login, user="shop", password=ms.secret("right"), ca=other)
    with pytest.raises(SourceFailed, match="cannot be spoken to over TLS") as error:
        case.read(spec)
    assert "ca=" in str(error.value.hint)
