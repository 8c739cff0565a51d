#!/usr/bin/env python3
# requirements: torch==2.15.0 transformers==5.24.0 gguf==0.19.0 numpy==2.3.5 sentencepiece==0.2.1 safetensors==0.8.0 scikit-build-core==1.1.2 pydantic==2.12.5 pydantic-settings==2.12.0 loguru==0.7.3 openai==3.57.0 datasets==5.1.0
# requirements without theirs: speculators==0.9.0 hs-connectors==0.9.0 specforge==0.2.0 medusa-llm==0.1 eagle-llm==1.2.1 dflash==0.1.0
"""Makes tests/golden/toy_heads.*: trained heads of further kinds for the target of toy.tar.xz, and what their reference
code says of its texts. Why trained ones: toy.py.

    scripts/golden/toy_heads.py FOLDER [STAGE...]    in toy_heads/ FOLDER receives what each stage makes: a run goes on
                                                     where an earlier one ended. STAGE: texts or heads, all unless given

The heads learn from texts that the target writes by itself, so no text is needed: each begins with a token of the
held-out texts, and the others are drawn at temperature 1.

toy_heads.tar.xz holds heads without embedding and output, which are the target's, in F16:

eagle1/      by SafeAILab's class and loss, but over two depths (as in HASS, arXiv:2408.15766) and with another weight,
             in its layout
mtp/         a layer for multi-token prediction by speculators' class and in its layout: takes the target's state
             before the last norm, and feeds back its own after its last norm, which is random and was not trained;
             trained over two depths
dflash/      two layers by z-lab's class and in its layout: blocks of 6 rows, of which 5 predict
dspark/      two layers with a sliding window of 12 positions, a Markov head and confidences, by speculators' class and
             loss and in its layout: blocks of 4 rows, which all predict and see each other
eagle1.npy, mtp.npy   u16 [3, 32, 256]  as eagle3.npy in toy.py, with the target's last state for its features
dflash.npy   u16 [5, 32, 64]  [g, t, i]: what row g + 1 of the block whose anchor is at position 4 + 4 i of text t holds
             for most probable, of the token at position 4 + 4 i + 1 + g
dspark.npy   u16 [4, 32, 64]  [g, t, i]: row g, of the same token, after the text's own token before it

toy_heads.json says, in percent, how many answers are the target's own after the same text: those of each head at each
depth or row, and those of each head read wrongly (mutants). dspark_confidence has the means of the confidence, in
percent, of each row where it is right and where it is not. It also has the losses in training.

Answers are computed in float32 from weights rounded to F16.
"""

import copy
import dataclasses
import io
import json
import logging
import math
import os
import pathlib
import sys
import tarfile
import types

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import safetensors.torch
import torch
import transformers
from torch.nn.functional import cross_entropy, smooth_l1_loss

import heads_eagle1
import heads_mtp
import packing
from heads_common import GGUF_LAYER_NAMES
from toy import (
    BATCH,
    DEPTHS,
    END,
    FIRST,
    INITIAL,
    LAYERS,
    LENGTH,
    SHAPE,
    TEXTS,
    VOCABULARY,
    WIDTH,
    Mutant,
    fit,
    npy,
    print_mutants,
    share,
    taps_of,
    target_states,
    write_agreements,
)

PARTS, PART = 8, 512  # of the texts to learn from
RATE = 4e-3
STEPS = dict(eagle1=900, mtp=600, dflash=1500, dspark=900)
TRAINED_DEPTHS = 2
MASK = 250  # a token that is a byte no text here has
DFLASH_BLOCK, DSPARK_BLOCK = 6, 4  # rows
ANCHORS = torch.arange(FIRST, END, 4)
TRAINED_ANCHORS = 64  # of each text in a step
TAPS = [2, 4, 6]  # states that enter these layers of the target
BLOCK_LAYERS, BLOCK_MLP, WINDOW, RANK = 2, 96, 12, 16
SIZE_MAX = 1_000_000


