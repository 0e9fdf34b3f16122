from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path

import pytest

from millstream.engine.jobs import package
from millstream.engine.jobs.package import pack, unpack
from millstream.errors import BadPackage, NotLoadable


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    folder = tmp_path / "flow"
    (folder / "prices/deep").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "prices/__pycache__").mkdir()
    for name in (
        "flights.py",
        "airports.py",
        "prices/__init__.py",
        "prices/deep/x.json",
        "data/big.csv",
        "notes.txt",
    ):
        (folder / name).write_text(name)
    (folder / "prices/__pycache__/a.pyc").write_text("compiled")
    return folder / "flights.py"


def test_a_package_holds_the_flow_and_the_modules_beside_it(flow: Path, tmp_path: Path) -> None:
    packed = pack(flow)
    found = unpack(packed, tmp_path / "there")
    assert found == tmp_path / "there/flights.py"
    files = sorted(
        str(one.relative_to(tmp_path / "there"))
        for one in (tmp_path / "there").rglob("*")
        if one.is_file()
    )
    assert files == [
        "airports.py",
        "flights.py",
        "millstream.json",
        "prices/__init__.py",
        "prices/deep/x.json",
    ]
    assert found.read_text() == "flights.py"


def test_the_same_files_make_the_same_package_whenever_they_were_written(flow: Path) -> None:
    before = pack(flow)
    os.utime(flow, (1, 1))
    assert pack(flow) == before


def test_unpacking_replaces_what_was_there(flow: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/old.py").touch()
    unpack(pack(flow), tmp_path / "there")
    assert not (tmp_path / "there/old.py").exists()
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith("there")] == ["there"]


def zipped(files: dict[str, bytes], flow: str = "f.py") -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("millstream.json", json.dumps({"flow": flow}))
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def link() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("millstream.json", '{"flow": "f.py"}')
        one = zipfile.ZipInfo("f.py")
        one.external_attr = 0o120777 << 16
        archive.writestr(one, "/etc/passwd")
    return packed.getvalue()


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (b"", "not a zip"),
        (b"PK\x03\x04 and so on", "not a zip"),
        (zipped({"../f.py": b""}, "../f.py"), "outside"),
        (zipped({"/f.py": b""}, "/f.py"), "outside"),
        (zipped({"a\\..\\f.py": b""}), "outside"),
        (link(), "outside"),
        (zipped({}), "no flow"),
        (zipped({"a/f.py": b""}, "a/f.py"), "no flow"),
        (zipped({"f.txt": b""}, "f.txt"), "no flow"),
        (zipped({"f.py": b"", "millstream.jso": b""})[:-30], "not a zip"),
        (zipped({"f.py": bytes(package.MOST_BYTES + 1)}), "more than"),
    ],
)
def test_what_is_no_package_is_refused_and_leaves_nothing(
    packed: bytes, said: str, tmp_path: Path
) -> None:
    with pytest.raises(BadPackage, match=said):
        unpack(packed, tmp_path / "there")
    assert list(tmp_path.iterdir()) == []


def test_a_package_without_its_manifest_or_with_damaged_bytes_is_refused(
    flow: Path, tmp_path: Path
) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("f.py", "")
    with pytest.raises(BadPackage, match="a package has no"):
        unpack(packed.getvalue(), tmp_path / "there")
    whole = bytearray(pack(flow))
    place = whole.index(b"airports.py") + len("airports.py") + 2
    whole[place : place + 4] = b"\xff\xff\xff\xff"
    with pytest.raises(BadPackage, match="cannot be unpacked"):
        unpack(bytes(whole), tmp_path / "there")
    assert not (tmp_path / "there").exists()
    assert not (tmp_path / "there.new").exists()


def test_only_a_flow_is_packed(flow: Path) -> None:
    with pytest.raises(NotLoadable, match="there is no file"):
        pack(flow.with_name("none.py"))
    with pytest.raises(NotLoadable, match="neither Python nor YAML"):
        pack(flow.with_name("notes.txt"))


def test_too_much_beside_a_flow_is_refused(flow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "MOST_FILES", 2)
    with pytest.raises(BadPackage, match="4 files"):
        pack(flow)
