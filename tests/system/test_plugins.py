"""Code of others: named by its digest, run only where it may be, refused where it is other code."""

import hashlib
import py_compile
import shutil
from dataclasses import replace
from importlib.util import cache_from_source
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest

from methods import kind_named, method_named, planned_method
from secagg.agreement.plan import Plan, canonical_json
from secagg.data import open_dataset, sources
from secagg.errors import BadInput, PlanRefused
from secagg.plan_facts.policy_writing import admit_listed, policy_accepting
from secagg.session import RoundSetup
from secagg.system import plugins
from tests.system.sources import FORMAT, METHOD, install, leaving, write_method
from tests.worlds.setups import make_setup

PLAIN = METHOD.format(effect="")
INHERITED = """from dataclasses import dataclass
from methods.method import UsualMethod
@dataclass(frozen=True)
class Mine(UsualMethod):
"""
"""A method that lacks what only it can say; the lines that follow say a part."""


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test admits is forgotten after it."""
    monkeypatch.setattr(plugins, "_admitted", {})
    monkeypatch.setattr(sources, "_added", [])


def test_a_file_is_named_by_what_sha256sum_says(tmp_path: Path) -> None:
    """A plan's name for FILE.py:NAME holds the file's SHA-256, and makes the same method again."""
    file = write_method(tmp_path / "mine.py")
    planned = planned_method(f"{file}:Mine")
    assert planned == f"Mine@{hashlib.sha256(file.read_bytes()).hexdigest()}"
    assert method_named(planned).name == "mine"
    assert kind_named(planned) is kind_named(f"{file}:Mine")
    assert planned_method("fedcgs") == "fedcgs"


def test_what_runs_is_what_was_digested(tmp_path: Path) -> None:
    """A file that changes after it was admitted is not read again: the plan's code runs, or none."""
    file = write_method(tmp_path / "mine.py")
    digest = plugins.admit(file)
    mark = tmp_path / "ran"
    write_method(file, leaving(mark))
    method_named(f"Mine@{digest}")
    assert not mark.exists()
    with pytest.raises(BadInput, match="is not here"):
        method_named(f"Mine@{'0' * len(digest)}")
    assert not mark.exists()


@pytest.mark.parametrize(
    ("source", "spec", "words"),
    [
        (PLAIN, "Other", "has no Other"),
        (PLAIN, "Path", "is no method"),
        (f"{INHERITED}    begin = lambda *_: None\n    sums = begin\n", "Mine", "is no method: it lacks name"),
        (f"{INHERITED}    name = 'mine'\n    begin = lambda *_: None\n", "Mine", "is no method: it lacks sums"),
        (f"{INHERITED}    name = 'mine'\n    sums = lambda *_: None\n", "Mine", "is no method: it lacks begin"),
        ("Mine = 3", "Mine", "is no class, and so no method"),
        ("from sys import exit as leave", "leave", "is no class, and so no method"),
        ("class Mine:\n    def __init__(self, x): pass", "Mine", "give each of its fields a default"),
        ("import nobody_has_this", "Mine", "cannot be loaded .*nobody_has_this"),
        ("def (", "Mine", "cannot be loaded .*SyntaxError"),
        (PLAIN, "a b", "is no name"),
        (PLAIN, "M" * 41, "is no name"),
    ],
)
def test_code_that_brings_no_method_is_refused(tmp_path: Path, source: str, spec: str, words: str) -> None:
    """What is not there, no method, broken, or has no name for a plan: one line with the file."""
    file = tmp_path / "mine.py"
    file.write_text(source)
    with pytest.raises(BadInput, match=words) as refusal:
        method_named(f"{file}:{spec}")
    assert "mine.py" in str(refusal.value)


@pytest.mark.parametrize("spec", ["absent.py:Mine", "mine.py", "Mine@12", "@", f"{'M' * 41}@{'0' * 64}", "nobody"])
def test_names_without_code_are_refused(spec: str) -> None:
    """A file that is not there, none that is said, and names that are no name of a plan."""
    with pytest.raises(BadInput):
        method_named(spec)


