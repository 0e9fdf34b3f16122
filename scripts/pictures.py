"""Take the pictures of the console that the docs show: a real engine, real jobs, light and dark.

`make pictures` runs this. Look at what it made before you commit it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from support.browser import chromium, opened
from support.console import FLOW, EngineProcess, engine_process, orders
from support.engines import wait_until

RAISES = """
raising = ms.Pattern("raising").begin("low", "amount < 5").followed_by("high", "amount > low.amount + 40")
raising = raising.followed_by("higher", "amount > high.amount + 40").within("1 minute")
raises = flow.stream("payments").match("raises", raising, emit="shop, low.at AS low, high.at AS high, higher.amount")
raises.journal("raised")
flow.stream("raised").sink("raised_rows", ms.jsonl("raised"))
"""
IMAGES = Path(__file__).parents[1] / "docs" / "images"
SECONDS = 60


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, engine_process(Path(data)) as engine:
        engine.deploy(FLOW + RAISES)
        wait_until(lambda: engine.job()["state"] == "running")
        engine.send('{"shop": "shop-2", "amount": "ten"}\n{"shop": "shop-2"\n', "scanner")
        busy(engine)
        with chromium() as browser:
            for scheme in ("light", "dark"):
                pictures(browser, engine, folder, scheme)


def busy(engine: EngineProcess) -> None:
    """Send orders for a while, some seconds more than others."""
    first, begun = 0, time.monotonic()
    while time.monotonic() < begun + SECONDS:
        count = 400 + 300 * (int(time.monotonic()) % 7)
        engine.send(orders(count, first, seconds=1), "till", first)
        first += count
        time.sleep(0.5)


def pictures(browser: Browser, engine: EngineProcess, folder: Path, scheme: str) -> None:
    with opened(browser, color_scheme=scheme, device_scale_factor=1) as page:
        page.goto(engine.url)
        expect(page.locator("table.jobs tbody tr")).to_have_count(1)
        save(page, folder / f"console-overview-{scheme}.png", height=460)
        page.goto(f"{engine.url}/jobs/shop")
        page.get_by_role("button", name="stage minutes").click()
        expect(page.locator(".u-over").first).to_be_visible()
        save(page, folder / f"console-job-{scheme}.png", height=1250)
        page.goto(f"{engine.url}/jobs/shop/dead")
        page.get_by_role("textbox", name="Token").fill(engine.token)
        page.get_by_role("button", name="Go on").click()
        expect(page.locator(".letter").first).to_be_visible()
        save(page, folder / f"console-dead-{scheme}.png", height=620)
        page.locator("nav.tabs a", has_text="Matches").click()
        expect(page.locator(".runs-text").first).to_be_visible()
        page.locator(".match").last.click()
        save(page, folder / f"console-matches-{scheme}.png", height=900)
        page.locator("nav.tabs a", has_text="Checkpoints").click()
        page.get_by_role("button", name="Verify").first.click()
        expect(page.get_by_role("status").filter(has_text="were compared")).to_be_visible()
        save(page, folder / f"console-checkpoints-{scheme}.png", height=900)
        page.locator("nav.tabs a", has_text="Journals").click()
        page.get_by_role("link", name="orders").click()
        page.get_by_role("button", name="Show rows").click()
        expect(page.locator("table.rows")).to_be_visible()
        save(page, folder / f"console-journal-{scheme}.png", height=900)


def save(page: Page, file: Path, *, height: int) -> None:
    page.set_viewport_size({"width": 1280, "height": height})
    page.wait_for_timeout(300)  # lines that move stand still for nobody
    page.screenshot(path=file, animations="disabled")
    print(f"wrote {file}")


if __name__ == "__main__":
    main()
