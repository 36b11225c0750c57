"""Bad input of any kind gives one clear line and exit code 2; nothing is sent, nothing is lost."""

import math
import resource
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.command import NEW_PLAN, Command, nothing_sent, write_records
from tests.faults.proxy import Proxy
from tests.transport.consortium import certify, certify_later
from tests.worlds.rosters import enrol

NOBODY = "127.0.0.1:1"
# A command that fails leaves its files to the end of its process, which the tests are not.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def client(federation: Path, server: str = NOBODY, **options: object) -> list[object]:
    """The arguments of alice's client, some of them replaced."""
    home = federation / "alice"
    chosen: dict[str, object] = {
        "plan": federation / "plan.json",
        "server": server,
        "data": home / "records.npz",
        "policy": home / "policy.toml",
        "state": home / "state",
        "tls": home,
        "wait": 0,
    }
    pairs = {**chosen, **options}.items()
    return ["client", "--quiet", *(part for name, value in pairs for part in (f"--{name}", value))]


def refused(secagg: Command, federation: Path, code: int = 2, **options: object) -> str:
    """The line with which alice's client is refused; nothing has left her."""
    said = secagg(*client(federation, **options))
    assert said.code == code
    assert nothing_sent(Path(str(options.get("state", federation / "alice" / "state"))))
    return said.complaint


@pytest.mark.parametrize("option", ["plan", "data", "policy", "tls"])
def test_missing_file(secagg: Command, federation: Path, option: str) -> None:
    """A file or folder that is missing is named."""
    assert "nowhere" in refused(secagg, federation, **{option: federation / "nowhere"})


@pytest.mark.parametrize("name", ["ca.pem", "cert.pem", "key.pem", "identity.key", "roster.json"])
def test_missing_credential(secagg: Command, federation: Path, name: str) -> None:
    """A missing key, certificate or roster is named."""
    (federation / "alice" / name).unlink()
    assert name in refused(secagg, federation)


@pytest.mark.parametrize("option", ["plan", "policy"])
def test_not_a_plan_or_policy(secagg: Command, federation: Path, option: str) -> None:
    """A file that is something else is named."""
    (federation / "other").write_text('{"a": 1}')
    assert "other" in refused(secagg, federation, **{option: federation / "other"})


def table(folder: Path, text: str) -> Path:
    """A CSV file."""
    path = folder / "records.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": np.full(20, 2)}, ["row 1", "label"]),
        ({"labels": np.r_[np.arange(19) % 2, 7]}, ["row 20", "none of the plan's 2 classes"]),
        ({"labels": np.r_[-1, np.arange(19) % 2]}, ["row 1", "the label is no integer"]),
        ({"features": np.full((20, 3), math.nan)}, ["row 1", "NaN"]),
        ({"features": np.r_[np.zeros((10, 3)), np.full((10, 3), math.inf)]}, ["row 11"]),
        ({"features": np.r_[np.zeros((12, 3)), np.full((8, 3), 0.9)]}, ["row 13", "radius"]),
        ({"features": np.zeros((20, 4))}, ["shape"]),
        ({"features": np.zeros((19, 3))}, ["records.npz"]),
    ],
)
def test_bad_records(secagg: Command, federation: Path, changes: dict[str, object], words: list[str]) -> None:
    """A label out of range, NaN, infinity, a record that is too long or of another shape names file and row."""
    write_records(federation / "alice" / "records.npz", **changes)
    line = refused(secagg, federation)
    assert all(word in line for word in ["records.npz", *words])


def test_too_many_records(secagg: Command, federation: Path) -> None:
    """More records than the plan allows are refused with both numbers."""
    write_records(federation / "alice" / "records.npz", features=np.zeros((101, 3)), labels=np.arange(101) % 2)
    line = refused(secagg, federation)
    assert "101" in line
    assert "100" in line


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text"])
def test_damaged_data(secagg: Command, federation: Path, content: bytes) -> None:
    """A data file that cannot be read is named."""
    (federation / "alice" / "records.npz").write_bytes(content)
    assert "records.npz" in refused(secagg, federation)


