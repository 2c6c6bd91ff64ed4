"""Records a lake as this version makes it, so that every later one can be asked to read it and to go on with it.

    python -m tests.corpus.record_lake tests/corpus/lake-1.tar.xz

In the archive: the data folder, the lake, and `expected.json`: what each table has at each G, and all its changes. The
last G is not in the lake: whoever continues it makes that version. A lake of a version that was released is never
recorded anew.
"""

import json
import sys
import tarfile
import tempfile
from pathlib import Path

from storage.rows import Kind
from tests.bank import COLUMNS
from tests.lakes import Lakes

WIDER = COLUMNS | {"since": (1082, -1)}


def record(target: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lakes = story(folder)
        bank = lakes.bank
        changes = {name: [list(change) for change in made] for name, made in bank.changes.items()}
        columns = {name: [*columns] for name, columns in bank.columns.items()}
        expected = {"history": bank.history, "changes": changes, "columns": columns}
        (folder / "expected.json").write_text(json.dumps(expected))
        bank.close()
        with tarfile.open(target, "w:xz", preset=9) as archive:
            for part in ("data", "lake", "expected.json"):
                archive.add(folder / part, part, filter=nobodys)


def story(folder: Path) -> Lakes:
    """Some of all that may come: values that do not fit, TRUNCATE, a column more, a table more, a table without."""
    lakes = Lakes(folder, seed=6, accounts=8)
    bank, writer = lakes.bank, lakes.writer()
    bank.play(12)
    bank.confirm()
    writer.step()
    bank.commit(("checking", Kind.TRUNCATE, None))
    bank.commit(("checking", Kind.INSERT, bank.account("checking", "7", "0.00")))
    bank.open_table("more", bank.accounts("more", 3))
    bank.play(12)
    bank.confirm()
    writer.step()
    old = bank.end_table("savings", "altered")
    bank.columns["savings"] = WIDER  # so that new accounts have it
    bank.succeed_table("savings", old, WIDER, bank.accounts("savings", 5))
    bank.confirm()
    writer.step()
    bank.commit(("savings", Kind.UPDATE, {"id": "1", "since": "2024-02-29"}))
    bank.confirm()
    return lakes


def nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without the names and the time of whoever records."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    record(Path(sys.argv[1]))