# Target and texts


@dataclasses.dataclass
class Target:
    model: transformers.LlamaForCausalLM
    tokens: torch.Tensor  # [TEXTS, LENGTH]: held-out texts
    own: torch.Tensor  # [TEXTS, LENGTH]: its most probable token after each position
    states: list  # as target_states() has them
    normed: torch.Tensor

    @property
    def embedding(self):
        return self.model.model.embed_tokens.weight


def read_weights(model, content):
    """Of a GGUF file of Llama's; the converter has reordered rows of queries and keys for RoPE of adjacent channels."""
    import gguf

    reader = gguf.GGUFReader(content)
    names = {"token_embd": "embed_tokens", "output_norm": "norm"}
    state = {}
    for tensor in reader.tensors:
        weight, name = torch.tensor(tensor.data).float(), tensor.name.removesuffix(".weight")
        if name.startswith("blk."):
            _, layer, part = name.split(".")
            if part in ("attn_q", "attn_k"):
                weight = weight.unflatten(0, (-1, SHAPE["head_dim"] // 2, 2)).transpose(1, 2).flatten(0, 2)
            state[f"layers.{layer}.{GGUF_LAYER_NAMES[part]}.weight"] = weight
        else:
            state[f"{names[name]}.weight"] = weight
    model.model.load_state_dict(state)


def read_target(folder):
    with tarfile.open(packing.GOLDEN / "toy.tar.xz") as tar:
        read = {name: tar.extractfile(name).read() for name in ("target.gguf", "tokens.npy", "target.npy")}
    (folder / "target.gguf").write_bytes(read["target.gguf"])
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**SHAPE, num_hidden_layers=LAYERS, tie_word_embeddings=True)
    )
    read_weights(model, folder / "target.gguf")
    model.eval().requires_grad_(False)
    tokens, own = (torch.from_numpy(np.load(io.BytesIO(read[name])).astype(np.int64)) for name in
                   ("tokens.npy", "target.npy"))
    states, normed, logits = target_states(model, tokens)
    same = (logits.argmax(-1) == own).float().mean().item()
    if same < 0.999:
        sys.exit(f"target.gguf says what target.npy says at {100 * same:.1f} % of the positions only: read wrongly")
    return Target(model, tokens, own, states, normed)


def sample_texts(target, folder):
    """[PARTS * PART, LENGTH]"""
    parts = []
    for part in range(PARTS):
        file = folder / f"texts-{part}.npy"
        if not file.exists():
            torch.manual_seed(100 + part)
            first = target.tokens.flatten()[torch.randint(target.tokens.numel(), (PART, 1))]
            texts = target.model.generate(first, do_sample=True, top_k=0, max_length=LENGTH, pad_token_id=0)
            np.save(file, texts.numpy().astype(np.uint16))
            print(f"texts: part {part + 1} of {PARTS}", flush=True)
        parts.append(np.load(file))
    return torch.from_numpy(np.concatenate(parts).astype(np.int64))


# Training


def train(name, parameters, texts, seed, loss_of):
    """loss_of: is given BATCH texts."""
    parameters = [parameter for parameter in parameters if parameter.requires_grad]
    with torch.no_grad():
        for parameter in parameters:
            if parameter.dim() == 2:
                parameter.normal_(0, INITIAL)

    def loss_after_backward(batch):
        loss = loss_of(batch)
        loss.backward()
        return loss.item()

    chosen = np.random.default_rng(seed).integers(len(texts), size=(STEPS[name], BATCH))
    return fit(name, parameters, RATE, 0.0, (texts[rows] for rows in chosen), loss_after_backward)


def soft_loss(logits, wanted):
    """Cross-entropy with the target's distribution. wanted: its logits."""
    return cross_entropy(logits.flatten(0, -2), wanted.softmax(-1).flatten(0, -2))


