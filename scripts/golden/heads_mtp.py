"""Modules for multi-token prediction (MTP; DeepSeek-AI 2024, arXiv:2412.19437) for scripts/golden/heads.py: one layer
that takes a token's embedding and the state before it, each after a norm of its own.

A published model's file has its module beside the model's own tensors; the files here have the module's alone, except
gguf-mtp: a whole GLM-4 with a module after its layers, as llama.cpp's converter writes GLM-OCR. The published GLM-OCR
has M-RoPE and no biases; this one has biases and plain RoPE. That a Llama has a module in DeepSeek's layout, or one
with a layer of Qwen3.5, is our invention, too.

Files do not say which state a module takes, and which it feeds back. transformers' MtpModel takes the target's state
after its last norm, and feeds back the module's after its last norm. speculators' class is trained with the target's
state before its last norm, and feeds back the module's after its last norm. Others feed back the module's state before
that norm: for the module in DeepSeek's layout, both are computed.

The classes are transformers' MtpModel, run as in generation but with one module for all depths, and speculators' layer.
A row of depth 2 or 3 sees the rows of depth 1 before it and its own, as in generation. In training, speculators' class
sees rows of the same depth only, so that its layer is called here with a mask of ours; depth 1 is compared with the
class. MiMo's own class is in no package: MtpModel with mtp_hidden_states_first and Qwen2's layer computes the same."""

import copy
import dataclasses
import json

import safetensors.torch
import torch
import transformers

import heads_plain
from heads_common import (
    DEPTHS,
    GGUF_LAYER_NAMES,
    LAYER,
    LENGTH,
    WITH_HEADS,
    by_depth,
    check_agreement,
    distance,
    fill,
    pack_head,
    report,
)

# transformers' names of the module's tensors by those of others, without their prefix; a layer's are the same in all.
NAMES = {
    "qwen": {
        "pre_fc_norm_embedding": "enorm",
        "pre_fc_norm_hidden": "hnorm",
        "fc": "eh_proj",
        "norm": "norm",
        "layers.0": "",
    },
    "mimo": {
        "token_layernorm": "enorm",
        "hidden_layernorm": "hnorm",
        "input_proj": "eh_proj",
        "final_layernorm": "norm",
    },
    "transformers": {"post_norm": "norm", "mtp_block": ""},
}
# By the names of llama.cpp.
GGUF_NAMES = {
    **GGUF_LAYER_NAMES,
    "ffn_up": "mlp.gate_up_proj",
    "post_attention_norm": "post_self_attn_layernorm",
    "post_ffw_norm": "post_mlp_layernorm",
    "nextn.eh_proj": "eh_proj",
    "nextn.enorm": "enorm",
    "nextn.hnorm": "hnorm",
    "nextn.shared_head_norm": "norm",
    "nextn.shared_head_head": "lm_head",
    "nextn.embed_tokens": "embed_tokens",
}

GAINS = {"q_proj": 1, "k_proj": 1}  # of layers without norms of queries and keys


@dataclasses.dataclass
class Case:
    plain: heads_plain.Mtp
    state: str  # what is taken of the target: "normed" after its last norm, "raw" before
    logits: list
    raw: list | None = None  # where both are computed: with the module's state fed back before its last norm


def named(state, producer):
    """By transformers' names, without prefixes."""
    found = {}
    for key, tensor in state.items():
        for prefix, name in NAMES[producer].items():
            if key.startswith(f"{prefix}."):
                key = f"{name}{key.removeprefix(prefix)}".removeprefix(".")
                break
        found[key] = tensor.detach().clone()
    return found


def apart(tensors):
    """With gate and up as two."""
    tensors = dict(tensors)
    if (both := tensors.pop("mlp.gate_up_proj.weight", None)) is not None:
        tensors["mlp.gate_proj.weight"], tensors["mlp.up_proj.weight"] = both.chunk(2)
    return tensors


def plain_of(tensors, target, config, **special):
    tensors = {**apart(tensors), "lm_head.weight": target.model.lm_head.weight.detach()}
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    special = {"feeds_back_normed": True, **special}
    return heads_plain.Mtp(tensors, head_dim, config.rope_parameters["rope_theta"], config.rms_norm_eps, **special)


def write(folder, tensors, config):
    folder.mkdir(exist_ok=True)
    tensors = {key: tensor.clone(memory_format=torch.contiguous_format) for key, tensor in tensors.items()}
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


# --- transformers -----------------------------------------------------------------------------------------------------


def main_model(target):
    """The target as a model that has a module."""
    model = copy.copy(target.model)
    model.config = copy.deepcopy(target.model.config)
    model.config.num_mtp_layers = 1
    model.config.dtype = torch.float32  # saving made it a string
    if getattr(model.config, "layer_types", None):
        model.config.mtp_layer_types = ["full_attention"]
    return model


