"""The lake: named shapes as Parquet tables that agree with each other at one LSN. `open_lake` is the reader's door."""

from storage.lake.open_lake import Lake, LakeTable, LakeVersion, open_lake

__all__ = ["Lake", "LakeTable", "LakeVersion", "open_lake"]