def test_no_plugin_takes_the_name_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed method called fedcgs is never asked."""
    mark = tmp_path / "ran"
    source = METHOD.format(effect=leaving(mark))
    install(tmp_path, monkeypatch, "acme_shadow", plugins.METHODS, "fedcgs = acme_shadow.part:Mine", source)
    assert planned_method("fedcgs") == "fedcgs"
    assert method_named("fedcgs").name == "fedcgs"
    assert not mark.exists()


def test_an_installed_package_is_named_by_all_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest is the guide's, any file changes it, and another version does not run under the old name."""
    mark = tmp_path / "ran"
    source = METHOD.format(effect=leaving(mark))
    folder = install(tmp_path / "a", monkeypatch, "acme_one", plugins.METHODS, "mine = acme_one.part:Mine", source)
    (entry,) = [each for each in plugins.entry_points(group=plugins.METHODS) if each.name == "mine"]
    lines = [
        f"{hashlib.sha256((folder / each).read_bytes()).hexdigest()}  {each}\n" for each in ("__init__.py", "part.py")
    ]
    digest = hashlib.sha256("".join([*lines, "acme_one.part:Mine\n"]).encode()).hexdigest()
    assert plugins.installed_sha256(entry) == digest
    (folder / "data.txt").write_text("more")
    other = plugins.installed_sha256(entry)
    assert other != digest
    with pytest.raises(BadInput, match=f"what is installed as mine has {other}"):
        method_named(f"mine@{digest}")
    assert not mark.exists()
    assert method_named(f"mine@{other}").name == "mine"
    assert mark.exists()
    assert planned_method("mine") == f"mine@{other}"


def entry_of(package: str) -> plugins.EntryPoint:
    """The entry point of an installed method."""
    (entry,) = [each for each in plugins.entry_points(group=plugins.METHODS) if each.module == f"{package}.part"]
    return entry


def test_an_entry_point_that_names_other_code_of_a_package_has_another_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is agreed on is which of a package's methods runs, too."""
    digests = set()
    for name in ("Mine", "Prototypes"):
        folder = tmp_path / name
        install(folder, monkeypatch, "acme_two", plugins.METHODS, f"two = acme_two.part:{name}", PLAIN)
        (entry,) = [each for each in plugins.entry_points(group=plugins.METHODS) if each.value.endswith(f":{name}")]
        digests.add(plugins.installed_sha256(entry))
        shutil.rmtree(folder)
    assert len(digests) == 2


def test_what_an_installed_package_has_in_its_cache_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code of another source, which Python would take unasked, is in no digest: the source runs."""
    mark = tmp_path / "ran"
    folder = install(tmp_path / "d", monkeypatch, "acme_cached", plugins.METHODS, "mine = acme_cached.part:Mine", PLAIN)
    digest = plugins.installed_sha256(entry_of("acme_cached"))
    other, cached = folder / "other.py", cache_from_source(str(folder / "part.py"))
    py_compile.compile(
        str(write_method(other, leaving(mark))), cached, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH
    )
    other.unlink()
    assert method_named(f"mine@{digest}").name == "mine"
    assert not mark.exists()


def test_a_package_with_a_link_to_a_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies behind it would run under any digest."""
    folder = install(tmp_path / "e", monkeypatch, "acme_linked", plugins.METHODS, "mine = acme_linked.part:Mine", PLAIN)
    (folder / "deep").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(BadInput, match="deep is a link to a folder"):
        plugins.installed_sha256(entry_of("acme_linked"))


def with_method(plan: Plan, method: str) -> Plan:
    """The plan, for another method without parameters."""
    return replace(plan, method=method, parameters="{}")


def test_a_policy_decides_before_any_code_runs(tmp_path: Path) -> None:
    """Not listed by name and digest, it is refused and does not run; listed, it runs; the default lists none."""
    mark = tmp_path / "ran"
    digest = plugins.admit(write_method(tmp_path / "mine.py", leaving(mark)))
    plan = with_method(make_setup().plan, f"Mine@{digest}")
    accepting = policy_accepting(plan, "own")
    assert not mark.exists()
    for methods in (("fedcgs",), ("Mine",), (f"Mine@{'0' * 64}",)):
        with pytest.raises(PlanRefused, match=f"code of others, Mine@{digest}"):
            admit_listed(None, plan, replace(accepting, methods=methods))
    assert not mark.exists()
    admit_listed(None, plan, accepting)
    assert mark.exists()