def save(head, folder):
    """As the class writes it."""
    head.half().save_pretrained(folder)


def load_weights(head, folder):
    """What the file has. Returns the head."""
    state = safetensors.torch.load_file(folder / "model.safetensors")
    unexpected = head.load_state_dict({key: tensor.float() for key, tensor in state.items()}, strict=False)[1]
    if unexpected:
        sys.exit(f"{folder}: {unexpected}")
    return head.eval().requires_grad_(False)


# Heads that go on from states: EAGLE-1 and multi-token prediction


def chain_levels(step, states, tokens, n_depths):
    """What a step puts out at each depth: [texts, LENGTH - depth, WIDTH] of rows by the position they began at, from 1
    on. At depth 1 the row at position p takes token p and the target's state of p - 1. A row of depth d takes the state
    of the row of depth d - 1 before it, and sees the rows of depth 1 up to where it began, then its own."""
    n = tokens.shape[1] - 1
    state, starts, depth_of = states[:, :n], torch.arange(n), torch.zeros(n, dtype=torch.long)
    for depth in range(n_depths):
        from_target = (depth_of == 0) & (starts <= starts[:, None])
        own = (starts == starts[:, None]) & (depth_of <= depth_of[:, None])
        positions = starts + depth_of + 1
        last = step(state, tokens[:, positions], positions, from_target | own)[:, depth - n:]
        yield last
        state, starts = torch.cat([state, last[:, :-1]], 1), torch.cat([starts, torch.arange(n - depth - 1)])
        depth_of = torch.cat([depth_of, torch.full((n - depth - 1,), depth + 1)])


@torch.no_grad()
def chain_answers(step, output, states, tokens, rows_later=0):
    """[DEPTHS, TEXTS, END - FIRST], as eagle_answers() in toy.py."""
    answers = []
    for some in torch.arange(TEXTS).split(8):
        levels = chain_levels(step, states[some], tokens[some], DEPTHS)
        starts = [FIRST - depth + rows_later for depth in range(1, DEPTHS + 1)]  # row i at depth d is position i + d
        answers.append(torch.stack([output(level[:, i : i + END - FIRST]).argmax(-1)
                                    for level, i in zip(levels, starts)]))
    return torch.cat(answers, 1)


def chain_mutants(step, output, states, tokens):
    """Of both kinds. states: what the head takes."""
    every = (1, 2, 3)
    yield Mutant("state of p instead of p - 1", (1,), 15, chain_answers(step, output, states.roll(-1, 1), tokens))
    yield Mutant("state of p - 2 instead of p - 1", (1,), 15, chain_answers(step, output, states.roll(1, 1), tokens))
    yield Mutant("token p - 1 instead of p", every, 15, chain_answers(step, output, states, tokens.roll(1, 1)))
    yield Mutant("row p + 1 instead of p", every, 15, chain_answers(step, output, states, tokens, 1))
    yield Mutant("row p - 1 instead of p", every, 15, chain_answers(step, output, states, tokens, -1))


def with_inputs_swapped(linear):
    """The same layer, for input whose halves are the other way round."""
    swapped = copy.deepcopy(linear)
    with torch.no_grad():
        swapped.weight.copy_(linear.weight.roll(WIDTH, 1))
    return swapped


def compared_chain(answers, mutants, target):
    sound = [share(answer, target.own) for answer in answers]
    return answers, sound, [m.report([share(answer, target.own) for answer in m.answers], sound) for m in mutants]


def eagle1_class(target):
    from eagle.model import cnets

    head = cnets.Model(types.SimpleNamespace(**SHAPE, num_hidden_layers=1, hidden_act="silu", pretraining_tp=1,
                                             rope_scaling=None))
    with torch.no_grad():
        head.embed_tokens.weight.copy_(target.embedding)
    return head.eval()  # its training would forget activations, and compute them again