def test_wrong_column(secagg: Command, tmp_path: Path) -> None:
    """A label column that the table does not have is named together with the file."""
    path = table(tmp_path, "age,sick\n1,yes\n2,no\n3,yes\n4,no\n")
    said = secagg("simulate", "--quiet", "--dataset", path, "--label", "illness")
    assert said.code == 2
    assert "illness" in said.complaint
    assert "records.csv" in said.complaint


def test_unknown_dataset(secagg: Command) -> None:
    """A data set that is neither a name nor a file is refused."""
    said = secagg("simulate", "--quiet", "--dataset", "no-such-data")
    assert said.code == 2
    assert "no-such-data" in said.complaint


def test_expired_certificate(secagg: Command, federation: Path) -> None:
    """An expired certificate is refused before anything connects."""
    certify(federation, federation / "alice", "alice", days=-1)
    assert "expired" in refused(secagg, federation)


def test_certificate_of_the_future(secagg: Command, federation: Path) -> None:
    """A certificate that is not valid yet is refused."""
    certify_later(federation, federation / "alice", "alice")
    assert "valid only from" in refused(secagg, federation)


def test_certificate_of_another_authority(secagg: Command, federation: Path, tmp_path: Path) -> None:
    """A certificate of another consortium is refused."""
    enrol(tmp_path / "other", "alice")
    for name in ("cert.pem", "key.pem"):
        shutil.copy(tmp_path / "other" / "alice" / name, federation / "alice" / name)
    assert "not issued by" in refused(secagg, federation)


