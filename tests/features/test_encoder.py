"""Encoders by folder: what defines them, what they make of records, and what is refused before anything is computed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from secagg.data.triplets import join
from secagg.errors import BadInput
from secagg.features import Encoder, backbone_digest, open_backbone
from secagg.features.encoder import EncoderFiles
from secagg.features.opening import planned_name
from tests.worlds.encoders import ARCHITECTURES, SIDE, WORDS, save_encoder, save_processor, save_tokenizer

LENGTH = 3 * SIDE**2 + 256


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each architecture."""
    made = tmp_path_factory.mktemp("encoders")
    return {architecture: save_encoder(made / architecture, architecture) for architecture in ARCHITECTURES}


def opened(folder: Path, expected: str | None = None) -> Encoder:
    """The encoder of a folder, for records of its pictures."""
    found = open_backbone(f"transformers:{folder}", (LENGTH,), expected_digest=expected)
    assert isinstance(found, Encoder)
    return found


def some_records(count: int = 4) -> np.ndarray:
    """Stored ones: pictures of noise and questions."""
    pictures = np.random.default_rng(0).integers(0, 256, (count, SIDE, SIDE, 3), dtype=np.uint8)
    return join(pictures, [("what is this ?", "how many ?")[row % 2] for row in range(count)])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_record_does_not_depend_on_its_batch(saved: dict[str, Path], architecture: str) -> None:
    """Features have length 1, and the same bits alone and in company; texts count where they are read."""
    encoder, records = opened(saved[architecture]), some_records()
    features = encoder.extract(records)
    assert features.shape == (4, encoder.dimension)
    assert np.allclose(np.linalg.norm(features, axis=1), 1)
    assert np.array_equal(features[1:3], encoder.extract(records[1:3]))
    other = records.copy()
    other[:, -256:] = some_records(5)[1:, -256:]  # the other question
    assert np.array_equal(encoder.extract(other), features) == (architecture == "vit")
    assert encoder.extract(records[:0]).shape == (0, encoder.dimension)


def test_files_that_changed_after_they_were_compared_are_refused(saved: dict[str, Path], tmp_path: Path) -> None:
    """What is read is what the digest was of, or nothing comes of it."""
    folder = tmp_path / "model"
    shutil.copytree(saved["vilt"], folder)
    files = EncoderFiles.of(f"transformers:{folder}")
    assert files.digest == backbone_digest(f"transformers:{folder}")
    save_tokenizer(folder, (*WORDS, "more"))
    with pytest.raises(BadInput, match="has changed since its digest was compared"):
        files.load_tokenizer()
    save_processor(folder, (0.1, 0.2, 0.3))
    with pytest.raises(BadInput, match="has changed since its digest was compared"):
        files.picture_rule(None)
    assert EncoderFiles.of(f"transformers:{folder}").load_tokenizer() is not None


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda folder: save_tokenizer(folder, (*WORDS, "more")), "tokenizer"),
        (lambda folder: save_processor(folder, (0.1, 0.2, 0.3)), "picture processor"),
        (lambda folder: save_encoder(folder, "vilt", seed=1), "weights"),
    ],
    ids=["tokenizer", "pictures", "weights"],
)
def test_another_part_is_another_encoder(saved: dict[str, Path], tmp_path: Path, change: object, part: str) -> None:
    """A tokenizer, picture rule or weights that differ are refused by digest, parts told, before they are parsed."""
    own = Path(shutil.copytree(saved["vilt"], tmp_path / "vilt"))
    before = opened(saved["vilt"])
    assert opened(own, before.digest).digest == before.digest == backbone_digest(f"transformers:{own}")
    change(own)  # type: ignore[operator]
    with pytest.raises(BadInput, match=f"has digest .*{part} .*expected {before.digest}"):
        opened(own, before.digest)
    assert planned_name(f"transformers:{own}") == "transformers:vilt"