def eagle1_step(head):
    def step(state, tokens, positions, visible):
        head.tree_mask = visible.expand(len(tokens), 1, -1, -1)
        return head(state, input_ids=tokens, position_ids=positions[None] - 1)  # as it counts rows itself

    return step


def train_eagle1(target, texts, folder):
    torch.manual_seed(6)
    head = eagle1_class(target)

    def loss_of(batch):
        _, normed, logits = target_states(target.model, batch)
        loss = 0
        for depth, state in enumerate(chain_levels(eagle1_step(head), normed, batch, TRAINED_DEPTHS)):
            # eagle/train/main.py: "criterion = nn.SmoothL1Loss", "loss = train_config["v_w"] * vloss +
            # train_config["p_w"] * ploss" with 1.0 and 0.1; ploss is the cross-entropy with the target's distribution.
            # With 0.1 this head is right less often, and the state of another position costs it less.
            loss += smooth_l1_loss(state, normed[:, 1 + depth:])
            loss += soft_loss(target.model.lm_head(state), logits[:, 1 + depth:])
        return loss

    losses = train("eagle1", head.parameters(), texts, 6, loss_of)
    folder.mkdir(exist_ok=True)
    state = {key: tensor.half().contiguous() for key, tensor in head.state_dict().items() if "embed" not in key}
    safetensors.torch.save_file(state, folder / "model.safetensors", {"format": "pt"})
    sizes = {key: value for key, value in SHAPE.items() if key.endswith(("size", "heads", "embeddings", "eps"))}
    config = {**heads_eagle1.WRITTEN, "torch_dtype": "float16", **sizes, "num_hidden_layers": 1}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return losses


@torch.no_grad()
def compare_eagle1(target, folder):
    head, norm, output = load_weights(eagle1_class(target), folder), target.model.model.norm, target.model.lm_head
    step, states, tokens = eagle1_step(head), target.normed, target.tokens
    fusion = head.fc

    def fed_back_normed(state, tokens, positions, visible):
        return norm(step(state, tokens, positions, visible))

    def mutants():
        yield from chain_mutants(step, output, states, tokens)
        yield Mutant("state before the final norm", (1,), 3, chain_answers(step, output, target.states[LAYERS], tokens))
        yield Mutant("a norm before the output", (1,), 3,
                     chain_answers(step, lambda x: output(norm(x)), states, tokens))
        yield Mutant("normed state fed back", (2, 3), 3, chain_answers(fed_back_normed, output, states, tokens))
        head.fc = with_inputs_swapped(fusion)
        yield Mutant("state before token", (1, 2, 3), 15, chain_answers(step, output, states, tokens))
        head.fc = fusion

    return compared_chain(chain_answers(step, output, states, tokens), mutants(), target)


def mtp_class(target):
    layer = transformers.Qwen3Config(**SHAPE, num_hidden_layers=LAYERS)
    return heads_mtp.speculators_model(
        layer, types.SimpleNamespace(name="toy", model=target.model, embedding=target.embedding)
    )


def mtp_step(head):
    def step(state, tokens, positions, visible):
        return head.mtp_layers[0](
            hidden_states=state,
            token_embeddings=head.embed_tokens(tokens),
            attention_mask=torch.zeros(visible.shape).masked_fill(~visible, -torch.inf)[None, None],
            position_ids=positions[None],
            position_embeddings=head.rotary_emb(state, positions[None]),
        )

    return step


def train_mtp(target, texts, folder):
    torch.manual_seed(7)
    head = mtp_class(target)
    norm = head.mtp_layers[0].final_layernorm.weight
    with torch.no_grad():  # not trained, and of both signs, so that a head that feeds back the state before it notices
        norm.uniform_(math.log(0.3), math.log(3)).exp_().mul_(2 * torch.randint(2, norm.shape) - 1)
    norm.requires_grad_(False)

    def loss_of(batch):
        states, _, logits = target_states(target.model, batch)
        levels = chain_levels(mtp_step(head), states[LAYERS], batch, TRAINED_DEPTHS)
        return sum(soft_loss(head.lm_head(state), logits[:, 1 + depth:]) for depth, state in enumerate(levels))

    losses = train("mtp", head.mtp_layers.parameters(), texts, 7, loss_of)
    save(head, folder)
    return losses


