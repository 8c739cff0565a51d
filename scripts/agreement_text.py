#!/usr/bin/env python3
# requirements: llama-cpp-python==0.3.36 numpy==2.3.5
"""Compares greedy answers with llama.cpp's, token by token.

    scripts/agreement_text.py MODEL.gguf [--prompts bench/prompts/prompts.jsonl] [--tokens 48] [--outrider build/release/outrider]

Both continue the same tokens. Where the texts part, prints by how much llama.cpp preferred its token to the other one: the
difference of the two logits, which rounding can turn if it is small. Prints how many answers are equal for 32 tokens.
"""

import argparse
import json
import pathlib
import subprocess

import llama_cpp
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent


def outrider(program, *arguments, text=None):
    return json.loads(subprocess.run([program, *arguments, "--json"], input=text, capture_output=True, text=True, check=True).stdout)


def logits_of(model):
    return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(model.ctx, -1), shape=(model.n_vocab(),)).copy()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--prompts", type=pathlib.Path, default=ROOT / "bench/prompts/prompts.jsonl")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--most", type=int, default=1000, help="prompts, at most")
    parser.add_argument("--outrider", default=str(ROOT / "build/release/outrider"))
    options = parser.parse_args()
    model = llama_cpp.Llama(options.model, n_ctx=4096, n_batch=512, verbose=False)
    equal, n, margins = 0, 0, []
    for line in options.prompts.read_text().splitlines()[:options.most]:
        prompt = json.loads(line)["prompt"]
        messages = json.dumps([{"role": "user", "content": prompt}])
        tokens = outrider(options.outrider, "tokenize", "-m", options.model, "--chat", "-", text=messages)["tokens"]
        if len(tokens) + options.tokens > 4000:
            continue
        ours = outrider(options.outrider, "run", "-m", options.model, "-p", prompt, "-n", str(options.tokens), "--temp", "0", "--draft", "off")["tokens"]
        model.reset()
        model.eval(tokens)
        same = 0
        while same < len(ours):
            logits = logits_of(model)
            best = int(logits.argmax())
            if best != ours[same]:
                margins.append(float(logits[best] - logits[ours[same]]))
                print(f"parts after {same} tokens, where llama.cpp preferred its own by {margins[-1]:.3f} (spread of logits {logits.std():.1f}): {prompt[:50]!r}", flush=True)
                break
            model.eval([best])
            same += 1
        n += 1
        equal += same >= min(32, len(ours))
    print(f"{equal} of {n} answers equal for 32 tokens or to their end; {len(margins)} parted, margins median {np.median(margins or [0]):.3f}, largest {max(margins or [0]):.3f}")


if __name__ == "__main__":
    main()
