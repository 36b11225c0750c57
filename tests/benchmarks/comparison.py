"""The protections side by side, with CKKS as a yardstick, and what is asked of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tests.benchmarks.processes import Usage, Usages
from tests.benchmarks.protections import LENGTHS, PROTECTIONS, Costs, ProtectionCosts
from tests.benchmarks.scenario import TRIANGLE
from tests.benchmarks.table import Row, columns, judged
from tests.benchmarks.yardstick import CkksCosts

GOAL_SHARED_RATIO = 1.3
GOAL_SECOND_SHARE = 1_200  # a seed of 32 bytes in an envelope, whose post-quantum key takes 1,136
GOAL_PER_VALUE = 20
GOAL_ENCRYPTED_CPU = 0.15
GOAL_CHECK_CPU = 0.6
GOAL_RELEASE = 1.35
GOAL_PROVE, GOAL_CHECK = 0.05, 0.04
GOAL_GROWTH = 1.1
_YARDSTICK = "CKKS (yardstick)"


@dataclass(frozen=True)
class Comparison:
    """Everything that was measured of every protection; `usages` None where processes cannot be watched.

    `census`: CPU seconds to prove the entries of 100 classes, and to check another client's.
    """

    costs: Costs
    ckks: dict[int, CkksCosts]
    usages: Usages | None
    census: tuple[float, float]

    def rows(self) -> list[Row]:
        """What is judged against a goal."""
        return [
            *(row for length in LENGTHS for row in self._size_rows(length)),
            judged("census of 100 classes: client_cpu_s to prove it", self.census[0], GOAL_PROVE, "{:.3f}".format),
            judged("  to check another client's", self.census[1], GOAL_CHECK, "{:.3f}".format),
            *(row for name in PROTECTIONS for row in self._growth_rows(name)),
        ]

    def table(self) -> str:
        """The protections in columns."""
        cells: list[tuple[str, ...]] = [("", *PROTECTIONS, _YARDSTICK)]
        for length in LENGTHS:
            cells += [(f"{length:,} integers", *[""] * (len(PROTECTIONS) + 1)), *self._cost_lines(length)]
        return columns([*cells, *self._usage_lines()])

    def steps(self) -> str:
        """Where the other parties' time goes: elapsed seconds of the steps that take a tenth of the longest or more."""
        return "\n".join(
            f"{name}, {each.length:,} integers: "
            + ", ".join(
                f"{step} {seconds:.2f} s"
                for step, seconds in each.others_seconds.items()
                if seconds >= max(each.others_seconds.values()) / 10
            )
            for name, by_length in self.costs.items()
            for each in by_length.values()
        )

    def as_json(self) -> dict[str, Any]:
        """All figures, in seconds, bytes and MiB."""
        return {
            "protections": {name: [asdict(each) for each in found.values()] for name, found in self.costs.items()},
            "census": {"prove_cpu_s": self.census[0], "check_cpu_s": self.census[1]},
            "ckks_yardstick": [asdict(each) for each in self.ckks.values()],
            "processes": {
                name: {
                    str(count): {party: asdict(usage) for party, usage in found.items()} for count, found in by.items()
                }
                for name, by in (self.usages or {}).items()
            },
        }

    def _size_rows(self, length: int) -> list[Row]:
        masked, shared, encrypted = (self.costs[name][length] for name in PROTECTIONS)
        (first, whole), (second, seed), *_ = shared.sent.items()
        ratio, size = whole.total / masked.first.total, f"{length:,} integers"
        return [
            judged(f"shared, {size}: sent to {first} ÷ masked's upload", ratio, GOAL_SHARED_RATIO, "{:.3f}".format),
            judged(f"  share for {second}, bytes", seed.vector, GOAL_SECOND_SHARE, "{:.0f}".format),
            Row("  with its signed manifest, bytes", f"{seed.total}"),
            judged(f"encrypted, {size}: bytes per value", encrypted.bytes_per_value, GOAL_PER_VALUE, "{:.2f}".format),
            judged("  client_cpu_s", encrypted.client_cpu, GOAL_ENCRYPTED_CPU, "{:.4f}".format),
            judged(
                f"masked, {size}: client_cpu_s to check a shown sum", masked.check_cpu, GOAL_CHECK_CPU, "{:.3f}".format
            ),
            judged(
                "  released bytes ÷ vector", masked.release_bytes / masked.first.vector, GOAL_RELEASE, "{:.3f}".format
            ),
        ]

    def _growth_rows(self, protection: str) -> list[Row]:
        """What each party's process needs for the most clients ÷ for the fewest."""
        if not self.usages:
            return [Row(f"{protection}: memory growth", "not measured")]
        found = self.usages[protection]
        fewest, most = found[min(found)], found[max(found)]
        span = f"from {min(found)} to {max(found)} clients"
        return [
            judged(
                f"{protection}: peak memory of {party} while serving, growth {span}",
                most[party].serving / fewest[party].serving,
                GOAL_GROWTH,
                "{:.2f}".format,
            )
            for party in most
        ]

    def _cost_lines(self, length: int) -> list[tuple[str, ...]]:
        costs, ckks = [self.costs[name][length] for name in PROTECTIONS], self.ckks[length]
        return [
            ("  client CPU (s)", *(f"{each.client_cpu:.4f}" for each in costs), f"{ckks.client_cpu:.4f}"),
            ("  bytes to server or aggregator-1", *(f"{each.first.total:,}" for each in costs), f"{ckks.bytes:,}"),
            ("  bytes to aggregator-2", *(_second(each) for each in costs), "–"),
            ("  bytes per value", *(f"{each.bytes_per_value:.2f}" for each in costs), f"{ckks.bytes_per_value:.2f}"),
            ("  all other parties' CPU (s)", *(f"{each.others_cpu:.2f}" for each in costs), f"{ckks.others_cpu:.2f}"),
            ("  largest error of the sum", *["0"] * len(costs), f"{ckks.error:.0e}"),
        ]

    def _usage_lines(self) -> list[tuple[str, ...]]:
        """A line for each party and number of clients."""
        usages = self.usages or {}
        parties = dict.fromkeys(party for by in usages.values() for found in by.values() for party in found)
        lines = [
            (f"  {party}, {count} clients", *(_used(usages[name][count].get(party)) for name in PROTECTIONS), "")
            for party in parties
            for count in usages[PROTECTIONS[0]]
        ]
        heading = f"processes over gRPC, {TRIANGLE:,} integers: peak MiB while serving (CPU s)"
        return [(heading, *[""] * (len(PROTECTIONS) + 1)), *lines] if lines else []


def _second(costs: ProtectionCosts) -> str:
    others = list(costs.sent.values())[1:]
    return f"{others[0].total:,}" if others else "–"


def _used(usage: Usage | None) -> str:
    return f"{usage.serving:.0f} ({usage.cpu:.2f})" if usage is not None else "–"
