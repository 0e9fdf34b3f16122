"""Take pictures of every page of the console, light and dark, of a real engine with a job that runs.

`make pictures` runs this. All pictures go to `page/build/pictures`: look at them. Those that the docs show
are written to `docs/images` too. A switch halfway, a shadow and watchers are made up, by the engine of the tests,
which runs nothing. With names of pages, "light", "dark", "desktop" or "phone" it takes those alone.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page, expect
from scripts.small_png import shrink

from millstream.clock import iso
from millstream.engine.http.server import Server
from millstream.engine.jobs.status import GroupStatus
from millstream.engine.leases.loads import EngineLoad
from millstream.engine.leases.tasks import Tasks, TaskStatus
from millstream.switch.changes import Change
from millstream.switch.comparison import Compared, Comparison, Example
from millstream.switch.progress import SwitchProgress, SwitchStep
from millstream.switch.request import SwitchRequest
from millstream.watch.inputs.http import HttpInput
from millstream.watch.replicator import PeerStatus
from millstream.watch.status import PatternStatus as WatchedPattern
from millstream.watch.status import WatcherStatus
from support.actions import PYTHON, SDK
from support.browser import chromium, opened
from support.console import FLOW, EngineProcess, engine_process, orders
from support.engines import wait_until
from support.served import Served, serving

ROOT = Path(__file__).parents[1]
ALL = ROOT / "page" / "build" / "pictures"
IMAGES = ROOT / "docs" / "images"
SHOWN = ("overview-light", "job-light", "matches-light")
#: On a machine that has other things to do, a batch takes its time.
TIMEOUT_S = 180
#: How many points plots have, at least.
POINTS = 6
SCHEMES = ("light", "dark")
PHONE = {"width": 390, "height": 844}

MORE = """
raising = ms.Pattern("raising").begin("low", "amount < 5").followed_by("high", "amount > low.amount + 40")
raising = raising.followed_by("higher", "amount > high.amount + 40").within("1 minute")
raises = flow.stream("payments").match("raises", raising, emit="shop, low.at AS low, high.at AS high, higher.amount")
raises.journal("raised")
flow.stream("raised").sink("raised_rows", ms.jsonl("raised"))
scored = flow.stream("payments").action("score", ["{program}"], input="amount", output="risk double")
scored.sink("scores", ms.jsonl("scores"))
"""
PROGRAM = f"""#!{PYTHON} -S
import json, sys
sys.path.insert(0, {str(SDK / "python")!r})
import millstream_action as action
print("model of 2026-11-02 loaded, 14 features", file=sys.stderr, flush=True)
seen = 0
while (m := action.read_message()) is not None:
    seen += 1
    if seen % 1000 == 0:
        print(f"scored {{seen:,}} payments", file=sys.stderr, flush=True)
    action.write_message(json.dumps({{"risk": json.loads(m)["amount"] / 100}}).encode())
