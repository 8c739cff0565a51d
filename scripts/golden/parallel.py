#!/usr/bin/env python3
# requirements: torch==2.15.0 transformers==5.24.0 gguf==0.19.0 numpy==2.3.5 sentencepiece==0.2.1 safetensors==0.8.0 scikit-build-core==1.1.2
"""Makes tests/golden/parallel/: small random draft models that guess several tokens in one pass, and their guesses.

    scripts/golden/parallel.py FOLDER    FOLDER as for families.py

The reference is PARD (An et al. 2025, arXiv:2504.18583) in its plainest form, without a cache: for each draft of k
tokens the whole text, and k - 1 mask tokens after it, pass through transformers' model in float32. The last k rows of
logits are the guesses. NAME.tar.xz holds

model.gguf       the model as llama.cpp's converter writes it, without a vocabulary, with the key ARCHITECTURE.pard_token
expected.json    mask     the mask token
                 texts    [3]: tokens of the whole text
                          drafts: in the order in which they are asked for, each with
                              length          of the text so far
                              tokens          [k][4]: the most probable ones of each row
                              probabilities   [k][4]: theirs
"""

import json
import logging
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers

import families
import packing

MODELS = {
    "llama": ("LlamaConfig", dict(num_hidden_layers=2, rope_parameters=dict(rope_type="default", rope_theta=500.0))),
    "qwen2": ("Qwen2Config", dict(num_hidden_layers=2)),
}
MASK, BEST = 61, 4
GAP = 0.003  # at least, between the best logit and the second, and the second and the third: their order is compared

# Of each text: its length at the first draft, then what is added before each further one: how many tokens of the last
# draft, how many mask tokens, which a text may also hold, and how many random ones. Texts cross position 64, where the
# pages of a cache end, with their masks and without.
GROWTH = [
    (1, [(0, 0, 1), (0, 0, 1), (0, 0, 3), (2, 0, 1), (0, 0, 1), (0, 0, 9), (1, 0, 1), (0, 2, 1), (0, 0, 1), (0, 0, 36), (3, 0, 0), (0, 0, 2)]),
    (20, [(0, 0, 2), (4, 0, 1), (0, 0, 1), (0, 1, 0), (0, 0, 1), (0, 0, 5), (0, 3, 2), (0, 0, 24), (2, 0, 1), (0, 0, 1), (0, 0, 1), (0, 0, 1)]),
    (57, [(0, 0, 1), (0, 0, 1), (0, 0, 1), (0, 0, 1), (1, 0, 1), (0, 0, 1), (0, 0, 17), (0, 0, 1), (1, 1, 1), (0, 0, 4), (0, 0, 1), (0, 0, 1)]),
]
# k of each draft, in turn.
TOKENS = [4, 8, 8, 5, 1, 8, 2, 8, 3, 6, 7]


def draft(model, text, k):
    """Logits [k, vocabulary] of what follows the text, from the text alone."""
    with torch.no_grad():
        return model(torch.tensor([text + [MASK] * (k - 1)]), use_cache=False).logits[0, -k:].double()


def drafts_of(model, first, growth, generator, n_before):
    def random_tokens(n):
        return torch.randint(0, families.VOCABULARY, (n,), generator=generator).tolist()

    text, drafts, gap = random_tokens(first), [], np.inf
    for i, (n_drafted, n_masks, n_random) in enumerate([(0, 0, 0), *growth]):
        text += [row[0] for row in drafts[-1]["tokens"][:n_drafted]] if n_drafted else []
        text += [MASK] * n_masks + random_tokens(n_random)
        logits = draft(model, text, TOKENS[(n_before + i) % len(TOKENS)])
        best = logits.topk(BEST, -1)
        gap = min(gap, (best.values[:, :2] - best.values[:, 1:3]).min().item())
        probabilities = torch.softmax(logits, -1).gather(-1, best.indices)
        drafts.append(dict(length=len(text), tokens=best.indices.tolist(),
                           probabilities=[[float(f"{p:.8g}") for p in row] for row in probabilities.tolist()]))
    return dict(tokens=text, drafts=drafts), gap


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (packing.GOLDEN / "parallel").mkdir(exist_ok=True)
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    get_model_class = families.converter(folder)
    for name, (kind, special) in MODELS.items():
        model, _ = families.make_model(name, kind, special, deviation=4)
        for seed in range(100):
            generator = torch.Generator().manual_seed(seed)
            found = [drafts_of(model, first, growth, generator, 4 * i) for i, (first, growth) in enumerate(GROWTH)]
            gap = min(gap for _, gap in found)
            if gap >= GAP:
                break
        else:
            raise SystemExit(f"{name}: every seed has two logits that are nearly equal")
        expected = dict(mask=MASK, texts=[text for text, _ in found])

        def with_mask(made):
            set_gguf_parameters = made.set_gguf_parameters

            def set_all():
                set_gguf_parameters()
                made.gguf_writer.add_uint32(f"{made.gguf_writer.arch}.pard_token", MASK)

            made.set_gguf_parameters = set_all

        with tempfile.TemporaryDirectory(dir=folder) as work:
            work = pathlib.Path(work)
            model.save_pretrained(work / "source")
            families.convert(get_model_class, name, work / "source", work / "model.gguf", with_mask)
            size = packing.pack(f"parallel/{name}", {"model.gguf": (work / "model.gguf").read_bytes(),
                                                     "expected.json": json.dumps(expected).encode()})
        first = [row[0] for text, _ in found for d in text["drafts"] for row in d["probabilities"]]
        print(f"{name}: {size} bytes, seed {seed}, smallest gap {gap:.3f}, probabilities of the first {min(first):.2f} to {max(first):.2f}", flush=True)


if __name__ == "__main__":
    main()
