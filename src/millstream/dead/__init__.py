"""Dead letters in the hands of people: choosing them, editing them, replaying them, each once.

`journal/letters.py` has the rules of marks; here they are carried out.

    choice.py     which letters are meant
    editing.py    letters as lines of a file, and back
    fitness.py    which of them can be replayed where, and why not
    replay.py     mark, send, mark: in this order, from wherever it was left
    ways.py       how rows reach a journal: through its inboxes, or as its one writer
"""
