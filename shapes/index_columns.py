"""The columns of a batch, as the indexes want them. Each is worked out once, when first asked for.

Invariants:
    codes[row] is -1 for NULL, else a place in `keys`
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shapes.index_keys import Key, KeyedColumn, elements_of_column, keys_of_column
from shapes.index_numbers import Integers
from shapes.index_questions import Questions
from shapes.where.evaluate import Rows
from shapes.where.types import Type

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Encoded(Generic[K]):
    """A column by its distinct values. Two of them may have the same key: 1.0 and 1.00 of a numeric column."""

    codes: Integers
    keys: list[K]


class BatchColumns:
    """The rows of one batch of a table."""

    def __init__(self, rows: pa.StructArray) -> None:
        self._rows = Rows(rows)
        self.questions = Questions(self._rows)
        self._encoded: dict[KeyedColumn, Encoded[Key]] = {}
        self._elements: dict[KeyedColumn, Encoded[frozenset[Key]]] = {}

    def encoded(self, column: KeyedColumn) -> Encoded[Key]:
        """A column by the keys of its values."""
        found = self._encoded.get(column)
        if found is None:
            found = self._encoded[column] = self._encode(column, keys_of_column)
        return found

    def encoded_elements(self, column: KeyedColumn) -> Encoded[frozenset[Key]]:
        """A column of arrays by the keys of their elements; NULLs among them are left out: nothing contains them."""
        found = self._elements.get(column)
        if found is None:
            found = self._elements[column] = self._encode(column, elements_of_column)
        return found

    def __len__(self) -> int:
        return len(self._rows)

    def _encode(self, column: KeyedColumn, keys: Callable[[Type, pa.StringArray], list[K]]) -> Encoded[K]:
        encoded = pc.dictionary_encode(self._rows.texts(column.name))
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return Encoded(codes, keys(column.type, encoded.dictionary))
