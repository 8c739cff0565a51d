#!/usr/bin/env python3
# requirements: speculators==0.9.0 torch==2.14.1 transformers==5.19.0 tokenizers==0.23.3 gguf==0.19.0 numpy==2.3.5 sentencepiece==0.2.1 safetensors==0.8.0 scikit-build-core==1.1.2
"""Makes tests/golden/toy.*: a small trained language model, trained heads for it, and what their reference code says.

    scripts/golden/toy.py FOLDER    FOLDER receives llama.cpp's converter, as for families.py, and in toy/ what each
                                    stage makes: a run goes on where an earlier one ended

Random weights cannot show a wrong shift, tap or norm, because every reading of a random head is equally bad. A trained
head can: read wrongly, it agrees less with its target. toy.json says by how much.

The text is what Debian 12 has in the packages PACKAGES: Python's library, and manual pages as roff. One file in 16,
chosen by the hash of its name, is held out of the training of tokenizer, target and heads.

toy.tar.xz holds

target.gguf       Llama's shape, F16, without a vocabulary. Its output_norm is random and was not trained.
eagle3/           an EAGLE-3 head by speculators' class and loss, in speculators' layout, F16
medusa/           three Medusa heads in FasterDecoding's layout, with output layers of their own, F16
tokens.npy        u16 [32, 264]     held-out texts, as tokens; each begins at position 0
target.npy        u16 [32, 264]     [t, p]: the target's most probable token after positions 0 to p of text t
eagle3.npy        u16 [3, 32, 256]  [d - 1, t, p - 4]: the head's most probable token after position p, for p from 4 to
                                    259, at depth d. Depth 1: row p has token p and the target's features of p - 1;
                                    there is no row 0. Depth 2: rows before p are those of depth 1, and row p has token
                                    p and the state of row p - 1 instead of features. Depth 3: rows before p - 1 are
                                    those of depth 1, row p - 1 is that of depth 2, and row p has its state.
medusa.npy        u16 [3, 32, 256]  [h, t, p - 4]: head h's most probable token for position p + 2 + h, from the
                                    target's state at p; target.npy's [t, p + 1 + h] is the target's own for it

toy.json says, in percent, how many of 32 x 256 answers are the target's own: those of a table of the most frequent next
token, of both heads at each depth, and of both heads read wrongly (mutants). It also has the losses in training.

Answers are computed in float32 from weights rounded to F16.
"""

import dataclasses
import gzip
import hashlib
import io
import json
import logging
import math
import os
import pathlib
import subprocess
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import safetensors.torch
import tokenizers
import torch
import transformers
from speculators.losses import resolve_loss_config
from speculators.models.eagle3 import Eagle3DraftModel
from speculators.train.vocab_mapping import build_vocab_mappings_from_distribution

import families
import packing

PACKAGES = ("libpython3.11-minimal", "libpython3.11-stdlib", "manpages", "manpages-dev")
VOCABULARY, DRAFT_VOCABULARY, WIDTH, LAYERS, DEPTHS, HEADS = 512, 256, 96, 8, 3, 3
TEXTS, LENGTH, FIRST, END = 32, 264, 4, 260  # [FIRST, END): the positions of each text that count
INITIAL = 0.08  # deviation of weights before training: wide, so that no layer and no tap is near to the next one
BATCH = 8  # texts of LENGTH tokens
TARGET_STEPS, APART_STEPS, EAGLE_STEPS, MEDUSA_STEPS = 3000, 400, 800, 350

SHAPE = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_attention_heads=3,
             num_key_value_heads=1, head_dim=32, max_position_embeddings=512, rms_norm_eps=1e-5,
             rope_parameters=dict(rope_type="default", rope_theta=10000.0), bos_token_id=None, eos_token_id=None,
             pad_token_id=None)


# Text


