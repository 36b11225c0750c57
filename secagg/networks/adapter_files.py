"""A trained adapter as files that other libraries read: LoRA in the layout of `peft`, a bottleneck beside it.

A model of two adapters is one of twice the rank: the mean of both is what the two add side by side.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from secagg.errors import BadInput
from secagg.features import LORA, Encoder
from secagg.networks.adapted import HEAD, HEAD_BIAS, Adapted, SharedAdapter
from secagg.networks.adapters import LORA_SCALE
from secagg.networks.artifact import TrainedModel

CONFIG, WEIGHTS, HEAD_FILE = "adapter_config.json", "adapter_model.safetensors", "head.safetensors"
PEFT = "base_model.model."
"""What `peft` puts before the names of a model's modules."""
Tensors = Mapping[str, NDArray[np.float32]]


def write_adapter(model: TrainedModel, encoder: Encoder, folder: Path) -> list[Path]:
    """Write a model's adapter by the names of the encoder's modules, and its head where it has one; return the files.

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
        named = _lora(program, model.parameters, number) if is_lora else _bottleneck(program, model.parameters, number)
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


def _lora(program: Adapted, parameters: Tensors, number: int) -> Tensors:
    """Σ w·2·B·A of a place as one product."""
    parts = [(f"{prefix}.{number}", np.float32(weight)) for prefix, weight in program.prefixes.items()]
    return {
        "lora_A.weight": np.concatenate([parameters[f"{at}.A"] for at, _ in parts]),
        "lora_B.weight": np.concatenate([weight * parameters[f"{at}.B"] for at, weight in parts], axis=1),
    }


def _bottleneck(program: Adapted, parameters: Tensors, number: int) -> Tensors:
    """Σ w·(W_up·ReLU(W_down·h + b_down) + b_up) of a place as one bottleneck."""
    parts = [(f"{prefix}.{number}", np.float32(weight)) for prefix, weight in program.prefixes.items()]
    ups = [weight * parameters[f"{at}.up.bias"] for at, weight in parts]
    return {
        "down.weight": np.concatenate([parameters[f"{at}.down.weight"] for at, _ in parts]),
        "down.bias": np.concatenate([parameters[f"{at}.down.bias"] for at, _ in parts]),
        "up.weight": np.concatenate([weight * parameters[f"{at}.up.weight"] for at, weight in parts], axis=1),
        "up.bias": np.sum(ups, axis=0, dtype=np.float32),
    }