def test_a_plan_names_code_by_its_digest_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan whose method is a file's path, or an installed name, or whose search trains such a one, runs nothing."""
    mark = tmp_path / "ran"
    file = write_method(tmp_path / "mine.py", leaving(mark))
    source = METHOD.format(effect=leaving(mark))
    install(tmp_path / "c", monkeypatch, "acme_named", plugins.METHODS, "mine = acme_named.part:Mine", source)
    setup = make_setup()
    policy = replace(policy_accepting(setup.plan, "own"), methods=("fedcgs", "fedpop"))
    code = f"{file}:Mine", "mine", f"Mine@{plugins.admit(file)}"
    plans = [with_method(setup.plan, each) for each in code[:2]]
    plans += [replace(setup.plan, method="fedpop", parameters=canonical_json({"method": each})) for each in code]
    for plan in plans:
        with pytest.raises(BadInput, match=r"none of ours, and no code|no settings of"):
            admit_listed(None, plan, policy)
        with pytest.raises(BadInput, match=r"none of ours, and no code|no settings of"):
            RoundSetup.of(plan, setup.roster)
    assert not mark.exists()


def test_a_changed_file_is_refused_by_both_digests(tmp_path: Path) -> None:
    """The plan's digest and that of the file that was given are both named, and no line of the file runs."""
    file = write_method(tmp_path / "mine.py")
    agreed = hashlib.sha256(file.read_bytes()).hexdigest()
    mark = tmp_path / "ran"
    given = plugins.admit(write_method(file, leaving(mark)))
    plan = with_method(make_setup().plan, f"Mine@{agreed}")
    with pytest.raises(BadInput, match=f"{agreed}, which is not here; .*mine.py has {given}: it is other code"):
        admit_listed(None, plan, policy_accepting(plan, "own"))
    assert not mark.exists()


def test_a_format_of_ones_own_is_read(tmp_path: Path) -> None:
    """A file of the format opens once it is given; ends that are taken, and what is no format, are refused."""
    (tmp_path / "bars.py").write_text(FORMAT.format(end=".bars"))
    (tmp_path / "own.bars").write_text("a|y\n" + "".join(f"{number}|{number % 2}\n" for number in range(20)))
    with pytest.raises(BadInput, match="cannot tell the format"):
        open_dataset(str(tmp_path / "own.bars"), label="y")
    sources.add_format(f"{tmp_path / 'bars.py'}:BARS")
    assert len(open_dataset(str(tmp_path / "own.bars"), label="y", split=False).train) == 20
    (tmp_path / "csv.py").write_text(FORMAT.format(end=".csv"))
    with pytest.raises(BadInput, match=r"files \.csv are read already"):
        sources.add_format(f"{tmp_path / 'csv.py'}:BARS")
    with pytest.raises(BadInput, match="is no format of data"):
        sources.add_format(f"{tmp_path / 'csv.py'}:lines")
    with pytest.raises(BadInput, match="there is no format"):
        sources.add_format("bars")


def test_an_installed_format_is_asked_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs only where a file is there whose name none of ours takes."""
    mark = tmp_path / "ran"
    source = f"from pathlib import Path\n{leaving(mark)}\n{FORMAT.format(end='.bars')}"
    install(tmp_path / "b", monkeypatch, "acme_bars", plugins.FORMATS, "bars = acme_bars.part:BARS", source)
    (tmp_path / "own.csv").write_text("a,y\n1,0\n2,1\n")
    open_dataset(str(tmp_path / "own.csv"), label="y")
    assert not mark.exists()
    (tmp_path / "own.bars").write_text("a|y\n1|0\n2|1\n")
    assert len(open_dataset(str(tmp_path / "own.bars"), label="y", split=False).train) == 2
