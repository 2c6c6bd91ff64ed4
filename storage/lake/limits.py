"""Every bound of the lake, with its unit and reason. Sizes of files are targets, not promises."""

from typing import Final

from storage.limits import KIB, MIB

STATE_FILE_ROWS: Final = 200_000
"""Rows of a state file: 10M rows are 50 files, few to open, and a change of one key rewrites 2 % of them."""

STATE_FILE_BYTES: Final = 64 * MIB
"""A state file of wide rows ends here: a merge holds its file in memory three times."""

STATE_GROUPS: Final = 8
"""Row groups of a full state file: a change of one key encodes one of them anew, the others are copied as they are.
More would make footers long, and readers begin anew too often."""

STATE_JOINED_FILES_MAX: Final = 5.0
"""Full files that one task makes of neighbours which deletes left half empty. A window of so many that cannot be fewer
files is nine tenths full; and it is a million rows, which a task has room for.."""

STATE_JOINED_BYTES_MAX: Final = 160 * MIB
""".. unless they are wide: this is what it reads at most, beyond one file. It is in memory three times."""

STATE_FILES_FEW: Final = 4
"""So many files are few, whatever is in them.."""

STATE_FILES_SPARE: Final = 1.2
""".. and so are so many for each full file's worth of rows: 64 for 10M. A writer at rest joins a state that has more;
joining leaves 1.1 for each, so it is not done again soon."""

STAGED_BATCH_ROWS: Final = 8192
"""Folded rows are staged in batches of so many: a task that merges a range of keys reads only the batches that reach
into it."""

TASK_CACHE_BYTES: Final = 16 * MIB
"""Decoded blocks that a task keeps: it reads each range once, in steps that end inside a block or two."""

CHANGES_FILE_BYTES: Final = 32 * MIB
"""The wire size of a log that one task turns into a file of changes: a fraction of what an executor has."""

CHANGES_GROUP_BYTES: Final = 8 * MIB
"""Rows of a file of changes wait for others until they are so many bytes in memory: a row group is worth its part of
the footer, and a task has room for it."""

CHANGES_TIERS_BYTES: Final = ((32 * MIB, 48), (1 * MIB, 24), (64 * KIB, 8))
"""So many neighbouring files of changes, each below this size, are joined with the next cut: a day of small batches
leaves tens of files. A full tier makes a file of the next one, so a row is rewritten a few times only."""

JOINED_BYTES_MAX: Final = 32 * MIB
"""Small files are joined up to about this size, by one task each: what it writes is large enough to stay."""

INLINE_REWRITES_MAX: Final = 4
"""State files that the task which read the log rewrites itself; above, they are divided among all executors."""

VERSIONS_KEPT: Final = 100
"""Versions that readers can ask for; older ones are retired."""

VERSION_AGE_SECONDS_MIN: Final = 600.0
"""No version younger than this is retired: above the longest query that began before it."""

ORPHAN_AGE_SECONDS_MIN: Final = 24 * 3600.0
"""A file that no table names is collected at this age: above the longest step, so that a slow writer loses nothing."""

CHECKPOINT_COMMITS: Final = 20
"""Commits of a Delta log between two checkpoints: a reader reads at most so many small files."""

LEASE_SECONDS: Final = 2 * 24 * 3600.0
"""How long a log keeps rows for a lake that is not running: a weekend."""

TASK_ATTEMPTS_MAX: Final = 3
"""How often Spark tries a task: an executor may die, and a task that fails three times has another reason."""

COMMIT_ATTEMPTS_MAX: Final = 3
"""How often a table is asked after a commit whose outcome is not known."""

WRITER_PAUSE_SECONDS_MAX: Final = 10.0
"""The longest pause after a fault, before a writer that follows tries again."""

ONCE_ATTEMPTS_MAX: Final = 5
"""How often `--once` tries a version, with pauses of 1, 2, 4, 8 seconds: an executor is replaced by then, and a disk
that stays full is somebody's business."""

STALL_SECONDS: Final = 60.0
"""G moves and the lake does not: after this it is said aloud."""

SHAPES_TOLD_MAX: Final = 20
"""Names of shapes in an error about a name that none has: a line that can be read, beside the nearest name."""

FILES_TOLD_MAX: Final = 5
"""Names of files in an error about a folder that is no lake: enough to see whose it is."""

SPARK_LOG_BYTES: Final = 4 * MIB
"""Spark's own log begins anew at this size, and the one before is kept: enough for a fault and what led to it."""
