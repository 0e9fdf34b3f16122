"""The docs are true: every block of Python is run, YAML loaded, every command and every error text produced and compared.

A page is run from top to bottom in a folder of its own, without Spark; its files are there from
the start. After the language a block
may say:

    python file=flow.py     is also written to that file          text            follows `raises`: what is printed
    python raises           raises an error of ours               text plan       the plan of `flow` as a tree
    python raises plan      when it is planned                    text changed    `after` on the checkpoint of `before`
    python prints           the `text` that follows is what it prints
    python spark            needs `spark`; tests/integration/test_cookbook.py runs it
    python test             a user's test; tests/integration runs it
    yaml raises, yaml same  the same for YAML; `same` is equal to the Python that is `same`
    json file=events.jsonl  is written to that file
    console                 commands and what they print; "..." stands for anything
    console table           a run, which needs Spark: its table is drawn from made-up numbers
    console damaged         after a byte of the journal was changed
    console service         on a real engine; tests/integration/test_service.py runs it
"""

from __future__ import annotations

import doctest
import io
import linecache
import os
import re
import shlex
import sys
import time
from collections import defaultdict
from contextlib import redirect_stderr, redirect_stdout
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import typer.main
from rich.console import Console

import millstream as ms
from millstream import ingest
from millstream.cli import report
from millstream.cli.app import app
from millstream.cli.run import _View
from millstream.flow.stages import Journal, Source
from millstream.journal.kinds.files.dead import dead_counts
from millstream.journal.kinds.files.reader import Reader
from millstream.plan import draw
from millstream.plan.fingerprint import fingerprint
from millstream.plan.groups import plan
from millstream.spark.flow_run import RunStatistics
from millstream.spark.io.checkpoint import Checkpoint
from millstream.spark.run.query import GroupStatistics
from unit.docs.blocks import DOCS, PAGES, README, Block, blocks

_SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

# What the commands of a page need and the page need not show.
SUPPORT = {
    "README.md": {
        "data/orders.jsonl": (files("millstream.cli") / "templates/orders.jsonl.tmpl").read_text()
    },
    "sources.md": {
        "events.jsonl": '{"item": "bread", "amount": 2.5, "at": "2024-05-04 09:00"}\n{"item": 3}\n'
        '{"item": "rolls", "amount": 0.6, "at": "2024-05-04 09:02"}\n'
    },
}

# Pages that go on with the files of another one.
FIRST = dict.fromkeys(
    ("canary.md", "reprocessing.md", "switch_rules.md"), DOCS / "guide" / "switching.md"
)


def group(name: str, **numbers: Any) -> GroupStatistics:
    plain = {"batch": 1, "rows_in": 0, "rows_out": 0, "batch_seconds": 0.0, "watermark_ms": None}
    return GroupStatistics(
        name,
        **{
            **plain,
            "lag_rows": 0,
            "lag_seconds": 0.0,
            "state_rows": 0,
            "finished": False,
            **numbers,
        },
    )


def numbers(one: GroupStatistics, *, late: int, dead: int) -> RunStatistics:
    return RunStatistics(groups=(one,), sources={}, late=late, dead=dead, ended=one.finished)


ENDED_MS = 8_000_000_000_000
# The runs that pages show: name, seconds since the start, what was a second before, what is now.
SHOPS = (
    "shops",
    9,
    None,
    numbers(
        group(
            "takings",
            rows_in=160,
            rows_out=43,
            batch_seconds=1.4,
            watermark_ms=ENDED_MS,
            finished=True,
        ),
        late=0,
        dead=1,
    ),
)
PARCELS = (
    "parcels",
    130,
    numbers(group("hourly", rows_in=7_916, rows_out=298), late=0, dead=0),
    numbers(
        group(
            "hourly",
            rows_in=9_120,
            rows_out=310,
            batch_seconds=1.1,
            lag_rows=2_010,
            lag_seconds=1.7,
            watermark_ms=1_714_816_740_000,
            state_rows=27,
        ),
        late=4,
        dead=2,
    ),
)
RUNS: dict[str, tuple[str, int, RunStatistics | None, RunStatistics]] = {
    "README.md": SHOPS,
    "guide.md": SHOPS,
    "running.md": PARCELS,
}


