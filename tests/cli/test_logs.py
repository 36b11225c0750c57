"""What reaches a party's log: lines, not tracebacks of gRPC, and a flood of equal lines as a number."""

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from secagg.cli.console import MOST_EQUAL, WINDOW_SECONDS, CalmHandler
from secagg.cli.log_lines import JsonLines


@pytest.fixture
def written() -> io.StringIO:
    """What the handler has written."""
    return io.StringIO()


@pytest.fixture
def handler(written: io.StringIO) -> Iterator[CalmHandler]:
    """A handler that writes to `written`."""
    handler = CalmHandler(written)
    yield handler
    handler.close()


def record(
    text: str, *, at: float = 0.0, name: str = "secagg.server", error: Exception | None = None
) -> logging.LogRecord:
    """A record of some time."""
    failure = (type(error), error, None) if error is not None else None
    made = logging.LogRecord(name, logging.ERROR, "", 0, text, (), failure)
    made.created = 1e9 + at
    return made


def test_equal_lines_are_counted(handler: CalmHandler, written: io.StringIO) -> None:
    """Of 89 equal lines a few are written; when their minute is over the next line is preceded by their number."""
    for number in range(89):
        handler.emit(record("cannot store the upload of va", at=number / 10))
    assert written.getvalue() == "cannot store the upload of va\n" * MOST_EQUAL
    handler.emit(record("something else", at=WINDOW_SECONDS + 1))
    lines = written.getvalue().splitlines()[MOST_EQUAL:]
    assert lines == ["… and 84 more like it: cannot store the upload of va", "something else"]


def test_lines_of_another_minute_are_written_again(handler: CalmHandler, written: io.StringIO) -> None:
    """A line that comes now and then is never kept back."""
    for number in range(20):
        handler.emit(record("joined", at=number * (WINDOW_SECONDS / MOST_EQUAL + 1)))
    assert written.getvalue() == "joined\n" * 20


def test_different_lines_are_all_written(handler: CalmHandler, written: io.StringIO) -> None:
    """What differs is written, however much it is, and what was kept back is forgotten when its minute is over."""
    for number in range(1000):
        handler.emit(record(f"line {number}", at=number))
    assert len(written.getvalue().splitlines()) == 1000
    assert len(handler._seen) <= WINDOW_SECONDS + 1


def test_what_was_counted_is_said_at_the_end(handler: CalmHandler, written: io.StringIO) -> None:
    """A process that ends says how many lines it has kept back."""
    for _ in range(MOST_EQUAL + 2):
        handler.emit(record("again"))
    handler.close()
    assert written.getvalue().endswith("… and 2 more like it: again\n")


def test_traceback_of_grpc_is_one_line(handler: CalmHandler, written: io.StringIO) -> None:
    """What gRPC logs with a traceback is its first line; a caller that hung up is not worth one."""
    name, error = "grpc._cython.cygrpc", ValueError("torn")
    handler.emit(record("Unexpected [ValueError] raised by servicer method [/x]", name=name, error=error))
    handler.emit(record("Unexpected [ExecuteBatchError] raised by servicer method [/x]", name=name, error=error))
    assert written.getvalue() == "Unexpected [ValueError] raised by servicer method [/x]\n"


def test_own_traceback_is_written(handler: CalmHandler, written: io.StringIO) -> None:
    """A failure of our own keeps its traceback: its operator has to report it."""
    handler.emit(record("a call of va failed", error=ValueError("why")))
    assert "ValueError: why" in written.getvalue()


def test_json_line_holds_the_traceback() -> None:
    """A failure's traceback is a field of its line."""
    line = json.loads(JsonLines({}).format(record("a call of va failed", error=ValueError("why"))))
    assert line["traceback"] == "ValueError: why"


def test_line_of_a_session_has_its_own_step() -> None:
    """A line that says in which round and step it was written keeps them; any other has those last looked at."""
    lines, looked_at = JsonLines({"round": 1, "step": "Dealing", "party": "alice"}), record("another's line")
    own = record("from va")
    vars(own).update(round=2, step="Opening")
    found = [json.loads(lines.format(each)) for each in (own, looked_at)]
    assert [(each["round"], each["step"], each["party"]) for each in found] == [
        (2, "Opening", "alice"),
        (1, "Dealing", "alice"),
    ]


@pytest.mark.parametrize("dated", [True, False])
def test_lines_of_a_party_begin_with_the_time(dated: bool) -> None:
    """What waits for hours dates its log, with the offset from UTC; what computes and ends does not."""
    code = f"from secagg.cli.console import Speaker; import logging; Speaker(quiet=False, dated={dated})"
    code += "; logging.getLogger('secagg.server').info('hello')"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} " if dated else ""
    assert re.fullmatch(f"{time}secagg.server: hello\n", said)