@torch.no_grad()
def transformers_logits(mtp, target, feeds_back_raw=False):
    """From each start with the cache of the rows before."""
    from transformers.cache_utils import MtpCache

    found, raw = [[] for _ in range(DEPTHS)], []
    hook = mtp.layers[0].mtp_block.register_forward_hook(lambda module, inputs, output: raw.append(output))
    for start in range(1, LENGTH):
        cache, state = MtpCache(config=mtp.config), target.last_normed[None, :start]
        for depth in range(min(DEPTHS, LENGTH - start)):
            rows = torch.arange(1, start + 1) if depth == 0 else torch.tensor([start + depth])
            state = mtp.forward_layer(0, state, rows[None], cache, input_ids=target.tokens[rows][None])
            found[depth].append(mtp._project_to_logits(state[0, -1]))
            state = (raw[-1] if feeds_back_raw else state)[:, -1:]
    hook.remove()
    return [torch.stack(rows) for rows in found]


def deepseek_module(name, target, folder, others=None, **config):
    """What the class reads of a file by names as those of DeepSeek and GLM. Of their copies of the target's embedding
    and output it takes none. others: tensors of the file, config: what else its configuration has."""
    from transformers.modeling_layers import MtpModel

    main = main_model(target)
    n_layers, prefix = main.config.num_hidden_layers, f"model.layers.{main.config.num_hidden_layers}"
    mtp = MtpModel(main, 1)
    fill(name, mtp.layers.named_parameters(), None, GAINS)
    tensors = dict(others or {})
    for key, tensor in mtp.layers[0].state_dict().items():
        key = key.removeprefix("mtp_block.").replace("post_norm", "shared_head.norm")
        tensors[f"{prefix}.{key}"] = tensor
    tensors[f"{prefix}.embed_tokens.weight"] = target.embedding
    tensors[f"{prefix}.shared_head.head.weight"] = target.model.lm_head.weight.detach()
    write(folder, tensors, {**target.model.config.to_diff_dict(), "num_nextn_predict_layers": 1, **config})

    main._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{n_layers}\."]
    main.config.name_or_path = str(folder)
    return MtpModel.from_pretrained(main).eval()


def deepseek(name, target, folder):
    mtp = deepseek_module(name, target, folder)
    plain = plain_of(named(mtp.layers[0].state_dict(), "transformers"), target, mtp.config)
    return Case(plain, "normed", transformers_logits(mtp, target), transformers_logits(mtp, target, True))


def glm4(name, target, folder):
    """The whole model, with what llama.cpp's converter knows GLM-OCR by."""
    others, architectures = target.model.state_dict(), ["GlmOcrForConditionalGeneration"]
    mtp = deepseek_module(name, target, folder, others, architectures=architectures)
    rotated = int(mtp.config.head_dim * mtp.config.rope_parameters["partial_rotary_factor"])
    state = named(mtp.layers[0].state_dict(), "transformers")
    plain = plain_of(state, target, mtp.config, rotated=rotated, adjacent_pairs=True)
    return Case(plain, "normed", transformers_logits(mtp, target))


def mimo(name, target, folder):
    from transformers.modeling_layers import MtpModel

    main = main_model(target)
    main.config.mtp_hidden_states_first = True
    mtp = MtpModel(main, 1).eval()
    fill(name, mtp.layers.named_parameters(), None, GAINS)
    state = named(mtp.layers[0].state_dict(), "transformers")
    theirs = {name: key for key, name in NAMES["mimo"].items()}
    tensors = {}
    for key, tensor in state.items():
        part, kind = key.rsplit(".", 1)
        tensors[f"model.mtp_layers.0.{theirs.get(part, part)}.{kind}"] = tensor
    config = target.model.config
    written = {
        **config.to_diff_dict(),
        "architectures": ["MiMoForCausalLM"],
        "model_type": "mimo",
        "num_nextn_predict_layers": 1,
        "rope_theta": config.rope_parameters["rope_theta"],
        "rope_scaling": None,
        "torch_dtype": "float32",
    }
    del written["rope_parameters"], written["dtype"]
    write(folder, tensors, written)
    return Case(plain_of(state, target, mtp.config, hidden_first=True), "normed", transformers_logits(mtp, target))


# --- speculators ------------------------------------------------------------------------------------------------------


