#!/usr/bin/env python3
"""Compares the logits of this program with llama.cpp's on the same tokens of a text.

needs: numpy, llama-cpp-python==0.3.36 (from the Python index), and outrider-dump-logits from the build
usage: agreement.py MODEL.gguf [--text FILE] [--positions 256] [--dump build/release/bench/outrider-dump-logits]

Prints how often both name the same top token and the mean Kullback-Leibler divergence KL(llama.cpp || outrider) in nats.
Exit status 1 if fewer than 93% agree or the mean divergence is above 0.02.
"""
import argparse
import pathlib
import subprocess
import sys

import llama_cpp
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def peer_logits(path, text, n):
    model = llama_cpp.Llama(str(path), n_ctx=n + 8, n_batch=n + 8, logits_all=True, verbose=False)
    tokens = model.tokenize(text.encode(), add_bos=llama_cpp.llama_vocab_get_add_bos(model._model.vocab), special=False)[:n]
    model.eval(tokens)
    n_vocab = model.n_vocab()
    rows = [np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(model.ctx, i), shape=(n_vocab,)).copy()
            for i in range(len(tokens))]
    return tokens, np.stack(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "docs" / "design.md")
    parser.add_argument("--positions", type=int, default=256)
    parser.add_argument("--dump", type=pathlib.Path, default=ROOT / "build/release/bench/outrider-dump-logits")
    options = parser.parse_args()

    tokens, theirs = peer_logits(options.model, options.text.read_text(), options.positions)
    output = subprocess.run([options.dump, options.model], input=" ".join(map(str, tokens)).encode(),
                            stdout=subprocess.PIPE, check=True).stdout
    ours = np.frombuffer(output, dtype=np.float32).reshape(len(tokens), -1)

    same = (theirs.argmax(axis=1) == ours.argmax(axis=1)).mean()
    p, q = log_softmax(theirs), log_softmax(ours)
    divergence = (np.exp(p) * (p - q)).sum(axis=1)
    print(f"{options.model.name}: {len(tokens)} positions, same top token {100 * same:.1f}%, "
          f"KL mean {divergence.mean():.5f}, median {np.median(divergence):.5f}, largest {divergence.max():.4f}")
    sys.exit(1 if same < 0.93 or divergence.mean() > 0.02 else 0)


if __name__ == "__main__":
    main()
