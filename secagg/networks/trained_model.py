"""Networks looked up by name, and trained networks as artifacts that are written to files and read again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.features import KINDS, LORA, Encoder, FeatureMap
from secagg.heads import Artifact, LinearHead, parse_safetensors, parse_tensors
from secagg.heads.linear import ABSENT_BIAS
from secagg.networks.adapted import (
    HEAD,
    HEAD_BIAS,
    LORA_SCALE,
    Adapted,
    Dual,
    EncoderAdapter,
    OverEncoder,
    SharedAdapter,
    WithHead,
)
from secagg.networks.exported import PREFIX, exported_named
from secagg.networks.normalised import NormalisedCnn, NormalisedPerceptron
from secagg.networks.programs import Convolutional, Perceptron, Program, Softmax, tensors_of
from secagg.networks.projection import ByHead, MostSimilar, Nearest
from secagg.networks.slot_means import SLOT_MEANS, SlotMeans, read_slot_means
from secagg.system.threads import one_thread

PROGRAM_NUMBER = re.compile(r"[1-9][0-9]{0,5}")
"""Pattern of a number in a program's name: 1 to 999,999, written in one way only."""

PROGRAMS: Mapping[str, Callable[..., Program]] = {
    "softmax": Softmax,
    "mlp:H": Perceptron,
    "cnn": Convolutional,
    "mlp-group:H": NormalisedPerceptron,
    "mlp-batch:H": partial(NormalisedPerceptron, by_batch=True),
    "cnn-group": NormalisedCnn,
    "cnn-batch": partial(NormalisedCnn, by_batch=True),
    "similar:W": MostSimilar,
    "nearest:W": Nearest,
    "projected:W": ByHead,
}
"""Every program by the form of its name; a capital letter stands for a number, which follows d and C."""
ADAPTED: tuple[type[Adapted], ...] = (SharedAdapter, WithHead, Dual)
"""Programs of adapters, each named by its prefix and the adapter's name, for example bottleneck:48:12x768."""


def program_named(name: str, dimension: int, classes: int) -> Program:
    """Return the network of that name for records of `dimension` numbers and `classes`. Raises BadInput if unknown."""
    if name.startswith(PREFIX):
        return exported_named(name, dimension, classes)
    kind, *numbers = name.split(":")
    for form, make in PROGRAMS.items():
        known, *letters = form.split(":")
        if kind == known and len(numbers) == len(letters) and all(map(PROGRAM_NUMBER.fullmatch, numbers)):
            return make(dimension, classes, *map(int, numbers))
    if len(numbers) == 2 and PROGRAM_NUMBER.fullmatch(numbers[0]):
        for put in ADAPTED:
            prefix = put.form.removesuffix("{}")
            own = kind.removeprefix(prefix)
            if kind.startswith(prefix) and own in KINDS:
                return put(dimension, classes, EncoderAdapter(own, int(numbers[0]), numbers[1]))
    remedy = f"known are {', '.join(PROGRAMS)} with numbers for capital letters, such as mlp:128, and a file.pt2"
    raise BadInput(f"there is no program {name!r}", remedy=remedy)


KIND, NAME, INPUTS, OUTPUTS = "kind", "program", "inputs", "outputs"
"""Keys of a file's texts: kind of artifact, program, numbers of a record and classes."""
MODEL = "model"
SETTINGS, SCORE = "settings", "score"
"""Keys of a file's texts: the settings that tuning found, and the mean loss on validation records that they gave."""
NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?(e-[0-9]+)?")
COUNT = re.compile(r"[1-9][0-9]{0,8}")
ROWS = 256


CONFIG, WEIGHTS, HEAD_FILE = "adapter_config.json", "adapter_model.safetensors", "head.safetensors"
PEFT = "base_model.model."
"""The prefix that `peft` puts before the names of a model's modules."""