def package_files():
    """Names and texts of the files in PACKAGES: modules, and manual pages; none of a few lines."""
    listed = subprocess.run(["dpkg", "-L", *PACKAGES], check=True, capture_output=True, text=True).stdout.split("\n")
    for name in sorted(set(listed)):
        path = pathlib.Path(name)
        is_page = name.startswith("/usr/share/man/man") and name.endswith(".gz")
        if path.is_symlink() or not (is_page or name.endswith(".py")):
            continue
        content = gzip.decompress(path.read_bytes()) if is_page else path.read_bytes()
        if len(content) > 2000:
            yield name, content.decode("utf-8", "replace")


def make_tokens(folder):
    """Tokens of the training text, and the held-out texts [TEXTS, LENGTH]."""
    if not (folder / "held_out.npy").exists():
        files = dict(package_files())
        is_held_out = {name: hashlib.sha256(pathlib.Path(name).name.encode()).digest()[0] < 16 for name in files}
        train = [name for name in files if not is_held_out[name]]
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
        byte_level = tokenizers.pre_tokenizers.ByteLevel
        tokenizer.pre_tokenizer = byte_level(add_prefix_space=False)
        trainer = tokenizers.trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=byte_level.alphabet(),
                                                 show_progress=False)
        tokenizer.train_from_iterator([files[name] for name in train], trainer)
        ids = {name: np.array(tokenizer.encode(text).ids, np.uint16) for name, text in files.items()}
        generator = np.random.default_rng(0)
        long = [text for name, text in ids.items() if is_held_out[name] and len(text) >= LENGTH]
        chosen = [long[i] for i in sorted(generator.choice(len(long), TEXTS, replace=False))]
        starts = [generator.integers(len(text) - LENGTH + 1) for text in chosen]
        tokens = np.concatenate([ids[name] for name in train])
        size = sum(len(files[name].encode()) for name in train)
        print(f"text: {len(train)} files of {len(files)}, {size} bytes, {len(tokens)} tokens", flush=True)
        np.save(folder / "train.npy", tokens)
        np.save(folder / "held_out.npy", np.stack([text[i : i + LENGTH] for text, i in zip(chosen, starts)]))
    return np.load(folder / "train.npy"), np.load(folder / "held_out.npy")


def batches(tokens, length, steps, seed):
    generator = np.random.default_rng(seed)
    for _ in range(steps):
        starts = generator.integers(len(tokens) - length + 1, size=BATCH)
        yield torch.from_numpy(np.stack([tokens[start : start + length] for start in starts]).astype(np.int64))


# Training


def fit(name, parameters, rate, decay, data, loss_of):
    """AdamW with a short warm-up and a cosine's decay. Returns the loss, averaged over each tenth of the steps."""
    optimizer = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.95), weight_decay=decay)
    data, losses, began = list(data), [], time.monotonic()
    for step, tokens in enumerate(data):
        for group in optimizer.param_groups:
            group["lr"] = rate * min((step + 1) / 100, 0.01 + 0.99 * (1 + math.cos(math.pi * step / len(data))) / 2)
        optimizer.zero_grad()
        losses.append(loss_of(tokens))  # has called backward
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if (step + 1) % 50 == 0:
            passed = time.monotonic() - began
            loss = np.mean(losses[-50:])
            print(f"{name}: step {step + 1} of {len(data)}, loss {loss:.4f}, {passed:.0f} s", flush=True)
    return [round(float(np.mean(part)), 4) for part in np.array_split(losses, 10)]


def round_to_half(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter.half())


def train_target(tokens, folder):
    """Makes folder/first, which has learned the text, and from it folder/target, whose layers differ more."""
    torch.manual_seed(1)
    if not (folder / "first" / "losses.json").exists():
        more = dict(num_hidden_layers=LAYERS, tie_word_embeddings=True, initializer_range=INITIAL)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE, **more))
        with torch.no_grad():  # so wide that a head that takes the normed state for the raw one notices
            model.model.norm.weight.uniform_(math.log(0.3), math.log(3)).exp_()
        fit_target(model, 0, batches(tokens, LENGTH + 1, TARGET_STEPS, 1), folder / "first")
    model = transformers.LlamaForCausalLM.from_pretrained(folder / "first", dtype=torch.float32)
    fit_target(model, 1, batches(tokens, LENGTH + 1, APART_STEPS, 4), folder / "target")


