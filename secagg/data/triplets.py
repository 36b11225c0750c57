"""Data sets of pictures, texts and answers (labels): `NAME.triplets` (a folder) or `NAME.triplets.parquet`.

The folder holds `table.csv` with the columns picture (a file's name in the folder), text and answer; the Parquet file
has the same columns, a picture being the bytes of a PNG or JPEG file, alone or as `bytes` in a struct. Further columns
of text stay columns. The folder's `triplets.json`, or the Parquet schema's metadata of the key `triplets`, is

    {"side": 32, "answers": ["yes", "no"]}      or, domain by domain,      "answers": {"colours": ["red", "blue"], …}

Answers are the owner's own: a label is an answer's place in this list (that of the record's `domain`, where there is
such a column), and the words stay with whoever holds the file. Without it the side is the first picture's, and the
answers are those of the records in alphabetical order; both look at all records, so a tolerant reader asks for it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.data.delimited import DELIMITED
from secagg.data.images import UnusableImage, open_image, pixels_of
from secagg.data.parquet import batches_of, bytes_of, reading_parquet, refuse_expanded, texts_of
from secagg.data.partition import Split
from secagg.data.records import BAD, DOMAIN, MAX_CELL, Dataset, Faults, Records, Tolerance, bounded, concatenate
from secagg.data.table import LabelledFormat, read_table
from secagg.encoding.grid import Origin
from secagg.errors import BadInput
from secagg.system.reading import DOCUMENT_BYTES, parse_json, read_limited, refuse_larger

PICTURE, TEXT, ANSWER = "picture", "text", "answer"
BYTES = "bytes"
"""Name of the field that holds a picture's bytes in a struct, as the library `datasets` writes it."""
TABLE, FACTS = "table.csv", "triplets.json"
METADATA = b"triplets"
TEXT_BYTES = 256
"""Bytes of a record's text in UTF-8, padded with zeros; a longer text is a fault."""
LARGEST_SIDE = 1024
MOST_ANSWERS = 10_000
PICTURES_AT_ONCE = 64


@dataclass(frozen=True)
class Declared:
    """The content of `triplets.json`: the side of the square pictures in pixels, and each domain's possible answers."""

    side: int
    answers: Mapping[str, tuple[str, ...]]

    def label(self, domain: str, answer: str) -> int:
        """Return the label of an answer: its index among its domain's possible answers; BAD (-1) if not listed."""
        known = self.answers.get(domain, self.answers.get("", ()))
        return known.index(answer) if answer in known else BAD


@dataclass(frozen=True, eq=False)
class _Table:
    """The rows of a source: pictures as paths or bytes; texts, answers, domains and other columns as text."""

    pictures: Iterable[Path | bytes]
    columns: Mapping[str, NDArray[np.str_]]
    origin: Origin
    broken: NDArray[np.bool_]
    facts: bytes | None

    @property
    def domains(self) -> NDArray[np.str_]:
        """Each record's domain; "" where the source has no domains."""
        return self.columns.get(DOMAIN, np.zeros(len(self.broken), dtype="<U1"))


def side_of(length: int) -> int:
    """Return the pictures' side in pixels, for records of `length` bytes. Raises BadInput if no side fits."""
    pixels = length - TEXT_BYTES
    side = math.isqrt(max(pixels, 0) // 3)
    if side < 1 or 3 * side * side != pixels:
        problem = f"{length} numbers are no picture and text"
        raise BadInput(problem, remedy="give records of pictures, texts and answers")
    return side


def divide(inputs: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], list[str]]:
    """Split records (n, 3·side² + TEXT_BYTES) into pictures (n, side, side, 3) and texts. Raises BadInput."""
    side = side_of(inputs.shape[1])
    texts = [bytes(row).rstrip(b"\0").decode("utf-8", "replace") for row in inputs[:, -TEXT_BYTES:]]
    return inputs[:, :-TEXT_BYTES].reshape(-1, side, side, 3), texts


def join(pictures: NDArray[np.uint8], texts: Sequence[str]) -> NDArray[np.uint8]:
    """Join pictures and texts of at most TEXT_BYTES bytes into records: the inverse of `divide`."""
    padded = [np.frombuffer(text.encode().ljust(TEXT_BYTES, b"\0"), dtype=np.uint8) for text in texts]
    return np.concatenate([pictures.reshape(len(texts), -1), np.array(padded).reshape(-1, TEXT_BYTES)], axis=1)