@pytest.mark.parametrize(
    ("architecture", "absent", "words"),
    [
        ("vilt", "config.json", "holds no config.json with"),
        ("vilt", "model.safetensors", "holds no config.json with"),
        ("vilt", "tokenizer.json", "holds no tokenizer, which this model needs|cannot load"),
        ("vilt", "preprocessor_config.json", "holds no preprocessor_config.json with image_mean"),
        ("bert", "tokenizer.json", "holds no tokenizer, which this model needs"),
        ("clip", "preprocessor_config.json", "holds no preprocessor_config.json with image_mean"),
    ],
)
def test_a_folder_without_its_parts_is_refused(
    saved: dict[str, Path], tmp_path: Path, architecture: str, absent: str, words: str
) -> None:
    """What is absent is named."""
    own = Path(shutil.copytree(saved[architecture], tmp_path / "own"))
    (own / absent).unlink()
    if absent == "tokenizer.json":
        (own / "tokenizer_config.json").unlink()
    with pytest.raises(BadInput, match=words):
        opened(own)


def test_weights_that_are_not_all_there_are_refused(saved: dict[str, Path], tmp_path: Path) -> None:
    """Random numbers in their place would be different ones for every member."""
    own = Path(shutil.copytree(saved["vilt"], tmp_path / "own"))
    kept = {name: each for name, each in load_file(own / "model.safetensors").items() if not name.startswith("pooler")}
    save_file(kept, own / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadInput, match="lacks the weights pooler"):
        opened(own)


@pytest.mark.parametrize("content", [b"\x80", b"{}", b'{"model_type": "none such"}'], ids=["bytes", "none", "unknown"])
def test_a_broken_configuration_is_refused(saved: dict[str, Path], tmp_path: Path, content: bytes) -> None:
    """Whatever the library says of it, the folder is named."""
    own = Path(shutil.copytree(saved["vilt"], tmp_path / "own"))
    (own / "config.json").write_bytes(content)
    with pytest.raises(BadInput, match=r"transformers cannot load the model in|cannot read .*config\.json as JSON"):
        opened(own)


