"""EAGLE-1 (Li et al. 2024, arXiv:2401.15077) for scripts/golden/heads.py; EAGLE-2 (arXiv:2406.16858) has its weights.

The class is SafeAILab's of eagle-llm. That is a release of April 2024: biases of queries, keys and values (qkv_bias)
and rope_theta came later (eagle/model/cnets1.py of their repository), and are put into the class as they are there."""

import dataclasses
import json
import types

import safetensors.torch
import torch

import families
import heads_plain
from heads_common import DEPTHS, LAYER, LENGTH, by_depth, check_agreement, distance, fill, pack_head, report

# Of published configurations: what is the same in all.
WRITTEN = dict(
    architectures=["LlamaForCausalLM"],
    hidden_act="silu",
    initializer_range=0.02,
    model_type="llama",
    tie_word_embeddings=False,
    torch_dtype="float32",
    transformers_version="4.28.1",
    use_cache=True,
)


@torch.no_grad()
def class_logits(model, output, tokens, states):
    """As the class is called for a chain: from each start with the cache of the rows before; states: the target's."""
    found = [[] for _ in range(DEPTHS)]
    for start in range(1, LENGTH):
        state, cache = model(states[None, :start], input_ids=tokens[None, 1:start + 1], use_cache=True)
        for depth in range(DEPTHS):
            if depth > 0:
                if start + depth == LENGTH:
                    break
                token = tokens[None, start + depth, None]
                state, cache = model(state[:, -1:], input_ids=token, past_key_values=cache, use_cache=True)
            found[depth].append(output(state[0, -1]))
    return [torch.stack(rows) for rows in found]


def make(name, target, folder, *, has_bias=True, qkv_bias=False, rope_theta=None, embedding=None, **config):
    """config: keys that are written; None: keys of LAYER that are not."""
    from eagle.model import cnets

    sizes = {key: value for key, value in {**LAYER, **config}.items() if value is not None and "token" not in key}
    settings = types.SimpleNamespace(
        **{"num_key_value_heads": LAYER["num_attention_heads"], **sizes},
        pad_token_id=None,
        hidden_act="silu",
        pretraining_tp=1,
        rope_scaling=None,
    )
    model = cnets.Model(settings, bias=has_bias).eval()
    attention = model.layers[0].self_attn
    if qkv_bias:
        for part in ("q_proj", "k_proj", "v_proj"):
            linear = getattr(attention, part)
            setattr(attention, part, torch.nn.Linear(linear.in_features, linear.out_features, bias=True))
    if rope_theta:
        attention.rotary_emb = cnets.LlamaRotaryEmbedding(
            attention.head_dim, settings.max_position_embeddings, base=rope_theta
        )
    own = embedding is not None
    embedding = embedding if own else target.embedding
    # No norm is before attention, so that scores would be large.
    fill(name, model.named_parameters(), embedding, {"fc": 0.35, "q_proj": 1, "k_proj": 1})
    logits = class_logits(model, target.model.lm_head, target.tokens, target.last_normed)

    folder.mkdir()
    state = {key: value.contiguous() for key, value in model.state_dict().items() if own or "embed" not in key}
    safetensors.torch.save_file(state, folder / "model.safetensors")
    written = {**WRITTEN, **sizes}
    written.update({"bias": False} if not has_bias else {})
    written.update({"qkv_bias": True} if qkv_bias else {})
    written.update({"rope_theta": rope_theta} if rope_theta else {})
    (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")

    tensors = {key.removeprefix("layers.0."): value.detach().clone() for key, value in model.state_dict().items()}
    tensors["lm_head.weight"] = target.model.lm_head.weight.detach()
    tensors["target's norm.weight"] = target.model.model.norm.weight.detach()
    plain = heads_plain.Eagle1(tensors, attention.head_dim, rope_theta or 10000.0, settings.rms_norm_eps)
    return plain, embedding, logits


def check(name, target, plain, embedding, logits):
    def computed(plain=plain, states=target.last_normed, shift=0, embedding=embedding):
        rows = states[shift:LENGTH - 1 + shift]
        return plain.logits(embedding[target.tokens[1:]], rows, DEPTHS)

    agreement = check_agreement(name, computed(), logits)
    replace, fc = dataclasses.replace, plain.tensors["fc.weight"]
    mistakes = {
        "shift": computed(shift=1),
        "not normed": computed(states=target.last),
        "hidden first": computed(replace(plain, tensors={**plain.tensors, "fc.weight": fc.roll(fc.shape[1] // 2, 1)})),
        "input norm": computed(replace(plain, input_norm="post_attention_layernorm")),
        "output norm": computed(replace(plain, output_norm="target's norm")),
        "fed back normed": computed(replace(plain, output_norm="target's norm", feeds_back_normed=True)),
        "rope theta": computed(replace(plain, rope_theta=plain.rope_theta / 20)),
        "rope pairs": computed(replace(plain, adjacent_pairs=True)),
        "no post_attention_layernorm": computed(replace(plain, without=("post_attention_layernorm",))),
    }
    for key in plain.tensors:
        if key.endswith(".bias"):
            mistakes[f"no {key}"] = computed(replace(plain, without=(key,)))
    if embedding is not target.embedding:
        mistakes["target's embedding"] = computed(embedding=target.embedding)
    least = {mistake: distance(found, logits) for mistake, found in mistakes.items()}
    report(name, logits, agreement, least, distance(computed(states=target.rounded.last_normed), logits))


HEADS = {
    # As for Vicuna: fc has a bias although no key says so, and all heads have keys and values of their own.
    "eagle1": (
        "llama",
        dict(
            num_key_value_heads=None,
            rms_norm_eps=1e-2,
            embedding=families.few_numbers(torch.Generator().manual_seed(1), (256, 64), 0.125),
        ),
    ),
    # As for Llama 3.
    "eagle1-nobias": ("llama", dict(has_bias=False, rope_theta=2000.0, rms_norm_eps=1e-5)),
    "eagle1-qwen2": ("qwen2", dict(qkv_bias=True, rope_theta=5000.0, rms_norm_eps=1e-6)),
}


GGUF = {}


def pack(name, target, work_of, convert):
    work = work_of(name)
    plain, embedding, logits = make(name, target, work / "head", **HEADS[name][1])
    check(name, target, plain, embedding, logits)
    return [pack_head(name, work, target, by_depth(logits), None, 32, state="normed")]
