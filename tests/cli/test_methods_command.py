"""`secagg methods`."""

from methods import METHODS
from methods.baselines import BASELINES
from tests.cli.command import Command


def test_every_method_and_baseline_is_listed(secagg: Command) -> None:
    """With blocks, or what leaves a client, and every parameter explained, in 80 columns; as text and as JSON."""
    content = secagg("methods", "--json", "-").json
    assert set(content["methods"]) == set(METHODS)
    assert set(content["baselines"]) == {"dp-sgd", *BASELINES}
    assert content["methods"]["fedcgs"]["blocks"] == ["counts", "class_sums", "second_moment"]
    assert content["baselines"]["fedpft"]["parameters"]["components"] == 10
    for entry in (*content["methods"].values(), *content["baselines"].values()):
        assert entry["explanations"].keys() == entry["parameters"].keys()
        assert all(entry["explanations"].values())
    assert content["methods"]["fedavg"]["explanations"]["rate"] == "Learning rate of a training step (1e-30 to 1e+30)"
    text = secagg("methods").out
    assert "rate=0.1  Learning rate of a training step (1e-30 to 1e+30)" in text
    assert max(map(len, text.splitlines())) <= 80
    assert all(name in text for name in (*METHODS, *BASELINES))


def test_one_method_alone_is_explained(secagg: Command) -> None:
    """`--only` leaves out all others, and refuses a name that is none by naming those that are."""
    assert set(secagg("methods", "--only", "mpft", "--json", "-").json["methods"]) == {"mpft"}
    text = secagg("methods", "--only", "local-only").out
    assert "leaves a client: nothing" in text
    assert "fedavg" not in text
    refused = secagg("methods", "--only", "fedxyz")
    assert refused.code == 2
    assert "there is no method 'fedxyz'; give one of ccvr, fedavg" in refused.err
