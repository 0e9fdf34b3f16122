"""Executors that share no disk with the driver: they borrow the driver's.

    driver's process                                    executors
    Service  <------- read(journal, partition, ...) --- slices_of     rows of journals
             <------- run(work, batches) -------------- Borrowed      what they would have written
             -------> answers

The connection is encrypted, and the key is made for the run (`place.py` says how executors get it).
Reads are without state: bounded pieces, resumed by position. A run is one attempt of one task: its
batches are numbered, so a message that is sent again repeats nothing, and a run whose executor
vanishes ends as if its task had failed. As ever, only what the winning attempt answers counts.

On one machine, and where all hosts see the same folders, there is no service.
"""
