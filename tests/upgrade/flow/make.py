"""Writes down what the flows beside this file mean. Run it only for a new format of fingerprints.

python tests/upgrade/flow/make.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import millstream as ms
from millstream.flow.describe import describe
from millstream.plan.draw import to_json
from millstream.plan.fingerprint import fingerprint
from millstream.plan.groups import plan as plan_of

HERE = Path(__file__).parent
FLOWS = ("all_kinds.py", "all_kinds.yaml")
SNAPSHOTS = {"names.csv": "names as of today", "./score": "scorer as of today"}


def meaning(file: str) -> dict[str, Any]:  # JSON
    """Return what a flow's description, plan and fingerprints say."""
    flow = ms.load(HERE / file)
    plan = plan_of(flow)
    planned = to_json(plan)
    return {
        "description": describe(flow),
        "plan": {key: planned[key] for key in ("groups", "journals", "reach")},
        "fingerprints": {one.name: fingerprint(plan, one.name, SNAPSHOTS) for one in plan.groups},
    }


def text(file: str) -> str:
    # In the order in which it was written: descriptions are compared as text too.
    return json.dumps(meaning(file), indent=1) + "\n"


def recorded(file: str) -> Path:
    return HERE / "format_1" / f"{file}.json"


if __name__ == "__main__":
    for name in FLOWS:
        recorded(name).parent.mkdir(exist_ok=True)
        recorded(name).write_text(text(name))