@pytest.fixture
def silent() -> Iterator[str]:
    """An address at which nobody answers."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{unused.getsockname()[1]}"


def test_unreachable_server(secagg: Command, federation: Path, silent: str) -> None:
    """A server that is not there is named with its address, and the same command may be run again."""
    complaint = refused(secagg, federation, code=75, server=silent)
    assert f"cannot reach the server at {silent}" in complaint
    assert complaint.endswith("run the same command again to go on")


def test_proxy_whose_server_is_away(secagg: Command, federation: Path, silent: str) -> None:
    """A proxy that closes every connection, as its server is away, ends a client as an absent server does."""
    with Proxy() as proxy:
        address = proxy.listen(silent)
        complaint = refused(secagg, federation, code=75, server=address)
    assert f"cannot reach the server at {address}" in complaint
    assert complaint.endswith("run the same command again to go on")


@pytest.mark.parametrize("address", ["coordinator", "host:port", ""])
def test_no_address(secagg: Command, federation: Path, address: str) -> None:
    """A server address that is none is refused with the form."""
    assert "HOST:PORT" in refused(secagg, federation, server=address)


def test_state_that_is_a_file(secagg: Command, federation: Path) -> None:
    """A state folder that cannot be made is named."""
    (federation / "file").write_text("")
    said = secagg(*client(federation, state=federation / "file" / "state"))
    assert said.code == 2
    assert str(federation / "file") in said.complaint


@pytest.mark.parametrize("room", [0, 1000])
@pytest.mark.parametrize("used_before", [False, True])
def test_full_state_folder(secagg: Command, federation: Path, room: int, used_before: bool) -> None:
    """A disk that takes no more is said in one line; nothing is sent, and what was there is not damaged."""
    state = federation / "alice" / "state"
    if used_before:
        assert secagg(*client(federation), "--dry-run").code == 0
        refused(secagg, federation, code=75)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        said = secagg(*client(federation))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert said.code == (75 if used_before else 2)  # what it has to write before it needs the server is there already
    assert said.complaint
    assert nothing_sent(state)
    assert "cannot reach" in refused(secagg, federation, code=75)


def test_damaged_ledger(secagg: Command, federation: Path) -> None:
    """A damaged ledger stops the client before anything else happens."""
    state = federation / "alice" / "state"
    state.mkdir()
    (state / "ledger.sqlite").write_bytes(b"damaged" * 200)
    said = secagg(*client(federation))
    assert said.code == 2
    assert "ledger" in said.complaint


def test_plan_that_breaks_the_policy(secagg: Command, federation: Path) -> None:
    """A refused plan names every violated line at once."""
    policy = federation / "alice" / "policy.toml"
    text = policy.read_text().replace('max_epsilon = "inf"', "max_epsilon = 1.0")
    policy.write_text(text.replace("min_clients_in_sum = 3", "min_clients_in_sum = 9"))
    line = refused(secagg, federation)
    assert all(word in line for word in ("max_epsilon", "min_clients_in_sum", "nothing was sent"))


def test_training_beyond_the_policy(secagg: Command, federation: Path) -> None:
    """A plan that trains longer than the member's policy says is refused in one line with the key and both numbers."""
    plan, policy = federation / "plan.json", federation / "alice" / "policy.toml"
    plan.unlink()
    policy.unlink()
    roster = federation / "alice" / "roster.json"
    chosen = ("--shape", 3, "--classes", "no,yes", "--method", "fedavg", "--parameters", "rounds=2 epochs=60")
    assert secagg(*NEW_PLAN, "--quiet", "--roster", roster, "--out", plan, *chosen).code == 0
    assert secagg("plan", "policy", "--plan", plan, "--data-name", "a", "--out", policy).code == 0
    policy.write_text(policy.read_text().replace("refinement_without_noise = false", "refinement_without_noise = true"))
    line = refused(secagg, federation)
    assert "(1) max_epochs: a round trains for 60 epochs, more than 50; of your records nothing was sent" in line
    policy.write_text(policy.read_text().replace("max_epochs = 50", "max_epochs = 60"))
    assert secagg(*client(federation), "--dry-run").code == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "without its delta and adjacency"),
        (["--delta", 1e-5], "without its delta and adjacency"),
        (["--adjacency", "add-remove"], "without its delta and adjacency"),
        (["--delta", 1e-5, "--adjacency", "add-remove", "--radius", 2], "leave the radius out"),
        (["--delta", 1e-5, "--adjacency", "add-remove", "--normalise", "none", "--radius", 1], "normalised records"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_incomplete_promise(secagg: Command, federation: Path, given: list[object], words: str) -> None:
    """A plan with a finite epsilon but without delta, adjacency or records of one length is not made."""
    roster, out = federation / "coordinator" / "roster.json", federation / "noisy.json"
    said = secagg(*NEW_PLAN,
                  "--quiet", "--roster", roster, "--out", out, "--shape", 3, "--classes", "no,yes",
                  "--epsilon", 1, *given)  # fmt: skip
    assert said.code == 2
    assert words in said.complaint
    assert not out.exists()


def test_bad_records_under_noise_are_not_refused(secagg: Command, federation: Path) -> None:
    """With a finite epsilon a refusal would tell of the record: the client goes on and tells its operator alone."""
    home = federation / "alice"
    chosen = ["--epsilon", 1, "--delta", 1e-5, "--adjacency", "add-remove", "--max-records", 100, "--refine", 0]
    (federation / "plan.json").unlink()
    assert secagg("plan", "new", "--quiet", "--roster", home / "roster.json", "--out",
                  federation / "plan.json", "--purpose", "tests",
                  "--shape", 3, "--classes", "no,yes", "--refine", 0, *chosen).code == 0  # fmt: skip
    policy = home / "noisy.toml"
    assert secagg("plan", "policy", "--plan", federation / "plan.json", "--data-name", "a", "--out", policy).code == 0
    write_records(home / "records.npz", features=np.full((20, 3), math.nan), labels=np.full(20, 7))
    said = secagg(*client(federation, policy=policy), "--dry-run")
    assert said.code == 0
    assert "20, of which 20 count for nothing" in said.out


def test_unprotected_plan(secagg: Command, federation: Path) -> None:
    """A plan without protection is refused by a policy that nobody loosened."""
    plan = federation / "plan.json"
    plan.write_text(plan.read_text().replace('"masked"', '"none"'))
    assert "protections" in refused(secagg, federation)


def test_plan_of_another_roster(secagg: Command, federation: Path, tmp_path: Path) -> None:
    """A plan for another roster than the member's is refused."""
    enrol(tmp_path / "other", "alice")
    shutil.copy(tmp_path / "other" / "alice" / "roster.json", federation / "alice" / "roster.json")
    refused(secagg, federation)


def test_server_does_not_run_as_client_nor_client_as_server(secagg: Command, federation: Path) -> None:
    """Each side refuses the other's credentials."""
    assert "is no client" in refused(secagg, federation, tls=federation / "coordinator")
    said = secagg("server", "--quiet", "--plan", federation / "plan.json", "--state", federation / "state", "--tls",
                  federation / "bob", "--listen", "127.0.0.1:0")  # fmt: skip
    assert said.code == 2
    assert "is no server" in said.complaint


def test_address_in_use(secagg: Command, federation: Path) -> None:
    """A server that cannot listen says where."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        said = secagg("server", "--quiet", "--plan", federation / "plan.json", "--state", federation / "state",
                      "--tls", federation / "coordinator", "--listen", listen)  # fmt: skip
    assert said.code == 2
    assert f"cannot listen on {listen}" in said.complaint


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "--dataset", "no-such-data"],
        ["sweep", "--out", "out"],
        ["compare", "--methods", "fedcgs", "--out", "out"],
        ["epsilon", "--delta", 1e-5],
    ],
    ids=lambda arguments: str(arguments[0]),
)
@pytest.mark.parametrize("place", ["none/x.json", "."])
def test_result_that_cannot_be_written(
    secagg: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[object], place: str
) -> None:
    """When the JSON cannot be written, the line says where, before anything is read or computed."""
    monkeypatch.chdir(tmp_path)
    said = secagg(*arguments, "--json", tmp_path / place)
    assert said.code == 2
    assert str(tmp_path / place) in said.complaint
    assert not list(tmp_path.iterdir())


def test_operating_system_speaks_in_words(secagg: Command, federation: Path) -> None:
    """What cannot be read is said in the operating system's words, without its numbers."""
    (federation / "folder.npz").mkdir()
    for arguments in (["--schema", federation], ["--dataset", federation / "folder.npz"]):
        said = secagg("simulate", "--quiet", *arguments)
        assert said.code == 2
        assert "(Is a directory)" in said.complaint


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("records.csv", "is a table; the plan asks for features of shape (3,)"),
        ("photos", "is a folder of images; the plan asks for features of shape (3,)"),
        ("digits", "holds images of shape (8, 8); the plan asks for features of shape (3,)"),
    ],
)
def test_data_of_another_kind(secagg: Command, federation: Path, data: str, words: str) -> None:
    """Data of another kind than the plan's: the line says what was given and what the plan takes."""
    table(federation, "age,sick\n1,yes\n2,no\n")
    for name in ("cat", "dog"):
        (federation / "photos" / name).mkdir(parents=True)
        Image.new("L", (4, 4)).save(federation / "photos" / name / "1.png")
    line = refused(secagg, federation, data=data if data == "digits" else federation / data)
    assert words in line


def test_existing_file_as_transcript(secagg: Command, tmp_path: Path) -> None:
    """A file that is no transcript is invalid (exit 3), in one line that names the record."""
    (tmp_path / "file").write_text("hello")
    said = secagg("verify", "--quiet", tmp_path / "file")
    assert said.code == 3
    assert "record 0" in said.complaint


def test_demo_does_not_empty_a_folder_of_others(secagg: Command, tmp_path: Path) -> None:
    """A folder that holds something else is left as it is."""
    (tmp_path / "thesis.txt").write_text("years of work")
    said = secagg("demo", "--quiet", "--out", tmp_path)
    assert said.code == 2
    assert "not empty" in said.complaint
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
