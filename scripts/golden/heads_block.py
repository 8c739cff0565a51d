"""Drafters of blocks for scripts/golden/heads.py: DFlash (arXiv:2602.06036), and DSpark, which adds a Markov head and
often a confidence to it.

A block's rows see the target's states of the positions before the anchor, and each other. States of the text have no
norm before a layer's attention; rows have one. In a layer with a sliding window of w positions, a row of z-lab's and
SpecForge's classes, as in vLLM, sees positions less than w before its own, and no later row of its block (z-lab's
is_causal and vLLM's dflash_config.causal can say otherwise, of all layers). In speculators' class all rows see the w
positions before the anchor, and their whole block if sliding_window_non_causal, else no later row.

Whether the anchor's row predicts is said by sample_from_anchor in speculators' files; where that is absent it does in
those of dspark, and not in those of dflash. It does in all of SpecForge's for DSpark and DeepSpec's, not in z-lab's.

The classes are z-lab's (dflash), run over each block as in generation, and those of speculators and SpecForge, run over
all blocks at once as in training. DeepSpec's are in no package: speculators' of DSpark computes the same, by the same
names."""

import dataclasses
import importlib
import json

import safetensors.torch
import torch
import transformers

import families
import heads_plain
from heads_common import (
    GGUF_LAYER_NAMES,
    LAYER,
    LENGTH,
    VOCABULARY,
    check_agreement,
    distance,
    fill,
    pack_head,
    random_d2t,
    report,
)

BLOCK, MASK, WINDOW, RANK = 6, 250, 9, 16
# The page of a cache ends before position 64.
ANCHORS = [1, 2, 9, 30, 57, 60, 61, 62, 63, 64, 65, 73]
GAINS = {"markov_w1": 4, "confidence_head": 2}


@dataclasses.dataclass
class Case:
    """A drafter: what its producer's class says. Rows are those that predict, of each anchor in order."""

    plain: heads_plain.Block
    input_ids: list
    d2t: torch.Tensor | None
    embedding: torch.Tensor
    sample_from_anchor: bool
    base: torch.Tensor  # [rows][draft vocabulary], without the Markov head
    markov: torch.Tensor | None = None  # with it, after the text's tokens
    confidence: torch.Tensor | None = None  # [rows][1], before the sigmoid

    @property
    def said(self):
        kinds = ("base", "markov", "confidence")
        return {kind: getattr(self, kind) for kind in kinds if getattr(self, kind) is not None}


def block_tokens(target, anchor, mask=MASK):
    return torch.tensor([target.tokens[anchor], *[mask] * (BLOCK - 1)])


def predicting(rows, sample_from_anchor):
    """[anchors * block][n], without the anchors' rows where those predict nothing."""
    return rows.unflatten(0, (len(ANCHORS), -1))[:, int(not sample_from_anchor):].flatten(0, 1)


def fill_block(name, model, embedding):
    fill(name, model.named_parameters(), embedding, GAINS)
    if getattr(model, "confidence_head", None) is not None:
        torch.nn.init.constant_(model.confidence_head.proj.bias, -1.25)  # a single number could be drawn as 0


def layer_config(n_layers, sliding=(), **special):
    return transformers.Qwen3Config(
        **{**LAYER, "num_hidden_layers": n_layers, "head_dim": 16, **special},
        layer_types=["sliding_attention" if i in sliding else "full_attention" for i in range(n_layers)],
        use_sliding_window=bool(sliding),
        sliding_window=WINDOW if sliding else None,
        attn_implementation="eager",
    )


def plain_of(state, config, target, **special):
    tensors = {key: value.detach().clone() for key, value in state.items() if not key.startswith("verifier")}
    tensors.setdefault("lm_head.weight", target.model.lm_head.weight.detach())
    windows = tuple(WINDOW if kind == "sliding_attention" else None for kind in config.layer_types)
    return heads_plain.Block(
        tensors,
        config.head_dim,
        config.rope_parameters["rope_theta"],
        config.rms_norm_eps,
        windows=windows,
        **{"causal": tuple(window is not None for window in windows), **special},
    )


# --- z-lab ------------------------------------------------------------------------------------------------------------


