from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

import millstream as ms
from millstream.connectors.postgres import Postgres
from millstream.engine.jobs.package import pack
from millstream.errors import InvalidName, InvalidOption, NotLoadable, SecretMissing
from millstream.flow.describe import describe
from millstream.flow.dump import dump
from millstream.flow.named_secrets import check_secrets
from millstream.plan import draw
from millstream.plan.fingerprint import fingerprint
from millstream.plan.groups import plan
from millstream.secrets import Secret, hidden, value_of

VALUE = "s3cr3t-of-the-till"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLSTREAM_SECRETS", raising=False)


def flow_with(sink: Postgres) -> ms.Flow:
    flow = ms.Flow("shop")
    sales = flow.source("sales", ms.inbox("shop string, at timestamp"), time="at", key="shop")
    sales.sink("rows", sink)
    return flow


# finding a value


def test_a_value_comes_from_the_environment_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kafka-password").write_text("from the folder")
    monkeypatch.setenv("MILLSTREAM_SECRETS", str(tmp_path))
    assert value_of(ms.secret("kafka-password")) == "from the folder"
    monkeypatch.setenv("MILLSTREAM_SECRET_KAFKA_PASSWORD", VALUE)
    assert value_of(ms.secret("kafka-password")) == VALUE


@pytest.mark.parametrize("content", [VALUE, f"{VALUE}\n"])
def test_a_mounted_folder_has_a_file_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setenv("MILLSTREAM_SECRETS", str(tmp_path))
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "a").write_text(content)
    (tmp_path / "a").symlink_to("..data/a")
    assert value_of(ms.secret("a")) == VALUE


def test_a_file_has_a_line_for_each_and_is_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secrets"
    monkeypatch.setenv("MILLSTREAM_SECRETS", str(file))
    file.write_text(f"# ours\n\na = 1\nb-c={VALUE} = # \nempty =\n")
    file.chmod(0o640)
    with pytest.raises(SecretMissing, match="others can read") as caught:
        value_of(ms.secret("a"))
    assert caught.value.hint == f"chmod 600 {file}"
    file.chmod(0o600)
    assert value_of(ms.secret("a")) == "1"
    assert value_of(ms.secret("b-c")) == f"{VALUE} = # "
    file.write_text("a = 2\n")
    assert value_of(ms.secret("a")) == "2"


@pytest.mark.parametrize("name", ["empty", "nothing"])
def test_a_secret_without_a_value_is_missed_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with pytest.raises(SecretMissing, match="has no value here") as caught:
        value_of(Secret(name))
    assert f"MILLSTREAM_SECRET_{name.upper()}" in str(caught.value.hint)
    (tmp_path / "secrets").write_text("empty =\n")
    (tmp_path / "secrets").chmod(0o600)
    monkeypatch.setenv("MILLSTREAM_SECRETS", str(tmp_path / "secrets"))
    with pytest.raises(SecretMissing, match=f'secret "{name}" has no value here') as caught:
        value_of(Secret(name))
    assert str(tmp_path) in str(caught.value.hint)


def test_a_file_that_is_not_text_shows_nothing_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_SECRETS", str(tmp_path))
    (tmp_path / "a").write_bytes(b"\xffpart of it")
    with pytest.raises(SecretMissing, match="it is not text") as caught:
        value_of(Secret("a"))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("name", ["", "a b", "../a", "/a", ".a", "ä"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidName, match="is not a name for a secret"):
        ms.secret(name)


# in flows


@pytest.mark.parametrize(
    "sink",
    [
        ms.postgres("postgresql://till@h/d", table="t", password=ms.secret("pg")),
        ms.postgres(ms.secret("pg"), table="t"),
    ],
    ids=["password", "url"],
)
def test_nothing_that_is_made_of_a_flow_has_the_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: Postgres
) -> None:
    def made() -> list[object]:
        flow = flow_with(sink)
        planned = plan(flow)
        prints = [fingerprint(planned, group.name) for group in planned.groups]
        (tmp_path / "flow.yaml").write_text(dump(flow))
        check_secrets(flow)
        assert ms.load(tmp_path / "flow.yaml") == flow
        return [
            dump(flow),
            json.dumps(describe(flow)),
            json.dumps(prints),
            draw.tree(planned),
            repr(sink),
            pickle.dumps(sink),
            pack(tmp_path / "flow.yaml"),
        ]

    monkeypatch.setenv("MILLSTREAM_SECRET_PG", VALUE)
    before = made()
    monkeypatch.setenv("MILLSTREAM_SECRET_PG", "another")
    assert made() == before
    assert not any(VALUE in str(one) for one in before)
    assert "{secret: pg}" in str(before[0])


def test_a_password_is_none_of_a_fingerprint() -> None:
    plain = plan(flow_with(ms.postgres("postgresql://till@h/d", table="t")))
    named = plan(
        flow_with(ms.postgres("postgresql://till@h/d", table="t", password=ms.secret("pg")))
    )
    (group,) = plain.groups
    assert fingerprint(plain, group.name) == fingerprint(named, group.name)
    assert "password" not in json.dumps(fingerprint(plain, group.name))


def test_a_secret_that_is_missing_is_found_before_anything_runs() -> None:
    flow = flow_with(ms.postgres(ms.secret("pg-url"), table="t"))
    with pytest.raises(SecretMissing, match='sink "rows": secret "pg-url" has no value') as caught:
        check_secrets(flow)
    assert caught.value.where is not None


def test_the_address_of_a_journal_names_secrets_too(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = ms.Flow("shop")
    sales = flow.source("sales", ms.inbox("shop string, at timestamp"), time="at")
    kept = sales.journal("kept", at="kafka://till@b:9093/kept?password=kafka&tls=true")
    kept.sink("rows", ms.console())
    with pytest.raises(SecretMissing, match='journal "kept": secret "kafka" has no value'):
        check_secrets(flow)
    monkeypatch.setenv("MILLSTREAM_SECRET_KAFKA", VALUE)
    check_secrets(flow)


def test_a_password_that_is_written_down_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="is not a secret") as caught:
        ms.postgres("postgresql://till@h/d", table="t", password=VALUE)  # type: ignore[arg-type]
    assert VALUE not in f"{caught.value}{caught.value.hint}"
    text = dump(flow_with(ms.postgres("postgresql://till@h/d", table="t")))
    (tmp_path / "flow.yaml").write_text(text.rstrip() + f"\n    password: {VALUE}\n")
    with pytest.raises(InvalidOption, match="is not a secret"):
        ms.load(tmp_path / "flow.yaml")
    (tmp_path / "flow.yaml").write_text(text.rstrip() + "\n    password: {secrte: pg}\n")
    with pytest.raises(NotLoadable, match='has "secrte", which means nothing here'):
        ms.load(tmp_path / "flow.yaml")


def test_foreign_texts_are_shown_without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_SECRET_PG", VALUE)
    assert hidden(f"near {VALUE}: no", Secret("pg"), None, "near") == "near ***: no"
