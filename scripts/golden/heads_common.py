"""What scripts/golden/heads.py and its modules of kinds of heads share: targets, random weights, comparisons, files."""

import copy
import json
import types

import numpy as np
import torch

import families
import packing

VOCABULARY, DRAFT_VOCABULARY, LENGTH, DEPTHS = 256, 72, 80, 3
AGREEMENT = 1e-5  # of the largest logit: between a class and heads_plain.py
DIFFERENCE = 1e-2  # of the largest logit: what a mistake changes at least; tests tolerate 1e-4
ROUNDING = 3e-5  # of the largest logit: what float32's rounding in the target changes at most

# Name: class of the configuration, what is special.
TARGETS = {
    "llama": ("LlamaConfig", dict(num_hidden_layers=8, rope_parameters=dict(rope_type="default", rope_theta=500.0))),
    "qwen2": ("Qwen2Config", dict(num_hidden_layers=6)),
}
# Those whose heads are in their own files; small, as they are in the archives of their heads.
WITH_HEADS = {
    "glm4": (
        "Glm4Config",
        dict(
            num_hidden_layers=2,
            intermediate_size=48,
            head_dim=16,
            attention_bias=True,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5),
        ),
    ),
}
# Of every head: one layer.
LAYER = dict(
    vocab_size=VOCABULARY,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    bos_token_id=None,
    eos_token_id=None,
    pad_token_id=None,
    tie_word_embeddings=False,
)

# By the names of llama.cpp, those of a layer's tensors in other files.
GGUF_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class Target:
    def __init__(self, name):
        kind, special = {**TARGETS, **WITH_HEADS}[name]
        self.name = name
        self.model, _ = families.make_model(f"heads-{name}", kind, dict(special, vocab_size=VOCABULARY), deviation=4)
        self.tokens = torch.randint(
            0, VOCABULARY, (LENGTH,), generator=torch.Generator().manual_seed(sum(name.encode()))
        )
        # In float64: float32's rounding alone is up to 2e-5 of a state here, and the heads make more of it.
        self.entering, self.last, self.last_normed = self.states(copy.deepcopy(self.model.model).double())
        self.rounded = types.SimpleNamespace()  # as float32 has them
        self.rounded.entering, self.rounded.last, self.rounded.last_normed = self.states(self.model.model)
        self.embedding = self.model.model.embed_tokens.weight.detach()

    def states(self, model):
        """[layer][position][width]: what enters each layer; [position][width]: what leaves the last one, and that after
        the last norm."""
        last = []
        hook = model.norm.register_forward_hook(lambda module, inputs, output: last.append(inputs[0][0]))
        with torch.no_grad():
            out = model(self.tokens[None], use_cache=False, output_hidden_states=True)
        hook.remove()
        entering = torch.stack([x[0] for x in out.hidden_states[:-1]])  # the last of transformers' is normed
        return entering.float(), last[0].float(), out.last_hidden_state[0].float()

    def taps(self, input_ids, shift=0):
        """[row][tap][width] of the rows at positions 1 and on."""
        return self.entering[list(input_ids), shift:LENGTH - 1 + shift].transpose(0, 1)


def random_d2t(name):
    chosen = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(sum(name.encode())))[:DRAFT_VOCABULARY]
    return chosen.sort().values


@torch.no_grad()
def fill(name, parameters, embedding, gains=None):
    """Random weights of a head. Norms are far from 1. gains: of parameters whose names hold these."""
    gains = {"lm_head": 4, "q_proj": 2, "k_proj": 2, **(gains or {})}
    generator = torch.Generator().manual_seed(sum(name.encode()))
    for key, parameter in parameters:
        if "embed_tokens" in key:
            parameter.copy_(embedding)
        elif "norm" in key:
            parameter.copy_(0.5 + torch.randint(0, 17, parameter.shape, generator=generator) / 16)
        elif parameter.dim() == 1:
            parameter.copy_(families.few_numbers(generator, parameter.shape, 0.5))
        else:
            gain = next((gain for part, gain in gains.items() if part in key), 1)
            parameter.copy_(families.few_numbers(generator, parameter.shape, gain / parameter.shape[1] ** 0.5))


def distance(a, b):
    """Of the largest logit."""
    return max(((x[:len(y)] - y).abs().max() / y.abs().max()).item() for x, y in zip(a, b))


def check_agreement(name, found, logits):
    """That heads_plain.py computes the same as the class; returns the difference."""
    agreement = distance(found, logits)
    if agreement > AGREEMENT:
        raise SystemExit(f"{name}: heads_plain.py differs from the class by {agreement:.1e} of the largest logit")
    return agreement


def report(name, logits, agreement, least, rounding=None):
    """least: what each mistake changes; rounding: what float32's rounding in the target does, as in another program."""
    for mistake, changed in least.items():
        if changed < DIFFERENCE:
            raise SystemExit(f"{name}: {mistake} changes the logits by {changed:.1e} of the largest only")
    if rounding and rounding > ROUNDING:
        raise SystemExit(f"{name}: rounding changes the logits by {rounding:.1e} of the largest")
    mistake = min(least, key=least.get)
    spread, largest = torch.cat([x.flatten() for x in logits]).std(), max(x.abs().max() for x in logits)
    said = f", rounding {rounding:.0e}" if rounding else ""
    print(f"{name}: deviation {spread:.1f}, largest {largest:.1f}, agreement {agreement:.0e}{said}, "
          f"{len(least)} mistakes, least: {mistake} {least[mistake]:.2f}", flush=True)


def npy(matrix, out):
    np.save(out, np.round(matrix.double().numpy() * 2**14).astype(np.float32) / np.float32(2**14))


def by_depth(logits):
    return {f"depth{depth}": matrix for depth, matrix in enumerate(logits, 1)}


def pack_head(name, work, target, matrices, d2t, n_columns=64, **expected):
    """matrices: by the names of their files; of rows for all tokens n_columns are kept."""
    columns = d2t if d2t is not None else torch.arange(0, VOCABULARY, VOCABULARY // n_columns)
    expected = dict(
        target=name if target.name in WITH_HEADS else f"target-{target.name}",
        tokens=target.tokens.tolist(),
        d2t=None if d2t is None else d2t.tolist(),
        columns=columns.tolist(),
        **expected,
    )
    files = {
        str(file.relative_to(work)): file.read_bytes()
        for file in sorted([*work.glob("head/*"), *work.glob("*.gguf")])
    }
    files["expected.json"] = json.dumps(expected).encode()
    for file, matrix in matrices.items():
        npy(matrix[:, columns] if matrix.shape[1] == VOCABULARY else matrix, work / f"{file}.npy")
        files[f"{file}.npy"] = (work / f"{file}.npy").read_bytes()
    return packing.pack(f"heads/{name}", files)
