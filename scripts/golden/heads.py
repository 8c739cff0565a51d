#!/usr/bin/env python3
# requirements: torch==2.15.0 transformers==5.24.0 gguf==0.19.0 numpy==2.3.5 sentencepiece==0.2.1 safetensors==0.8.0 scikit-build-core==1.1.2 pydantic==2.12.5 pydantic-settings==2.12.0 loguru==0.7.3 openai==3.57.0 datasets==5.1.0
# requirements without theirs: speculators==0.9.0 hs-connectors==0.9.0 specforge==0.2.0 medusa-llm==0.1 eagle-llm==1.2.1 dflash==0.1.0
"""Makes tests/golden/heads/: small random models with learned heads (EAGLE-3, Li et al. 2025, arXiv:2503.01840; Medusa,
Cai et al. 2024, arXiv:2401.10774; EAGLE-1: heads_eagle1.py; MTP: heads_mtp.py; DFlash and DSpark: heads_block.py) in
the files of each producer, and what the producer's class computes in float32.

    scripts/golden/heads.py FOLDER [NAME...]    FOLDER as for families.py; NAME: of archives, all unless given

target-NAME.tar.xz holds model.gguf, a target as llama.cpp's converter writes it in F32, without a vocabulary.
HEAD.tar.xz holds

head/            config.json and model.safetensors, for Medusa or medusa_lm_head.safetensors, in F32; or instead
head.gguf        what llama.cpp's converter makes of another of these heads; or
model.gguf       a target with its head, as the converter writes it
expected.json    target       whose: target-NAME, or HEAD where model.gguf has both
                 tokens       [80]: the text, which crosses position 64, where the pages of a cache end
                 input_ids    EAGLE-3, DFlash, DSpark: taps, the states that enter these layers of the target, from 0:
                              what enters layer k leaves layer k - 1, and the embedding enters layer 0
                 state        EAGLE-1, MTP: what is taken of the target, "normed" its state after its last norm, "raw"
                              before
                 anchors, block_size, sample_from_anchor, mask_token    DFlash and DSpark
                 d2t          [draft vocabulary]: the target's token of each output; null: all tokens, as they are
                 columns      the target's tokens whose logits are kept, in order: d2t, or every fourth, eighth or
                              sixteenth of all
depthD.npy       EAGLE, MTP, Medusa: D = 1, 2, 3: logits, float32 [rows][columns], rounded to 2^-14
depthD-raw.npy   mtp-deepseek: D = 2, 3, what is fed back is the module's state before its last norm; in depthD.npy of
                 all MTP it is that after the last norm
base.npy, markov.npy, confidence.npy, base-window-by-row.npy    DFlash and DSpark, in the same format

EAGLE-1 and -3, MTP: the head's row at position p takes token p and what the target computed at position p - 1, and
predicts token p + 1. RoPE turns it by p, or by p - 1, which is the same. Position 0 has no row, and nobody attends to
it. Row i of depthD.npy starts at position s = i + 1: rows 1 to s have states of the target; rows s + 1 to s + D - 1
follow the text's own tokens, and each takes the state of the head's row before it instead. The logits are those of row
s + D - 1, of token s + D: there are 80 - D rows.

Medusa: row i of depthD.npy is what head D - 1 (from 0) says at position i, of token i + 1 + D: 80 rows.

DFlash, DSpark: a block at position a, an anchor, has the states of positions 0 to a - 1, and block_size rows: of token
a, then of mask_token, at positions a, a + 1... Its P rows that predict are all of them if sample_from_anchor, otherwise
all but the first, so P = block_size - 1. Row n P + i of the files is of the block at anchors[n], and of token
anchors[n] + 1 + i. base.npy has its logits before a Markov head; markov.npy with it, after the text's own token, which
is that at position anchors[n] + i; confidence.npy its confidence, one number, before the sigmoid, after that token.
base-window-by-row.npy has what base.npy would be if windows were as other programs have them than the class
(heads_block.py); heads_plain.py computed it.

The classes are those of speculators, of SpecForge, for Medusa of FasterDecoding, for EAGLE-1 of SafeAILab, for DFlash
of z-lab and for MTP of transformers, run over the whole text at once, as in training, except the last three.
SafeAILab's class of EAGLE-3 and DeepSpec's are in no package: SpecForge's and speculators' compute the same, and we
write the files. Medusa's other layouts are computed by heads_plain.py, which agrees with each class here. Each head is
also computed with mistakes: each of these must change its logits by far more than a test tolerates.
"""

