"""Check a change for at most a minute: lint, format, rules of the source, types, and tests of what changed."""

import signal
import subprocess
import sys
from pathlib import PurePosixPath
from time import monotonic

from tests.architecture.source import ROOT

SECONDS = 55
GRACE = 2
"""How many seconds steps have in all, and one has to stop by itself."""
RULES = ("tests/architecture/test_source.py", "tests/architecture/test_imports.py")
PYTEST = ("pytest", "--quiet", "--no-header", "--exitfirst")
ELSEWHERE = {
    "secagg/cli": ("tests/cli/test_start.py", "tests/cli/test_options.py", "tests/cli/test_contract.py"),
    "secagg/encoding": ("tests/encoding", "tests/updates"),
    "secagg/ledger": ("tests/agreement/test_account.py", "tests/agreement/test_ledger.py"),
    "secagg/plan_facts": ("tests/session", "tests/agreement"),
    "secagg/verification": ("tests/session",),
    "protos": ("tests/wire", "tests/vectors"),
    "pyproject.toml": ("tests/architecture/test_repository.py",),
}
"""The tests of a package that has no folder of its own name in tests, or one that takes far longer than a minute."""


def tests_of(path: str) -> tuple[str, ...]:
    """The test files and folders for a changed file, both by their path in the repository."""
    parts = PurePosixPath(path).parts
    if path.endswith(".md"):
        return ()
    if parts[0] == "tests":
        return (path,) if parts[-1].startswith("test_") else ("/".join(parts[:-1]),)
    if parts[0] == "secagg":
        package = "/".join(parts[:2])
        return ELSEWHERE.get(package, (f"tests/{parts[1]}",) if len(parts) > 2 else ("tests/system",))
    return ELSEWHERE.get(parts[0], (f"tests/{parts[0]}",))


def changed() -> list[str]:
    """The files that differ from where this branch left main, also those that git does not hold yet."""
    base = _git("merge-base", "HEAD", "main") or _git("merge-base", "HEAD", "origin/main") or ["HEAD"]
    return [*_git("diff", "--name-only", *base), *_git("ls-files", "--others", "--exclude-standard")]


def _git(*words: str) -> list[str]:
    """The lines that git answers; none where it refuses."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()


def affected(paths: list[str]) -> list[str]:
    """The tests for changed files that there are, no file beside its folder."""
    found = {test for path in paths for test in tests_of(path) if test not in RULES}
    whole = {test for test in found if any((ROOT / test).glob("**/test_*.py"))}
    files = {test for test in found - whole if (ROOT / test).is_file() and test.endswith(".py")}
    return sorted(whole | {file for file in files if not any(PurePosixPath(file).is_relative_to(it) for it in whole)})


def main() -> int:
    """Run every step at once, for at most `SECONDS`; print each outcome, and what the failed ones say."""
    tests = affected(changed())
    steps = {
        "lint": ("ruff", "check", "--quiet", "."),
        "format": ("ruff", "format", "--quiet", "--check", "."),
        "rules": (*PYTEST, *RULES),
        "types": ("mypy",),
        "tests": (*PYTEST, "--numprocesses", "auto", "--dist", "worksteal", *tests),
    }
    if not tests:
        del steps["tests"]
    if not (ROOT / ".mypy_cache").is_dir():
        del steps["types"]
        print("types   left out: no .mypy_cache yet, which takes minutes; make check makes it")
    start = monotonic()
    commands = {name: [sys.executable, "-m", *words] for name, words in steps.items()}
    running = {
        name: subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for name, words in commands.items()
    }
    failed = [name for name, process in running.items() if not ends_well(name, process, start + SECONDS)]
    print(f"{monotonic() - start:.0f} s; tests of this change: {' '.join(tests) or 'none'}")
    return bool(failed)


def ends_well(name: str, process: subprocess.Popen[str], deadline: float) -> bool:
    """Print how a step ended, stopping it at the deadline (`time.monotonic`); False where it found a fault."""
    try:
        output, _ = process.communicate(timeout=max(0.0, deadline - monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        print(f"{name:8}not finished: make {'test' if name == 'tests' else 'check'}")
        return True
    print(f"{name:8}{'ok' if process.returncode == 0 else output}")
    return process.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
