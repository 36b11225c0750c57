"""Records of a picture, a text and an answer: `NAME.triplets`, a folder, or `NAME.triplets.parquet`.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

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
"""The field of a picture's struct, as `datasets` writes it."""
TABLE, FACTS = "table.csv", "triplets.json"
METADATA = b"triplets"
TEXT_BYTES = 256
"""Of a text in UTF-8, padded with zeros; a longer one is a fault."""
LARGEST_SIDE = 1024
MOST_ANSWERS = 10_000
PICTURES_AT_ONCE = 64


@dataclass(frozen=True)
class Declared:
    """The declaration beside the records: the pictures' side in pixels, and the answers of each domain."""

    side: int
    answers: Mapping[str, tuple[str, ...]]

    def label(self, domain: str, answer: str) -> int:
        """The answer's place in its domain's list; BAD where it has none."""
        known = self.answers.get(domain, self.answers.get("", ()))
        return known.index(answer) if answer in known else BAD


@dataclass(frozen=True, eq=False)
class _Table:
    """The rows of a source: pictures as files or bytes, texts, answers, domains, and the other columns."""

    pictures: Iterable[Path | bytes]
    columns: Mapping[str, NDArray[np.str_]]
    origin: Origin
    broken: NDArray[np.bool_]
    facts: bytes | None

    @property
    def domains(self) -> NDArray[np.str_]:
        """Each record's domain, "" without any."""
        return self.columns.get(DOMAIN, np.zeros(len(self.broken), dtype="<U1"))


def side_of(length: int) -> int:
    """The side of the pictures in records of so many bytes. Raises BadInput for no such record."""
    pixels = length - TEXT_BYTES
    side = math.isqrt(max(pixels, 0) // 3)
    if side < 1 or 3 * side * side != pixels:
        raise BadInput(
            f"{length} numbers are no picture and text", remedy="give records of pictures, texts and answers"
        )
    return side


def divide(inputs: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], list[str]]:
    """The pictures (n, side, side, 3) and the texts of records (n, 3·side² + TEXT_BYTES). Raises BadInput."""
    side = side_of(inputs.shape[1])
    texts = [bytes(row).rstrip(b"\0").decode("utf-8", "replace") for row in inputs[:, -TEXT_BYTES:]]
    return inputs[:, :-TEXT_BYTES].reshape(-1, side, side, 3), texts


def join(pictures: NDArray[np.uint8], texts: Sequence[str]) -> NDArray[np.uint8]:
    """Undo `divide`, for texts of at most TEXT_BYTES bytes."""
    padded = [np.frombuffer(text.encode().ljust(TEXT_BYTES, b"\0"), dtype=np.uint8) for text in texts]
    return np.concatenate([pictures.reshape(len(texts), -1), np.array(padded).reshape(-1, TEXT_BYTES)], axis=1)


def open_triplets(path: Path, cut: Split, tolerance: Tolerance | None = None) -> Dataset:
    """Open records of pictures, texts and answers; see the module for the layout.

    Every picture has the declared side, to the pixel. Raises BadInput for another layout, answers of which there is
    one alone, and, with `tolerance`, for a source that does not say what the module tells; BadRecord for a record
    without it.
    """
    table = _folder(path, tolerance) if path.is_dir() else _parquet(path, tolerance)
    if table.facts is None and tolerance is not None:
        raise BadInput(
            f"{path} does not say which answers there are, nor how large a picture is",
            remedy=f"declare both in {FACTS}: what is read off the records would tell of them",
        )
    declared = _declared(path, table.facts) if table.facts is not None else _derived(table)
    if lonely := [name or "the records" for name, answers in declared.answers.items() if len(answers) < 2]:
        problem = f"{path}: there is one answer only in {', '.join(lonely)}"
        raise BadInput(problem, remedy="a head tells two answers or more apart")
    records = _records(table, declared, tolerance)
    if tolerance is None:
        _refuse_one_class(path, table, records)
    pairs = [cut(records.take(np.flatnonzero(table.domains == domain))) for domain in np.unique(table.domains)]
    train, test = (concatenate(part) for part in zip(*pairs, strict=True)) if pairs else cut(records)
    classes = tuple(str(place) for place in range(max(map(len, declared.answers.values()))))
    return Dataset(path.name, "triplets", train, test if len(test) else None, classes, None, None, None, is_named=False)


def _refuse_one_class(path: Path, table: _Table, records: Records) -> None:
    """Raise BadInput for a domain all of whose records have the same answer."""
    for domain in np.unique(table.domains):
        if len(np.unique(records.labels[table.domains == domain])) < 2:
            where = f"{path}, domain {domain}" if domain else str(path)
            raise BadInput(f"{where}: every record has the same answer", remedy="nothing can be learnt from it")


def _records(table: _Table, declared: Declared, tolerance: Tolerance | None) -> Records:
    """Check and convert every row."""
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
            pictures[row] = _pixels(source, side)
        except UnusableImage as error:
            faults.add(np.arange(count) == row, f"has a picture that {error.problem}", error.remedy)
    inputs = join(pictures, ["" if each else text for text, each in zip(texts, long, strict=True)])
    columns = {name: column for name, column in table.columns.items() if name not in (PICTURE, TEXT, ANSWER)}
    return Records(inputs, labels, columns, table.origin).discard(faults.bad)


