"""A producer gets no more than its quota, whatever it asks for and whenever, and no less if it goes on asking."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.links.quotas import Allowance, Quota

RATES = st.one_of(st.none(), st.integers(1, 10_000))
QUOTAS = st.builds(Quota, RATES, RATES)
#: Pauses before requests, their rows, and the bytes of each row.
REQUESTS = st.lists(
    st.tuples(st.floats(0, 5), st.integers(1, 3000), st.integers(1, 2000)), max_size=40
)


@given(QUOTAS, REQUESTS)
def test_over_any_time_no_more_is_taken_than_the_rate_and_a_second_of_it(
    quota: Quota, requests: list[tuple[float, int, int]]
) -> None:
    now, allowance = 0.0, Allowance.full(quota, 0.0)
    taken: list[tuple[float, int, int]] = []
    for pause, rows, each in requests:
        now += pause
        allowance = allowance.filled(now)
        most = allowance.fitting(rows, rows * each)
        assert 0 <= most <= rows
        allowance = allowance.less(most, most * each)
        taken.append((now, most, most * each))
    for first, (begin, _, _) in enumerate(taken):
        for last in range(first, len(taken)):
            span = taken[last][0] - begin
            _within(quota.rows_per_second, span, [one[1] for one in taken[first : last + 1]], 0)
            sizes = [one[2] for one in taken[first : last + 1]]
            _within(quota.bytes_per_second, span, sizes, 2000)  # a row that is larger than the rest


def _within(rate: int | None, span: float, amounts: list[int], largest: int) -> None:
    assert rate is None or sum(amounts) <= rate * (span + 1) + largest + 1e-6 * (1 + span) * rate


@given(
    st.builds(Quota, st.integers(100, 1000), st.integers(100, 1000)),
    st.integers(1, 100),
    st.integers(1, 300),
)
def test_who_goes_on_asking_gets_its_rate(quota: Quota, rows: int, each: int) -> None:
    now, left, allowance = 0.0, rows, Allowance.full(quota, 0.0)
    slowest = max(
        rows / (quota.rows_per_second or rows),
        rows * each / (quota.bytes_per_second or rows * each),
    )
    while left:
        allowance = allowance.filled(now)
        most = allowance.fitting(left, left * each)
        allowance, left = allowance.less(most, most * each), left - most
        now += 0.25
    assert now <= 1.3 * slowest + 2


@given(QUOTAS, st.floats(0, 10), st.floats(0, 10), st.integers(1, 100))
def test_what_is_given_back_is_there_and_a_clock_that_goes_back_gives_nothing(
    quota: Quota, later: float, earlier: float, rows: int
) -> None:
    full = Allowance.full(quota, later)
    assert full.less(rows, rows).less(-rows, -rows) == full
    assert full.less(-rows, -rows) == full
    spent = full.less(rows, rows)
    assert spent.filled(min(earlier, later)) == spent