"""


@dataclass(frozen=True, slots=True)
class Shot:
    """A page: its name, its address, how high the picture is, and what is done before."""

    name: str
    path: str
    height: int
    ready: Callable[[Page], object]


def button(name: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role("button", name=name).first.click()


def seen(text: str) -> Callable[[Page], None]:
    return lambda page: expect(page.get_by_role("main")).to_contain_text(text)


def overview(page: Page) -> None:
    expect(page.get_by_role("region", name="engines")).to_contain_text("free of")
    expect(page.locator(".sparkline polyline").first).to_be_attached()


def job(page: Page) -> None:
    page.get_by_role("button", name="stage minutes").click()
    expect(page.get_by_role("region", name="stage minutes")).to_be_visible()
    expect(page.locator(".u-over").first).to_be_visible()


def matches(page: Page) -> None:
    expect(page.locator(".runs-text").first).to_be_visible()
    opened = page.get_by_role("region", name="match", exact=True)

    def choose() -> bool:
        page.locator(".match").last.press("Enter")  # others may lie above its middle
        return opened.is_visible()

    until(choose, "a match to open")  # rows that come in between take the focus away


def programs(page: Page) -> None:
    button("What it prints")(page)
    expect(page.get_by_role("log")).to_contain_text("model")


def checkpoints(page: Page) -> None:
    button("Verify")(page)
    expect(page.get_by_role("status").filter(has_text="were compared")).to_be_visible()


def state(page: Page) -> None:
    button("raises")(page)  # that of a window cannot be shown by key
    button("Show state")(page)
    expect(page.locator("table.rows")).to_be_visible()


def journal(page: Page) -> None:
    button("Show rows")(page)
    expect(page.locator("table.rows")).to_be_visible()


def plan(page: Page) -> None:
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / "flow.py"
        new.write_text(FLOW.replace("amount > 90", "amount > 95"))
        page.get_by_label("Flow, and modules beside it").set_input_files(new)
        button("Show the plan")(page)
        expect(page.get_by_role("region", name="plan", exact=True)).to_be_visible()


def send(page: Page) -> None:
    button("Send rows")(page)
    dialog = page.get_by_role("dialog")
    rows = '{"shop": "shop-1", "amount": 12.5, "at": "2026-11-18T09:30:00Z"}\n{"shop": "shop-1"\n'
    dialog.get_by_role("textbox").fill(rows)
    dialog.get_by_role("button", name="Send").click()
    expect(dialog.get_by_role("status")).to_contain_text("taken")


SHOTS = (
    Shot("overview", "/", 520, overview),
    Shot("job", "/jobs/shop", 1350, job),
    Shot("matches", "/jobs/shop/patterns", 900, matches),
    Shot("journals", "/jobs/shop/journals", 620, seen("payments")),
    Shot("journal", "/jobs/shop/journals/orders", 820, journal),
    Shot("dead", "/jobs/shop/dead", 720, seen("Edit and replay")),
    Shot("state", "/jobs/shop/state", 820, state),
    Shot("checkpoints", "/jobs/shop/checkpoints", 900, checkpoints),
    Shot("switch", "/jobs/shop/switch", 1200, plan),
    Shot("versions", "/jobs/shop/versions", 560, seen("Ran from")),
    Shot("log", "/jobs/shop/logs", 900, seen("lines")),
    Shot("programs", "/actions", 820, programs),
    Shot("watchers", "/watchers", 420, seen("watchers")),
    Shot("audit", "/audit", 620, seen("deploy")),
    Shot("send", "/jobs/shop", 900, send),
)


#: Of made-up data: see `made_up`.
MADE_UP = (
    Shot("cluster", "/", 760, seen("host-d")),
    Shot("switching", "/jobs/shop/switch", 900, seen("overlapping")),
    Shot("shadow", "/jobs/trial/switch", 900, seen("different")),
    Shot("watching", "/watchers", 620, seen("tcp://")),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody has asked for: everything, unless it is named."""

    words: frozenset[str]

    def among(self, words: tuple[str, ...]) -> list[str]:
        return [one for one in words if one in self.words] or list(words)

    def shots(self, known: tuple[Shot, ...]) -> list[Shot]:
        named = self.among(tuple(one.name for one in (*SHOTS, *MADE_UP)))
        return [one for one in known if one.name in named]


def main() -> None:
    ALL.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=TIMEOUT_S * 1000)
    wanted = Wanted(frozenset(sys.argv[1:]))
    if wanted.shots(SHOTS):
        real(wanted)
    if shots := wanted.shots(MADE_UP):
        with (
            tempfile.TemporaryDirectory() as data,
            made_up(Path(data)) as served,
            chromium() as browser,
        ):
            for scheme in wanted.among(SCHEMES):
                pictures(browser, served.server, scheme, shots, wanted)


