"""Counts what the watchers of a plant find: each run once, from whichever device."""

import millstream as ms

flow = ms.Flow("plant")
alarms = ms.watchers(
    flow,
    "alarms",
    "machine string, heat double, smoke double, at timestamp",
    time="at",
    span="60 seconds",
    lateness="10 minutes",
    key="machine",
)
alarms.sink("alarms", ms.jsonl("out/alarms"))
