"""A job's numbered log: who drives the job, and what its drivers have decided.

    log/000000000007     one entry each, put if absent, on storage that all possible hosts reach

Claims, decisions and the steps of a switch are entries of one sequence. A driver claims the job by
putting a claim into the next slot; the number of that slot is its *generation*. Everything that it
decides it puts into the slots that follow. If another driver has claimed the job meanwhile, its
claim lies in the very slot that the first one tries next: the put is refused, and the first one
stops. So nothing is decided by an older generation after a newer claim, however long a driver has
slept, and no clock is compared.

`protocol` has the rules, without I/O; `log` carries them out on a storage.
"""

from millstream.joblog.entries import Decided, Holder, State
from millstream.joblog.lease import Lease
from millstream.joblog.log import JobLog
from millstream.joblog.renewal import Renewal

__all__ = ["Decided", "Holder", "JobLog", "Lease", "Renewal", "State"]