def real(wanted: Wanted) -> None:
    """Take pictures of a job that runs on Spark."""
    with tempfile.TemporaryDirectory() as data, engine_process(Path(data)) as engine:
        program = Path(data) / "score"
        program.write_text(PROGRAM)
        program.chmod(0o755)
        engine.deploy(FLOW + MORE.replace("{program}", str(program)))
        until(lambda: engine.job()["state"] == "running", "the job to run")
        engine.send('{"shop": "shop-2", "amount": "ten"}\n{"shop": "shop-2"\n', "scanner")
        ended = threading.Event()
        sending = threading.Thread(target=send_orders, args=(engine, ended))
        sending.start()
        try:
            wait_for_something_to_show(engine)
            with chromium() as browser:
                for scheme in wanted.among(SCHEMES):
                    pictures(browser, engine, scheme, wanted.shots(SHOTS), wanted)
        finally:
            ended.set()
            sending.join()


def until(true: Callable[[], bool], what: str) -> None:
    wait_until(true, limit_s=TIMEOUT_S, what=what)


def wait_for_something_to_show(engine: EngineProcess) -> None:
    """Wait until there is something on every page."""

    def asked(path: str) -> list[dict[str, object]]:
        found = httpx.get(f"{engine.url}/jobs/shop/{path}", headers=engine.headers, timeout=60)
        return found.json() if found.status_code == 200 else []

    def points() -> int:
        return len(httpx.get(f"{engine.url}/jobs/shop/series", timeout=60).json()["at"])

    def rows(journal: str) -> bool:
        return any(one["name"] == journal and one["rows"] for one in asked("journals"))

    until(lambda: all(one["rows_in"] for one in engine.job()["groups"]), "a batch of each group")
    until(lambda: engine.job()["waiting"] > 0, "dead letters")
    until(lambda: rows("raised"), "matches")
    until(lambda: any(one["runs"] for one in asked("patterns")), "runs that wait")
    until(lambda: any(one["programs"] for one in engine.job()["groups"]), "programs")
    until(lambda: points() >= POINTS, "numbers for plots")


def send_orders(engine: EngineProcess, ended: threading.Event) -> None:
    """Send orders, some seconds more than others."""
    first = 0
    while not ended.wait(0.5):
        count = 100 + 50 * (int(time.monotonic()) % 7)
        engine.send(orders(count, first, seconds=1), "till", first)
        first += count


#: What there is not to tell of a peer.
NONE = (None, None, None, None)


class Device:
    """A watcher that is only asked for its status."""

    def status(self) -> WatcherStatus:
        near = PeerStatus("gate-2", "tcp://10.0.0.12:7300", False, 0.8, 0.9, 0, False, *NONE)
        far = PeerStatus("gate-3", "tcp://10.0.0.13:7300", True, 95.0, 94.0, 41, False, *NONE)
        return WatcherStatus(
            *("gate-1", "i", "d", 1, 7_260.0, 48_000_000, 182_400, 3, 0, 0),
            patterns=[WatchedPattern("tailgating", 17, 240, "d")],
            peers=[near, far],
        )


def cluster() -> Tasks:
    """Return four engines: this one, one that is busy, one of an earlier release, and one that has died."""

    def seen_as(state: str, host: str, jobs: int, **numbers: float) -> EngineLoad:
        disk_size = {"disk_size": 480_000_000_000} if numbers else {}
        url = f"https://{host}.example:8340"
        return EngineLoad(state=state, url=url, jobs=jobs, cores=16, **disk_size, **numbers)

    busy = {"load": 13.8, "disk_free": 31_000_000_000, "rows_in": 18_400.0, "age_s": 3.0}
    dead = {"load": 2.1, "disk_free": 402_000_000_000, "rows_in": 950.0, "age_s": 4_210.0}
    loads = {
        "host-a-3f1c02": EngineLoad(state="up", jobs=2, cores=2),
        "host-b-77aa10": seen_as("up", "host-b", 7, **busy),
        "host-c-91be55": seen_as("draining", "host-c", 1),
        "host-d-0a4d2e": seen_as("away", "host-d", 0, **dead),
    }
    names = list(loads)
    tasks = tuple(
        TaskStatus(
            job=job, state="running", engine=engine, since=iso(time.time() - 7_000), next=then
        )
        for job, engine, then in (("shop", *names[:2]), ("returns", *names[1::-1]))
    )
    return Tasks(names[0], False, tasks, loads=loads)


