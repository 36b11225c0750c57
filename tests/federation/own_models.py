"""The models that a member ends with for itself."""

from __future__ import annotations

from secagg.federation import session_folder
from secagg.networks import TrainedModel
from secagg.session.outcome import personal_models, write_personal
from secagg.session.sealed_state import recall_state
from tests.worlds.federation import Finished, opened


def own_models(
    finished: Finished, member: int, state: bytes | None = None
) -> dict[str, tuple[TrainedModel, dict[str, str]]]:
    """A member's models by name, and their files' texts: files of its own, which hold what its last `state` gives."""
    world, ended = finished
    last, (_, outcome) = ended.stages[-1], ended.clients[member]
    folder = session_folder(world.state(member), last)
    state = recall_state(folder, last.context.round_digest) if state is None else state
    paths = write_personal(last, outcome, state, folder)
    models = personal_models(last, outcome.members, opened(world, last), state)
    assert set(paths) == set(models)
    found = {}
    for name, path in paths.items():
        model, texts = world.setup.method.read_artifact(path.read_bytes())
        assert isinstance(model, TrainedModel)
        assert model.digest == models[name].digest
        assert texts["plan"] == world.setup.plan.digest.hex()
        assert path.name == f"personal-{name}.safetensors"
        assert path.stat().st_mode & 0o777 == 0o600
        found[name] = model, texts
    return found