def open_triplets(path: Path, cut: Split, tolerance: Tolerance | None = None) -> Dataset:
    """Open a data set whose records have a picture, a text and an answer, which is the label.

    It is a folder or a Parquet file. The module describes the layout. Every picture has the declared side, to the
    pixel. Raises BadInput for another layout, answers of which there is one alone, and, with `tolerance`, for a source
    that does not say what the module tells; BadRecord for a record without it.
    """
    table = _folder(path, tolerance) if path.is_dir() else _parquet(path, tolerance)
    if table.facts is None and tolerance is not None:
        problem = f"{path} does not say which answers there are, nor how large a picture is"
        raise BadInput(problem, remedy=f"declare both in {FACTS}: what is read off the records would tell of them")
    declared = _declared(path, table.facts) if table.facts is not None else _derived(table)
    if lonely := [name or "the records" for name, answers in declared.answers.items() if len(answers) < 2]:
        problem = f"{path}: there is one answer only in {', '.join(lonely)}"
        raise BadInput(problem, remedy="a head tells two answers or more apart")
    records = _records(table, declared, tolerance)
    pairs = []
    for domain in np.unique(table.domains):
        group = records.take(np.flatnonzero(table.domains == domain))
        if tolerance is None and len(np.unique(group.labels)) < 2:
            where = f"{path}, domain {domain}" if domain else str(path)
            raise BadInput(f"{where}: every record has the same answer", remedy="nothing can be learnt from it")
        pairs.append(cut(group))
    train, test = (concatenate(part) for part in zip(*pairs, strict=True)) if pairs else cut(records)
    classes = tuple(str(place) for place in range(max(map(len, declared.answers.values()))))
    return Dataset(path.name, "triplets", train, test if len(test) else None, classes, is_named=False)


def _records(table: _Table, declared: Declared, tolerance: Tolerance | None) -> Records:
    count, side = len(table.broken), declared.side
    (tolerance or Tolerance()).refuse_larger("the pictures and texts", count, 3 * side * side + TEXT_BYTES)
    faults = Faults(table.origin, tolerant=tolerance is not None)
    faults.add(table.broken, "is no row of the table", "mend or remove the row")
    texts, answers = (table.columns[name] for name in (TEXT, ANSWER))
    long = np.array([len(text.encode()) > TEXT_BYTES for text in texts], dtype=np.bool_)
    faults.add(long, f"has a text of more than {TEXT_BYTES} bytes", "shorten it")
    labels = np.array([declared.label(*each) for each in zip(table.domains, answers, strict=True)], dtype=np.int64)
    faults.add(labels == BAD, "has an answer that is none of the declared", f"declare it in {FACTS}")
    pictures = np.zeros((count, side, side, 3), dtype=np.uint8)
    for row, source in enumerate(table.pictures):
        try:
            with open_image(source) as image:
                if image.size != (side, side):
                    remedy = f"scale it to {side} × {side}, as {FACTS} or the first picture says"
                    raise UnusableImage(f"is {image.width} × {image.height} pixels", remedy)
            pictures[row] = pixels_of(source, (side, side, 3), fit=False)
        except UnusableImage as error:
            faults.add(np.arange(count) == row, f"has a picture that {error.problem}", error.remedy)
    inputs = join(pictures, ["" if each else text for text, each in zip(texts, long, strict=True)])
    columns = {name: column for name, column in table.columns.items() if name not in (PICTURE, TEXT, ANSWER)}
    return Records(inputs, labels, columns, table.origin).discard(faults.bad)


def _declared(path: Path, content: bytes) -> Declared:
    """Read `triplets.json`. Raises BadInput for other content than the module's docstring says."""
    remedy = 'for example {"side": 32, "answers": ["yes", "no"]}'
    try:
        facts = parse_json(content)
        side, answers = facts["side"], facts["answers"]
        by_domain = {"": answers} if isinstance(answers, list) else dict(answers)
        lists = {str(domain): tuple(words) for domain, words in by_domain.items()}
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path}: {FACTS} does not tell side and answers", remedy=remedy) from error
    words = [word for each in lists.values() for word in each]
    if set(facts) != {"side", "answers"} or not lists or not all(isinstance(word, str) for word in words):
        raise BadInput(f"{path}: {FACTS} tells other things than side and lists of answers", remedy=remedy)
    if isinstance(side, bool) or not isinstance(side, int) or not 1 <= side <= LARGEST_SIDE:
        raise BadInput(f"{path}: the side is {side!r}", remedy=f"give 1 to {LARGEST_SIDE} pixels")
    if any(len(set(each)) != len(each) or len(each) > MOST_ANSWERS for each in lists.values()):
        raise BadInput(f"{path}: answers are listed twice, or more than {MOST_ANSWERS}", remedy="list each once")
    return Declared(side, lists)


def _derived(table: _Table) -> Declared:
    """Return the side of the first usable picture, and the answers that occur."""
    answers = {
        str(domain): tuple(np.unique(table.columns[ANSWER][table.domains == domain]).tolist())
        for domain in np.unique(table.domains)
    }
    for source in table.pictures:
        with suppress(UnusableImage), open_image(source) as image:
            return Declared(image.height, answers)
    return Declared(1, answers)


