"""Files of others are read up to a limit, and documents are shallow: whatever they hold, they take little."""

import os
import threading
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.agreement.plan import Plan, read_plan
from secagg.agreement.policy import read_policy
from secagg.agreement.schema import load_schema
from secagg.errors import BadInput, MalformedMessage
from secagg.system.reading import DATA_BYTES, DEEPEST, data_limit, parse_json, parse_toml, read_limited, refuse_larger
from secagg.transport.enrolment import create_authority, issue
from secagg.wire.text import from_json
from threat_models.report.gate import Gate

DEEP = {
    "lists": "a = " + "[" * 5000,
    "closed lists": "a = " + "[" * 100 + "]" * 100,
    "tables": "a = " + "{a = " * 5000,
    "dotted key": "a." * 20_000 + "a = 1",
    "dotted key in quotes": '"a\\"" . ' * 20_000 + "a = 1",
    "dotted name of a table": "[" + "a . " * 20_000 + "a]",
    "dotted literal keys": "'a'." * 20_000 + "a = 1",
    "digits": "a = " + "1" * 5000,
    "beyond 64 bits": "a = " + "9" * 400,
    "no UTF-8": "a = '\udcff'",
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
@pytest.mark.parametrize("read", [read_policy, Gate.read, lambda path: load_schema(str(path))])
def test_deep_toml_is_refused(tmp_path: Path, read, text: str) -> None:
    """Policies, gates and schemas that are nested without end, or hold endless numbers, give one line at once."""
    path = tmp_path / "file.toml"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(BadInput, match=r"file\.toml") as refusal:
        read(path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 500 + "1" + "}" * 500, "1" * 5000, "9" * 400, "\ud800", ""])
def test_deep_json_is_refused(tmp_path: Path, text: str) -> None:
    """Plans and requests that are nested without end, or hold endless numbers, give one line."""
    path = tmp_path / "file.json"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    with pytest.raises(BadInput, match=r"file\.json"):
        read_plan(path)
    create_authority(tmp_path / "ca", "deep")
    with pytest.raises(BadInput, match=r"file\.json"):
        issue(tmp_path / "ca", [path])
    with pytest.raises(MalformedMessage):
        from_json(Plan, text)


@given(st.integers(0, 2 * DEEPEST))
def test_depth_is_counted(depth: int) -> None:
    """A document is read exactly where it is nested no deeper than the limit."""
    for text in ("[" * depth + "1" + "]" * depth, '{"a":' * depth + "1" + "}" * depth):
        if depth <= DEEPEST:
            parse_json(text)
        else:
            with pytest.raises(ValueError, match="deep"):
                parse_json(text)


@pytest.mark.parametrize("text", ["a.b.c = 1", "x = [1.5, 2.5]", 'u = "https://a.b.c.d/e.f"', "[a.'b.c'.\"d\"]", ""])
def test_plain_toml_is_read(text: str) -> None:
    """What people write is read as tomllib reads it."""
    assert parse_toml(text) == tomllib.loads(text)


def test_numbers_in_a_list_are_no_key() -> None:
    """Dots of numbers, however many, do not make a key."""
    assert parse_toml("x = [" + "1.5, " * 1000 + "]")["x"] == [1.5] * 1000


def test_endless_file_is_refused() -> None:
    """A device that never ends is no plan: no more than a document may hold is read of it."""
    with pytest.raises(BadInput, match=r"/dev/zero holds more than"):
        read_plan(Path("/dev/zero"))


def test_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    """A pipe, as a shell's <(command) gives it, is read like a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"x" * 3_000_000,))
    writer.start()
    assert read_limited(pipe, 3_000_000) == b"x" * 3_000_000
    writer.join()


@pytest.mark.parametrize("size", [0, 9, 10, 11])
def test_limit_is_exact(tmp_path: Path, size: int) -> None:
    """A file of as many bytes as are allowed is read, one more is refused."""
    path = tmp_path / "file"
    path.write_bytes(bytes(size))
    if size <= 10:
        assert read_limited(path, 10) == bytes(size)
    else:
        with pytest.raises(BadInput, match="more than 10 bytes"):
            read_limited(path, 10)


def test_limit_is_the_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """SECAGG_MAX_BYTES moves the limit of data, and nothing but a number does."""
    assert data_limit() == DATA_BYTES
    monkeypatch.setenv("SECAGG_MAX_BYTES", "1000")
    refuse_larger("x", 1000)
    with pytest.raises(BadInput, match="x would take 1001 bytes, more than 1000; set SECAGG_MAX_BYTES"):
        refuse_larger("x", 1001)
    for text in ("", "0", "-1", "1e9", "٣", "9" * 30):
        monkeypatch.setenv("SECAGG_MAX_BYTES", text)
        with pytest.raises(BadInput, match="SECAGG_MAX_BYTES is"):
            data_limit()
