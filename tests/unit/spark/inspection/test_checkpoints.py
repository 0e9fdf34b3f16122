"""`millstream checkpoint show | diff | verify`, on checkpoints that are sound and damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from millstream.cli.app import commands
from millstream.cli.checkpoint import read
from millstream.errors import MillstreamError, NotThere
from millstream.joblog import Decided, JobLog
from millstream.journal import journal_at
from millstream.storage import Folder
from support.checkpoints import DESCRIPTION, ID, SCHEMA, epoch, logged, shop, written


def invoke(tmp_path: Path, *words: str, code: int = 0) -> str:
    quick = ["--quick"] if words[0] == "verify" else []
    arguments = ["checkpoint", *words, *quick, "--data", str(tmp_path)]
    result = CliRunner().invoke(commands({"checkpoint"}), arguments)
    if isinstance(result.exception, MillstreamError):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


# show


def test_a_checkpoint_is_shown_with_inputs_outputs_state_and_fingerprint(tmp_path: Path) -> None:
    shop(tmp_path)
    shown = invoke(tmp_path, "show", "shop.sums")
    assert shown.splitlines()[0] == f"shop.sums  checkpoint {ID}"
    for line in (
        "last committed batch  3",
        "last logged batch     4",
        "reads sales           up to 15, floor 2024-05-04 09:08:21.400",
        "writes sums           jsonlines, epoch 3",
        "state of sums         fold, version 4, ",
        "state of once         distinct, version 4, ",
    ):
        assert f"\n  {line}" in shown
    found = json.loads(invoke(tmp_path, "show", "shop.sums", "--json"))
    assert found == read("shop.sums", tmp_path)
    assert (found["batch"], found["logged"], found["generation"]) == (3, 4, None)
    assert [(one["stage"], one["version"]) for one in found["state"]] == [("sums", 4), ("once", 4)]


def test_a_job_in_the_folder_of_an_engine_is_found_by_its_name(tmp_path: Path) -> None:
    shop(tmp_path / "jobs" / "shop")
    assert read("shop.sums", tmp_path)["batch"] == 3


def test_an_earlier_batch_is_shown_while_spark_keeps_it(tmp_path: Path) -> None:
    shop(tmp_path)
    assert read("shop.sums:2", tmp_path)["inputs"]["sales"]["positions"] == [10]
    with pytest.raises(NotThere, match="batch 0 of group"):
        read("shop.sums:0", tmp_path)
    with pytest.raises(NotThere, match="not the name of a checkpoint"):
        read("shop.sums:last", tmp_path)


def test_a_flow_alone_names_its_groups_and_another_one_is_not_there(tmp_path: Path) -> None:
    shop(tmp_path)
    with pytest.raises(NotThere, match="each of its groups has a checkpoint") as raised:
        read("shop", tmp_path)
    assert raised.value.hint == "name one: shop.sums"
    with pytest.raises(NotThere, match='no checkpoint of a flow "shp"'):
        invoke(tmp_path, "verify", "shp")


def test_the_generation_and_what_the_log_has_decided_are_shown(tmp_path: Path) -> None:
    shop(tmp_path)
    log = JobLog(Folder(tmp_path / "shop"))
    log.claim(wait=lambda _: None)
    log.decide(f"shop/sums/{ID}#shop.sums", Decided(4, "[]"))
    found = read("shop.sums", tmp_path)
    assert found["generation"] == log.generation
    assert found["holder"].startswith("process ")
    assert [(one["epoch"], one["decided"]) for one in found["published"]] == [(3, 4)]
    log.decide(f"shop/sums/{ID}#shop.sums", Decided(5, "[]"))  # looking has claimed nothing


# diff


def test_two_batches_of_a_checkpoint_are_compared(tmp_path: Path) -> None:
    shop(tmp_path)
    shown = invoke(tmp_path, "diff", "shop.sums")
    assert shown.startswith("shop.sums:2 -> shop.sums:3\n")
    assert '  input "sales", partition 0: 10 -> 15\n' in shown
    assert "  5 positions of sales lie between them\n" in shown
    assert shown == invoke(tmp_path, "diff", "shop.sums:2", "shop.sums:3")
    assert "nothing differs" in invoke(tmp_path, "diff", "shop.sums", "shop.sums")


def test_two_groups_are_compared_with_their_meaning(tmp_path: Path) -> None:
    group = shop(tmp_path)
    changed = {**DESCRIPTION, "stages": {**DESCRIPTION["stages"]}}
    changed["stages"]["sums"] = {**changed["stages"]["sums"], "by": ["v"]}
    record = {"checkpoint": "def", "description": changed}
    written(group.with_name("sums@2") / "group.json", json.dumps(record))
    found = json.loads(invoke(tmp_path, "diff", "shop.sums", "shop.sums@2", "--json"))
    assert found["after"]["batch"] is None
    assert {one["what"] for one in found["changes"]} >= {"checkpoint", "fingerprint", "batch"}
    assert len(found["meaning"]) == 1
    assert '"by"' in found["meaning"][0]


# verify


def sink(group: Path, epoch: int, *, staged: bool = False, published: bool = False) -> None:
    """Write the decision of a sink's epoch, and its file."""
    folder = group.parents[2] / "out"
    own = folder / "_millstream" / "shop.sums"
    name = f"shop.sums-{ID}-{epoch:09d}"
    written(own / "epochs" / f"{name}.json", json.dumps([f"{name}.jsonl"]))
    if staged:
        written(own / "staged" / f"{name}.jsonl", "{}\n")
    if published:
        written(folder / f"{name}.jsonl", "{}\n")