def fit_target(model, apart, data, folder):
    """apart: weight of a loss for states of neighbouring layers that are similar. Without it a head that takes the next
    layer's state for a tap would lose little."""
    model.model.norm.weight.requires_grad_(False)

    def loss_of(batch):
        out = model(batch[:, :-1], output_hidden_states=True, use_cache=False)
        loss = torch.nn.functional.cross_entropy(out.logits.flatten(0, 1), batch[:, 1:].flatten())
        states = out.hidden_states[1:LAYERS]
        similar = [torch.nn.functional.cosine_similarity(a, b, -1) for a, b in zip(states, states[1:])]
        (loss + apart * sum((cosine - 0.3).relu().mean() for cosine in similar)).backward()
        return loss.item()

    losses = fit(folder.name, [p for p in model.parameters() if p.requires_grad], 3e-3, 0.1, data, loss_of)
    round_to_half(model)
    model.save_pretrained(folder)
    (folder / "losses.json").write_text(json.dumps(losses))


@torch.no_grad()
def target_states(model, tokens):
    """The inputs of all layers and the last layer's output: [k] is what speculators calls hidden state k. Then the
    final-normed state, and logits."""
    raw = []
    hook = model.model.norm.register_forward_pre_hook(lambda module, inputs: raw.append(inputs[0]))
    out = model(tokens, output_hidden_states=True, use_cache=False)
    hook.remove()
    return [*out.hidden_states[:LAYERS], raw[0]], out.hidden_states[LAYERS], out.logits


def taps_of(states, ids):
    return torch.cat([states[k] for k in ids], -1)


def run_eagle(head, taps, tokens, **more):
    """One text by the reference class: row i has token i + 1 and the target's features of i, so it is row p = i + 1 in
    our words (speculators/models/eagle3/data.py, shift_batch: "Need to align (x1, g0, y1, l1)")."""
    positions = torch.arange(1, len(tokens))[None]
    return head(taps[None, :-1], tokens[None, 1:], torch.zeros_like(positions), position_ids=positions,
                ttt_steps=DEPTHS, **more)


def train_eagle(model, tokens, folder, target_folder):
    torch.manual_seed(2)
    counts = np.bincount(tokens, minlength=VOCABULARY)
    d2t, t2d = build_vocab_mappings_from_distribution(dict(enumerate(counts.tolist())), DRAFT_VOCABULARY, VOCABULARY)
    config = transformers.LlamaConfig(**SHAPE, num_hidden_layers=1)
    head = Eagle3DraftModel.from_training_args(
        config, t2d=t2d, d2t=d2t, draft_vocab_size=DRAFT_VOCABULARY, norm_before_residual=False, ttt_steps=DEPTHS,
        draft_attn_impl="eager", verifier_name_or_path=str(target_folder))
    with torch.no_grad():
        head.norm.weight.copy_(head.verifier_norm.weight)
        for parameter in head.parameters():
            if parameter.requires_grad and parameter.dim() == 2:
                parameter.normal_(0, INITIAL)
    loss_config = resolve_loss_config("kl_div", "eager")

    def loss_of(batch):
        states, _, _ = target_states(model, batch)
        taps, total = taps_of(states, head.target_layer_ids), 0.0
        for text in range(BATCH):
            last = states[LAYERS][text, None, 1:]  # before the final norm: the class applies it
            _, loss, _ = run_eagle(head, taps[text], batch[text], verifier_last_hidden_states=last,
                                   loss_config=loss_config)
            (loss / BATCH).backward()
            total += loss.item() / BATCH
        return total

    data = batches(tokens, LENGTH, EAGLE_STEPS, 2)
    losses = fit("eagle3", [p for p in head.parameters() if p.requires_grad], 4e-3, 0.0, data, loss_of)
    head.half().save_pretrained(folder)
    (folder / "losses.json").write_text(json.dumps(losses))