@torch.no_grad()
def compare_mtp(target, folder):
    head, output = load_weights(mtp_class(target), folder), target.model.lm_head
    step, states, tokens, layer = mtp_step(head), target.states[LAYERS], target.tokens, head.mtp_layers[0]
    fusion, norm = layer.input_proj, layer.final_layernorm

    def mutants():
        yield from chain_mutants(step, output, states, tokens)
        yield Mutant("state after the final norm", (1,), 3, chain_answers(step, output, target.normed, tokens))
        layer.input_proj = with_inputs_swapped(fusion)
        yield Mutant("state before token", (1, 2, 3), 15, chain_answers(step, output, states, tokens))
        layer.input_proj, layer.final_layernorm = fusion, torch.nn.Identity()
        yield Mutant("own state fed back before its norm", (2, 3), 3,
                     chain_answers(step, lambda x: output(norm(x)), states, tokens))
        layer.final_layernorm = norm

    return compared_chain(chain_answers(step, output, states, tokens), mutants(), target)


# Heads that guess blocks


def block_share(answers, own, guess):
    """As share() in toy.py, of guesses [TEXTS, anchors] of the token `guess` + 1 places after each anchor."""
    return round(100 * (answers == own[:, ANCHORS + guess]).float().mean().item(), 2)


def compared_blocks(answers, mutants, target):
    def shares(answers):
        return [block_share(answer, target.own, guess) for guess, answer in enumerate(answers)]

    return answers, shares(answers), [mutant.report(shares(mutant.answers), shares(answers)) for mutant in mutants]


def tap_mutants(answers_of, target, ids):
    """answers_of: taps."""
    taps = taps_of(target.states, ids)
    yield Mutant("states of p + 1 at p", (1,), 15, answers_of(taps.roll(-1, 1)))
    yield Mutant("states of p - 1 at p", (1,), 15, answers_of(taps.roll(1, 1)))
    for by in (1, -1):
        moves = [[by * (tap == i) for i in range(len(ids))] for tap in range(len(ids))] + [[by] * len(ids)]
        for move in moves:
            shifted = [k + m for k, m in zip(ids, move)]
            yield Mutant(f"taps {shifted}", (1,), 3, answers_of(taps_of(target.states, shifted)))


def block_tokens(tokens, anchors, mask=MASK):
    """[texts, anchors, DFLASH_BLOCK]"""
    rows = torch.full((len(tokens), len(anchors), DFLASH_BLOCK), mask)
    rows[..., 0] = tokens[:, anchors]
    return rows


def dflash_class():
    from dflash.model import DFlashDraftModel

    drafter = dict(mask_token_id=MASK, target_layer_ids=[i - 1 for i in TAPS], block_size=DFLASH_BLOCK)
    config = transformers.Qwen3Config(**{**SHAPE, "intermediate_size": BLOCK_MLP}, num_hidden_layers=BLOCK_LAYERS,
                                      num_target_layers=LAYERS, dflash_config=drafter)
    return DFlashDraftModel(config).eval()


def dflash_blocks(head, target, taps, tokens, anchors):
    """All blocks at once: [texts, anchors, DFLASH_BLOCK, WIDTH]."""
    n, anchor_of = taps.shape[1], anchors.repeat_interleave(DFLASH_BLOCK)
    visible = torch.cat([torch.arange(n) < anchor_of[:, None], anchor_of == anchor_of[:, None]], 1)
    state = head(
        target_hidden=taps,
        noise_embedding=target.embedding[block_tokens(tokens, anchors)].flatten(1, 2),
        position_ids=torch.cat([torch.arange(n), (anchors[:, None] + torch.arange(DFLASH_BLOCK)).flatten()])[None],
        attention_mask=visible[None, None],
    )
    return state.unflatten(1, (-1, DFLASH_BLOCK))