class Page:
    """Runs the blocks of a page, in the folder that is current."""

    def __init__(self, path: Path, **names: Any) -> None:
        self.path = path
        self.names: dict[str, Any] = {"__name__": "guide", **names}
        self.said: str | None = None
        self.left_out = False
        self.same: dict[str, ms.Flow] = {}

    def run(self) -> None:
        for name, text in SUPPORT.get(self.path.name, {}).items():
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(text)
        write_files(FIRST.get(self.path.name, self.path))
        for block in blocks(self.path):
            if block.file is not None:
                Path(block.file).write_text(block.text)
            handle = getattr(self, block.language or "plain", self.plain)
            handle(block)
        assert self.said is None, "an error that the page does not show"
        for flow in [one for one in self.names.values() if isinstance(one, ms.Flow)]:
            plan(whole(flow))
        assert not self.same or self.same["yaml"] == self.same["python"]

    def plain(self, block: Block) -> None:
        """What is only to be read."""

    def python(self, block: Block) -> None:
        if "spark" in block.words and "spark" not in self.names:
            self.left_out = "prints" in block.words
            return
        name = Path(
            block.file or ("flow.py" if "raises" in block.words else f"block_{block.line}.py")
        ).absolute()
        name.write_text(block.text)
        linecache.clearcache()
        code = compile(block.text, str(name), "exec")
        if "raises" in block.words:
            self.raising(lambda: self.built(code, planned="plan" in block.words))
        elif "prints" in block.words:
            text = io.StringIO()
            with redirect_stdout(text):
                exec(code, self.names)
            self.said = text.getvalue()
        else:
            exec(code, self.names)
        if "same" in block.words:
            self.same["python"] = self.names["flow"]

    def built(self, code: Any, *, planned: bool) -> None:
        exec(code, self.names)
        if planned:
            plan(self.names.pop("flow"))

    def yaml(self, block: Block) -> None:
        Path("flow.yaml").write_text(block.text)
        if "raises" in block.words:
            self.raising(lambda: ms.load("flow.yaml"))
            return
        flow = ms.load("flow.yaml")
        plan(flow)
        if "same" in block.words:
            self.same["yaml"] = flow

    def raising(self, build: Any) -> None:
        assert self.said is None, "an error that the page does not show"
        with pytest.raises(ms.MillstreamError) as caught:
            build()
        self.said = reported(caught.value)

    def text(self, block: Block) -> None:
        if self.left_out:
            self.left_out = False
            return
        if "plan" in block.words:
            found = draw.tree(plan(self.names["flow"]))
        elif "changed" in block.words:
            found = changed(self.names["before"], self.names["after"])
        else:
            assert self.said is not None, "no error for this text"
            found, self.said = self.said, None
        same(block, block.text, found)

    def console(self, block: Block) -> None:
        if "service" in block.words:
            return
        if "table" in block.words:
            ingest_all()
            (shown,) = block.commands
            same(block, shown[1], table(*RUNS[self.path.name]))
            return
        if "damaged" in block.words:
            (file,) = Path(".millstream").glob("*/journals/*/p0000/*.arrow")
            damage(file)
        for command, shown in block.commands:
            same(block, shown, printed(command))


def write_files(page: Path) -> None:
    """Write the files that a page shows, so that its first commands can use them."""
    for block in blocks(page):
        if block.file is not None:
            Path(block.file).write_text(block.text)


def whole(flow: ms.Flow) -> ms.Flow:
    """Give a flow that is only begun sinks, so that all of it is planned."""
    for name in flow.unused():
        if name not in flow.sinks and not isinstance(flow.stages[name], Journal):
            flow.stream(name).sink(name, ms.memory())
    return flow


def same(block: Block, shown: str, found: str) -> None:
    if not doctest.OutputChecker().check_output(shown, found, _SAME):
        pytest.fail(f"{block.page}:{block.line} shows\n{shown}\nand it is\n{found}", pytrace=False)


def reported(error: ms.MillstreamError) -> str:
    text = io.StringIO()
    with redirect_stderr(text):
        report(error)
    return text.getvalue()


def changed(before: ms.Flow, after: ms.Flow) -> str:
    (one,) = plan(before).groups
    folder = Path(".millstream") / before.name / "groups" / one.name
    Checkpoint.open(folder, one.name, fingerprint(plan(before), one.name)).begin()
    with pytest.raises(ms.MillstreamError) as caught:
        Checkpoint.open(folder, one.name, fingerprint(plan(after), one.name))
    return reported(caught.value)