class MedusaHead(torch.nn.Module):
    """FasterDecoding/Medusa, medusa/model/medusa_model.py: a block is "return x + self.act(self.linear(x))" with
    "self.act = nn.SiLU()", and an output layer of the head's own follows, with no norm between:
    "nn.Linear(self.hidden_size, self.vocab_size, bias=False)"."""

    def __init__(self, output):
        super().__init__()
        self.linear = torch.nn.Linear(WIDTH, WIDTH)
        self.output = torch.nn.Parameter(output.clone())  # "using the base model's weights"
        torch.nn.init.zeros_(self.linear.weight)  # "Initialize as an identity mapping"

    def forward(self, normed):
        """normed: the final-normed state, which the target's output layer sees, too: "outputs =
        self.base_model.model(", "hidden_states = outputs[0].clone()"."""
        return (normed + torch.nn.functional.silu(self.linear(normed))) @ self.output.T

    def names(self, h):
        """The file's names for the tensors of head h."""
        linear = self.linear
        return {f"{h}.0.linear.weight": linear.weight, f"{h}.0.linear.bias": linear.bias, f"{h}.1.weight": self.output}


def train_medusa(model, tokens, folder):
    torch.manual_seed(3)
    heads = torch.nn.ModuleList(MedusaHead(model.lm_head.weight) for _ in range(HEADS))

    def loss_of(batch):
        _, normed, _ = target_states(model, batch)
        loss = 0
        for h, head in enumerate(heads):
            # medusa/train/train_legacy.py: "medusa_logits = logits[i, :, : -(2 + i)]", "medusa_labels =
            # labels[..., 2 + i :]", so head h predicts token p + 2 + h at p. "loss += loss_i": heads count equally.
            logits, labels = head(normed)[:, : -(2 + h)], batch[:, 2 + h :]
            loss += torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        loss.backward()
        return loss.item()

    losses = fit("medusa", list(heads.parameters()), 1e-2, 0.0, batches(tokens, LENGTH, MEDUSA_STEPS, 3), loss_of)
    folder.mkdir(exist_ok=True)
    tensors = {name: tensor.detach().half() for h, head in enumerate(heads) for name, tensor in head.names(h).items()}
    safetensors.torch.save_file(tensors, folder / "medusa_lm_head.safetensors", {"format": "pt"})
    config = dict(medusa_num_heads=HEADS, medusa_num_layers=1, base_model_name_or_path="toy")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "losses.json").write_text(json.dumps(losses))


# Answers


def share(answers, own, later=0):
    """How many of the answers at positions [FIRST, END) are the target's own this many positions later, in percent."""
    return round(100 * (answers == own[:, FIRST + later : END + later]).float().mean().item(), 2)


@dataclasses.dataclass
class Mutant:
    """A head read wrongly."""
    name: str
    depths: tuple  # at which it must lose
    must_lose: int  # points of agreement, at each of these depths
    answers: torch.Tensor  # [depths or heads, TEXTS, END - FIRST]

    def report(self, agreement, sound):
        loses = [round(a - b, 2) for a, b in zip(sound, agreement)]
        return dict(mutant=self.name, agreement=agreement, loses=loses, depths=self.depths, must_lose=self.must_lose,
                    passes=all(loses[depth - 1] >= self.must_lose for depth in self.depths))


