from millstream.web.history import Sample, lags, rates


def sample(at, run, rows, lag=0):
    return Sample(at, run, {"groups": [{"name": "hourly", "rows_in": rows, "lag_rows": lag}]})


def test_rows_are_spread_over_the_time_that_their_batch_took():
    samples = [sample(0, 1, 0), sample(1, 1, 0), sample(2, 1, 400), sample(3, 1, 500)]
    assert rates(samples, "hourly") == [(0, 0), (1, 200), (2, 200), (3, 100)]


def test_a_group_that_has_stopped_reading_has_a_rate_of_zero():
    samples = [sample(0, 1, 0), sample(1, 1, 100), sample(2, 1, 100)]
    assert rates(samples, "hourly") == [(0, 0), (1, 100), (2, 0)]


def test_a_counter_that_begins_again_after_a_restart_is_a_gap_and_not_a_fall():
    samples = [sample(0, 1, 0), sample(1, 1, 900), sample(20, 2, 0), sample(21, 2, 300)]
    assert rates(samples, "hourly") == [(0, 0), (1, 900), (1, None), (20, 0), (21, 300)]


def test_lags_of_two_runs_have_a_gap_between_them():
    samples = [sample(0, 1, 0, lag=5), sample(9, 2, 0, lag=7)]
    assert lags(samples, "hourly") == [(0, 5), (0, None), (9, 7)]


def test_no_samples_are_no_points():
    assert rates([], "hourly") == lags([], "hourly") == []