def speculators_model(layer, target):
    from speculators import SpeculatorsConfig, VerifierConfig
    from speculators.models.mtp import MTPDraftModel, MTPSpeculatorConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig

    layer._attn_implementation = "eager"
    model = MTPDraftModel(
        MTPSpeculatorConfig(
            transformer_layer_config=layer,
            speculators_config=SpeculatorsConfig(
                algorithm="mtp",
                proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=DEPTHS)],
                default_proposal_method="greedy",
                verifier=VerifierConfig(
                    name_or_path=f"target-{target.name}", architectures=[type(target.model).__name__]
                ),
            ),
        )
    ).eval()
    del model.verifier_lm_head  # as the class does once it has the target's weights
    with torch.no_grad():
        model.embed_tokens.weight.copy_(target.embedding)
        model.lm_head.weight.copy_(target.model.lm_head.weight)
    return model


@torch.no_grad()
def speculators_logits(model, target, states):
    """All rows at once, those of each depth after those of the one before."""
    from speculators.models.mtp.core import _prepare_mtp_position_ids

    n, found = LENGTH - 1, []
    state, starts, depths = states[:n], torch.arange(n), torch.zeros(n, dtype=torch.long)
    for depth in range(DEPTHS):
        tokens, kind = target.tokens[starts + depths + 1], model.config.transformer_layer_config.model_type
        same = starts[:, None] == starts
        visible = ((depths == 0) & (starts <= starts[:, None])) | (same & (depths <= depths[:, None]))
        positions, turned = _prepare_mtp_position_ids((starts + depths)[None], len(starts), kind)
        out = model.mtp_layers[0](
            hidden_states=state[None],
            token_embeddings=model.embed_tokens(tokens)[None],
            attention_mask=torch.zeros(visible.shape).masked_fill(~visible, -torch.inf)[None, None],
            position_ids=positions,
            position_embeddings=model.rotary_emb(state[None], turned),
        )[0]
        last = out[-(n - depth):]
        found.append(model.lm_head(last))
        if depth == 0:  # this much the class computes by itself in the same way
            own = model(input_ids=target.tokens[None], hidden_states=states[None])[0][0][0]
            check_agreement("speculators", [found[0][:len(own)]], [own])
        state, starts = torch.cat([state, last[:-1]]), torch.cat([starts, torch.arange(n - depth - 1)])
        depths = torch.cat([depths, torch.full((n - depth - 1,), depth + 1)])
    return found


def speculators(name, target, folder):
    layer = transformers.Qwen3Config(**{**LAYER, "num_hidden_layers": len(target.entering), "head_dim": 16})
    model = speculators_model(layer, target)
    fill(name, model.mtp_layers.named_parameters(), None)
    model.save_pretrained(folder)
    plain = plain_of(named(model.mtp_layers[0].state_dict(), "mimo"), target, layer)
    return Case(plain, "raw", speculators_logits(model, target, target.last))


def qwen(name, target, folder):
    """Qwen3.5's layer. Read by speculators' converter, by the names of Qwen's files."""
    from speculators.convert.mtp.converter import MTP_EXACT_REMAP, MTP_PREFIX_REMAP, MTPConverter

    rope = dict(rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.25)
    layer = transformers.Qwen3_5TextConfig(
        **{**LAYER, "num_hidden_layers": len(target.entering), "head_dim": 32},
        rope_parameters=rope,
        architectures=["Qwen3_5ForCausalLM"],
        mtp_num_hidden_layers=1,
    )
    model = speculators_model(layer, target)
    fill(name, model.mtp_layers.named_parameters(), None)
    with torch.no_grad():
        for key, parameter in model.mtp_layers.named_parameters():
            if "norm" in key:
                parameter.sub_(1)  # the class adds 1
    tensors = {}
    for key, tensor in model.mtp_layers.state_dict().items():
        key = f"mtp_layers.{key}"
        whole = {ours: theirs for theirs, ours in MTP_EXACT_REMAP.items()}
        if key in whole:
            tensors[whole[key]] = tensor
            continue
        theirs, ours = next((theirs, ours) for theirs, ours in MTP_PREFIX_REMAP if key.startswith(ours))
        tensors[theirs + key.removeprefix(ours)] = tensor
    write(folder, tensors, {**layer.to_diff_dict(), "dtype": "float32"})
    model.load_state_dict(MTPConverter().convert_to_state_dict(folder), strict=False)
    state = {key.removeprefix("mtp."): tensor for key, tensor in tensors.items()}
    plain = plain_of(named(state, "qwen"), target, layer, has_gate=True, norms_add=1, rotated=8)
    return Case(plain, "normed", speculators_logits(model, target, target.last_normed))


# --- GGUF -------------------------------------------------------------------------------------------------------------