@torch.no_grad()
def eagle_answers(head, taps, tokens, rows_later=0, absolute=False):
    """[DEPTHS, TEXTS, END - FIRST]. rows_later: answers are read this many rows later. absolute: d2t is taken for token
    ids instead of differences."""
    answers = []
    for text in range(TEXTS):
        drafts = run_eagle(head, taps[text], tokens[text])
        starts = [FIRST - depth + rows_later for depth in range(1, DEPTHS + 1)]  # row i at depth d is position i + d
        answers.append(torch.stack([draft[0, i : i + END - FIRST] for draft, i in zip(drafts, starts)]))
    rows = torch.stack(answers, 1)
    return head.d2t[rows] if absolute else rows + head.d2t[rows]


def eagle_mutants(head, states, tokens):
    ids = head.target_layer_ids
    taps = taps_of(states, ids)
    every = (1, 2, 3)
    yield Mutant("features of p instead of p - 1", (1,), 15, eagle_answers(head, taps.roll(-1, 1), tokens))
    yield Mutant("features of p - 2 instead of p - 1", (1,), 15, eagle_answers(head, taps.roll(1, 1), tokens))
    yield Mutant("token p - 1 instead of p", every, 15, eagle_answers(head, taps, tokens.roll(1, 1)))
    yield Mutant("row p + 1 instead of p", every, 15, eagle_answers(head, taps, tokens, rows_later=1))
    yield Mutant("row p - 1 instead of p", every, 15, eagle_answers(head, taps, tokens, rows_later=-1))
    yield Mutant("d2t as token ids", every, 15, eagle_answers(head, taps, tokens, absolute=True))
    for by in (1, -1):
        moves = [[by * (tap == i) for i in range(len(ids))] for tap in range(len(ids))] + [[by] * len(ids)]
        for move in moves:
            shifted = [k + m for k, m in zip(ids, move)]
            yield Mutant(f"taps {shifted}", (1,), 3, eagle_answers(head, taps_of(states, shifted), tokens))
    head.layers[0].norm_before_residual = True
    yield Mutant("normed residual", (1,), 3, eagle_answers(head, taps, tokens))
    head.layers[0].norm_before_residual = False
    head.config.norm_output = True
    yield Mutant("normed state fed back", (2, 3), 3, eagle_answers(head, taps, tokens))
    head.config.norm_output = False


def compare_eagle(folder, states, own, tokens):
    config = Eagle3DraftModel.config_class.from_pretrained(folder)
    config.transformer_layer_config._attn_implementation = "eager"
    head = Eagle3DraftModel.from_pretrained(folder, config=config, dtype=torch.float32).eval()
    answers = eagle_answers(head, taps_of(states, head.target_layer_ids), tokens)
    sound = [share(answer, own) for answer in answers]
    mutants = eagle_mutants(head, states, tokens)
    return answers, sound, [m.report([share(answer, own) for answer in m.answers], sound) for m in mutants]


@torch.no_grad()
def compare_medusa(folder, model, states, normed, own):
    tensors = safetensors.torch.load_file(folder / "medusa_lm_head.safetensors")
    heads = [MedusaHead(model.lm_head.weight) for _ in range(HEADS)]
    for h, head in enumerate(heads):
        for name, parameter in head.names(h).items():
            parameter.copy_(tensors[name])

    def answers_of(state, later=0):
        best = [head(state).argmax(-1) for head in heads]
        return torch.stack(best)[:, :, FIRST + later : END + later]

    def shares(answers):
        return [share(answer, own, 1 + h) for h, answer in enumerate(answers)]

    answers = answers_of(normed)
    mutants = [Mutant("state of p + 1 instead of p", (1,), 15, answers_of(normed, 1)),
               Mutant("state of p - 1 instead of p", (1,), 15, answers_of(normed, -1)),
               Mutant("state before the final norm", (1,), 3, answers_of(states[LAYERS]))]
    return answers, shares(answers), [mutant.report(shares(mutant.answers), shares(answers)) for mutant in mutants]