@dataclass(frozen=True, eq=False)
class TrainedModel(Artifact):
    """A network with trained `parameters` by name, finite float32. Raises BadInput for others, or for other shapes."""

    program: Program
    parameters: Mapping[str, NDArray[np.float32]]

    def __post_init__(self) -> None:
        found = {name: array.shape for name, array in self.parameters.items()}
        if found != dict(self.program.shapes):
            raise BadInput(f"{self.program.name} has the tensors {dict(self.program.shapes)}, got {found}")
        if any(array.dtype != np.float32 for array in self.parameters.values()):
            raise BadInput("a model's tensors are float32")
        if not all(np.isfinite(array).all() for array in self.parameters.values()):
            raise BadInput("the model has NaN or infinite entries", remedy="train at a lower rate")

    @classmethod
    def of(cls, program: Program, flat: NDArray[np.float64]) -> TrainedModel:
        """Return the model with the flat parameters (size,), rounded to float32. Raises BadInput."""
        if flat.shape != (program.size,):
            raise BadInput(f"{program.name} has {program.size} parameters, got {flat.shape}")
        return cls(program, tensors_of(program, flat))

    @property
    def tensors(self) -> Mapping[str, NDArray[Any]]:
        return {name: self.parameters[name] for name in self.program.shapes}

    @property
    def texts(self) -> Mapping[str, str]:
        program = self.program
        return {KIND: MODEL, NAME: program.name, INPUTS: str(program.dimension), OUTPUTS: str(program.classes)}

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of one line of JSON, [name, d, C, [[tensor, [sizes]], …]], then the tensors in that order.

        The line is ASCII without spaces and ends with a newline; tensors are little-endian float32, row by row.
        """
        program = self.program
        shapes = [[name, list(shape)] for name, shape in program.shapes.items()]
        line = json.dumps([program.name, program.dimension, program.classes, shapes], separators=(",", ":")) + "\n"
        content = (array.astype("<f4").tobytes() for array in self.tensors.values())
        return hashlib.sha256(line.encode() + b"".join(content)).hexdigest()

    def require_fit(self, classes: int, dimension: int) -> None:
        if (self.program.classes, self.program.dimension) != (classes, dimension):
            raise BadInput(f"the model is for {self.program.classes} classes and {self.program.dimension} features")

    @property
    def predicts(self) -> bool:
        """Whether the model can classify by itself; a shared adapter cannot, as each client keeps a head of its own."""
        return not isinstance(self.program, SharedAdapter)

    @property
    def reads_inputs(self) -> bool:
        """Whether the model takes an encoder's prepared records (see `over`) instead of features."""
        return isinstance(self.program, Adapted | OverEncoder)

    def over(self, feature_map: FeatureMap) -> TrainedModel:
        """Return the model inside the encoder of a feature map, or the model itself where it takes features.

        Raises BadInput for an encoder that it does not fit.
        """
        if not isinstance(self.program, Adapted):
            return self
        return TrainedModel(self.program.over(feature_map.encoder), self.parameters)

    def is_close_to(self, other: Artifact) -> bool:
        return (
            isinstance(other, TrainedModel) and other.program.name == self.program.name and super().is_close_to(other)
        )

    def among(self, rows: NDArray[np.int64], classes: int) -> TrainedModel:
        """Return a copy with `classes` classes: class i gets the index rows[i]; new ones zeros and `ABSENT_BIAS`."""
        program = program_named(self.program.name, self.program.dimension, classes)
        parameters = dict(self.parameters)
        for name, shape in program.shapes.items():
            if shape != self.program.shapes[name]:
                parameters[name] = np.full(shape, ABSENT_BIAS if name.endswith("bias") else 0, dtype=np.float32)
                parameters[name][rows] = self.parameters[name]
        return TrainedModel(program, parameters)

    def scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the classes' scores (n, C) for features (n, d), computed in float32. Raises BadInput for another d."""
        if features.ndim != 2 or features.shape[1] != self.program.dimension:
            raise BadInput(f"the model takes {self.program.dimension} features, got records {features.shape[1:]}")
        import torch

        found = np.empty((len(features), self.program.classes))
        with one_thread(), torch.inference_mode():
            parameters = {name: torch.tensor(array) for name, array in self.parameters.items()}
            for start in range(0, len(features), ROWS):
                rows = torch.tensor(features[start : start + ROWS], dtype=torch.float32)
                found[start : start + ROWS] = self.program.logits(parameters, rows).numpy()
        return found


def read_model(content: bytes) -> tuple[TrainedModel, dict[str, str]]:
    """Return the model and the metadata in a file that `to_safetensors` made. Raises BadInput for other files."""
    tensors, texts = parse_tensors(content)
    if texts.get(KIND) != MODEL or not all(COUNT.fullmatch(texts.get(name, "")) for name in (INPUTS, OUTPUTS)):
        raise BadInput("the file does not say which program its tensors are of")
    program = program_named(texts.get(NAME, ""), int(texts[INPUTS]), int(texts[OUTPUTS]))
    return TrainedModel(program, tensors), texts


def parse_artifact(content: bytes) -> tuple[LinearHead | TrainedModel | SlotMeans, dict[str, str]]:
    """Return the artifact (model, slot means or head) and the metadata in a file. Raises BadInput for other files."""
    kind = parse_tensors(content)[1].get(KIND)
    if kind == SLOT_MEANS:
        return read_slot_means(content)
    return read_model(content) if kind == MODEL else parse_safetensors(content)