@contextmanager
def made_up(data: Path) -> Iterator[Served]:
    """Serve a job in the middle of a switch, one with a shadow, and a watcher."""
    now, there = int(time.time()), HttpInput("127.0.0.1", 0)
    thread = threading.Thread(target=there.run, args=(Device(),))
    thread.start()
    try:
        with serving(data) as served:
            served.server.api.watchers = [f"http://127.0.0.1:{there.port}"]
            served.engine.groups = tuple(
                GroupStatus(name, 3, watermark_ms=(now - behind) * 1000)
                for name, behind in (("minutes", 95), ("minutes@2", 20), ("alerts", 5))
            )
            for name, how in (("shop", {"share": 2_500}), ("trial", {"shadow": True})):
                served.deploy(name=name)
                served.engine.switch(name, SwitchRequest(package=b"good", **how))
            steps = tuple(
                SwitchStep(now - ago, what, detail)
                for ago, what, detail in (
                    (70, "preparing", "version 2 is held at its start"),
                    (48, "cutting", "all groups agree on the cut"),
                    (41, "overlapping", "version 1 publishes what starts before the cut"),
                )
            )
            served.engine.known = [cluster()]
            shared = {"share": 2_500, "wanted": 2_500, "steps": steps}
            going = SwitchProgress("2", "overlapping", (now - 60) * 1_000_000, 35.0, **shared)
            served.engine.reported("shop", going)
            old = {"shop": "shop-1", "total": 812.5}
            example = Example("different", old, {**old, "total": 1625.0})
            found = Compared("takings", Change.REPLACED, 412, 0, 1, 7, 3, examples=(example,))
            shadow = Comparison(iso(now - 600), None, (found,))
            served.engine.reported("trial", SwitchProgress("2", "shadowing", shadow=shadow))
            yield served
    finally:
        there.stop()
        thread.join(30)


def pictures(
    browser: Browser,
    engine: EngineProcess | Server,
    scheme: str,
    shots: list[Shot],
    wanted: Wanted,
) -> None:
    with opened(browser, color_scheme=scheme, device_scale_factor=1) as page:
        page.set_default_timeout(TIMEOUT_S * 1000)
        # Rows need a token, which a page keeps until it is loaded again: one goes on by links.
        page.goto(f"{engine.url}/audit")
        page.get_by_role("textbox", name="Token").fill(engine.token)
        page.get_by_role("button", name="Go on").click()
        expect(page.get_by_role("cell", name="deploy").first).to_be_visible()
        for size in wanted.among(("desktop", "phone")):
            for shot in shots:
                wide = {"width": 1280, "height": shot.height}
                page.set_viewport_size(wide if size == "desktop" else PHONE)
                go(page, shot.path)
                shot.ready(page)
                name = shot.name if size == "desktop" else f"phone-{shot.name}"
                save(page, f"{name}-{scheme}", whole=size == "phone")
                page.keyboard.press("Escape")  # a dialog


def go(page: Page, path: str) -> None:
    """Follow links as the console does: to nothing first, so that a page starts from scratch."""
    for href in ("/nothing", path):
        page.evaluate(
            """href => {
              const link = document.createElement("a");
              link.href = href;
              document.body.append(link);
              link.click();
              link.remove();
              return new Promise(done => requestAnimationFrame(() => setTimeout(done)));
            }""",
            href,
        )


def save(page: Page, name: str, *, whole: bool = False) -> None:
    expect(page.get_by_role("status", name="engine: live")).to_be_attached()
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    file = ALL / f"{name}.png"
    page.screenshot(path=file, animations="disabled", full_page=whole)
    shrink(file)
    if name in SHOWN:
        shutil.copy(file, IMAGES / f"console-{name}.png")
    print(f"wrote {file.relative_to(ROOT)}, {file.stat().st_size // 1000} kB", flush=True)


if __name__ == "__main__":
    main()