import dataclasses
import json
import logging
import pathlib
import sys
import tempfile
import types
import warnings

import loguru
import safetensors.torch
import torch
import transformers

import families
import heads_block
import heads_eagle1
import heads_mtp
import heads_plain
import packing
from heads_common import (
    AGREEMENT,
    DEPTHS,
    DRAFT_VOCABULARY,
    GGUF_LAYER_NAMES,
    LAYER,
    LENGTH,
    TARGETS,
    VOCABULARY,
    WITH_HEADS,
    Target,
    by_depth,
    check_agreement,
    distance,
    fill,
    pack_head,
    random_d2t,
    report,
)


@dataclasses.dataclass
class Case:
    """An EAGLE-3 head: files are written to a folder, and logits are those of its producer's class."""

    plain: heads_plain.Eagle
    input_ids: list
    d2t: torch.Tensor | None
    logits: list
    embedding: torch.Tensor


def plain_of(state, config, **special):
    """heads_plain's head of a state of any layout."""
    tensors = {
        key.removeprefix("midlayer.").removeprefix("layers.0."): value.detach().clone()
        for key, value in state.items()
        if not key.startswith("verifier")
    }
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return heads_plain.Eagle(tensors, head_dim, config.rope_parameters["rope_theta"], config.rms_norm_eps, **special)


# --- speculators ------------------------------------------------------------------------------------------------------


def speculators_case(name, target, input_ids, layer, embedding, n_draft, **flags):
    """The class with random weights, and what it says."""
    from speculators import SpeculatorsConfig, VerifierConfig
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig, shift_batch
    from speculators.proposals.greedy import GreedyTokenProposalConfig

    layer._attn_implementation = "eager"
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layer,
        draft_vocab_size=n_draft,
        eagle_aux_hidden_state_layer_ids=input_ids,
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=DEPTHS)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=f"target-{target.name}", architectures=[type(target.model).__name__]),
        ),
        **flags,
    )
    model = Eagle3DraftModel(config).eval()
    fill(name, model.named_parameters(), embedding)
    d2t = None
    if n_draft != VOCABULARY:
        d2t = random_d2t(name)
        model.load_vocab_mappings(
            torch.zeros(VOCABULARY, dtype=torch.bool).index_fill_(0, d2t, True), d2t - torch.arange(n_draft)
        )

    found, unused = [], torch.zeros(LENGTH)
    model.lm_head.register_forward_hook(lambda module, inputs, output: found.append(output[0]))
    batch = shift_batch(
        dict(
            input_ids=target.tokens,
            hidden_states=target.entering[input_ids].transpose(0, 1).flatten(1),
            loss_mask=unused,
            verifier_last_hidden_states=unused,
            lengths=torch.tensor([LENGTH]),
            position_ids=torch.arange(LENGTH),
        )
    )
    with torch.no_grad():
        model(
            **{key: batch[key][None] for key in ("input_ids", "hidden_states", "position_ids")},
            document_ids=torch.zeros((1, LENGTH - 1), dtype=torch.long),
            ttt_steps=DEPTHS,
        )
    plain = plain_of(
        model.state_dict(),
        layer,
        norm_before_residual=config.norm_before_residual,
        feeds_back_normed=config.norm_output,
    )
    return model, Case(plain, input_ids, d2t, found, embedding)


def speculators_head(name, target, folder, *, input_ids, kind="LlamaConfig", layer=None, **flags):
    layer = getattr(transformers, kind)(**{**LAYER, **(layer or {})})
    model, case = speculators_case(name, target, input_ids, layer, target.embedding, DRAFT_VOCABULARY, **flags)
    model.save_pretrained(folder)
    return case


# --- SpecForge, SafeAILab ---------------------------------------------------------------------------------------------


def specforge_model(name, target, **special):
    from specforge.modeling.draft import LlamaForCausalLMEagle3

    config = transformers.LlamaConfig(
        **{**LAYER, "draft_vocab_size": DRAFT_VOCABULARY, "architectures": ["LlamaForCausalLMEagle3"], **special}
    )
    model = LlamaForCausalLMEagle3(config).eval()
    fill(name, model.named_parameters(), target.embedding)
    d2t = random_d2t(name)
    model.d2t.copy_(d2t - torch.arange(DRAFT_VOCABULARY))
    model.t2d.fill_(False).index_fill_(0, d2t, True)
    return model, config, d2t


