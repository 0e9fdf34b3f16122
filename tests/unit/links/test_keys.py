"""Key files: made, read, and refused when they are damaged or open to others."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import zmq

from millstream.errors import InvalidKey, KeyExists
from millstream.links.keys import (
    KeyFiles,
    KeyPair,
    PublicKey,
    new_keys,
    producers,
    read_key,
    read_public,
)


@pytest.fixture
def made(tmp_path: Path) -> KeyFiles:
    return new_keys(tmp_path / "keys", "till")


def test_a_key_is_made_in_two_files_and_read_again(made: KeyFiles, tmp_path: Path) -> None:
    assert made == KeyFiles(tmp_path / "keys/till.key", tmp_path / "keys/till.pub")
    pair = read_key(made.secret)
    assert (pair.name, len(pair.public), len(pair.secret)) == ("till", 40, 40)
    assert zmq.curve_public(pair.secret) == pair.public
    assert read_public(str(made.public)) == PublicKey("till", pair.public)


def test_the_secret_half_is_in_the_secret_file_alone_and_only_its_owner_can_read_that(
    made: KeyFiles,
) -> None:
    pair = read_key(made.secret)
    assert stat.S_IMODE(made.secret.stat().st_mode) == 0o600
    assert pair.secret.decode() in made.secret.read_text()
    assert pair.secret.decode() not in made.public.read_text()


def test_the_files_say_what_they_are_for(made: KeyFiles) -> None:
    assert made.secret.read_text().startswith(
        '# Millstream key "till", both halves. Keep it secret'
    )
    assert made.public.read_text().startswith('# Millstream key "till", the public half.')


def test_a_secret_is_not_shown_by_accident(made: KeyFiles) -> None:
    pair = read_key(made.secret)
    assert pair.secret.decode() not in repr(pair)
    assert pair != KeyPair("till", pair.public, b"another")


def test_two_keys_are_never_the_same(tmp_path: Path) -> None:
    pairs = [read_key(new_keys(tmp_path, f"k{n}").secret) for n in range(5)]
    assert len({pair.public for pair in pairs} | {pair.secret for pair in pairs}) == 10


@pytest.mark.parametrize("there", ["till.key", "till.pub"])
def test_a_key_is_never_written_over(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    with pytest.raises(KeyExists, match=there) as caught:
        new_keys(tmp_path, "till")
    assert caught.value.hint
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(there, "mine")]


@pytest.mark.parametrize(
    "name", ["", "a/b", "../up", ".hidden", "two words", "-x", "ü", "a" * 101, 'a"b', "a\n"]
)
def test_a_name_must_be_good_for_a_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidKey, match="is not a name for a key"):
        new_keys(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a file")
    with pytest.raises(InvalidKey, match="could not be written"):
        new_keys(tmp_path / "keys", "till")


# damage


def test_a_missing_file_is_refused_with_a_hint(tmp_path: Path) -> None:
    for read in (read_key, read_public):
        with pytest.raises(InvalidKey, match="No such file") as caught:
            read(tmp_path / "till.key")
        assert caught.value.hint is not None
        assert "millstream keys new" in caught.value.hint


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610, 0o644])
def test_a_secret_that_others_can_read_is_refused(made: KeyFiles, mode: int) -> None:
    made.secret.chmod(mode)
    with pytest.raises(InvalidKey, match="can be read by others") as caught:
        read_key(made.secret)
    assert caught.value.hint is not None
    assert f"chmod 600 {made.secret}" in caught.value.hint
    made.secret.chmod(0o400)
    read_key(made.secret)


def test_the_public_file_is_not_taken_for_the_secret_one_nor_the_other_way_round(
    made: KeyFiles,
) -> None:
    with pytest.raises(InvalidKey, match="has no secret half") as caught:
        read_key(made.public)
    assert caught.value.hint == f'give "{made.secret}"'
    with pytest.raises(InvalidKey, match="holds a secret half"):
        read_public(made.secret)


GOOD = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"


@pytest.mark.parametrize(
    "line",
    [
        f'public = "{GOOD[:-1]}"',
        f'public = "{GOOD}x"',
        f'public = "{GOOD[:-1]}~"',
        f'public = "{GOOD[:-1]}ü"',
        f'public = "{"#" * 40}"',
        f"public = {GOOD}",
        f'public "{GOOD}"',
        f'public = "{GOOD}" # why',
        f'Public = "{GOOD}"',
        f'other = "{GOOD}"',
        f'public = "{GOOD}"\npublic = "{GOOD}"',
        "\x00",
    ],
)
def test_a_damaged_line_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "till.pub"
    file.write_text(f"# a comment\n\n{line}\n")
    number = 3 + line.count("\n")
    with pytest.raises(InvalidKey, match=f"is damaged in line {number}"):
        read_public(file)


@pytest.mark.parametrize("content", [b"", b"# only a comment\n", b"\n\n"])
def test_a_file_without_a_key_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "till.pub").write_bytes(content)
    with pytest.raises(InvalidKey, match="has no public half"):
        read_public(tmp_path / "till.pub")


def test_a_file_of_bytes_and_a_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "till.pub").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidKey, match="is not a key file"):
        read_public(tmp_path / "till.pub")
    with pytest.raises(InvalidKey, match="cannot be read"):
        read_public(tmp_path)


def test_spaces_and_comments_may_be_anywhere_between_the_lines(tmp_path: Path) -> None:
    (tmp_path / "till.pub").write_text(f'  # one\n\n   public="{GOOD}"  \n# two')
    assert read_public(tmp_path / "till.pub") == PublicKey("till", GOOD.encode())


def test_halves_of_two_keys_are_refused(made: KeyFiles, tmp_path: Path) -> None:
    pair, other = read_key(made.secret), read_key(new_keys(tmp_path, "other").secret)
    made.secret.write_text(
        made.secret.read_text().replace(pair.public.decode(), other.public.decode())
    )
    with pytest.raises(InvalidKey, match="do not belong together"):
        read_key(made.secret)


# producers


def test_the_producers_are_those_whose_public_keys_are_in_the_folder(tmp_path: Path) -> None:
    pairs = [read_key(new_keys(tmp_path, name).secret) for name in ("till", "oven.2")]
    (tmp_path / "README").write_text("not a key")
    assert {key: one.name for key, one in producers(tmp_path).items()} == {
        pair.public: pair.name for pair in pairs
    }


def test_an_empty_folder_lets_nobody_in_and_a_missing_one_is_refused(tmp_path: Path) -> None:
    assert producers(tmp_path) == {}
    with pytest.raises(InvalidKey, match="there is no folder"):
        producers(tmp_path / "keys")


def test_one_damaged_key_among_the_producers_is_an_error_and_not_a_producer_less(
    made: KeyFiles,
) -> None:
    made.public.write_text("public = \n")
    with pytest.raises(InvalidKey, match="damaged in line 1"):
        producers(made.public.parent)


def test_a_key_has_one_name(made: KeyFiles) -> None:
    made.public.with_name("copy.pub").write_text(made.public.read_text())
    with pytest.raises(InvalidKey, match=r'"copy.pub" and "till.pub" .* hold the same key'):
        producers(made.public.parent)