def printed(command: str) -> str:
    """Run a command line as the shell would, in this process."""
    words = shlex.split(command)
    if words[0] == "source":
        return ""
    if words[0] == "cd":
        os.chdir(words[1])
        return ""
    assert words[0] == "millstream", command
    arguments, _, file = command.removeprefix("millstream ").partition(" < ")
    text, before = io.StringIO(), sys.stdin
    with redirect_stdout(text), redirect_stderr(text), Path(file or os.devnull).open() as given:
        sys.stdin = given
        try:
            app(shlex.split(arguments), standalone_mode=False)
        except ms.MillstreamError as error:
            report(error)
        finally:
            sys.stdin = before
    return text.getvalue()


def ingest_all() -> None:
    """Do what a run does before Spark comes in: fill the journals of the flow in this folder."""
    if not Path("flow.py").exists():
        return
    flow = ms.load("flow.py")
    for name, stage in flow.stages.items():
        if isinstance(stage, Source):
            with ingest.open(stage, Path(".millstream") / flow.name / "journals" / name) as source:
                assert source.wait(120)


def table(name: str, seconds: int, before: RunStatistics | None, now: RunStatistics) -> str:
    began = float(round(time.monotonic()))  # whole, so that adding seconds is exact
    view = _View(name, "local[*]", Path(f".millstream/{name}/run.log"), began=began)
    if before is not None:
        view.history.append((began + seconds - 1, before))
    text = io.StringIO()
    Console(file=text, width=120).print(view.render(now, began + seconds))
    return text.getvalue() + (f"{name} ended\n" if now.ended else "")


