"""A type for values that depend on records only through an accounted mechanism of differential privacy.

The rule of taint: whatever is computed from records is tainted, but for the outcome of an accounted mechanism; what is
computed from untainted values alone is untainted. What leaves a member, and what a mechanism reads beside the records,
must be untainted. Otherwise "all else is post-processing" is false: a member's own prototypes in a loss, statistics of
a batch, a number of records or a teacher that was trained without noise change *every* record's gradient, so that one
record moves a clipped sum by twice the clip for each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


@dataclass(frozen=True, eq=False)
class Untainted(Generic[T_co]):
    """A value that may leave the client and enter a DP mechanism: public, or computed from public and DP outputs alone.

    There are three ways to one: what the plan or an opened round says (`public`), what an accounted mechanism of this
    package returns, and what follows from another (`then`), which a member may seal and open again
    (`methods.training.client_update`, `local_projection`). Nobody else makes one of a member's values.
    """

    value: T_co

    def then(self, rule: Callable[[T_co], U]) -> Untainted[U]:
        """Return `rule(value)` marked as untainted; `rule` must read nothing of the client's data but this value."""
        return Untainted(rule(self.value))


def public(value: T) -> Untainted[T]:
    """Mark as untainted a value that every party of the plan knows."""
    return Untainted(value)


def require_untainted(value: Untainted[T]) -> T:
    """Return the value that an `Untainted` holds. Raises TypeError for a value that is not marked as untainted."""
    if not isinstance(value, Untainted):
        raise TypeError(f"{type(value).__name__} may hold what records decided: give what the rule of taint lets pass")
    return value.value
