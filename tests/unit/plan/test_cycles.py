import millstream as ms
from millstream.plan.cycles import behind_a_cycle, cycle
from millstream.plan.groups import plan as plan_of


def round_flow():
    flow = ms.Flow("round")
    rows = flow.source("rows", ms.inbox("n long, at timestamp"), time="at")
    back = flow.reads("again", "n long, at timestamp", time="at")
    both = flow.merge("both", rows, back)
    again = both.sql("odd", "SELECT n, at FROM both WHERE n % 2 = 1").journal("again")
    again.window("hours", every="1 hour", n="count(*)").sink("hours", ms.memory())
    rows.window("alone", every="1 hour", n="count(*)").sink("alone", ms.memory())
    return flow


def test_a_group_that_reads_its_own_journal_is_a_cycle():
    planned = plan_of(round_flow())
    assert cycle(planned, "again") == ("again",)
    assert cycle(planned, "hours") == ()


def test_what_reads_a_cycle_is_behind_it_and_warned_of():
    planned = plan_of(round_flow())
    assert [group.name for group in planned.groups if behind_a_cycle(planned, group.name)] == [
        "again",
        "hours",
    ]
    assert [warning for warning in planned.warnings if "goes round" in warning] == [
        'group "hours" reads what goes round in a cycle: its results come when the sources end'
    ]