def _folder(path: Path, tolerance: Tolerance | None) -> _Table:
    """Read the table of a folder. Raises BadInput for a folder without a table."""
    if not (path / TABLE).is_file():
        raise BadInput(f"{path} holds no {TABLE}", remedy="it has the columns picture, text and answer")
    table = read_table(path / TABLE, DELIMITED, None, tolerance=tolerance)
    _require_columns(path, list(table.columns))
    facts = read_limited(path / FACTS, DOCUMENT_BYTES) if (path / FACTS).is_file() else None
    names = map(Path, table.columns[PICTURE])
    is_inside = [bool(name.parts) and not name.is_absolute() and ".." not in name.parts for name in names]
    pictures = [path / name if inside else b"" for name, inside in zip(table.columns[PICTURE], is_inside, strict=True)]
    return _Table(pictures, table.columns, table.origin, table.broken, facts)


def _parquet(path: Path, tolerance: Tolerance | None) -> _Table:
    """Read a Parquet file. Raises BadInput where columns are missing, or it would take too much memory."""
    from pyarrow import types
    from pyarrow.parquet import ParquetFile

    with reading_parquet(path) as file:
        known = ParquetFile(file)
        kinds = {field.name: field.type for field in known.schema_arrow}
        _require_columns(path, list(kinds))
        texts = [name for name, kind in kinds.items() if _is_any(kind, types.is_string, types.is_large_string)]
        names = [name for name in kinds if name in (TEXT, ANSWER) or (name != PICTURE and name in texts)]
        limit = bounded(tolerance)
        if limit is None:
            refuse_expanded(path, known)
            table = ParquetFile(file, read_dictionary=names).read(columns=names)
            words = {name: texts_of(table[name], tolerant=tolerance is not None) for name in names}
            longest = MAX_CELL
        else:
            names = [name for name in names if name in (TEXT, ANSWER, DOMAIN)]
            longest = limit.longest_cell(path, len(names))
            words = {name: [] for name in names}
            for batch in batches_of(path, file, names, limit):
                for name in names:  # of a word that is too long no more stays than says so
                    words[name] += [word[: longest + 1] for word in texts_of(batch[name], tolerant=True)]
        facts = (known.schema_arrow.metadata or {}).get(METADATA)
    long = [any(len(word) > longest for word in row) for row in zip(*words.values(), strict=True)]
    for name, column in words.items():
        words[name] = ["" if out else word.strip() for word, out in zip(column, long, strict=True)]
    if limit is None:
        refuse_larger(path, 4 * len(long) * sum(max(map(len, column), default=0) for column in words.values()))
    columns = {name: np.array(column, dtype=np.str_) for name, column in words.items()}
    pictures, origin = _Pictures(path, _leaf_of(kinds[PICTURE]), len(long)), np.arange(1, len(long) + 1)
    return _Table(pictures, columns, Origin.of(str(path), origin), np.array(long, dtype=np.bool_), facts)


@dataclass(frozen=True)
class _Pictures:
    """The pictures' bytes in a Parquet file, read a few at a time while one iterates, never all at once."""

    path: Path
    leaf: tuple[str, ...]
    count: int

    def __iter__(self) -> Iterator[bytes]:
        if not self.leaf:
            yield from [b""] * self.count
            return
        with reading_parquet(self.path) as file:
            for batch in batches_of(self.path, file, list(self.leaf), Tolerance(), PICTURES_AT_ONCE):
                yield from bytes_of(batch.flatten()[self.leaf[0]])


def _require_columns(path: Path, names: Sequence[str]) -> None:
    if absent := [name for name in (PICTURE, TEXT, ANSWER) if name not in names]:
        raise BadInput(f"{path} lacks the columns {', '.join(absent)}", remedy="a record is picture, text and answer")


def _is_any(kind: Any, *tests: Callable[[Any], bool]) -> bool:
    """Return whether an Arrow type, or the value type of a dictionary type, passes any of the tests."""
    from pyarrow import types

    inner = kind.value_type if types.is_dictionary(kind) else kind
    return any(is_kind(inner) for is_kind in tests)


def _leaf_of(kind: Any) -> tuple[str, ...]:
    """Return the name of the column with the pictures' bytes, for a picture type; () if the type holds none."""
    from pyarrow import types

    place = kind.get_field_index(BYTES) if types.is_struct(kind) else -1
    inner = kind.field(place).type if place >= 0 else kind
    name = f"{PICTURE}.{BYTES}" if place >= 0 else PICTURE
    return (name,) if _is_any(inner, types.is_binary, types.is_large_binary) else ()


def facts_of(side: int, answers: Sequence[str] | Mapping[str, Sequence[str]]) -> str:
    """Return the text of `triplets.json`: the pictures' side in pixels, and the possible answers (labels)."""
    told = {name: list(words) for name, words in answers.items()} if isinstance(answers, Mapping) else list(answers)
    return json.dumps({"side": side, "answers": told})


_FILE = ".triplets.parquet"
TRIPLETS = (
    LabelledFormat(suffixes=(".triplets",), called="folders .triplets", open=open_triplets),
    LabelledFormat(suffixes=(_FILE,), called=_FILE, library="pyarrow.parquet", extra="tables", open=open_triplets),
)
"""The two formats of triplets: a folder, and a Parquet file."""