def zlab(name, target, folder, *, n_layers=2, sliding=(), output_ids=None, is_old, **special):
    """output_ids None: no key, so the class's own. is_old: config.json has rope_theta and block_size where older
    releases of transformers and dflash have them."""
    from dflash.model import DFlashDraftModel

    drafter = dict(mask_token_id=MASK)
    drafter.update({} if output_ids is None else {"target_layer_ids": output_ids})
    drafter.update({} if is_old else {"block_size": BLOCK})
    config = layer_config(
        n_layers,
        sliding,
        num_target_layers=len(target.entering),
        dflash_config=drafter,
        **{"block_size": BLOCK} if is_old else {},
        **special,
    )
    model = DFlashDraftModel(config)
    fill_block(name, model, target.embedding)
    model.save_pretrained(folder)
    if is_old:
        written = json.loads((folder / "config.json").read_text())
        written.update(rope_theta=written.pop("rope_parameters")["rope_theta"], rope_scaling=None)
        written["torch_dtype"] = written.pop("dtype")
        (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    model = DFlashDraftModel.from_pretrained(folder).eval()
    input_ids = [i + 1 for i in model.target_layer_ids]
    taps = target.entering[input_ids].transpose(0, 1).flatten(1)
    rows = []
    with torch.no_grad():
        for anchor in ANCHORS:
            state = model(
                target_hidden=taps[None, :anchor],
                noise_embedding=target.embedding[block_tokens(target, anchor)][None],
                position_ids=torch.arange(anchor + BLOCK)[None],
            )
            rows.append(model.compute_logits(state[0], target.model.lm_head))
    return Case(
        plain_of(model.state_dict(), config, target),
        input_ids,
        None,
        target.embedding,
        False,
        predicting(torch.cat(rows), False),
    )


# --- speculators, DeepSpec --------------------------------------------------------------------------------------------


def speculators_model(name, target, layer, kind, input_ids, n_draft, embedding, **flags):
    """The class with random weights."""
    from speculators import SpeculatorsConfig, VerifierConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig

    module = importlib.import_module(f"speculators.models.{kind}")
    n_drafts = BLOCK if flags.get("sample_from_anchor", kind == "dspark") else BLOCK - 1
    letters = {"dflash": "DFlash", "dspark": "DSpark"}[kind]
    config = getattr(module, f"{letters}SpeculatorConfig")(
        transformer_layer_config=layer,
        draft_vocab_size=n_draft,
        block_size=BLOCK,
        mask_token_id=MASK,
        aux_hidden_state_layer_ids=input_ids,
        speculators_config=SpeculatorsConfig(
            algorithm=kind,
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=n_drafts)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=f"target-{target.name}", architectures=[type(target.model).__name__]),
        ),
        **flags,
    )
    model = getattr(module, f"{letters}DraftModel")(config).eval()
    fill_block(name, model, embedding)
    d2t = None
    if n_draft != VOCABULARY:
        d2t = random_d2t(name)
        model.load_vocab_mappings(
            torch.zeros(VOCABULARY, dtype=torch.bool).index_fill_(0, d2t, True), d2t - torch.arange(n_draft)
        )
    return model, d2t


@torch.no_grad()
def speculators_rows(model, target, input_ids):
    """What the class gives to its loss: logits before and with the Markov head, and confidences."""
    found = []
    hook = model.lm_head.register_forward_hook(lambda module, inputs, output: found.append(output[0]))
    core = importlib.import_module(type(model).__module__)
    loss, core.compute_metrics = core.compute_metrics, lambda *given, **options: (found.append(given), (None, {}))[1]
    one = torch.zeros(1, LENGTH, dtype=torch.long)
    model(
        hidden_states=target.entering[input_ids].transpose(0, 1).flatten(1)[None],
        input_ids=target.tokens[None],
        loss_mask=one.index_fill(1, torch.tensor(ANCHORS), 1),  # the anchors are drawn from these
        verifier_last_hidden_states=target.last[None],
        document_ids=one,
        max_anchors=len(ANCHORS),
    )
    core.compute_metrics = loss
    hook.remove()
    base, given = found
    is_dspark = model.config.speculators_model_type == "dspark"
    confidence = given[2][0][:, None] if is_dspark and given[2] is not None else None
    return base, given[0][0] if is_dspark and model.markov_head is not None else None, confidence