def train_dflash(target, texts, folder):
    torch.manual_seed(8)
    head, generator = dflash_class(), np.random.default_rng(8)

    def loss_of(batch):
        states, _, logits = target_states(target.model, batch)
        anchors = torch.from_numpy(1 + generator.choice(LENGTH - DFLASH_BLOCK, TRAINED_ANCHORS, replace=False))
        said = target.model.lm_head(dflash_blocks(head, target, taps_of(states, TAPS), batch, anchors))
        # The paper's weights, as in speculators' dflash_loss_decay(): "exp(-(pos - 1) / gamma)"; gamma is about half
        # the block there.
        return sum(np.exp(-2 * guess / DFLASH_BLOCK) * soft_loss(said[:, :, guess + 1], logits[:, anchors + guess])
                   for guess in range(DFLASH_BLOCK - 1))

    losses = train("dflash", head.parameters(), texts, 8, loss_of)
    save(head, folder)
    return losses


@torch.no_grad()
def dflash_answers(head, target, taps, *, mask=MASK, moved=0, sees_anchor=False, first=1):
    """[DFLASH_BLOCK - 1, TEXTS, ANCHORS], block by block as in generation. Mistakes: another mask; moved: of the
    block's positions, by so many; the anchor's state is seen, too; first: the row that predicts first."""
    answers = []
    for anchor in ANCHORS.tolist():
        n, rows = anchor + sees_anchor, block_tokens(target.tokens, torch.tensor([anchor]), mask)[:, 0]
        state = head(
            target_hidden=taps[:, :n],
            noise_embedding=target.embedding[rows],
            position_ids=torch.cat([torch.arange(n), anchor + moved + torch.arange(DFLASH_BLOCK)])[None],
        )
        answers.append(target.model.lm_head(state[:, first : first + DFLASH_BLOCK - 1]).argmax(-1))
    return torch.stack(answers).permute(2, 1, 0)


@torch.no_grad()
def compare_dflash(target, folder):
    head, taps = load_weights(dflash_class(), folder), taps_of(target.states, TAPS)
    answers = dflash_answers(head, target, taps)
    trained = target.model.lm_head(dflash_blocks(head, target, taps, target.tokens, ANCHORS)).argmax(-1)
    same = (trained[:, :, 1:].permute(2, 0, 1) == answers).float().mean().item()
    if same < 0.999:
        sys.exit(f"dflash: says in training what it says in generation at {100 * same:.1f} % of the places only")

    def mutants():
        yield from tap_mutants(lambda taps: dflash_answers(head, target, taps), target, TAPS)
        yield Mutant("row before", (1, 2), 15, dflash_answers(head, target, taps, first=0))
        yield Mutant("another mask", (1,), 3, dflash_answers(head, target, taps, mask=MASK + 1))
        yield Mutant("block one position later", (1,), 3, dflash_answers(head, target, taps, moved=1))
        yield Mutant("the anchor's state, too", (1,), 3, dflash_answers(head, target, taps, sees_anchor=True))
        for layer in head.layers:
            layer.self_attn.is_causal = True
        yield Mutant("causal", (1,), 3, dflash_answers(head, target, taps))
        for layer in head.layers:
            layer.self_attn.is_causal = False

    return compared_blocks(answers, mutants(), target)