def check_gguf(name, file, target, case):
    """That the file has the target's layers and the same module after them."""
    import gguf

    read, n_layers = gguf.GGUFReader(file), target.model.config.num_hidden_layers
    keys = {key: read.fields[f"glm4.{key}"].contents() for key in ("block_count", "nextn_predict_layers")}
    if keys != {"block_count": n_layers + 1, "nextn_predict_layers": 1}:
        raise SystemExit(f"{name}: the converter wrote {keys}")
    tensors, prefix = {}, f"blk.{n_layers}."
    for tensor in read.tensors:
        if tensor.name.startswith(prefix):
            part, kind = tensor.name.removeprefix(prefix).rsplit(".", 1)
            tensors[f"{GGUF_NAMES[part]}.{kind}"] = torch.tensor(tensor.data)
    embedding, plain = tensors.pop("embed_tokens.weight"), dataclasses.replace(case.plain, tensors=apart(tensors))
    if plain.tensors.keys() != case.plain.tensors.keys():
        raise SystemExit(f"{name}: the converter left tensors out")
    found = plain.logits(embedding[target.tokens[1:]], target.last_normed[:LENGTH - 1], DEPTHS)
    print(f"{name}: agreement {check_agreement(name, found, case.logits):.0e}", flush=True)


# --- all of them ------------------------------------------------------------------------------------------------------


def check(name, target, case):
    taken = dict(normed=lambda x: x.last_normed, raw=lambda x: x.last)

    def computed(plain=case.plain, states=taken[case.state](target), shift=0, embedding=target.embedding):
        return plain.logits(embedding[target.tokens[1:]], states[shift:LENGTH - 1 + shift], DEPTHS)

    plain, replace = case.plain, dataclasses.replace
    agreement = check_agreement(name, computed(), case.logits)
    mistakes = {
        "shift": computed(shift=1),
        "other state": computed(states=taken["raw" if case.state == "normed" else "normed"](target)),
        "order": computed(replace(plain, hidden_first=not plain.hidden_first)),
        "fed back": computed(replace(plain, feeds_back_normed=not plain.feeds_back_normed)),
        "rope theta": computed(replace(plain, rope_theta=plain.rope_theta / 20)),
        "rope pairs": computed(replace(plain, adjacent_pairs=not plain.adjacent_pairs)),
    }
    swapped = {"mlp.gate_proj.weight": "mlp.up_proj.weight", "mlp.up_proj.weight": "mlp.gate_proj.weight"}
    tensors = {swapped.get(key, key): tensor for key, tensor in plain.tensors.items()}
    mistakes["gate as up"] = computed(replace(plain, tensors=tensors))
    if case.raw:
        check_agreement(name, mistakes["fed back"], case.raw)
    if plain.rotated:
        mistakes["all channels turned"] = computed(replace(plain, rotated=None))
    if target.name in WITH_HEADS:
        tensors = {**plain.tensors, "norm.weight": target.model.model.norm.weight.detach()}
        mistakes["target's last norm"] = computed(replace(plain, tensors=tensors))
    if plain.norms_add:
        mistakes["weights of norms"] = computed(replace(plain, norms_add=0))
    if plain.has_gate:
        key = "self_attn.q_proj.weight"
        rows = plain.tensors[key].unflatten(0, (-1, 2, plain.head_dim))
        others = {"gate first": rows.flip(1), "gates after queries": rows.transpose(0, 1), "no gate": rows[:, :1]}
        for mistake, weight in others.items():
            tensors = {**plain.tensors, key: weight.reshape(-1, rows.shape[-1])}
            mistakes[mistake] = computed(replace(plain, tensors=tensors, has_gate=mistake != "no gate"))
    for key in plain.tensors:
        if "norm" in key or key.endswith(".bias"):
            key = key.removesuffix(".weight")
            mistakes[f"no {key}"] = computed(replace(plain, without=(key,)))
    least = {mistake: distance(found, case.logits) for mistake, found in mistakes.items()}
    rounded = computed(states=taken[case.state](target.rounded))
    report(name, case.logits, agreement, least, distance(rounded, case.logits))


HEADS = {
    "mtp-deepseek": ("llama", deepseek),
    "mtp-mimo": ("qwen2", mimo),
    "mtp-qwen": ("llama", qwen),
    "mtp-speculators": ("llama", speculators),
    "gguf-mtp": ("glm4", glm4),
}
GGUF = {}


def pack(name, target, work_of, convert):
    work, is_whole = work_of(name), target.name in WITH_HEADS
    source = work / ("model" if is_whole else "head")
    case = HEADS[name][1](name, target, source)
    check(name, target, case)
    if is_whole:
        convert(source, work / "model.gguf", lambda made: None)
        check_gguf(name, work / "model.gguf", target, case)
    matrices = by_depth(case.logits)
    if case.raw:
        matrices.update({f"{file}-raw": matrix for file, matrix in list(by_depth(case.raw).items())[1:]})
    return [pack_head(name, work, target, matrices, None, 16 if is_whole else 32, state=case.state)]
