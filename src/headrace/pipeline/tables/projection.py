"""pyiceberg's projection of rows onto a schema, mended where it loses values.

pyiceberg 0.12 makes lists and maps of structs anew from their offsets alone, so that null becomes empty, and casts lists of
lists and maps of lists by the names that a file has, so that a renamed field inside them becomes null. Reading and writing
both go through this one class of its, and nothing can be handed to it from outside: it is exchanged, once per process, by
whoever reads or writes. Remove it when `tests/unit/pipeline/tables/test_projection.py` passes without.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import pyarrow as pyiceberg_arrow
from pyiceberg.io.pyarrow import ArrowProjectionVisitor
from pyiceberg.types import ListType, MapType

# Arrow arrays carry no useful element types.
Array = Any


def mend_projection() -> None:
    """Let every later read and write of pyiceberg in this process keep nulls and renamed fields. Cheap to repeat."""
    vars(pyiceberg_arrow)["ArrowProjectionVisitor"] = _Projection


class _Projection(ArrowProjectionVisitor):  # type: ignore[misc]
    def list(self, list_type: ListType, list_array: Array | None, value_array: Array | None) -> Array | None:
        if not isinstance(list_array, pa.ListArray | pa.LargeListArray) or value_array is None:
            return super().list(list_type, list_array, value_array)
        values = self._cast_if_needed(list_type.element_field, value_array)
        element = self._construct_field(list_type.element_field, values.type)
        offsets, mask = _offsets_of(list_array)
        if isinstance(list_array, pa.LargeListArray):
            return pa.LargeListArray.from_arrays(offsets, values, type=pa.large_list(element), mask=mask)
        return pa.ListArray.from_arrays(offsets, values, type=pa.list_(element), mask=mask)

    def map(
        self, map_type: MapType, map_array: Array | None, key_result: Array | None, value_result: Array | None
    ) -> Array | None:
        if not isinstance(map_array, pa.MapArray) or key_result is None or value_result is None:
            return super().map(map_type, map_array, key_result, value_result)
        keys = self._cast_if_needed(map_type.key_field, key_result)
        values = self._cast_if_needed(map_type.value_field, value_result)
        kind = pa.map_(
            self._construct_field(map_type.key_field, keys.type),
            self._construct_field(map_type.value_field, values.type),
        )
        offsets, mask = _offsets_of(map_array)
        return pa.MapArray.from_arrays(offsets, keys, values, type=kind, mask=mask)


def _offsets_of(array: Array) -> tuple[Array, Array | None]:
    """Where each list begins in the values, and which lists are null: None when no list is."""
    if not array.null_count:
        return array.offsets, None
    # Arrow takes no mask for offsets that are a slice of others, as those of a filtered batch are: adding nothing copies.
    return pc.add(array.offsets, pa.scalar(0, array.offsets.type)), array.is_null()
