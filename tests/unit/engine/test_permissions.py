from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.engine.access import token_book
from millstream.engine.access.permissions import OWNER, May, Need, Token, refusal
from millstream.engine.access.token_book import TokenBook
from millstream.engine.http.routes import OPERATIONS
from millstream.engine.http.server import Server, Serving
from millstream.errors import NotPermitted, TokenRefused
from support.engine import PeerEngine
from support.served import PACKAGE, Served

#: What each route needs, once more: a route that is not here, or changes, fails.
ROUTES = {
    "nothing": "home page_file docs health ready",
    "any token": "engine openapi",
    "look": "letters letter metrics jobs job groups journals journal journal_rows journal_file states patterns checkpoints state_rows statistics history logs versions "
    "wait actions action content tasks watchers live lines series graph switch_detail",
    "send": "send",
    "operate": "undeploy drain resume give_up settled missed remove_action stop verify_journal verify_checkpoint "
    "replay discard drain_tasks",
    "deploy": "replay_edited deploy prepare begin host switch plan_switch add_action send_content read_content "
    "drop_content",
    "owner": "audit",
}
NEEDS = {name: Need(need) for need, names in ROUTES.items() for name in names.split()}
#: What each kind of token permits.
PERMITTED = {
    "look": {"look"},
    "send": {"send"},
    "operate": {"look", "operate"},
    "deploy": {"look", "send", "operate", "deploy"},
    "owner": {"look", "send", "operate", "deploy", "owner"},
}
#: Routes without a job in their path that a token for one job may use.
PER_JOB = {"jobs", "deploy", "prepare", "live", "lines"}
ANY = ("nothing", "any token")


def test_every_route_declares_what_it_needs() -> None:
    assert {one.name: one.needs for one in OPERATIONS} == NEEDS
    assert {one.name for one in OPERATIONS if one.per_job} == PER_JOB


# over HTTP: all routes with all kinds of tokens


@dataclass
class Open:
    """An engine that other hosts reach, so that reading needs a token too."""

    engine: PeerEngine
    data: Path
    http: httpx.Client

    def ask(self, method: str, path: str, token: str | None, **more: object) -> httpx.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return self.http.request(method, path, headers=headers, **more)  # type: ignore[arg-type]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    engine = PeerEngine(tmp_path)
    server = Server(engine, tmp_path, Serving(host="0.0.0.0", port=0, open_without_tls=True))
    server.start()
    engine.deploy(b"good")
    try:
        with httpx.Client(base_url=server.url.replace("0.0.0.0", "127.0.0.1"), timeout=60) as http:
            yield Open(engine, tmp_path, http)
    finally:
        server.close()
        engine.close()


def kinds(data: Path) -> dict[str, str | None]:
    """Return a token of every kind."""

    def made(name: str, may: str, **more: float | str) -> str:
        return token_book.create(data, name, [May(may)], now=0.0, **more)  # type: ignore[arg-type]

    found: dict[str, str | None] = {"none": None, "unknown": "ms-" + "x" * 43}
    found["owner"] = (data / "token").read_text().strip()
    for may in May:
        found[may] = made(f"{may}", may)
        found[f"{may} for f"] = made(f"{may}-f", may, job="f")
        found[f"{may} for g"] = made(f"{may}-g", may, job="g")
        found[f"{may} expired"] = made(f"{may}-old", may, expires_at=1.0)
        found[f"{may} revoked"] = made(f"{may}-gone", may)
        token_book.revoke(data, f"{may}-gone")
    return found


def expected(kind: str, name: str, *, about_job: bool) -> int:
    """Return 200 for permitted, 401 or 403."""
    need = NEEDS[name]
    may, _, more = kind.partition(" ")
    if need == "nothing":
        return 200
    if may in ("none", "unknown") or more in ("expired", "revoked"):
        return 401
    if need == "any token":
        return 200
    if need not in PERMITTED[may]:
        return 403
    if more and name not in PER_JOB and not (about_job and more == "for f"):
        return 403
    return 200