def test_files_of_other_names_are_not_read(saved: dict[str, Path], tmp_path: Path) -> None:
    """A tokenizer for a version, or shards elsewhere, which no digest is over, would be another encoder in secret."""
    own = Path(shutil.copytree(saved["bert"], tmp_path / "own"))
    config = json.loads((own / "tokenizer_config.json").read_text())
    config["fast_tokenizer_files"] = ["tokenizer.4.0.0.json"]
    (own / "tokenizer_config.json").write_text(json.dumps(config))
    shutil.copy(own / "tokenizer.json", own / "tokenizer.4.0.0.json")
    with pytest.raises(BadInput, match="cannot load the tokenizer"):
        opened(own)
    sharded = Path(shutil.copytree(saved["bert"], tmp_path / "sharded"))
    names = list(load_file(sharded / "model.safetensors"))
    (sharded / "sub").mkdir()
    (sharded / "model.safetensors").rename(sharded / "sub" / "model.safetensors")
    (sharded / "other.safetensors").write_bytes(b"")
    for where in ("sub/model.safetensors", str(saved["bert"] / "model.safetensors"), 7):
        index = {"metadata": {}, "weight_map": dict.fromkeys(names, where)}
        (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
        with pytest.raises(BadInput, match="names files that are not beside it"):
            opened(sharded)


def test_shards_beside_their_index_are_read(saved: dict[str, Path], tmp_path: Path) -> None:
    """Large models are saved in several files; a folder may be of links, as the hub's cache is."""
    own = Path(shutil.copytree(saved["bert"], tmp_path / "own"))
    names = list(load_file(own / "model.safetensors"))
    (own / "model.safetensors").unlink()
    (own / "model-1.safetensors").symlink_to(saved["bert"] / "model.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "model-1.safetensors")}
    (own / "model.safetensors.index.json").write_text(json.dumps(index))
    assert np.array_equal(opened(own).extract(some_records()), opened(saved["bert"]).extract(some_records()))


def test_kernels_that_a_configuration_names_are_not_fetched(saved: dict[str, Path], tmp_path: Path) -> None:
    """They are code, on the hub or installed: attention is computed by torch."""
    own = Path(shutil.copytree(saved["clip"], tmp_path / "own"))
    config = json.loads((own / "config.json").read_text())
    config["text_config"]["attn_implementation"] = "kernels-community/flash-attn3"
    (own / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match="kernels-community/flash-attn3', which can be code"):
        opened(own)


@pytest.mark.parametrize(
    ("words", "length"), [((*WORDS, "rare"), 8), (WORDS, 9)], ids=["a word too many", "a place too many"]
)
def test_a_tokenizer_that_leads_out_of_the_model_is_refused(
    saved: dict[str, Path], tmp_path: Path, words: tuple[str, ...], length: int
) -> None:
    """Before any record is read: one with the rare word, or a long text, would keep its member out."""
    import transformers

    own = Path(shutil.copytree(saved["bert"], tmp_path / "own"))
    if length > 8:  # RoBERTa's positions begin after the padding's
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
        config = transformers.RobertaConfig(**sizes, vocab_size=len(WORDS), max_position_embeddings=9, pad_token_id=0)
        transformers.RobertaModel(config).save_pretrained(own)
    save_tokenizer(own, words, length)
    with pytest.raises(BadInput, match="fails at a text of"):
        opened(own)


@pytest.mark.parametrize(
    "rule", ["[1]", "7", '{"image_mean": 3, "image_std": [1, 1, 1]}', '{"image_mean": [NaN], "image_std": [1]}', "{"]
)
def test_a_broken_picture_rule_is_refused(saved: dict[str, Path], tmp_path: Path, rule: str) -> None:
    """Whatever stands in its place, the folder is named."""
    own = Path(shutil.copytree(saved["vit"], tmp_path / "own"))
    (own / "preprocessor_config.json").write_text(rule)
    with pytest.raises(BadInput, match=r"holds no preprocessor_config\.json with|cannot read .* as JSON"):
        opened(own)


@pytest.mark.parametrize("mode", ["mean_tokens", "cls_token"])
def test_texts_are_pooled_as_a_sentence_transformers_folder_says(
    saved: dict[str, Path], tmp_path: Path, mode: str
) -> None:
    """Features are the mean over the text's own tokens, without padding, or the first token's; the digest holds it."""
    own = Path(shutil.copytree(saved["bert"], tmp_path / "own"))
    save_pooling(own, mode)
    encoder, row = opened(own), some_records(1)
    inputs = torch.from_numpy(encoder.prepare(row)).long()
    tokens, mask = inputs[:, : encoder.tokens], inputs[:, encoder.tokens :]
    states = encoder.module(input_ids=tokens, attention_mask=mask).last_hidden_state[0].numpy()
    count = int(mask.sum())
    assert 1 < count < encoder.tokens
    wanted = states[:count].mean(axis=0) if mode == "mean_tokens" else states[0]
    assert np.allclose(encoder.extract(row)[0], wanted / np.linalg.norm(wanted), atol=1e-6)
    assert encoder.digest != opened(saved["bert"]).digest


@pytest.mark.parametrize("modes", [(), ("max_tokens",), ("mean_tokens", "cls_token"), ("mean_tokens", "unheard_of")])
def test_other_poolings_are_refused(saved: dict[str, Path], tmp_path: Path, modes: tuple[str, ...]) -> None:
    """A folder that pools by the maximum, in two ways or in none is named."""
    own = Path(shutil.copytree(saved["bert"], tmp_path / "own"))
    save_pooling(own, *modes)
    with pytest.raises(BadInput, match=r"1_Pooling/config\.json asks for the pooling"):
        opened(own)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ('{"pooling_mode_cls_token": true}', "does not state pooling_mode_mean_tokens"),
        ('{"pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": 1}', "max_tokens neither true nor false"),
        ('{"pooling_mode_mean_tokens": "true"}', "mean_tokens neither true nor false"),
        ('{"pooling_mode_mean_tokens": true, "pooling_mode_mean_tokens": true}', "stands twice"),
        ('{"pooling_mode_mean_tokens": true, "pooling_mode": "max"}', "has the key pooling_mode"),
        ('{"pooling_mode_mean_tokens": true, "include_prompt": false}', "leaves prompts out"),
        ("[1]", "is no object"),
    ],
)
def test_poolings_that_may_be_read_otherwise_are_refused(tmp_path: Path, rule: str, words: str) -> None:
    """What sentence-transformers would pool in another way than the stated modes say is refused."""
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(rule)
    with pytest.raises(BadInput, match=words):
        EncoderFiles(tmp_path).pooling_mode()