@torch.no_grad()
def specforge_logits(model, target, input_ids):
    """As SpecForge's OnlineEagle3Model calls the class in training."""
    n, tokens, found = LENGTH - 1, target.tokens[None, 1:], []
    state = model.project_hidden_states(target.taps(input_ids).flatten(1)[None])
    mask = model.prepare_decoder_attention_mask(
        attention_mask=torch.ones((1, n), dtype=torch.bool),
        hidden_states=state,
        batch_size=1,
        seq_length=n,
        past_key_values_length=0,
    )
    cache = [[], []]
    for _ in range(DEPTHS):
        state = model.backbone(
            input_embeds=model.embed_input_ids(tokens),
            hidden_states=state,
            cache_hidden=cache,
            attention_mask=mask,
            position_ids=torch.arange(n)[None],
        )
        found.append(model.compute_logits(state)[0])
        tokens = torch.nn.functional.pad(tokens[:, 1:], (0, 1))
    return found


def specforge_head(name, target, folder, *, input_ids, **special):
    """Written by the last steps of SpecForge's export for SGLang; its first ones make the weights BF16."""
    from specforge.export.checkpoint_io import apply_legacy_rope_scaling
    from specforge.export.to_sglang import _serving_state

    model, config, d2t = specforge_model(name, target, **special)
    logits = specforge_logits(model, target, input_ids)
    plain = plain_of(model.state_dict(), config)
    model.save_pretrained(
        folder,
        state_dict=_serving_state({key: value for key, value in model.state_dict().items() if "embed" not in key}, {}),
    )
    apply_legacy_rope_scaling(folder)
    return Case(plain, input_ids, d2t, logits, target.embedding)


