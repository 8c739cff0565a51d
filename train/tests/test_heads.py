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


def test_speculators_loads_eagle3(features, tmp_path):
    """speculators converts the exported folder, and its class says then what the trainer says, for whole texts. Its
    data begin at position 0, ours at 2, so it is given the rows that we have."""
    speculators = pytest.importorskip("speculators.models.eagle3")
    import transformers
    from safetensors.torch import save_file
    from speculators.convert.eagle.eagle3_converter import Eagle3Converter

    exported, target, converted = tmp_path / "head", tmp_path / "target", tmp_path / "converted"
    head, draft_tokens = random_eagle3(features), features.draft_tokens(100)
    exported.mkdir()
    export(exported, "eagle3", features, head, draft_tokens, {}, {})
    model = features.model
    transformers.LlamaConfig(
        vocab_size=model["vocabulary_size"], hidden_size=model["embedding"], num_hidden_layers=model["layers"],
        num_attention_heads=model["heads"], num_key_value_heads=model["kv_heads"], head_dim=model["head_dim"],
        max_position_embeddings=512).save_pretrained(target)
    save_file({"model.embed_tokens.weight": features.embedding.clone(), "model.norm.weight": torch.ones(features.width),
               "lm_head.weight": torch.zeros_like(features.output)},  # so that the head's own rows must be used
              target / "model.safetensors", {"format": "pt"})
    Eagle3Converter().convert(exported, converted, str(target), validate=False,
                              eagle_aux_hidden_state_layer_ids=[tap + 1 for tap in features.taps])
    config = speculators.Eagle3SpeculatorConfig.from_pretrained(converted)
    config.transformer_layer_config._attn_implementation = "eager"
    reference = speculators.Eagle3DraftModel.from_pretrained(converted, config=config, dtype=torch.float32).eval()
    assert (reference.d2t + torch.arange(len(draft_tokens))).tolist() == draft_tokens.tolist()
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
