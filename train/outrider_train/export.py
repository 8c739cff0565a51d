"""Writes heads as other programs read them: EAGLE-3 in SpecForge's layout, Medusa in TGI's."""

import json
import os
import pathlib

import safetensors.torch
import torch

from .errors import InputError

TARGET_KEYS = ("name", "file", "vocabulary", "embedding", "layers", "vocabulary_size")


def write_atomically(path, write):
    """The file is there whole or not at all, also when the disk is full or the power fails."""
    path = pathlib.Path(path)
    temporary = path.with_name(path.name + ".part")
    try:
        write(temporary)
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_out(folder):
    """Refuses a folder with the head or model of another program, which would be overwritten."""
    path = pathlib.Path(folder) / "config.json"
    if not path.exists():
        return
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError):
        config = None
    if not isinstance(config, dict) or not isinstance(config.get("outrider"), dict):
        raise InputError(f"{path}: is of another program (it has no \"outrider\"): give another folder for the head")


def config_of(kind, features, head, n_outputs, acceptance, recipe):
    model = features.model
    # The features of position 0 are left out, so that there is no row 1.
    about = dict(target={key: model.get(key) for key in TARGET_KEYS}, first_row=2, acceptance=acceptance, recipe=recipe)
    if kind == "medusa":
        return dict(medusa_num_heads=head.heads, medusa_num_layers=1, hidden_size=model["embedding"],
                    vocab_size=model["vocabulary_size"], base_model_name_or_path=model.get("name", ""), outrider=about)
    return dict(
        architectures=["LlamaForCausalLMEagle3"], model_type="llama", hidden_act="silu",
        hidden_size=model["embedding"], target_hidden_size=model["embedding"], intermediate_size=head.feed_forward,
        num_attention_heads=model["heads"], num_key_value_heads=model["kv_heads"], head_dim=model["head_dim"],
        num_hidden_layers=1, rms_norm_eps=model["rms_epsilon"], rope_theta=model["rope_theta"], rope_scaling=None,
        attention_bias=False, max_position_embeddings=model.get("context") or 2048,
        vocab_size=model["vocabulary_size"], draft_vocab_size=n_outputs, tie_word_embeddings=False,
        torch_dtype="bfloat16", bos_token_id=model.get("bos"), eos_token_id=(model.get("eos") or [None])[0],
        eagle_config=dict(eagle_aux_hidden_state_layer_ids=features.taps, use_aux_hidden_state=True), outrider=about)


def export(folder, kind, features, head, draft_tokens, acceptance, recipe):
    """Weights in bfloat16: the engine keeps matrices in four or eight bits. The weights come first: an older
    config.json beside them is right but for its figures."""
    folder = pathlib.Path(folder)
    tensors = {name: tensor.detach().to("cpu", torch.bfloat16).contiguous() for name, tensor in head.tensors().items()}
    if kind == "eagle3":
        tensors["lm_head.weight"] = features.output[draft_tokens].contiguous()
        tensors["d2t"] = draft_tokens - torch.arange(len(draft_tokens))
        tensors["t2d"] = torch.zeros(features.vocabulary, dtype=torch.bool)
        tensors["t2d"][draft_tokens] = True
    name = "medusa_lm_head.safetensors" if kind == "medusa" else "model.safetensors"
    write_atomically(folder / name, lambda path: safetensors.torch.save_file(tensors, path, {"format": "pt"}))
    config = config_of(kind, features, head, len(draft_tokens), acceptance, recipe)
    write_atomically(folder / "config.json", lambda path: path.write_text(json.dumps(config, indent=1) + "\n"))