def bigram_share(train, own, tokens):
    pairs = train[:-1].astype(np.int64) * VOCABULARY + train[1:]
    next_token = np.bincount(pairs, minlength=VOCABULARY**2).reshape(VOCABULARY, VOCABULARY).argmax(1)
    return share(torch.from_numpy(next_token)[tokens[:, FIRST:END]], own)


def npy(values):
    """A file of u16, in C's order."""
    stored = io.BytesIO()
    np.save(stored, np.ascontiguousarray(values.numpy().astype(np.uint16)))
    return stored.getvalue()


def write_agreements(name, found):
    """tests/golden/NAME.json, with one line for each value and each mutant."""
    lines = []
    for key, value in found.items():
        if key.endswith("_mutants"):
            value = "[\n  " + ",\n  ".join(json.dumps(mutant) for mutant in value) + "\n ]"
        else:
            value = json.dumps(value)
        lines.append(f' "{key}": {value}')
    (packing.GOLDEN / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def print_mutants(mutants):
    for mutant in mutants:
        print(f"{mutant['mutant']}: {mutant['agreement']} %, loses {mutant['loses']}, must lose {mutant['must_lose']} "
              f"at {mutant['depths']}{'' if mutant['passes'] else ': TOO LITTLE'}")


def main():
    converter_folder = pathlib.Path(sys.argv[1])
    folder = converter_folder / "toy"
    folder.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)  # two would gain little with tensors as small as these
    train, held_out = make_tokens(folder)
    if not (folder / "target" / "losses.json").exists():
        train_target(train, folder)
    model = transformers.LlamaForCausalLM.from_pretrained(folder / "target", dtype=torch.float32)
    model.eval().requires_grad_(False)
    if not (folder / "eagle3" / "losses.json").exists():
        train_eagle(model, train, folder / "eagle3", folder / "target")
    if not (folder / "medusa" / "losses.json").exists():
        train_medusa(model, train, folder / "medusa")

    tokens = torch.from_numpy(held_out.astype(np.int64))
    states, normed, logits = target_states(model, tokens)
    own = logits.argmax(-1)
    bigram = bigram_share(train, own, tokens)
    eagle, eagle_shares, eagle_mutants = compare_eagle(folder / "eagle3", states, own, tokens)
    medusa, medusa_shares, medusa_mutants = compare_medusa(folder / "medusa", model, states, normed, own)
    stages = ("first", "target", "eagle3", "medusa")
    losses = {stage: json.loads((folder / stage / "losses.json").read_text()) for stage in stages}

    files = {}
    families.convert(families.converter(converter_folder), "toy", folder / "target", folder / "target.gguf")
    files["target.gguf"] = (folder / "target.gguf").read_bytes()
    for stage, weights in (("eagle3", "model.safetensors"), ("medusa", "medusa_lm_head.safetensors")):
        config = (folder / stage / "config.json").read_text().replace(str(folder / "target"), "toy")
        files[f"{stage}/config.json"] = config.encode()
        files[f"{stage}/{weights}"] = (folder / stage / weights).read_bytes()
    for name, values in (("tokens", tokens), ("target", own), ("eagle3", eagle), ("medusa", medusa)):
        files[f"{name}.npy"] = npy(values)
    size = packing.pack("toy", files)
    write_agreements("toy", dict(bigram=bigram, eagle3=eagle_shares, medusa=medusa_shares, eagle3_mutants=eagle_mutants,
                                 medusa_mutants=medusa_mutants, losses=losses))

    for name, shares in (("bigram", bigram), ("eagle3", eagle_shares), ("medusa", medusa_shares)):
        print(f"{name}: {shares} %")
    print_mutants(eagle_mutants + medusa_mutants)
    print(f"{size} bytes")
    passes = eagle_shares[0] >= bigram + 15 and all(mutant["passes"] for mutant in eagle_mutants + medusa_mutants)
    if size > 2_000_000 or not passes:
        sys.exit("larger than 2 MB, or depth 1 agrees too little, or mutants agree too much: train another toy")


if __name__ == "__main__":
    main()