@pytest.mark.slow
def test_every_route_permits_every_kind_of_token_what_it_may_and_no_more(opened: Open) -> None:
    fill = {
        "job": "f",
        "source": "s",
        "journal": "s",
        "stage": "counted",
        "group": "g",
        "name": "echo",
        "sha256": "0" * 64,
        "letter": "0",
        "node": "filter",
        "file": "nothing.js",
    }
    wrong = []
    for kind, token in kinds(opened.data).items():
        for one in OPERATIONS:
            query = {"wait": "?limit=0", "live": "?once=true"}.get(one.name, "")
            answer = opened.ask(one.method, one.path.format(**fill) + query, token)
            wanted = expected(kind, one.name, about_job="{job}" in one.path)
            status = answer.status_code if answer.status_code in (401, 403) else 200
            if status != wanted:
                wrong.append((kind, one.name, wanted, answer.status_code))
            if wanted != 200:
                problem = answer.json()
                assert problem["error"] == {401: "TokenRefused", 403: "NotPermitted"}[wanted]
                assert problem["hint"]
            if one.name == "undeploy" and answer.status_code == 200:
                opened.engine.deploy(b"good")
    assert wrong == []


def test_a_token_for_a_job_sees_and_deploys_that_one_only(opened: Open) -> None:
    opened.engine.deploy(b"good", name="other")
    look = token_book.create(opened.data, "look", [May.LOOK], now=0.0, job="f")
    assert [job["name"] for job in opened.ask("GET", "/jobs", look).json()] == ["f"]
    # By its id it might be another job's name.
    assert opened.ask("GET", "/jobs/f-1", look).status_code == 403
    deploy = token_book.create(opened.data, "ci", [May.DEPLOY], now=0.0, job="new")
    for name, status in (("else", 403), (None, 403), ("new", 201)):
        answer = opened.ask("POST", "/jobs", deploy, json={"package": PACKAGE, "name": name})
        assert answer.status_code == status
    assert answer.json()["name"] == "new"


def test_tokens_count_and_cease_to_count_at_once(opened: Open) -> None:
    def asked(token: str) -> int:
        return opened.ask("GET", "/jobs", token).status_code

    first = token_book.create(opened.data, "ci", [May.LOOK], now=0.0)
    assert asked(first) == 200
    second = token_book.rotate(opened.data, "ci", now=0.0)
    assert (asked(first), asked(second)) == (401, 200)
    token_book.revoke(opened.data, "ci")
    assert asked(second) == 401
    owner = (opened.data / "token").read_text().strip()
    assert asked(owner) == 200
    rotated = token_book.rotate(opened.data, OWNER, now=0.0)
    assert (asked(owner), asked(rotated)) == (401, 200)
    assert stat.S_IMODE((opened.data / "token").stat().st_mode) == 0o600


def test_a_stranger_learns_nothing_of_paths(opened: Open) -> None:
    assert opened.ask("GET", "/nowhere", None).status_code == 401
    assert opened.ask("PUT", "/jobs", None).status_code == 401
    look = token_book.create(opened.data, "look", [May.LOOK], now=0.0)
    assert opened.ask("GET", "/nowhere", look).status_code == 404
    assert opened.ask("PUT", "/jobs", look).status_code == 405


def test_reading_stays_open_on_the_same_host(served: Served) -> None:
    assert httpx.get(f"{served.server.url}/jobs").status_code == 200
    assert httpx.get(f"{served.server.url}/audit").status_code == 401


# the rule

tokens = st.builds(
    Token,
    name=st.sampled_from(["ci", "x"]),
    may=st.lists(st.sampled_from(list(May)), min_size=1).map(tuple),
    job=st.sampled_from([None, "a", "b"]),
    expires_at=st.one_of(st.none(), st.floats(0, 100)),
)
jobs = st.sampled_from([None, "a", "b"])


@given(tokens, st.sampled_from(list(Need)), jobs, st.floats(0, 100))
def test_fewer_rights_never_permit_more(
    token: Token, need: Need, job: str | None, now: float
) -> None:
    error = refusal(token, need, job, now)
    if error is not None:
        narrow = Token(
            name="n", may=token.may[:1], job=token.job or "a", expires_at=token.expires_at
        )
        assert refusal(narrow, need, job, now) is not None
        assert error.hint
    assert refusal(Token(name=OWNER), need, job, now) is None
    if need is not Need.NOTHING:
        assert isinstance(refusal(None, need, job, now), TokenRefused)