def dspark_class(target):
    from speculators import SpeculatorsConfig, VerifierConfig
    from speculators.models.dspark import DSparkDraftModel, DSparkSpeculatorConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig

    layer = transformers.Qwen3Config(**{**SHAPE, "intermediate_size": BLOCK_MLP}, num_hidden_layers=BLOCK_LAYERS,
                                     layer_types=["sliding_attention"] * BLOCK_LAYERS, use_sliding_window=True,
                                     sliding_window=WINDOW, attn_implementation="eager")
    config = DSparkSpeculatorConfig(
        transformer_layer_config=layer,
        draft_vocab_size=VOCABULARY,
        block_size=DSPARK_BLOCK,
        mask_token_id=MASK,
        aux_hidden_state_layer_ids=TAPS,
        sliding_window_non_causal=True,
        markov_rank=RANK,
        speculators_config=SpeculatorsConfig(
            algorithm="dspark",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=DSPARK_BLOCK)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path="toy", architectures=["LlamaForCausalLM"]),
        ),
    )
    head = DSparkDraftModel(config).eval()
    with torch.no_grad():
        for output in (head.embed_tokens, head.lm_head, head.verifier_lm_head):
            output.weight.copy_(target.embedding)
        head.verifier_norm.weight.copy_(target.model.model.norm.weight)
    return head


def train_dspark(target, texts, folder):
    from speculators.losses import resolve_loss_config

    torch.manual_seed(9)
    head = dspark_class(target)
    losses_by = dict(loss_config=resolve_loss_config("kl_div", "eager"),
                     tv_loss_fn=resolve_loss_config("tv", "eager")["tv"][0])
    one = torch.zeros(1, LENGTH, dtype=torch.long)
    can_be_anchor = torch.ones_like(one).index_fill(1, torch.tensor([0]), 0)  # the first sees no text

    def loss_of(batch):
        states, _, _ = target_states(target.model, batch)
        taps, total = taps_of(states, TAPS), 0
        for text, tokens in enumerate(batch):
            total += head(
                hidden_states=taps[text, None],
                input_ids=tokens[None],
                loss_mask=can_be_anchor,
                verifier_last_hidden_states=states[LAYERS][text, None],
                document_ids=one,
                max_anchors=TRAINED_ANCHORS,
                **losses_by,
            )[1]
        return total / BATCH

    losses = train("dspark", head.parameters(), texts, 9, loss_of)
    save(head, folder)
    return losses


@torch.no_grad()
def dspark_blocks(head, target, taps):
    """Of the blocks at ANCHORS: states [TEXTS, ANCHORS, DSPARK_BLOCK, WIDTH], and logits without the Markov head."""
    one = torch.zeros(1, LENGTH, dtype=torch.long)
    found = []
    for text in range(TEXTS):
        state, logits = head._backbone_forward(
            taps[text, None],
            target.tokens[text, None],
            one.index_fill(1, ANCHORS, 1),  # the anchors are drawn from these, and kept in order
            target.states[LAYERS][text, None],
            one,
            max_anchors=len(ANCHORS),
        )[:2]
        found.append((state[0].unflatten(0, (-1, DSPARK_BLOCK)), logits[0].unflatten(0, (-1, DSPARK_BLOCK))))
    return tuple(torch.stack(parts) for parts in zip(*found))


def dspark_previous(target, shift=0):
    """[TEXTS, ANCHORS, DSPARK_BLOCK]: the tokens before those that rows predict."""
    return target.tokens[:, ANCHORS[:, None] + torch.arange(DSPARK_BLOCK) + shift]


@torch.no_grad()
def dspark_answers(head, target, taps, *, shift=0, later=0, completes=True):
    """[guesses, TEXTS, ANCHORS]. shift: of the previous tokens; later: by so many rows."""
    states, logits = (rows[:, :, later:] for rows in dspark_blocks(head, target, taps))
    if completes:
        previous = dspark_previous(target, shift)[:, :, : DSPARK_BLOCK - later]
        logits = logits + head.markov_head.block_bias(prev_token_ids=previous, hidden_states=states)
    return logits.argmax(-1).permute(2, 0, 1)


