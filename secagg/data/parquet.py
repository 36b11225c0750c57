"""Parquet files as tables of text, so that they are encoded, and refused, like every other table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from secagg.errors import BadInput, why

PARQUET = ".parquet"
Cells = list[str]


def parquet_columns(path: Path, *, tolerant: bool = False) -> dict[str, Cells]:
    """The columns of a Parquet file as text: numbers as arrow writes them, an absent value as "".

    Integers, floats, decimals, booleans ("true", "false") and text can be columns, dictionary-encoded or not. With
    `tolerant` bytes that are not UTF-8 are replaced. Raises BadInput without pyarrow (the extra `tables`), for a file
    that is no Parquet, a column of another type, and names that are empty or repeated.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        remedy = "pip install 'secagg[tables]', or save the table as .csv"
        raise BadInput(f"{path}: Parquet needs the library pyarrow, which is not installed", remedy=remedy) from None
    try:
        with path.open("rb") as file:
            table = pyarrow.parquet.ParquetFile(file).read()
    except (OSError, pyarrow.ArrowException) as error:
        raise BadInput(f"cannot read {path} as Parquet ({why(error)})") from error
    names = table.column_names
    if len(set(names)) != len(names) or "" in names:
        raise BadInput(f"{path}: names of columns are empty or repeated", remedy="name every column once")
    try:
        return {name: _cells(path, name, table[name], tolerant) for name in names}
    except UnicodeDecodeError:
        raise BadInput(f"{path} holds text that is not UTF-8", remedy="save the table as UTF-8") from None


def _cells(path: Path, name: str, column: Any, tolerant: bool) -> Cells:
    import pyarrow
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if types.is_string(kind) or types.is_large_string(kind):
        raw = column.cast(pyarrow.large_binary()).to_pylist()
        errors = "replace" if tolerant else "strict"
        return ["" if cell is None else cell.decode("utf-8", errors) for cell in raw]
    plain = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    if not any(is_kind(kind) for is_kind in plain):
        remedy = "leave the column out, or store it as a number or as text"
        raise BadInput(f"{path}: column {name!r} is of type {kind}, which is no cell of a table", remedy=remedy)
    return [cell or "" for cell in column.cast(pyarrow.string()).to_pylist()]
