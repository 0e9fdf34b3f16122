"""The results of two versions are paired as a simple count of them says, in whatever order they come."""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from millstream.switch.pairing import Pairing

Result = tuple[int, tuple[str, int]]
RESULTS = st.lists(
    st.tuples(st.integers(0, 3), st.tuples(st.sampled_from("ab"), st.integers(0, 2))), max_size=12
)


def counted(old: list[Result], new: list[Result]) -> tuple[int, int, int, int]:
    """Return how many are equal, missing, extra and different, by the plainest way there is."""
    equal = sum((Counter(old) & Counter(new)).values())
    left: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])
    for side, rest in enumerate((Counter(old) - Counter(new), Counter(new) - Counter(old))):
        for start, (key, _) in rest.elements():
            left[start, key][side] += 1
    different = sum(min(pair) for pair in left.values())
    missing, extra = (sum(pair[side] for pair in left.values()) - different for side in (0, 1))
    return equal, missing, extra, different


@given(RESULTS, RESULTS, st.randoms(use_true_random=False), st.integers(0, 4))
def test_pairs_are_those_of_a_plain_count(
    old: list[Result], new: list[Result], order: object, middle: int
) -> None:
    pairing = Pairing("rows", ("k", "v"), ("k",))
    fed = [("old", one) for one in old] + [("new", one) for one in new]
    order.shuffle(fed)  # type: ignore[attr-defined]
    # What starts early is complete early: it comes first, and is told before the rest.
    fed.sort(key=lambda one: one[1][0] >= middle)
    for place, (side, (start, row)) in enumerate(fed):
        if start >= middle and (place == 0 or fed[place - 1][1][0] < middle):
            pairing.settle(middle)
        pairing.feed(side, start, row)  # type: ignore[arg-type]
    before = pairing.waiting
    pairing.settle(4)
    found = pairing.compared()
    assert (found.equal, found.missing, found.extra, found.different) == counted(old, new)
    assert (found.waiting, before >= 0) == (0, True)
    assert 2 * (found.equal + found.different) + found.missing + found.extra == len(old) + len(new)
