"""The lake: named shapes as Parquet tables that agree with each other at one LSN."""
