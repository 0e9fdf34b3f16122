from __future__ import annotations

import pytest

from millstream.brokers.topics import copies, in_sync
from millstream.errors import SchemaConflict
from millstream.journal.kinds.kafka.topics import checked


@pytest.mark.parametrize(("brokers", "made"), [(1, (1, 1)), (2, (2, 2)), (3, (3, 2)), (9, (3, 2))])
def test_topics_are_made_as_they_are_wanted(brokers: int, made: tuple[int, int]) -> None:
    count = copies(brokers)
    assert (count, in_sync(count)) == made
    assert checked("t", {"min.insync.replicas": str(in_sync(count))}, count) > 2**19


@pytest.mark.parametrize(("wrong", "replicas"), [("3", 2), ("1", 2), ("2", 1)])
def test_the_hint_of_a_refused_topic_helps(wrong: str, replicas: int) -> None:
    with pytest.raises(SchemaConflict) as found:
        checked("t", {"min.insync.replicas": wrong}, replicas)
    hint = str(found.value.hint)
    value = hint.partition("min.insync.replicas=")[2][0]
    assert checked("t", {"min.insync.replicas": value}, replicas)
