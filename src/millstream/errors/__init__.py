"""Every error that Millstream raises on purpose.

MillstreamError
├─ FlowError            a mistake in the description of a flow
│  ├─ InvalidName, DuplicateName, UnknownName, UnknownArgument
│  ├─ UnknownStream, UnknownJournal, ForeignStream, CycleWithoutJournal, NoOutputs
│  ├─ UnknownColumn, DuplicateColumn, UnknownType, InvalidSchema, SchemasDiffer
│  ├─ NoTime, TimeDropped, TimesDiffer, UnboundedJoin
│  ├─ InvalidDuration, InvalidOption, InvalidFunction
│  ├─ InvalidSql, StatefulSql, DistinctAggregate, NotAnAggregate
│  ├─ PatternError      a mistake in a pattern
│  │  └─ ImpossiblePattern, UnknownBlock, InvalidCondition, UnboundedState, UnsupportedSql
│  └─ NotLoadable, UnknownGroup, InvalidScheme, SecretMissing
├─ JournalError         a journal cannot be read or written
│  ├─ JournalMissing, UnknownJournalKind, JournalUnreadable, SchemaConflict
│  ├─ AlreadyWriting, WriterClosed, WriterBroken, Ended
│  ├─ NullTime, NullKey, UnplaceableKey
│  ├─ PositionTrimmed, PositionUnwritten, LetterMissing, LetterRefused
│  └─ CorruptBatch, CorruptIndex, CorruptSenders, CorruptStaging
├─ IngestError          events could not be written into a journal
│  └─ UnsupportedColumn, UnknownFormat, NotThere, FileChanged, SourceFailed
├─ LinkError            an event could not be sent
│  ├─ LinkClosed, LinkBroken, NoAnswer, NotAllowed, BadFrame, SenderReplaced
│  ├─ InvalidAddress, NoSuchNetwork, OpenNetwork, WrongNodes, LoopbackInCluster
│  ├─ InvalidKey, KeyExists
│  └─ RowsRefused
├─ ActionError          a user's program, or its runtime, failed
│  ├─ BadBytes > FrameTooLarge, FrameTorn
│  ├─ ActionFailed > ActionMissing, ActionDied, ActionHung, TooManyAnswers
│  └─ NetworkOpen, SandboxOpen, QueueBroken > QueueDamaged, QueueFull, PeerRefused, Fenced
├─ RunError             a flow could not be started or has failed
│  └─ AlreadyRunning, TakenOver, GroupChanged, GroupFailed, ConditionFailed, EventRefused
├─ SwitchError          a running flow cannot be replaced as requested
│  └─ SwitchImpossible, SwitchRefused, ControlBroken
├─ EngineError          an engine or a cluster cannot carry out a request
│  ├─ NoSuchJob, JobExists, JobBusy, InvalidTransition, JobsRunning
│  ├─ BadPackage, DriverFailed, EngineRunning, EngineClosed, StoreBroken, NoRoom
│  ├─ NoSuchAction, ActionInUse, BadBinary
│  └─ EngineAway, EnginesDiffer, TokenRefused, NotPermitted, RequestRefused
├─ WatchError           a watcher could not be started, or not continue
│  └─ InvalidSettings, StateDamaged, StateNotWritten, DeviceRefused, OutputAway
├─ BrokerError          a Kafka broker cannot be used as requested
│  ├─ BrokerAway, LoginRefused, BrokerNotTrusted
│  └─ TopicMissing, TopicForbidden, TopicChanged, RecordsGone, RecordTooLarge
├─ StorageError         a storage could not do what was asked of it
│  ├─ InvalidStorage, StorageAway, BucketMissing, StorageForbidden, StorageUnsafe
│  └─ LogDamaged
├─ MissingExtra         a package is missing that an extra of Millstream installs
└─ InternalError        our own mistake: please report it
"""

from __future__ import annotations

from millstream.errors.actions import *
from millstream.errors.brokers import *
from millstream.errors.engine import *
from millstream.errors.flow import *
from millstream.errors.journal import *
from millstream.errors.links import *
from millstream.errors.root import *
from millstream.errors.run import *
from millstream.errors.storage import *
from millstream.errors.watch import *
