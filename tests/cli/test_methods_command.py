"""`secagg methods`."""

from methods import METHODS
from methods.baselines import BASELINES
from tests.cli.command import Command


def test_every_method_and_baseline_is_listed(secagg: Command) -> None:
    """With blocks and parameters, or with what leaves a client; as text and as JSON."""
    content = secagg("methods", "--json", "-").json
    assert set(content["methods"]) == set(METHODS)
    assert set(content["baselines"]) == {"dp-sgd", *BASELINES}
    assert content["methods"]["fedcgs"]["blocks"] == ["counts", "class_sums", "second_moment"]
    assert content["baselines"]["fedpft"]["parameters"]["components"] == 10
    text = secagg("methods").out
    assert all(name in text for name in (*METHODS, *BASELINES))