def damage(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-100] ^= 0xFF
    file.write_bytes(data)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_a_page_shows_what_happens(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    Page(page).run()


def test_the_numbers_of_the_first_flow_are_those_of_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    printed("millstream new shops")
    (flow,) = (block for block in blocks(DOCS / "guide.md") if block.file == "flow.py")
    assert Path("shops/flow.py").read_text() == flow.text
    monkeypatch.chdir("shops")
    ingest_all()
    journal = Path(".millstream/shops/journals/orders")
    part = Reader(journal).partition(0)
    rows = [row for one in part.read(0, part.end) if one.batch for row in one.batch.to_pylist()]
    takings: dict[tuple[str, datetime], list[float]] = defaultdict(list)
    for row in rows:
        takings[
            row["shop"], row["at"].replace(minute=row["at"].minute // 10 * 10, second=0)
        ].append(row["amount"])
    shown = RUNS["guide.md"][3]
    assert (len(rows), len(takings), sum(dead_counts(journal).values())) == (
        shown.groups[0].rows_in,
        shown.groups[0].rows_out,
        shown.dead,
    )
    for page, shop, at in ((DOCS / "guide.md", "mill", "09:20"), (README, "lane", "08:00")):
        (result,) = (block.text for block in blocks(page) if block.language == "json")
        values = next(
            values
            for (one, start), values in takings.items()
            if one == shop and f"{start:%H:%M}" == at
        )
        assert f'"shop":"{shop}"' in result
        assert f"T{at}:00" in result
        assert f'"orders":{len(values)},"amount":{round(sum(values), 2)}' in result


def test_the_flow_of_the_readme_is_the_first_flow() -> None:
    flows = []
    for page in (README, DOCS / "guide.md"):
        (block,) = (block for block in blocks(page) if block.file == "flow.py")
        names: dict[str, Any] = {}
        exec(compile(block.text, "flow.py", "exec"), names)
        flows.append(names["flow"])
    assert flows[0] == flows[1]


def test_the_picture_of_the_readme_is_that_of_the_demo() -> None:
    flow = ms.load(README.parent / "examples" / "flights" / "flow.py")
    assert (DOCS / "images" / "plan.svg").read_text() == draw.svg(plan(flow))


LINK = re.compile(r"\]\(([^)\s]+)\)")


READ_ONLY = [
    *(DOCS / page for page in ("architecture.md", "glossary.md")),
    *DOCS.glob("contributing/*.md"),
    *DOCS.glob("design/*.md"),
    *DOCS.parent.glob("*.md"),
    *DOCS.parent.glob("examples/*.md"),
]


@pytest.mark.parametrize(
    "page", sorted({*PAGES, *READ_ONLY}), ids=lambda page: f"{page.parent.name}/{page.stem}"
)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            heads = re.findall(r"^#+ (.+)$", target.read_text(), flags=re.MULTILINE)
            assert anchor in [
                re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads
            ], link


def test_the_architecture_names_files_that_exist() -> None:
    named = re.findall(r"`((?:\w+/)*\w+\.py)`", (DOCS / "architecture.md").read_text())
    homes = (DOCS.parent, DOCS.parent / "src" / "millstream", DOCS.parent / "tests" / "integration")
    files_of_kinds = {"origin.py", "target.py"}
    missing = {
        name
        for name in {*named} - files_of_kinds
        if not any((home / name).is_file() for home in homes)
    }
    assert missing == set()


def test_the_glossary_is_in_alphabetical_order() -> None:
    nouns = re.findall(r"^\| \*\*(.+?)\*\* \|", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert nouns == sorted(set(nouns))


# What nobody would look for, and the word of the field.
FOREIGN = {
    "the one that runs": "the running version",
    "from near": "in detail",
    "for good": "permanently",
    "anew": "again",
    "mend": "fix",
    "put out": "emit, publish",
    "given up": "aborted",
    "has got": "was added, has",
    "for ever": "forever",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_a_page_uses_the_words_of_the_field(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = {words: FOREIGN[words] for words in FOREIGN if re.search(rf"\b{words}\b", prose)}
    assert found == {}


def options(command: Any, *path: str) -> dict[tuple[str, ...], set[str]]:
    """Return the options of all commands; typer brings a click of its own, so there is no type to name here."""
    inner = getattr(command, "commands", None)
    if inner is None:
        # What is hidden is an earlier spelling.
        shown = [one for one in command.params if not getattr(one, "hidden", False)]
        return {path: {name for one in shown for name in one.opts if name.startswith("--")}}
    return {
        key: found
        for name, one in inner.items()
        for key, found in options(one, *path, name).items()
    }


def test_every_command_and_option_is_on_the_page_of_commands() -> None:
    text = (DOCS / "cli.md").read_text()
    sections = {
        head.strip(): body
        for head, _, body in (part.partition("\n") for part in text.split("\n## ")[1:])
    }
    known = options(typer.main.get_command(app))
    for path, names in known.items():
        section = sections[path[0]]
        assert all(f"`{word}" in section for word in path[1:]), path
        assert {name for name in names if name not in section} == set(), path
    assert set(re.findall(r"`(--[a-z-]+)", text)) <= {"--help"}.union(*known.values())


# Dead letters

LINES = [
    "no json",
    '{"shop": "a"}',
    '{"shop": "a", "at": "1960-01-01"}',
    '{"shop": "a", "at": "2999-01-01"}',
    '{"at": "2024-01-01"}',
]


def reasons_shown() -> list[str]:
    letters = (DOCS / "guide" / "sources.md").read_text().split("## Dead letters")[1]
    return re.findall(r"^\| `([^|]+)` \| ", letters, flags=re.MULTILINE)


def reasons_found(folder: Path) -> set[str]:
    from millstream.spark.io.unwritable import Unwritable
    from millstream.spark.stages.fold import letter_of

    schema = "shop string, at timestamp"
    (folder / "rows.jsonl").write_text("".join(f"{line}\n" for line in LINES))
    (folder / "other.csv").write_text("x,y\n1,2\n")
    (folder / "broken.jsonl.gz").write_bytes(b"\x1f\x8bnothing")
    # Those of sinks and stages, which need Spark to run.
    found = {
        Unwritable("name", "it is too long", "{}").letter("out"),
        letter_of("totals", KeyError("x")),
    }
    for number, (path, column) in enumerate(
        [("rows.jsonl", "at"), ("other.csv", "at"), ("other.csv", None), ("broken.jsonl.gz", "at")]
    ):
        flow = ms.Flow("letters")
        how = "csv" if path.endswith("csv") else "jsonl"
        flow.source("rows", ms.files(folder / path, schema, format=how), time=column, key="shop")
        stage = flow.stages["rows"]
        assert isinstance(stage, Source)
        with ingest.open(stage, folder / f"journal{number}") as source:
            assert source.wait(120)
            source.check()
        found |= set(dead_counts(folder / f"journal{number}"))
    return found


def test_every_reason_of_a_dead_letter_is_one_that_is_given(tmp_path: Path) -> None:
    found = reasons_found(tmp_path)
    code = "".join(file.read_text() for file in (DOCS.parent / "src" / "millstream").rglob("*.py"))
    shown = reasons_shown()
    for reason in shown:
        pattern = ".*".join(re.escape(part) for part in reason.split("..."))
        # Two are given only by a group that reads, or by a source that follows.
        literal = f'"{reason}"' in code or f'"{reason.partition(";")[0]};' in code
        assert literal or any(re.fullmatch(pattern, one) for one in found), reason
    for one in found:
        assert any(
            re.fullmatch(".*".join(map(re.escape, reason.split("..."))), one) for reason in shown
        ), one
