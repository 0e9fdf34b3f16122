"""What an engine leaves of a job's versions for the next one, over a folder."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from millstream.clock import SystemClock
from millstream.engine.jobs.lifecycle import Job
from millstream.engine.jobs.store import JobSettings, Stored, Version
from millstream.engine.jobs.switch_record import Switch
from millstream.engine.leases.claims import Claims
from millstream.engine.leases.coordination import Coordination
from millstream.engine.leases.versions import SharedVersions
from millstream.engine.managed_job import ManagedJob
from millstream.engine.version_sharing import VersionSharing
from millstream.errors import StorageAway
from millstream.joblog import Lease
from millstream.storage import storage_at
from support.engines import wait_until

FIRST = Version(
    number=1, added_at=1.0, current_at=1.0, settings=JobSettings(flow="f.py", package="one")
)
SECOND = Version(
    number=2,
    added_at=2.0,
    settings=JobSettings(flow="f.py", package="two", root="/only/here", shared=True),
    switch=Switch(version=2, previous=1, asked_at=2.0),
)


@pytest.fixture
def shared(tmp_path: Path) -> SharedVersions:
    return SharedVersions(storage_at(str(tmp_path / "shared")))


def test_the_next_engine_reads_what_the_last_claim_before_its_own_has_left(
    shared: SharedVersions,
) -> None:
    assert shared.read("shop", 1, 4) == ()
    shared.write("shop", 1, 4, [FIRST])
    shared.write("shop", 1, 9, [FIRST, SECOND])
    found = shared.read("shop", 1, 12)
    assert [one.number for one in found] == [1, 2]
    assert found[1].switch == SECOND.switch
    assert found[1].settings.root is None, "a folder of one engine means nothing on another"
    assert shared.read("shop", 2, 12) == (), "another deployment of that name"


def test_an_engine_that_has_lost_a_job_changes_nothing_that_others_read(
    shared: SharedVersions,
) -> None:
    shared.write("shop", 1, 9, [FIRST])
    shared.write("shop", 1, 4, [FIRST, SECOND])  # of a claim before: it slept
    assert [one.number for one in shared.read("shop", 1, 12)] == [1]


def test_a_job_is_taken_with_all_packages_and_the_number_of_its_record(tmp_path: Path) -> None:
    shared = Coordination(str(tmp_path / "shared"), clock=SystemClock())
    claims = Claims(shared, "first")
    claims.deploy("shop", b"deployed", "/flows", {})
    taken = shared.taken("shop", 4, None)
    assert taken is not None
    assert (taken.package, list(taken.versions), taken.first) == (b"deployed", [], 1)
    shared.versions.put_package("shop", 1, "two", b"changed")
    shared.versions.write("shop", 1, 4, [FIRST, SECOND])
    taken = shared.taken("shop", 9, None)
    assert taken is not None
    assert [(one.number, package) for one, package in taken.versions] == [
        (1, b"deployed"),
        (2, b"changed"),
    ]
    claims.undeploy("shop", purge=False)
    assert shared.taken("shop", 12, None) is None
    assert shared.versions.read("shop", 1, 12) == ()


class Away(SharedVersions):
    """A storage that does not answer for a while."""

    refusals = 0
    answers = threading.Event()

    def write(self, *args: object) -> None:
        assert self.answers.wait(60)
        if self.refusals:
            self.refusals -= 1
            raise StorageAway("it does not answer")
        super().write(*args)  # type: ignore[arg-type]


def test_what_could_not_be_shared_is_shared_when_the_storage_is_back(tmp_path: Path) -> None:
    shared = Away(storage_at(str(tmp_path / "shared")))
    shared.answers.set()
    stored = Stored(
        id="shop-1",
        name="shop",
        number=1,
        deployed_at=1.0,
        settings=replace(FIRST.settings, shared=True),
        job=Job("shop"),
    )
    managed = ManagedJob(stored, versions={1: FIRST}, lease=Lease("", "first", 4, 1.0))
    sharing = VersionSharing(shared)
    shared.refusals = 1
    with pytest.raises(StorageAway):
        sharing.add(managed, SECOND, b"changed")
    assert shared.read("shop", 1, 4) == ()
    shared.refusals = 1
    sharing.changed(managed)
    wait_until(lambda: shared.read("shop", 1, 4))
    # Once more, with a version that comes while the storage is still busy with those before.
    shared.answers.clear()
    sharing.changed(managed)
    wait_until(lambda: not sharing._changed)
    managed.versions[2] = SECOND
    sharing.changed(managed)
    closing = threading.Thread(target=sharing.close)
    closing.start()
    wait_until(lambda: sharing._over)
    shared.answers.set()
    closing.join()
    assert [one.number for one in shared.read("shop", 1, 4)] == [1, 2], "also when it closes"