@dataclass(frozen=True, eq=False)
class TunedModel(TrainedModel):
    """A trained network with the `settings` that tuning found ("epochs=2 rate=0.05") and their validation `score`."""

    settings: str
    score: float

    @classmethod
    def tuned(cls, program: Program, flat: NDArray[np.float64], settings: str, score: float) -> TunedModel:
        """Return the tuned model with the flat parameters (size,), rounded to float32. Raises BadInput."""
        return cls(program, TrainedModel.of(program, flat).parameters, settings, score)

    @property
    def texts(self) -> Mapping[str, str]:
        return {**super().texts, SETTINGS: self.settings, SCORE: repr(self.score)}

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the model's digest, the settings and the score, each an ASCII line."""
        return hashlib.sha256(f"{super().digest}\n{self.settings}\n{self.score!r}\n".encode()).hexdigest()

    def is_close_to(self, other: Artifact) -> bool:
        same = isinstance(other, TunedModel) and (other.settings, other.score) == (self.settings, self.score)
        return same and super().is_close_to(other)


def read_tuned(content: bytes) -> tuple[TunedModel, dict[str, str]]:
    """Return the tuned model and the metadata in a file. Raises BadInput if the file lacks settings or score."""
    model, texts = read_model(content)
    if SETTINGS not in texts or not NUMBER.fullmatch(texts.get(SCORE, "")):
        raise BadInput("the model's file does not say which settings were found for it")
    return TunedModel(model.program, model.parameters, texts[SETTINGS], float(texts[SCORE])), texts


Tensors = Mapping[str, NDArray[np.float32]]


def write_adapter(model: TrainedModel, encoder: Encoder, folder: Path) -> list[Path]:
    """Write a model's adapter under the names of the encoder's modules, and its head if any; return the files' paths.

    LoRA is what `peft.PeftModel.from_pretrained` loads. A bottleneck has `MODULE.down` and `MODULE.up`, weight and
    bias, for every module that it follows; `kind` in the configuration says so. The head takes the pooled output.
    Raises BadInput for a model that is no adapter, or one that does not fit the encoder.
    """
    from safetensors.numpy import save_file

    program = model.program
    if not isinstance(program, Adapted):
        raise BadInput(f"{program.name} is no adapter", remedy="give a file of the method feddat")
    program.over(encoder)  # refuses an encoder that it does not fit
    modules = [place.name for place in encoder.places(program.adapter.kind)]
    is_lora = program.adapter.kind == LORA
    tensors = {}
    for number, module in enumerate(modules):
        named = _merged(program, model.parameters, number)
        tensors.update({f"{PEFT if is_lora else ''}{module}.{name}": tensor for name, tensor in named.items()})
    folder.mkdir(parents=True)
    paths = [folder / WEIGHTS, folder / CONFIG]
    save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, paths[0])
    paths[1].write_text(json.dumps(_config(program, encoder, modules), indent=2) + "\n", encoding="utf-8")
    if not isinstance(program, SharedAdapter):
        paths.append(folder / HEAD_FILE)
        save_file({"weight": model.parameters[HEAD], "bias": model.parameters[HEAD_BIAS]}, paths[-1])
    return paths


def _config(program: Adapted, encoder: Encoder, modules: list[str]) -> dict[str, object]:
    rank = program.adapter.rank * len(program.prefixes)
    common = {"base_model_name_or_path": encoder.files.folder.name, "r": rank, "target_modules": modules}
    if program.adapter.kind != LORA:
        return {**common, "kind": program.adapter.kind, "activation": "relu"}
    usual = {"lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": False, "inference_mode": True, "task_type": None}
    return {"peft_type": "LORA", **common, "lora_alpha": LORA_SCALE * rank, **usual}


def _merged(program: Adapted, parameters: Tensors, number: int) -> Tensors:
    """Return a place's adapters as one: Σ w·2·B·A, or Σ w·(W_up·ReLU(W_down·h + b_down) + b_up)."""
    parts = [(f"{prefix}.{number}", np.float32(weight)) for prefix, weight in program.prefixes.items()]

    def into(name: str) -> NDArray[np.float32]:
        return np.concatenate([parameters[f"{at}.{name}"] for at, _ in parts])

    def out(name: str) -> NDArray[np.float32]:
        return np.concatenate([weight * parameters[f"{at}.{name}"] for at, weight in parts], axis=1)

    if program.adapter.kind == LORA:
        return {"lora_A.weight": into("A"), "lora_B.weight": out("B")}
    ups = [weight * parameters[f"{at}.up.bias"] for at, weight in parts]
    down = {"down.weight": into("down.weight"), "down.bias": into("down.bias")}
    return {**down, "up.weight": out("up.weight"), "up.bias": np.sum(ups, axis=0, dtype=np.float32)}