@torch.no_grad()
def confidences(head, target, answers):
    """Of each row, means in percent where it is right and where it is not."""
    states, _ = dspark_blocks(head, target, taps_of(target.states, TAPS))
    vectors = head.markov_head.prev_embeddings(dspark_previous(target))
    said = 100 * torch.sigmoid(head.confidence_head(torch.cat([states, vectors], -1)))
    means = dict(right=[], wrong=[])
    for guess, answer in enumerate(answers):
        is_right, of_row = answer == target.own[:, ANCHORS + guess], said[:, :, guess]
        means["right"].append(round(of_row[is_right].mean().item(), 2))
        means["wrong"].append(round(of_row[~is_right].mean().item(), 2))
    return means


@torch.no_grad()
def compare_dspark(target, folder):
    head, taps = load_weights(dspark_class(target), folder), taps_of(target.states, TAPS)
    answers = dspark_answers(head, target, taps)

    def mutants():
        yield from tap_mutants(lambda taps: dspark_answers(head, target, taps), target, TAPS)
        yield Mutant("row after", (1,), 15, dspark_answers(head, target, taps, later=1))
        yield Mutant("no Markov head", (2, 3, 4), 3, dspark_answers(head, target, taps, completes=False))
        for shift in (1, -1):
            yield Mutant(f"previous tokens {shift:+}", (2, 3, 4), 3, dspark_answers(head, target, taps, shift=shift))
        head.config.mask_token_id = MASK + 1
        yield Mutant("another mask", (2,), 3, dspark_answers(head, target, taps))
        head.config.mask_token_id = MASK
        for window in (2 * WINDOW, LENGTH):
            head.sliding_window = window
            yield Mutant(f"window {window}", (1,), 3, dspark_answers(head, target, taps))
        head.sliding_window, head.sliding_window_non_causal = WINDOW, False
        yield Mutant("causal", (1,), 3, dspark_answers(head, target, taps))
        head.sliding_window_non_causal = True

    said = compared_blocks(answers, mutants(), target)
    return *said, confidences(head, target, answers)


# All of them

HEADS = dict(eagle1=(train_eagle1, compare_eagle1), mtp=(train_mtp, compare_mtp), dflash=(train_dflash, compare_dflash),
             dspark=(train_dspark, compare_dspark))


def main():
    folder = pathlib.Path(sys.argv[1]) / "toy_heads"
    folder.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)  # as in toy.py
    target = read_target(folder)
    stages = sys.argv[2:] or ["texts", *HEADS]
    texts = sample_texts(target, folder)
    for name in HEADS:
        losses = folder / name / "losses.json"
        if name in stages and not losses.exists():
            losses.write_text(json.dumps(HEADS[name][0](target, texts, folder / name)))
    if len(sys.argv) > 2:
        return

    files, found, mutants, losses, is_right = {}, {}, {}, {}, True
    bigram = json.loads((packing.GOLDEN / "toy.json").read_text())["bigram"]
    for name in HEADS:
        answers, shares, of_head, *more = HEADS[name][1](target, folder / name)
        losses[name] = json.loads((folder / name / "losses.json").read_text())
        for file in ("config.json", "model.safetensors"):
            files[f"{name}/{file}"] = (folder / name / file).read_bytes()
        files[f"{name}.npy"] = npy(answers)
        found[name], mutants[f"{name}_mutants"] = shares, of_head
        found.update({f"{name}_confidence": confidence for confidence in more})
        print(f"{name}: {shares} % {more or ''}")
        print_mutants(of_head)
        is_right &= shares[0] >= bigram + 15 and all(mutant["passes"] for mutant in of_head)
    size = packing.pack("toy_heads", files)
    write_agreements("toy_heads", dict(**found, **mutants, losses=losses))
    print(f"{size} bytes")
    if size > SIZE_MAX or not is_right:
        sys.exit("larger than 1 MB, or a first guess agrees too little, or mutants agree too much: train other heads")


if __name__ == "__main__":
    main()
