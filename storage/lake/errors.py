"""What can go wrong in the lake: a class for each condition, as in `storage.errors`."""

from storage.errors import StorageError


class LakeError(StorageError):
    """The root of the lake's errors."""

    code = "lake"
    hint = "Look at the lake's folder; it is never changed by a command that fails."


class NotALake(LakeError):
    """The folder is no lake, or one of another format."""

    code = "not_a_lake"
    hint = "Name a lake's folder; `shapelog materialize --lake DIR` makes one where nothing is, or in an empty folder."


class OtherSettings(LakeError):
    """The lake was made with other settings."""

    code = "other_lake_settings"
    hint = "A lake keeps the settings it was made with: use those, or another folder."


class OtherData(LakeError):
    """The lake was made from another data folder, or from a later state of this one."""

    code = "other_data_folder"
    hint = (
        "Name the folder that the lake was made from, or another folder for the lake. If the lake is to go over to"
        " this one, its tables begin anew there: `shapelog materialize --adopt`."
    )


class NoDataFolder(LakeError):
    """The folder that a lake is to be made from has nothing that it could be made from."""

    code = "lake_no_data_folder"
    hint = "Name the folder of `shapelog serve --data-dir`; a new one is ready some seconds after the server began."


class MixedFolders(LakeError):
    """The lake's folder and the data folder are one, or lie in each other."""

    code = "lake_mixed_folders"
    hint = "Give each a folder of its own, side by side: what cleans or copies one of them would take the other along."


class PathTaken(LakeError):
    """Something of somebody else's is where the lake has a link to its newest view."""

    code = "lake_path_taken"
    hint = "Move it elsewhere: the newest version is complete, and no other is made until it can be shown."


class LakeDamage(LakeError):
    """What the log tells does not fit what the lake has: a change of a row that is not there, a file that is gone."""

    code = "lake_damage"
    hint = "Run `shapelog verify` on the data folder; `shapelog recover --resnapshot` reads the shape anew."


class LogGap(LakeError):
    """The log no longer has the rows that come next."""

    code = "lake_gap"
    hint = (
        "They were folded before the lake had them, and its history would miss them. `shapelog recover --resnapshot`"
        " reads the shape anew; a lake made with --state-only takes them from the fold."
    )


class ChangesFolded(LogGap):
    """Updates of a row that somebody's own job wants became one."""

    code = "lake_changes_folded"
    hint = (
        "Values in between are gone, from the log of a server with --log-compaction. Who wants a row's newest values"
        ' only reads on with .option("gaps", "allowed"); who wants each change begins behind that range, with "after".'
    )


class StepBack(LogGap):
    """Somebody's own query goes on from a position that the data folder has never reached."""

    code = "lake_step_back"
    hint = "Name the folder that the query has read so far; or begin a new query, with another checkpoint."


class CommitUnknown(LakeError):
    """Nobody can say whether a commit happened."""

    code = "commit_unknown"
    hint = "Start again: the table is asked first, and work that is committed is not done twice."


class LaggingWriter(LakeError):
    """Another writer is ahead, and has done what this one was about to do."""

    code = "lagging_writer"
    hint = "Nothing is lost or done twice; this writer goes on from where the other is."


class NoVersion(LakeError):
    """The lake has no such version, or not any more, or none yet."""

    code = "no_version"
    hint = "`shapelog lake versions` lists those that are there, and says how the first comes into being."


class NoTable(LakeError):
    """The version has no such table."""

    code = "no_table"
    hint = "`shapelog lake show` lists a version's tables."


class JavaMissing(LakeError):
    """Spark needs Java 17 or later, and there is none."""

    code = "java_missing"
    hint = "Set JAVA_HOME, put java on the path, or `pip install 'shapelog[lake]'`, which brings one."


class LakeNotInstalled(LakeError):
    """The packages that the lake needs are not installed."""

    code = "lake_not_installed"
    hint = "pip install 'shapelog[lake]'"


class TaskFailed(LakeError):
    """A part of the work failed in one of Spark's processes."""

    code = "lake_task_failed"
    hint = "The message says why; nothing was published, and the next attempt does the same work."


class SparkGone(LakeError):
    """Spark's own process did not start, or ended while it was needed."""

    code = "spark_gone"
    hint = "Start again: nothing is lost or done twice. If it comes again, look at --master, and at memory in --conf."


class LakeWaits(LakeError):
    """The lake cannot go on yet: it waits for a table."""

    code = "lake_waits"
    hint = "Run it again when that table is ready, or `shapelog shapes remove` it."


class UnknownShape(LakeError):
    """The data folder has no such shape, or it is not ready."""

    code = "lake_unknown_shape"
    hint = "`shapelog shapes list` lists those that are there; one that is not is made first: `shapelog shapes add`."


class InvalidOption(LakeError):
    """An option of the format `shapelog` is missing or wrong."""

    code = "lake_invalid_option"
    hint = "It needs the options data and shape; after is an offset, maxRows a number, gaps is refused or allowed."