def speculators_case(model, d2t, target, input_ids, layer, embedding, **special):
    flags = model.config
    rows = [
        None if matrix is None else predicting(matrix, flags.sample_from_anchor)
        for matrix in speculators_rows(model, target, input_ids)
    ]
    plain = plain_of(model.state_dict(), layer, target, window_from_anchor=True, **special)
    return Case(plain, input_ids, d2t, embedding, flags.sample_from_anchor, *rows)


def speculators(
    name, target, folder, *, kind, input_ids, n_layers=2, sliding=(), n_draft=VOCABULARY, layer, absent=(), **flags
):
    """absent: keys that older releases did not write."""
    layer = layer_config(n_layers, sliding, **layer)
    model, d2t = speculators_model(name, target, layer, kind, input_ids, n_draft, target.embedding, **flags)
    if d2t is None:
        with torch.no_grad():
            model.lm_head.weight.copy_(target.model.lm_head.weight)
    causal = tuple(not flags.get("sliding_window_non_causal", False) and i in sliding for i in range(n_layers))
    case = speculators_case(model, d2t, target, input_ids, layer, target.embedding, causal=causal)
    model.save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text())
    for key in absent:
        del written[key]
    (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    return case


def deepspec(name, target, folder, *, output_ids, n_layers, layer, **flags):
    """An output id of -1 is the embedding. Embedding and output are the file's own."""
    layer = layer_config(n_layers, **layer, num_target_layers=len(target.entering), target_layer_ids=output_ids,
                         block_size=BLOCK, mask_token_id=MASK, num_anchors=512, architectures=["Qwen3DSparkModel"],
                         **flags)
    embedding = families.few_numbers(torch.Generator().manual_seed(1), target.embedding.shape, 0.125)
    input_ids = [i + 1 for i in output_ids]
    model, _ = speculators_model(name, target, layer, "dspark", input_ids, VOCABULARY, embedding, **flags)
    case = speculators_case(model, None, target, input_ids, layer, embedding)
    layer.save_pretrained(folder)
    state = {key: value for key, value in model.state_dict().items() if not key.startswith("verifier")}
    safetensors.torch.save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return case


# --- SpecForge --------------------------------------------------------------------------------------------------------


def specforge(name, target, folder, *, output_ids, n_layers, sliding, layer, **flags):
    """Written as SpecForge's export does in its last steps."""
    from specforge.algorithms.common.dflash_family_model import OnlineDSparkModel
    from specforge.export.checkpoint_io import apply_legacy_rope_scaling
    from specforge.modeling.draft.dspark import DSparkDraftModel

    config = layer_config(
        n_layers,
        sliding,
        **layer,
        block_size=BLOCK,
        num_target_layers=len(target.entering),
        dflash_config=dict(
            projector_type="dspark", mask_token_id=MASK, target_layer_ids=output_ids, attention_mode="gqa", **flags
        ),
    )
    model = DSparkDraftModel(config)
    fill_block(name, model, target.embedding)
    model.save_pretrained(folder)
    apply_legacy_rope_scaling(folder)
    model = DSparkDraftModel.from_pretrained(folder, attn_implementation="eager").eval()
    training = OnlineDSparkModel(
        model,
        target.model.lm_head,
        target.model.model.embed_tokens,
        MASK,
        BLOCK,
        attention_backend="eager",
        objective_chunk_blocks=0,
    )
    anchors = torch.tensor([ANCHORS])
    training._sample_anchor_positions = lambda *_: (anchors, torch.ones_like(anchors, dtype=torch.bool))
    found, apply, predict = {}, model.apply_logits_head, model.predict_confidence

    def keep_logits(base, **options):
        found["base"] = base.flatten(0, 2)
        found["markov"] = apply(base, **options).flatten(0, 2)
        return found["markov"].view_as(base)

    def keep_confidence(hidden, **options):
        found["confidence"] = predict(hidden, **options)
        return found["confidence"]

    model.apply_logits_head, model.predict_confidence = keep_logits, keep_confidence
    input_ids = [i + 1 for i in output_ids]
    with torch.no_grad():
        training(
            input_ids=target.tokens[None],
            hidden_states=target.entering[input_ids].transpose(0, 1).flatten(1)[None],
            loss_mask=torch.ones(1, LENGTH),
            target_last_hidden_states=target.last_normed[None],
        )
    return Case(
        plain_of(model.state_dict(), config, target),
        input_ids,
        None,
        target.embedding,
        True,
        found["base"],
        found["markov"],
        found["confidence"].reshape(-1, 1),
    )


# --- comparisons ------------------------------------------------------------------------------------------------------


def computed(case, target, plain, *, taps=None, mask=MASK, embedding=None, first=None, shift=0, vector_of=None):
    """What heads_plain says, as Case.said. first: of a block's rows that are taken; shift: of the previous tokens;
    vector_of: which of the Markov head's vectors each token has."""
    embedding = case.embedding if embedding is None else embedding
    taps = target.entering[case.input_ids].transpose(0, 1) if taps is None else taps
    first = int(not case.sample_from_anchor) if first is None else first
    found = {kind: [] for kind in case.said}
    for anchor in ANCHORS:
        state = plain.states(embedding[block_tokens(target, anchor, mask)], taps, anchor)[first:]
        previous = target.tokens[(anchor + torch.arange(len(state)) + shift).clamp(0, LENGTH - 1)]
        previous = previous if vector_of is None else vector_of[previous]
        base = plain.product("lm_head", state)
        found["base"].append(base)
        if "markov" in found:
            found["markov"].append(base + plain.markov(state, previous))
        if "confidence" in found:
            found["confidence"].append(plain.confidence(state, previous if "markov" in found else None))
    return {kind: torch.cat(rows) for kind, rows in found.items()}


def check(name, target, case):
    plain, ids = case.plain, case.input_ids
    flags = {field.name for field in dataclasses.fields(heads_plain.Block)}

    def taps(input_ids, shift=0):
        return target.entering[list(input_ids)].roll(-shift, 1).transpose(0, 1)

    def changed(*, kinds=tuple(case.said), **options):
        """What this changes in the one of these kinds that it changes least; options: of Block or of computed()."""
        changes = {flag: options.pop(flag) for flag in list(options) if flag in flags}
        found = computed(case, target, dataclasses.replace(plain, **changes), **options)
        return min(distance([found[kind]], [case.said[kind]]) for kind in kinds)

    def is_wide(key):
        """Whether this takes the previous token's vector beside the state."""
        return f"{key}.weight" in plain.tensors and plain.tensors[f"{key}.weight"].shape[1] > LAYER["hidden_size"]

    mistakes = {
        "text shifted": changed(taps=taps(ids, 1)),
        "taps reversed": changed(taps=taps(ids[::-1])) if len(ids) > 1 else torch.inf,
        "anchor's state": changed(sees_anchor=True),
        "block's positions": changed(offset=1),
        "one position": changed(spread=0),
        "text normed": changed(norms_text=True),
        "mask token": changed(mask=MASK + 1),
        "rope theta": changed(rope_theta=plain.rope_theta / 20),
        "rope pairs": changed(adjacent_pairs=True),
    }
    if plain.eps > 1e-4:
        mistakes["target's epsilon"] = changed(eps=1e-6)
    for i, tap in enumerate(ids):
        for other in (tap - 1, tap + 1):
            if 0 <= other < len(target.entering):
                mistakes[f"tap {tap} as {other}"] = changed(taps=taps([*ids[:i], other, *ids[i + 1:]]))
    for i, (window, causal) in enumerate(zip(plain.windows, plain.causal)):
        turned = (*plain.causal[:i], not causal, *plain.causal[i + 1:])
        mistakes[f"layer {i} causal or not"] = changed(causal=turned)
        for other in (window - 1, window + 1, None) if window else (WINDOW,):
            windows = (*plain.windows[:i], other, *plain.windows[i + 1:])
            mistakes[f"layer {i} window {other}"] = changed(windows=windows)
    if any(plain.windows):
        mistakes["windows by row or not"] = changed(window_from_anchor=not plain.window_from_anchor)
    # Rows of the other convention, as far as both have them.
    others = computed(case, target, plain, first=int(case.sample_from_anchor))["base"]
    both = [rows.unflatten(0, (len(ANCHORS), -1))[:, :BLOCK - 1] for rows in (others, case.base)]
    mistakes["row before or after"] = distance(*([rows] for rows in both))
    for key in plain.tensors:
        if "norm" in key:
            key = key.removesuffix(".weight")
            mistakes[f"no {key}"] = changed(without=(key,))
        if key.endswith(".bias"):
            kinds = ["confidence" if key.startswith("confidence") else "markov"]
            mistakes[f"no {key}"] = changed(without=(key,), kinds=kinds)
    if case.embedding is not target.embedding:
        mistakes["target's embedding"] = changed(embedding=target.embedding)
        output = {"lm_head.weight": target.model.lm_head.weight.detach()}
        mistakes["target's output"] = changed(tensors={**plain.tensors, **output}, kinds=["base"])
    if case.markov is not None:
        mistakes["no Markov head"] = distance([case.base], [case.markov])
        kinds = ["markov", "confidence"] if is_wide("confidence_head.proj") else ["markov"]
        for shift in (-1, 1):
            mistakes[f"previous tokens {shift}"] = changed(shift=shift, kinds=kinds)
        if case.d2t is not None:
            rows = torch.zeros(VOCABULARY, dtype=torch.long)
            rows[case.d2t] = torch.arange(len(case.d2t))
            mistakes["vectors by draft token"] = changed(vector_of=rows, kinds=kinds)
        wide = {"markov": "markov_head.gate_proj", "confidence": "confidence_head.proj"}
        kinds = [kind for kind, key in wide.items() if is_wide(key)]
        if kinds:
            mistakes["previous token first"] = changed(markov_first=True, kinds=kinds)

    found, said = computed(case, target, plain), list(case.said.values())
    agreement = check_agreement(name, list(found.values()), said)
    rounded = computed(case, target, plain, taps=target.rounded.entering[ids].transpose(0, 1))
    report(name, said[:1], agreement, mistakes, distance(list(rounded.values()), said))


# --- GGUF -------------------------------------------------------------------------------------------------------------

GGUF_NAMES = {
    "fc": "fc",
    "enc.output_norm": "hidden_norm",
    "output_norm": "norm",
    "output": "lm_head",
    "markov_w1": "markov_head.markov_w1",
    "markov_w2": "markov_head.markov_w2",
    "conf_proj": "confidence_head.proj",
}


def check_gguf(name, file, case):
    """That the file has the same tensors, and says the same."""
    import gguf

    read = gguf.GGUFReader(file)
    d2t, fields = case.d2t, {key: field.contents() for key, field in read.fields.items()}
    said = fields["dflash.target_layers"], fields["dflash.block_size"], fields["tokenizer.ggml.mask_token_id"]
    if said != (case.input_ids, BLOCK, MASK):
        raise SystemExit(f"{name}: the converter wrote {said}")
    if case.markov is not None and fields["dflash.sample_from_anchor"] != case.sample_from_anchor:
        raise SystemExit(f"{name}: the converter wrote another sample_from_anchor")
    for tensor in read.tensors:
        if tensor.name == "d2t":
            found, key = d2t, "d2t"
        else:
            key, kind = tensor.name.rsplit(".", 1)
            if key.startswith("blk."):
                _, layer, part = key.split(".")
                key = f"layers.{layer}.{GGUF_LAYER_NAMES[part]}"
            else:
                key = GGUF_NAMES[key]
            found = case.plain.tensors[f"{key}.{kind}"]
        if not torch.equal(torch.tensor(tensor.data).reshape(found.shape), found):
            raise SystemExit(f"{name}: {tensor.name} is not {key}")
    print(f"{name}: as {len(read.tensors)} tensors of the other", flush=True)


# --- all of them ------------------------------------------------------------------------------------------------------

HEADS = {
    # Old z-lab files say everything at the top.
    "dflash": (
        "llama",
        zlab,
        dict(output_ids=[1, 3, 5], is_old=True, rope_parameters=dict(rope_type="default", rope_theta=5000.0)),
    ),
    "dflash-sliding": ("qwen2", zlab, dict(sliding=[0], is_old=False, rms_norm_eps=1e-2)),
    "dflash-speculators": (
        "llama",
        speculators,
        dict(kind="dflash", input_ids=[2, 4, 6], n_draft=72, layer=dict(rms_norm_eps=1e-2)),
    ),
    "dflash-speculators-sliding": (
        "qwen2",
        speculators,
        dict(kind="dflash", input_ids=[1, 4], sliding=[1], sliding_window_non_causal=True, layer=dict(head_dim=32)),
    ),
    "dflash-speculators-causal": (
        "llama",
        speculators,
        dict(
            kind="dflash",
            input_ids=[3, 6],
            n_layers=1,
            sliding=[0],
            absent=["sample_from_anchor", "sliding_window_non_causal"],
            layer={},
        ),
    ),
    "dspark": (
        "llama",
        speculators,
        dict(kind="dspark", input_ids=[1, 4, 7], markov_rank=RANK, absent=["sample_from_anchor"], layer={}),
    ),
    "dspark-gated": (
        "qwen2",
        speculators,
        dict(
            kind="dspark",
            input_ids=[2, 4],
            n_layers=1,
            n_draft=72,
            markov_rank=RANK,
            markov_head_type="gated",
            confidence_head_with_markov=False,
            layer=dict(rms_norm_eps=1e-2),
        ),
    ),
    "dspark-mask-first": (
        "llama",
        speculators,
        dict(
            kind="dspark",
            input_ids=[2, 5],
            n_layers=1,
            n_draft=72,
            markov_rank=RANK,
            sample_from_anchor=False,
            enable_confidence_head=False,
            layer={},
        ),
    ),
    "dspark-specforge": (
        "llama",
        specforge,
        dict(
            output_ids=[1, 4],
            n_layers=2,
            sliding=[1],
            markov_rank=RANK,
            markov_head_type="rnn",
            enable_confidence_head=True,
            confidence_head_with_markov=True,
            layer=dict(rope_parameters=dict(rope_type="default", rope_theta=2000.0)),
        ),
    ),
    "dspark-deepspec": (
        "qwen2",
        deepspec,
        dict(
            output_ids=[-1, 1, 4],
            n_layers=2,
            markov_rank=RANK,
            markov_head_type="vanilla",
            enable_confidence_head=True,
            confidence_head_with_markov=True,
            layer=dict(rope_parameters=dict(rope_type="default", rope_theta=2000.0)),
        ),
    ),
    # DeepSpec's files for DFlash have the class of DSpark, so they are anchor-first.
    "dflash-deepspec": (
        "llama",
        deepspec,
        dict(output_ids=[2, 5], n_layers=1, markov_rank=0, enable_confidence_head=False, layer={}),
    ),
}


# Of which head llama.cpp's converter makes which other. A model of speculators for DFlash it does not take.
GGUF = {"dflash": "gguf-dflash", "dspark": "gguf-dspark", "dspark-mask-first": "gguf-dspark-mask-first"}


def pack(name, target, work_of, convert):
    _, make, special = HEADS[name]
    work = work_of(name)
    case = make(name, target, work / "head", **special)
    check(name, target, case)
    matrices = case.said
    if case.plain.window_from_anchor and any(case.plain.windows):
        plain = dataclasses.replace(case.plain, window_from_anchor=False)
        matrices["base-window-by-row"] = computed(case, target, plain)["base"]
    expected = dict(
        input_ids=case.input_ids,
        anchors=ANCHORS,
        block_size=BLOCK,
        sample_from_anchor=case.sample_from_anchor,
        mask_token=MASK,
    )
    yield pack_head(name, work, target, matrices, case.d2t, 32, **expected)
    if name in GGUF:
        if "absent" in special:  # the converter would take sample_from_anchor for false
            make(name, target, work / "whole", **{**special, "absent": ()})
        work_out, head = work_of(GGUF[name]), work / ("whole" if "absent" in special else "head")
        # The mask token is in the vocabulary, which is not written.
        convert(head, work_out / "head.gguf", lambda made: made.gguf_writer.add_mask_token_id(MASK))
        check_gguf(GGUF[name], work_out / "head.gguf", case)
        yield pack_head(GGUF[name], work_out, target, matrices, case.d2t, 32, **expected)
