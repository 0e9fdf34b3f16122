"""The dead letters of a job over HTTP: shown, replayed, discarded.

Which letters are meant is decided by who asks: conditions on rows are not computed here.
"""

from __future__ import annotations

import json
from typing import Final

from millstream.dead.choice import Choice, choose, letters_of
from millstream.dead.editing import resolved
from millstream.dead.replay import Order, Replayer
from millstream.dead.ways import way_to
from millstream.engine.http.api import Api, Asked
from millstream.engine.http.dead_messages import (
    DiscardAnswer,
    DiscardOrder,
    EditedOrder,
    LetterPage,
    LetterStatus,
    ReplayAnswer,
    ReplayOrder,
    status_of,
)
from millstream.journal import journals_in
from millstream.journal.letters import Letter

_PAGE_BYTES: Final = 4 << 20


def letters(api: Api, asked: Asked) -> LetterPage:
    """Return the dead letters of a job on this engine, from a number on.

    Numbers count the letters that are asked for: of a journal, in a state, of an origin.
    """
    given = asked.values
    known = [
        one
        for one in _letters(api, asked.job)
        if given["journal"] in (None, one.journal)
        and given["state"] in (None, one.state)
        and given["origin"] in (None, one.letter.origin)
    ]
    page: list[LetterStatus] = []
    size, at = 0, given["from"]
    for one in known[at : at + given["limit"]]:
        if size >= _PAGE_BYTES:
            break
        size += len(one.letter.record)
        page.append(status_of(one))
    end = at + len(page)
    return LetterPage(page, end if end < len(known) else None)


def letter(api: Api, asked: Asked) -> LetterStatus:
    """Return a dead letter of a job; the beginning of its id is enough if no other has it."""
    (found,) = choose(_letters(api, asked.job), Choice(ids=(asked.values["letter"],)))
    return status_of(found)


def replay(api: Api, asked: Asked) -> ReplayAnswer:
    """Put the rows of dead letters into the journals of their sources again, each once.

    A request whose answer was lost can be repeated. What cannot be replayed is answered with the reason, and stays.
    """
    order: ReplayOrder = asked.body
    chosen = _chosen(api, asked.job, order.ids)
    done = _replayer(api, asked.job).replay(chosen, Order(to=order.to, late=order.late))
    return ReplayAnswer(list(done.replayed), dict(done.refused))


def replay_edited(api: Api, asked: Asked) -> ReplayAnswer:
    """Replay dead letters with rows of your own, each once; all are checked before any is sent."""
    order: EditedOrder = asked.body
    rows = {id_: json.dumps(row, ensure_ascii=False) for id_, row in order.rows.items()}
    chosen, edited = resolved(_letters(api, asked.job), rows)
    whole = Order(to=order.to, late=order.late, edited=edited, whole=True)
    done = _replayer(api, asked.job).replay(chosen, whole)
    return ReplayAnswer(list(done.replayed), dict(done.refused))


def discard(api: Api, asked: Asked) -> DiscardAnswer:
    """Mark dead letters as not wanted any more."""
    order: DiscardOrder = asked.body
    return DiscardAnswer(_replayer(api, asked.job).discard(_chosen(api, asked.job, order.ids)))


def _letters(api: Api, job: str) -> list[Letter]:
    return letters_of(journals_in(api.engine.flow_folder(job) / "journals"))


def _chosen(api: Api, job: str, ids: list[str]) -> list[Letter]:
    return choose(_letters(api, job), Choice(ids=tuple(ids))) if ids else []


def _replayer(api: Api, job: str) -> Replayer:
    folder = api.engine.flow_folder(job)
    return Replayer(folder, way_to(folder, api.connect))