def test_padding_follows_the_text_whatever_the_tokenizer_says(saved: dict[str, Path], tmp_path: Path) -> None:
    """A tokenizer that was saved to pad on the left gives the same features, as its folder's pooling reads the text."""
    found = []
    for side in ("left", "right"):
        own = Path(shutil.copytree(saved["bert"], tmp_path / side))
        save_pooling(own, "cls_token")
        written = own / "tokenizer_config.json"
        written.write_text(json.dumps({**json.loads(written.read_text()), "padding_side": side}), encoding="utf-8")
        found.append(opened(own).extract(some_records(2)))
    assert np.allclose(*found, atol=1e-6)


def test_further_modules_of_a_sentence_transformers_folder_are_refused(saved: dict[str, Path], tmp_path: Path) -> None:
    """A dense layer behind the pooling would be left out in silence; the three modules that are followed pass."""
    own = Path(shutil.copytree(saved["bert"], tmp_path / "own"))
    save_pooling(own, "mean_tokens")
    kinds = ["Transformer", "Pooling", "Normalize"]
    (own / "modules.json").write_text(json.dumps([{"type": f"sentence_transformers.models.{each}"} for each in kinds]))
    assert opened(own).pooling == "mean_tokens"
    (own / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Dense"}]))
    with pytest.raises(BadInput, match=r"modules\.json has the module Dense; give a model of Transformer, Pooling"):
        opened(own)


@pytest.mark.parametrize(("most", "tokens"), [(3, 3), (10_000, None)])
def test_texts_are_cut_as_a_sentence_transformers_folder_says(
    saved: dict[str, Path], tmp_path: Path, most: int, tokens: int | None
) -> None:
    """The folder's limit on tokens holds where it is below the model's own; a limit that is no number is refused."""
    own = Path(shutil.copytree(saved["bert"], tmp_path / "own"))
    (own / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": most}))
    assert opened(own).tokens == (tokens or opened(saved["bert"]).tokens)
    (own / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": "all"}))
    with pytest.raises(BadInput, match="cuts texts to all tokens"):
        opened(own)


def save_pooling(folder: Path, *modes: str) -> None:
    """Write the pooling of a sentence-transformers folder."""
    (folder / "1_Pooling").mkdir()
    known = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    rule = {"word_embedding_dimension": 16} | {f"pooling_mode_{mode}": mode in modes for mode in (*known, *modes)}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(rule), encoding="utf-8")


def test_code_of_a_folder_is_not_run(saved: dict[str, Path], tmp_path: Path) -> None:
    """A configuration that names code of its own gives no model by it."""
    own = Path(shutil.copytree(saved["vilt"], tmp_path / "own"))
    config = json.loads((own / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModel": "own.Model"}}
    (own / "config.json").write_text(json.dumps(config))
    (own / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(BadInput, match="cannot load the model"):
        opened(own)
    assert not (tmp_path / "ran").exists()


def test_pictures_of_another_size_are_refused(saved: dict[str, Path]) -> None:
    """The sides are told; a text model takes any picture, since it sees none."""
    other = 3 * 20**2 + 256
    with pytest.raises(BadInput, match="takes pictures of 16 × 16 pixels, the records' are 20 × 20"):
        open_backbone(f"transformers:{saved['vilt']}", (other,))
    assert open_backbone(f"transformers:{saved['bert']}", (other,)).dimension == 16
    with pytest.raises(BadInput, match="takes records of a picture and a text"):
        open_backbone(f"transformers:{saved['vilt']}", (28, 28))
    with pytest.raises(BadInput, match="13 numbers are no picture and text"):
        open_backbone(f"transformers:{saved['vilt']}", (13,))
    with pytest.raises(BadInput, match="as rows of bytes"):
        opened(saved["vilt"]).extract(some_records().astype(np.float64))