def _pixels(source: Path | bytes, side: int) -> NDArray[Any]:
    """A picture (side, side, 3). Raises UnusableImage."""
    with open_image(source) as image:
        if image.size != (side, side):
            problem = f"is {image.width} × {image.height} pixels"
            raise UnusableImage(problem, f"scale it to {side} × {side}, as {FACTS} or the first picture says")
    return pixels_of(source, (side, side, 3), fit=False)


def _declared(path: Path, content: bytes) -> Declared:
    """Read the facts. Raises BadInput for others than the module tells."""
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
    """The first usable picture's side, and the answers that there are."""
    answers = {
        str(domain): tuple(np.unique(table.columns[ANSWER][table.domains == domain]).tolist())
        for domain in np.unique(table.domains)
    }
    return Declared(next((side for side in map(_side, table.pictures) if side), 1), answers)


def _side(source: Path | bytes) -> int:
    """The height of a picture, 0 where it cannot be read."""
    try:
        with open_image(source) as image:
            return image.height
    except UnusableImage:
        return 0


def _folder(path: Path, tolerance: Tolerance | None) -> _Table:
    """The rows of a folder's table. Raises BadInput for a folder without one."""
    if not (path / TABLE).is_file():
        raise BadInput(f"{path} holds no {TABLE}", remedy="it has the columns picture, text and answer")
    table = read_table(path / TABLE, DELIMITED, None, tolerance=tolerance)
    _require_columns(path, list(table.columns))
    facts = read_limited(path / FACTS, DOCUMENT_BYTES) if (path / FACTS).is_file() else None
    pictures = [path / name if _is_inside(name) else b"" for name in table.columns[PICTURE]]
    return _Table(pictures, table.columns, table.origin, table.broken, facts)


def _is_inside(name: str) -> bool:
    """Whether a picture's name cannot lead out of its folder."""
    parts = Path(name).parts
    return bool(parts) and not Path(name).is_absolute() and ".." not in parts


def _parquet(path: Path, tolerance: Tolerance | None) -> _Table:
    """The rows of a Parquet file. Raises BadInput for one without the columns, or that would take too much memory."""
    from pyarrow.parquet import ParquetFile

    with reading_parquet(path) as file:
        known = ParquetFile(file)
        kinds = {field.name: field.type for field in known.schema_arrow}
        _require_columns(path, list(kinds))
        names = [name for name in kinds if name in (TEXT, ANSWER) or (name != PICTURE and _is_text(kinds[name]))]
        limit = bounded(tolerance)
        if limit is None:
            refuse_expanded(path, known)
            table = ParquetFile(file, read_dictionary=names).read(columns=names)
            words = {name: texts_of(table[name], tolerant=tolerance is not None) for name in names}
            longest = MAX_CELL
        else:
            names = [name for name in names if name in (TEXT, ANSWER, DOMAIN)]
            longest = limit.longest_cell(path, len(names))
            words = _words_alone(path, file, names, limit, longest)
        facts = (known.schema_arrow.metadata or {}).get(METADATA)
    long = [any(len(word) > longest for word in row) for row in zip(*words.values(), strict=True)]
    words = {
        name: ["" if out else word.strip() for word, out in zip(column, long, strict=True)]
        for name, column in words.items()
    }
    if limit is None:
        refuse_larger(path, 4 * len(long) * sum(max(map(len, column), default=0) for column in words.values()))
    columns = {name: np.array(column, dtype=np.str_) for name, column in words.items()}
    rows = np.arange(1, len(long) + 1)
    pictures = _Pictures(path, tuple(_leaf_of(kinds[PICTURE])), len(long))
    return _Table(pictures, columns, Origin.of(str(path), rows), np.array(long, dtype=np.bool_), facts)


def _words_alone(
    path: Path, file: IO[bytes], names: list[str], tolerance: Tolerance, longest: int
) -> dict[str, list[str]]:
    """Columns of text, read some rows at a time; of a word that is too long no more stays than says so."""
    words: dict[str, list[str]] = {name: [] for name in names}
    for batch in batches_of(path, file, names, tolerance):
        for name in names:
            words[name] += [word[: longest + 1] for word in texts_of(batch[name], tolerant=True)]
    return words


@dataclass(frozen=True)
class _Pictures:
    """The pictures' bytes in a Parquet file, read some at a time as they are asked for: never all at once."""

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


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    inner = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(inner) or types.is_large_string(inner))


def _leaf_of(kind: Any) -> list[str]:
    """Where the bytes of pictures of a type are: nowhere, where it holds none."""
    from pyarrow import types

    def is_bytes(inner: Any) -> bool:
        plain = inner.value_type if types.is_dictionary(inner) else inner
        return bool(types.is_binary(plain) or types.is_large_binary(plain))

    if types.is_struct(kind):
        place = kind.get_field_index(BYTES)
        return [f"{PICTURE}.{BYTES}"] if place >= 0 and is_bytes(kind.field(place).type) else []
    return [PICTURE] if is_bytes(kind) else []


def facts_of(side: int, answers: Sequence[str] | Mapping[str, Sequence[str]]) -> str:
    """Write the text of `triplets.json`, which declares the side and the answers."""
    told = {name: list(words) for name, words in answers.items()} if isinstance(answers, Mapping) else list(answers)
    return json.dumps({"side": side, "answers": told})


TRIPLETS = (
    LabelledFormat(suffixes=(".triplets",), called="folders .triplets", open=open_triplets),
    LabelledFormat(
        suffixes=(".triplets.parquet",),
        called=".triplets.parquet",
        library="pyarrow.parquet",
        extra="tables",
        open=open_triplets,
    ),
)
"""A folder, and a Parquet file."""
