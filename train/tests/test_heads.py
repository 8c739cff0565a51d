"""The exported files say, row by row as an engine drafts, what the trainer computes for whole batches at once."""

import pathlib
import sys

import pytest
import torch

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1])]

import toy_features
from outrider_train.batches import make_batch
from outrider_train.eagle3 import Eagle3
from outrider_train.export import export
from outrider_train.features import Features
from outrider_train.medusa import Medusa
from plain_forward import PlainEagle3, plain_medusa

DEPTHS = 3


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return Features(toy_features.make(tmp_path_factory.mktemp("toy"), texts=40, length=(8, 24)))


def round_parameters(head):
    """To what the file holds."""
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(parameter.bfloat16())


def random_eagle3(features):
    torch.manual_seed(3)
    head = Eagle3(features.model, len(features.taps), 96, features.embedding, torch.float32)
    head.o.data *= 10  # attention and MLP as strong as the residual
    head.down.data *= 10
    for vector in (head.hidden_norm, head.input_norm, head.mlp_norm, head.norm):
        vector.data.uniform_(0.5, 1.5)
    head.feature_scale.copy_(2.0 ** torch.randint(-2, 3, head.feature_scale.shape))  # exact when multiplied into fc
    round_parameters(head)
    return head


def test_eagle3_file_agrees_with_the_trainer(features, tmp_path):
    head, draft_tokens = random_eagle3(features), features.draft_tokens(100)
    export(tmp_path, "eagle3", features, head, draft_tokens, {}, {})
    plain = PlainEagle3(tmp_path, features.embedding)
    assert plain.tokens == draft_tokens.tolist()
    texts = features.training_texts()[:5]
    batch = make_batch(features, texts)
    rows = features.output[draft_tokens].float()
    with torch.no_grad():
        logits = [states @ rows.T for states in head.states(batch, DEPTHS)]
        at, compared = 0, 0
        for text in texts:
            tokens = features.tokens(text).tolist()
            for p, found in plain.drafts(tokens, features.rows(text, "features", 1, text.n_tokens - 3),
                                         text.first_start, DEPTHS):
                for depth, expected in enumerate(found):
                    row = at + p - text.first_start + depth
                    assert torch.allclose(logits[depth][row], expected, atol=2e-4 * float(expected.abs().max()))
                    assert batch.number_in_text[row] >= depth
                    assert batch.next_tokens[row] == tokens[p + depth + 1]
                    compared += 1
            at += text.n_starts
    assert at == batch.n_starts and compared > 3 * batch.n_starts - 6 * len(texts)


def test_medusa_file_agrees_with_the_trainer(features, tmp_path):
    torch.manual_seed(4)
    head = Medusa(features.model, torch.float32)
    for parameter in head.parameters():
        parameter.data.normal_(0, 0.3)
    round_parameters(head)
    export(tmp_path, "medusa", features, head, features.draft_tokens(100), {}, {})
    texts = features.training_texts()[:5]
    batch = make_batch(features, texts, needs_taps=False)
    at = 0
    with torch.no_grad():
        states = list(head.states(batch, DEPTHS))
        for text in texts:
            tokens = features.tokens(text).tolist()
            for p in range(text.first_start, text.n_tokens - 1):
                expected = plain_medusa(tmp_path, features.output, features.rows(text, "final", p, p)[0])
                for h in range(DEPTHS):
                    row = at + p - text.first_start + 1 + h  # that of position p + 1 + h, whose next is p + 2 + h
                    if p + 2 + h < text.n_tokens:
                        logits = states[h][row] @ features.output.float().T
                        assert torch.allclose(logits, expected[h], atol=2e-4 * float(expected[h].abs().max()))
                        assert batch.next_tokens[row] == tokens[p + 2 + h]
            at += text.n_starts


def test_speculators_reads_eagle3(features, tmp_path):
    """speculators' class with the exported tensors says what the trainer says, for whole texts. Its data begin at
    position 0, ours at 2, so it is given the rows that we have."""
    speculators = pytest.importorskip("speculators.models.eagle3")
    import transformers
    from safetensors.torch import load_file

    head, draft_tokens = random_eagle3(features), features.draft_tokens(100)
    export(tmp_path, "eagle3", features, head, draft_tokens, {}, {})
    tensors = load_file(tmp_path / "model.safetensors")
    model = features.model
    config = transformers.LlamaConfig(
        vocab_size=model["vocabulary_size"], hidden_size=model["embedding"], intermediate_size=head.feed_forward,
        num_attention_heads=model["heads"], num_key_value_heads=model["kv_heads"], head_dim=model["head_dim"],
        num_hidden_layers=1, rms_norm_eps=model["rms_epsilon"], max_position_embeddings=512,
        rope_parameters=dict(rope_type="default", rope_theta=model["rope_theta"]), pad_token_id=None)
    config._attn_implementation = "eager"
    from speculators import SpeculatorsConfig, VerifierConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig

    reference = speculators.Eagle3DraftModel(speculators.Eagle3SpeculatorConfig(
        transformer_layer_config=config, draft_vocab_size=len(draft_tokens), norm_before_residual=False,
        eagle_aux_hidden_state_layer_ids=[tap + 1 for tap in features.taps],
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3", proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=DEPTHS)],
            default_proposal_method="greedy", verifier=VerifierConfig(name_or_path=None, architectures=[]))))
    named = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}
    named["embed_tokens.weight"] = features.embedding
    missing = reference.load_state_dict(named, strict=False)
    assert not missing.unexpected_keys and not [m for m in missing.missing_keys if not m.startswith("verifier")]
    reference = reference.float().eval()
    found = []
    reference.lm_head.register_forward_hook(lambda module, inputs, output: found.append(output[0]))
    for text in features.training_texts()[:3]:
        batch = make_batch(features, [text])
        tokens = features.tokens(text).long()
        found.clear()
        with torch.no_grad():
            reference(batch.taps.float()[None], tokens[None, 2:-1], torch.zeros((1, batch.n_rows), dtype=torch.long),
                      position_ids=batch.positions[None], ttt_steps=DEPTHS)
            for depth, states in enumerate(head.states(batch, DEPTHS)):
                logits = states @ features.output[draft_tokens].float().T
                first = text.first_start - 2  # theirs are of all rows, and row i at depth d is ours of i + d
                theirs = found[depth][first : batch.n_rows - depth]
                assert torch.allclose(theirs, logits[depth:], atol=2e-4 * float(theirs.abs().max()))