def verified(tmp_path: Path, code: int) -> list[str]:
    return invoke(tmp_path, "verify", "shop.sums", "--root", str(tmp_path), code=code).splitlines()


def test_a_sound_checkpoint_is_verified(tmp_path: Path) -> None:
    group = shop(tmp_path)
    sink(group, 2)  # its reader has removed it
    sink(group, 3, published=True)
    sink(group, 4, staged=True)
    journal_at(tmp_path / "shop/journals/sales").commit("shop.sums", [15])
    assert verified(tmp_path, 0) == [
        "shop.sums: sound; 4 batches, 8 files of state, 1 outputs",
        'shop.sums: not checked: the keys of "sums" are read by Spark, which was not started',
        'shop.sums: not checked: the keys of "once" are read by Spark, which was not started',
    ]
    assert invoke(tmp_path, "verify", "shop").startswith("shop.sums: sound; ")


def gone(*names: str) -> Callable[[Path], None]:
    def damage(group: Path) -> None:
        for name in names:
            (group / ID / name).unlink()

    return damage


def other(name: str, content: str) -> Callable[[Path], object]:
    return lambda group: written(group / ID / name, content)


def ahead(group: Path) -> None:
    journal_at(group.parents[1] / "journals/sales").commit("shop.sums", [16])


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "gap": (gone("offsets/2"), "offsets: batches 2 to 2 are missing"),
    "uncommitted": (
        gone("commits/3"),
        "commits: batch 2 is the last, and offsets are logged up to 4",
    ),
    "metadata": (gone("metadata"), "metadata: the file with the query's id is missing"),
    "torn": (other("offsets/3", "v1\n{"), "offsets/3: it cannot be read: "),
    "torn-commit": (other("commits/2", "v1\n{"), "commits/2: it cannot be read: "),
    "back": (
        other("offsets/3", logged(3, 9)),
        'offsets/3: "sales", partition 0 goes back from 10 to 9',
    ),
    "beyond": (
        other("offsets/3", logged(3, 31)),
        'input "sales": partition 0 is read up to 31, and the journal ends at 30',
    ),
    "noted": (
        ahead,
        'input "sales": the journal has noted 16 as read in partition 0, and the checkpoint is at 15',
    ),
    "archive": (
        gone("state/0/1/4.zip"),
        'state of "sums": version 4 needs state/0/1/4.zip, which is not there',
    ),
    "table": (
        gone("state/1/0/SSTs/000004-x.sst"),
        'state of "once": version 4 needs state/1/0/SSTs/000004-x.sst, which is not there',
    ),
    "old-copy": (
        lambda group: sink(group, 5, staged=True),
        'output "sums": epoch 5 is decided, and the checkpoint knows batches up to 4: is it an old copy?',
    ),
    "unpublished": (
        lambda group: sink(group, 3, staged=True),
        'output "sums": epoch 3 is committed, and "shop.sums-abc123-000000003.jsonl" not published',
    ),
    "lost": (
        lambda group: sink(group, 4),
        'output "sums": epoch 4 is decided, and "shop.sums-abc123-000000004.jsonl" is gone',
    ),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_each_fault_is_a_line_and_the_status_is_1(case: str, tmp_path: Path) -> None:
    damage, line = DAMAGES[case]
    group = shop(tmp_path)
    sink(group, 3, published=True)
    damage(group)
    found = verified(tmp_path, 1)
    assert any(one.startswith(f"shop.sums: {line}") for one in found), found


def test_a_journal_that_is_gone_or_trimmed_is_a_fault(tmp_path: Path) -> None:
    group = shop(tmp_path)
    journal = group.parents[1] / "journals/sales"
    journal.rename(journal.with_name("sold"))
    found = json.loads(invoke(tmp_path, "verify", "shop.sums", "--json", code=1))
    (fault,) = found["shop.sums"]["faults"]
    assert fault == {"where": 'input "sales"', "fact": f"there is no journal {journal}"}


def test_an_epoch_in_a_journal_that_the_checkpoint_does_not_know_is_a_fault(tmp_path: Path) -> None:
    group = shop(tmp_path)
    output: dict[str, Any] = {"stage": "sums", "journal": {"name": "sums"}}
    record = {"checkpoint": ID, "description": {**DESCRIPTION, "output": output}}
    written(group / "group.json", json.dumps(record))
    journal = tmp_path / "shop/journals/sums"
    journal_at(journal).create(pa.schema(SCHEMA), written_by="group")
    epoch(journal, f"shop/sums/{ID}", 4)
    assert verified(tmp_path, 0)[0].startswith("shop.sums: sound")
    assert read("shop.sums", tmp_path)["published"][0]["decided"] == 4
    epoch(journal, f"shop/sums/{ID}", 5)
    assert "epoch 5 is decided" in verified(tmp_path, 1)[0]


def test_a_committed_batch_that_the_log_never_decided_is_a_fault(tmp_path: Path) -> None:
    shop(tmp_path)
    log = JobLog(Folder(tmp_path / "shop"))
    log.claim(wait=lambda _: None)
    log.decide(f"shop/sums/{ID}#settled", Decided(2, ""))
    assert "batch 3 is committed, and epoch 2 is the last decided" in verified(tmp_path, 1)[0]
    log.decide(f"shop/sums/{ID}#settled", Decided(3, ""))
    assert "sound" in verified(tmp_path, 0)[0]
