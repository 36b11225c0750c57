"""Libraries that a method loads on first use: it declares them, and parties load them before a step's time begins."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from methods import METHODS, method_named
from secagg.wire import to_json
from tests.worlds.setups import make_setup


def run(script: str, *arguments: str) -> None:
    """Run a script in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_party_loads_what_its_training_needs_beforehand(tmp_path: Path) -> None:
    """Once a plan's libraries are loaded, a contribution of fedavg imports nothing but the standard library."""
    setup = make_setup(4, method="fedavg", parameters=(("rounds", 2),), epsilon=8.0)
    (tmp_path / "plan.json").write_text(to_json(setup.plan))
    (tmp_path / "roster.json").write_text(to_json(setup.roster))
    script = """
        import sys
        from pathlib import Path
        from secagg.session import RoundSetup
        from secagg.session import contribution_of
        from secagg.agreement.plan import read_plan
        from secagg.randomness import OperatingSystem
        from secagg.agreement.roster import read_roster
        from tests.worlds.setups import some_records

        folder = Path(sys.argv[1])
        setup = RoundSetup.of(read_plan(folder / "plan.json"), read_roster(folder / "roster.json"))
        records = some_records(setup)
        assert "torch" not in sys.modules
        setup.facts.load_libraries()
        before = set(sys.modules)
        contribution_of(setup, records, OperatingSystem(), 1)
        later = {name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
        assert not later, later
    """
    run(script, str(tmp_path))


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in METHODS if not getattr(method_named(name), "libraries", ())])
def test_method_without_declared_libraries_runs_without_torch(name: str) -> None:
    """A method that declares no libraries carries a plan to its end where torch cannot be imported."""
    script = """
        import sys

        class NoTorch:
            def find_spec(self, name, path=None, target=None):
                if name == "torch":
                    raise ImportError("a training library was loaded")

        sys.meta_path.insert(0, NoTorch())
        from secagg.data import open_dataset
        from secagg.experiments.simulation import simulate_dataset
        from tests.methods.test_every_method import settings_of

        simulate_dataset(open_dataset("wine"), settings_of(sys.argv[1]))
    """
    run(script, name)