def official_head(name, target, folder):
    """The configuration has what the published ones have: no rope_theta, no layers."""
    n_layers = len(target.entering)
    input_ids = [2, n_layers // 2, n_layers - 3]
    model, config, d2t = specforge_model(
        name, target, rms_norm_eps=1e-5, rope_parameters=dict(rope_type="default", rope_theta=10000.0)
    )
    folder.mkdir()
    kept = (
        "hidden_size intermediate_size max_position_embeddings num_attention_heads num_key_value_heads rms_norm_eps "
        "num_hidden_layers vocab_size draft_vocab_size hidden_act initializer_range model_type tie_word_embeddings"
    ).split()
    written = dict(
        architectures=["LlamaForCausalLM"],
        torch_dtype="float32",
        transformers_version="4.28.1",
        **{key: getattr(config, key) for key in kept},
    )
    (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    safetensors.torch.save_file(
        {key: value.contiguous() for key, value in model.state_dict().items() if "embed" not in key},
        folder / "model.safetensors",
    )
    return Case(
        plain_of(model.state_dict(), config),
        input_ids,
        d2t,
        specforge_logits(model, target, input_ids),
        target.embedding,
    )


# --- DeepSpec ---------------------------------------------------------------------------------------------------------


def deepspec_head(name, target, folder):
    """Qwen3's layer with its norms of queries and keys, five taps, an embedding and an output of its own for all
    tokens. speculators' class of these options computes the same, with the same names."""
    output_ids = [0, 2, 3, 4, 6]
    config = transformers.Qwen3Config(
        **{**LAYER, "head_dim": 32},
        architectures=["Qwen3Eagle3Model"],
        num_target_layers=len(target.entering),
        target_model_name_or_path=f"target-{target.name}",
        target_layer_ids=output_ids,
        ttt_length=7,
        step_loss_decay=0.8,
        draft_num_hidden_layers=1,
        rope_parameters=dict(rope_type="default", rope_theta=5000.0),
    )
    config.save_pretrained(folder)
    embedding = families.few_numbers(torch.Generator().manual_seed(1), target.embedding.shape, 0.125)
    model, case = speculators_case(name, target, [i + 1 for i in output_ids], config, embedding, VOCABULARY)
    state = {key: value for key, value in model.state_dict().items() if not key.startswith("verifier")}
    safetensors.torch.save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return case


# --- GGUF -------------------------------------------------------------------------------------------------------------

GGUF_NAMES = {
    **GGUF_LAYER_NAMES,
    "token_embd": "embed_tokens",
    "fc": "fc",
    "enc.output_norm": "input_norm",
    "attn_norm_2": "hidden_norm",
    "output_norm": "norm",
    "output": "lm_head",
}


def check_gguf(name, file, target, case):
    """That the file means the same head; its rows of queries and keys are in the order of pairs of channels."""
    import gguf

    read = gguf.GGUFReader(file)
    tensors = {tensor.name.removeprefix("blk.0."): torch.tensor(tensor.data) for tensor in read.tensors}
    written = read.fields["eagle3.target_layers"].contents(), tensors.pop("d2t").tolist()
    if written != (case.input_ids, case.d2t.tolist()):
        raise SystemExit(f"{name}: the converter wrote other taps or tokens")
    plain = dataclasses.replace(
        case.plain,
        adjacent_pairs=True,
        tensors={f"{GGUF_NAMES[key.removesuffix('.weight')]}.weight": tensor for key, tensor in tensors.items()},
    )
    agreement = distance(
        plain.logits(case.embedding[target.tokens[1:]], target.taps(case.input_ids), DEPTHS), case.logits
    )
    if agreement > AGREEMENT:
        raise SystemExit(f"{name}: the converter's head differs by {agreement:.1e} of the largest logit")
    print(f"{name}: agreement {agreement:.0e}", flush=True)


# --- mistakes ---------------------------------------------------------------------------------------------------------


def check_eagle(name, target, case):
    """That heads_plain computes the same, and that each mistake shows."""

    def logits(plain=case.plain, taps=target.taps(case.input_ids), embedding=case.embedding):
        return plain.logits(embedding[target.tokens[1:]], taps, DEPTHS)

    case.logits = [x[:LENGTH - depth] for depth, x in enumerate(case.logits, 1)]
    agreement = check_agreement(name, logits(), case.logits)
    plain, replace, ids = case.plain, dataclasses.replace, case.input_ids
    mistakes = {
        "shift": logits(taps=target.taps(ids, shift=1)),
        "taps reversed": logits(taps=target.taps(ids[::-1])),
        "residual": logits(replace(plain, norm_before_residual=not plain.norm_before_residual)),
        "fed back": logits(replace(plain, feeds_back_normed=not plain.feeds_back_normed)),
        "rope theta": logits(replace(plain, rope_theta=plain.rope_theta / 20)),
        "rope pairs": logits(replace(plain, adjacent_pairs=True)),
    }
    if plain.eps > 1e-4:
        mistakes["target's epsilon"] = logits(replace(plain, eps=1e-6))
    for i, tap in enumerate(ids):
        for other in (tap - 1, tap + 1):
            if other < len(target.entering):
                mistakes[f"tap {tap} as {other}"] = logits(taps=target.taps([*ids[:i], other, *ids[i + 1:]]))
    width = case.embedding.shape[1]
    swapped = {
        key: value.roll(width, 1) if key[10:16] in ("q_proj", "k_proj", "v_proj") else value
        for key, value in plain.tensors.items()
    }
    mistakes["hidden first"] = logits(replace(plain, tensors=swapped))
    for key in plain.tensors:
        if "norm" in key:
            key = key.removesuffix(".weight")
            mistakes[f"no {key}"] = logits(replace(plain, without=(key,)))
    if case.embedding is not target.embedding:
        mistakes["target's embedding"] = logits(embedding=target.embedding)
    least = {mistake: distance(found, case.logits) for mistake, found in mistakes.items()}
    report(name, case.logits, agreement, least)


# --- Medusa -----------------------------------------------------------------------------------------------------------


def medusa_heads(name, n_blocks, has_bias, n_rows):
    """As heads_plain takes them; n_rows: of outputs; None: the target's."""
    generator = torch.Generator().manual_seed(sum(name.encode()))
    width = LAYER["hidden_size"]

    def random(*shape, gain=1):
        return families.few_numbers(generator, shape, gain / width**0.5)

    return [
        (
            [(random(width, width), random(width, gain=4) if has_bias else None) for _ in range(n_blocks)],
            random(n_rows, width, gain=2) if n_rows else None,
        )
        for _ in range(DEPTHS)
    ]


def medusa_class(target, heads):
    """FasterDecoding's class with these heads; its file imports a copy of Llama for old releases of transformers, and a
    tokenizer: neither is used."""
    sys.modules["medusa.model.modeling_llama_kv"] = types.SimpleNamespace(LlamaForCausalLM=None)
    from medusa.model import medusa_model

    medusa_model.AutoTokenizer = types.SimpleNamespace(from_pretrained=lambda name: None)
    model = medusa_model.MedusaModel(target.model, medusa_num_heads=DEPTHS, medusa_num_layers=1).eval()
    with torch.no_grad():
        for head, (((weight, bias),), output) in zip(model.medusa_head, heads):
            head[0].linear.weight.copy_(weight)
            head[0].linear.bias.copy_(bias)
            head[1].weight.copy_(output)
    return model


def check_medusa(name, target, heads, logits):
    plain = heads_plain.medusa_logits(heads, target.last_normed)
    mistakes = {
        "not normed": heads_plain.medusa_logits(heads, target.last),
        "shift": heads_plain.medusa_logits(heads, target.last_normed.roll(1, 0)),
        "heads reversed": plain[::-1],
        "no block": heads_plain.medusa_logits([(blocks[:-1], output) for blocks, output in heads], target.last_normed),
    }
    if heads[0][0][0][1] is not None:
        mistakes["no bias"] = heads_plain.medusa_logits(
            [([(weight, None) for weight, _ in blocks], output) for blocks, output in heads], target.last_normed
        )
    agreement = check_agreement(name, plain, logits)
    report(name, logits, agreement, {mistake: distance(found, logits) for mistake, found in mistakes.items()})


def write_medusa(folder, file, tensors, config):
    folder.mkdir()
    safetensors.torch.save_file({key: value.contiguous() for key, value in tensors.items()}, folder / file)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def medusa_official(name, target, folder):
    """Two heads in the configuration where the file has three, as published ones do."""
    heads = medusa_heads(name, 1, True, VOCABULARY)
    model = medusa_class(target, heads)
    with torch.no_grad():
        logits = list(model(target.tokens[None])[:, 0])
    write_medusa(
        folder,
        "medusa_lm_head.safetensors",
        model.medusa_head.state_dict(),
        dict(medusa_num_heads=2, medusa_num_layers=1, base_model_name_or_path=f"target-{target.name}"),
    )
    return heads, logits, None


def medusa_tgi(name, target, folder):
    """Text Generation Inference's: the outputs are the target's."""
    output = target.model.lm_head.weight.detach()
    heads = [(blocks, output) for blocks, _ in medusa_heads(name, 1, True, None)]
    tensors = {}
    for h, (((weight, bias),), _) in enumerate(heads):
        tensors[f"{h}.0.linear.weight"], tensors[f"{h}.0.linear.bias"] = weight, bias
    write_medusa(
        folder,
        "medusa_lm_head.safetensors",
        tensors,
        dict(medusa_num_heads=DEPTHS, medusa_num_layers=1, base_model_name_or_path=f"target-{target.name}"),
    )
    return heads, heads_plain.medusa_logits(heads, target.last_normed), None


def medusa_vllm(name, target, folder, prefix, is_shared):
    """vLLM's: two blocks, and outputs for the tokens in token_map. is_shared: all heads have one output, whose file has
    rows for all tokens, blocks have biases, and logits a factor."""
    d2t, scale = random_d2t(name).flip(0), 0.5 if is_shared else 1.0  # token_map may have any order
    heads = medusa_heads(name, 2, is_shared, VOCABULARY if is_shared else DRAFT_VOCABULARY)
    tensors = {f"{prefix}token_map": d2t}
    if is_shared:
        tensors[f"{prefix}lm_heads.0.weight"] = heads[0][1]
        heads = [(blocks, heads[0][1][d2t]) for blocks, _ in heads]
    for h, (blocks, output) in enumerate(heads):
        for i, (weight, bias) in enumerate(blocks):
            tensors[f"{prefix}blocks.{h}.layers.{i}.weight"] = weight
            if is_shared:
                tensors[f"{prefix}blocks.{h}.layers.{i}.bias"] = bias
        if not is_shared:
            tensors[f"{prefix}lm_heads.{h}.weight"] = output
    write_medusa(
        folder,
        "model.safetensors",
        tensors,
        dict(
            architectures=["MedusaModel"],
            model_type="medusa",
            hidden_size=LAYER["hidden_size"],
            num_heads=DEPTHS,
            num_hidden_layers=2,
            vocab_size=VOCABULARY,
            truncated_vocab_size=DRAFT_VOCABULARY,
            medusa_fc_bias=is_shared,
            original_lm_head=is_shared,
            logit_scale=scale,
        ),
    )
    heads = [(blocks, output * scale) for blocks, output in heads]
    return heads, heads_plain.medusa_logits(heads, target.last_normed), d2t


# --- all of them ------------------------------------------------------------------------------------------------------

EAGLE = {
    "speculators": ("llama", speculators_head, dict(input_ids=[2, 4, 5])),
    "speculators-residual": (
        "llama",
        speculators_head,
        dict(input_ids=[1, 4, 7], norm_before_residual=True, layer=dict(rms_norm_eps=1e-2)),
    ),
    "speculators-input-norm": (
        "qwen2",
        speculators_head,
        dict(input_ids=[2, 3, 4], norm_before_fc=True, norm_before_residual=True, layer=dict(head_dim=32)),
    ),
    "speculators-qwen3": (
        "llama",
        speculators_head,
        dict(input_ids=[1, 3, 4, 6, 7], kind="Qwen3Config", layer=dict(head_dim=16)),
    ),
    "speculators-eagle31": ("llama", speculators_head, dict(input_ids=[2, 4, 5], fc_norm=True, norm_output=True)),
    "specforge": (
        "llama",
        specforge_head,
        dict(
            input_ids=[2, 4, 5],
            eagle_config=dict(use_aux_hidden_state=True, eagle_aux_hidden_state_layer_ids=[1, 3, 4]),
            rms_norm_eps=1e-2,
            rope_parameters=dict(rope_type="default", rope_theta=2000.0),
        ),
    ),
    "specforge-fc-norm": ("llama", specforge_head, dict(input_ids=[2, 4, 5], fc_norm=True)),
    "official": ("llama", official_head, {}),
    "deepspec": ("llama", deepspec_head, {}),
}
# Of which head llama.cpp's converter makes which other.
GGUF = {"specforge": "gguf", "speculators-input-norm": "gguf-input-norm"}
MEDUSA = {
    "medusa": ("llama", medusa_official, {}),
    "medusa-tgi": ("qwen2", medusa_tgi, {}),
    "medusa-vllm": ("llama", medusa_vllm, dict(prefix="medusa_heads.", is_shared=False)),
    "medusa-vllm-shared": ("llama", medusa_vllm, dict(prefix="", is_shared=True)),
}


def main():
    folder, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    (packing.GOLDEN / "heads").mkdir(exist_ok=True)
    logging.disable(logging.WARNING)
    loguru.logger.disable("speculators")
    transformers.utils.logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    get_model_class = families.converter(folder)
    targets, sizes = {name: Target(name) for name in (*TARGETS, *WITH_HEADS)}, []

    def is_wanted(name):
        return not names or name in names

    with tempfile.TemporaryDirectory(dir=folder) as sources:
        sources = pathlib.Path(sources)

        def work_of(name):
            work = sources / f"head-{name}"
            work.mkdir()
            return work

        for name in TARGETS:
            targets[name].model.save_pretrained(sources / name)
            families.convert(get_model_class, name, sources / name, sources / "model.gguf", file_type="ALL_F32")
            if is_wanted(f"target-{name}"):
                model = (sources / "model.gguf").read_bytes()
                sizes.append(packing.pack(f"heads/target-{name}", {"model.gguf": model}))
        for name, (target, make, special) in EAGLE.items():
            if not is_wanted(name) and not is_wanted(GGUF.get(name)):
                continue
            work = work_of(name)
            case = make(name, targets[target], work / "head", **special)
            check_eagle(name, targets[target], case)
            expected = (targets[target], by_depth(case.logits), case.d2t)
            sizes.append(pack_head(name, work, *expected, input_ids=case.input_ids))
            if name in GGUF:
                out = work / "head.gguf"
                target_model = sources / target
                families.convert(
                    get_model_class, name, work / "head", out, file_type="ALL_F32", target_model_dir=target_model
                )
                check_gguf(GGUF[name], out, targets[target], case)
                for file in work.glob("head/*"):
                    file.unlink()
                sizes.append(pack_head(GGUF[name], work, *expected, input_ids=case.input_ids))
        for name, (target, make, special) in MEDUSA.items():
            if not is_wanted(name):
                continue
            work = work_of(name)
            heads, logits, d2t = make(name, targets[target], work / "head", **special)
            check_medusa(name, targets[target], heads, logits)
            sizes.append(pack_head(name, work, targets[target], by_depth(logits), d2t))
        for module in (heads_eagle1, heads_block, heads_mtp):
            for name, (target, *_) in module.HEADS.items():
                if not is_wanted(name) and not is_wanted(module.GGUF.get(name)):
                    continue

                def convert(head, out, change, target=target):
                    options = dict(file_type="ALL_F32", target_model_dir=sources / target)
                    families.convert(get_model_class, "", head, out, change, **options)

                sizes.extend(module.pack(name, targets[target], work_of, convert))
    print(f"{len(sizes)} archives, {sum(sizes)} bytes")


if __name__ == "__main__":
    main()
