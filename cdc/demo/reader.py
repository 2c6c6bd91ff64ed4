"""Readers over HTTP: one follows a shape all the time, over every restart of the server; another reads it once."""

from cdc.demo.fold import Fold
from cdc.demo.shapes import DemoShape
from shapes.client import ShapeStream


async def follow(url: str, shape: DemoShape, fold: Fold) -> None:
    """Take every change, for ever. Raises `Mismatch` for one that cannot be."""
    async for batch in _stream(url, shape):
        fold.take(batch)


async def read_once(url: str, shape: DemoShape) -> Fold:
    """From the start until the server says that this is all."""
    fold, batches = Fold(shape.name), aiter(_stream(url, shape))
    while not fold.is_up_to_date:
        fold.take(await anext(batches))
    await batches.aclose()  # type: ignore[attr-defined]  # it is a generator, and holds a connection
    return fold


def _stream(url: str, shape: DemoShape) -> ShapeStream:
    return ShapeStream(f"{url}/v1/shape", table=shape.table, where=shape.where)