@given(tokens, st.sampled_from([need for need in Need if need not in ANY]), jobs)
def test_a_refusal_tells_an_expired_token_from_one_that_is_not_enough(
    token: Token, need: Need, job: str | None
) -> None:
    if token.expires_at is not None:
        assert isinstance(refusal(token, need, job, token.expires_at), TokenRefused)
        assert not isinstance(refusal(token, need, job, token.expires_at - 1e-3), TokenRefused)
    else:
        assert isinstance(refusal(token, need, job, 1e12), NotPermitted | None)


def test_a_refusal_names_the_token_and_what_it_lacks() -> None:
    error = refusal(Token(name="grafana", may=(May.LOOK,)), Need.DEPLOY, None, 0.0)
    assert str(error) == 'token "grafana" may look, and this needs one that may deploy'
    error = refusal(Token(name="till", may=(May.SEND,), job="shop"), Need.SEND, "fleet", 0.0)
    assert str(error) == 'token "till" is for job "shop", and this is about job "fleet"'
    error = refusal(Token(name="ci", may=(May.LOOK,), expires_at=0.0), Need.LOOK, None, 1.0)
    assert str(error) == 'token "ci" has expired, at 1970-01-01T00:00:00.000Z'


# files


def test_secrets_are_stored_hashed_and_for_the_owner_alone(tmp_path: Path) -> None:
    TokenBook(tmp_path)
    secret = token_book.create(tmp_path, "ci", [May.LOOK, May.SEND], now=5.0, job="shop")
    file = tmp_path / "tokens.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(secret) > 40
    assert not any(secret in one.read_text() for one in tmp_path.rglob("*") if one.is_file())
    (found,) = token_book.created(tmp_path)
    assert (found.name, found.may, found.job) == ("ci", (May.LOOK, May.SEND), "shop")


def test_an_earlier_secret_works_as_long_as_it_may(tmp_path: Path) -> None:
    book = TokenBook(tmp_path)
    first = token_book.create(tmp_path, "ci", [May.LOOK], now=0.0, expires_at=100.0)
    second = token_book.rotate(tmp_path, "ci", now=50.0, overlap=10.0)
    assert book.find(first, 59.0) is not None
    assert book.find(first, 60.0) is None
    found = book.find(second, 60.0)
    assert found is not None
    assert found.expires_at == 150.0


def test_a_folder_without_created_tokens_goes_on(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("the token of an earlier version\n".replace(" ", "-"))
    (tmp_path / "token").chmod(0o600)
    book = TokenBook(tmp_path)
    found = book.find("the-token-of-an-earlier-version", 0.0)
    assert found is not None
    assert found.owner


def test_tokens_that_others_can_read_or_that_are_damaged_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    book = TokenBook(tmp_path)
    secret = token_book.create(tmp_path, "ci", [May.LOOK], now=0.0)
    assert book.find(secret, 0.0) is not None
    (tmp_path / "tokens.json").chmod(0o644)
    assert book.find(secret, 0.0) is None
    assert "others can read" in caplog.text
    with pytest.raises(TokenRefused, match="others can read"):
        token_book.created(tmp_path)
    (tmp_path / "tokens.json").chmod(0o600)
    assert book.find(secret, 0.0) is not None
    (tmp_path / "tokens.json").write_text("{")
    assert book.find(secret, 0.0) is None
    assert book.find(book.owner, 0.0) is not None


@pytest.mark.parametrize("name", ["owner", "", "a b", "../x", "é"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TokenRefused, match="is not a name"):
        token_book.create(tmp_path, name, [May.LOOK], now=0.0)


def test_what_is_not_there_or_there_already_is_refused(tmp_path: Path) -> None:
    token_book.create(tmp_path, "ci", [May.LOOK], now=0.0)
    with pytest.raises(TokenRefused, match="already"):
        token_book.create(tmp_path, "ci", [May.SEND], now=0.0)
    with pytest.raises(TokenRefused, match="there is no token"):
        token_book.revoke(tmp_path, "other")
    with pytest.raises(TokenRefused, match="rotated"):
        token_book.revoke(tmp_path, OWNER)
