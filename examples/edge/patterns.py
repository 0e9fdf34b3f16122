"""What the devices of a plant look for: heat, vibration and smoke of one machine, in this order.

The three kinds of sensors are at three devices, so no device sees all of a match.
"""

import millstream as ms

schema = "reading bigint, machine string, kind string, value double, at timestamp"
time, key = "at", "machine"

burning = (
    ms.Pattern("burning")
    .begin("heat", "kind = 'heat' and value > 80")
    .followed_by("shaking", "kind = 'vibration' and value > 5")
    .followed_by("smoke", "kind = 'smoke' and value > heat.value / 100")
    .within("60 seconds")
    .emit("machine, heat.value as heat, smoke.value as smoke")
)
