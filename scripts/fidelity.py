#!/usr/bin/env python3
# requirements: torch==2.15.0 transformers==5.24.0 gguf==0.19.0 numpy==2.3.5 sentencepiece==0.2.1 accelerate==1.14.0 llama-cpp-python==0.3.36
"""How far outrider and llama.cpp are from exact arithmetic on real models: both against transformers in float32 on the
dequantized weights, at the same positions.

    scripts/fidelity.py MODEL.gguf... [--outrider build/release/outrider] [--chunks 72] [--guard]

The texts are of several kinds: prose, code of several languages, tables, many scripts, all from this repository, cut into
chunks of 512 tokens, of which the second half is predicted. Prints for each model the mean divergence KL(exact || program)
in nats with its quantiles, how often the best token is the same, and the paired differences with intervals of 95 % by the
bootstrap over chunks (Efron 1979). Exit status 1 if outrider's mean divergence may be more than 5 % of llama.cpp's above
llama.cpp's, or its agreement more than half a point below.

--guard writes tests/golden/fidelity/MODEL.json instead: the 64 most probable next tokens of some positions by transformers.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

import numpy as np
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHUNK = 512
GUARD_POSITIONS, GUARD_BEST = 48, 64


def texts():
    """Kinds of text by name, each long enough for some chunks."""
    with tarfile.open(ROOT / "tests/golden/tokenizers.tar.xz") as tar:
        strings = json.load(tar.extractfile("strings.json"))

    def files(pattern):
        return "\n".join(path.read_text() for path in sorted(ROOT.glob(pattern)))
    return {
        "prose": files("docs/design.md") + files("README.md") + files("docs/models.md"),
        "technical": files("docs/arithmetic.md") + files("CONTRIBUTING.md") + files("docs/experiments/*.md"),
        "C++": files("src/engine/*.cpp"),
        "Python": files("scripts/golden/*.py") + files("scripts/*.py"),
        "tables": files("docs/performance.md"),
        "scripts": "\n".join(text for text in strings if isinstance(text, str)),
    }


def outrider_tokens(program, model, text):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        shown = subprocess.run([program, "tokenize", "-m", model, "-f", file.name, "--json"], capture_output=True, text=True, check=True)
    return json.loads(shown.stdout)["tokens"]


def outrider_logits(program, model, text, n_chunks):
    """Of the second halves of the first chunks: [chunks, 255, vocabulary]."""
    with tempfile.TemporaryDirectory() as folder:
        file, logits = pathlib.Path(folder) / "text", pathlib.Path(folder) / "logits.npy"
        file.write_text(text)
        subprocess.run([program, "perplexity", "-m", model, "-f", file, "-c", str(CHUNK), "--chunks", str(n_chunks), "--logits-out", logits, "--quiet"],
                       check=True, stdout=subprocess.DEVNULL)
        rows = np.load(logits)
    return rows.reshape(n_chunks, -1, rows.shape[1])


class Judge:
    def __init__(self, path):
        path = pathlib.Path(path)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()

    def logits(self, tokens):
        with torch.no_grad():
            return self.model(torch.tensor([tokens]), use_cache=False).logits[0, CHUNK // 2:-1].numpy()


class LlamaCpp:
    def __init__(self, path):
        import llama_cpp
        self.api = llama_cpp
        self.model = llama_cpp.Llama(str(path), n_ctx=CHUNK, n_batch=CHUNK, logits_all=True, verbose=False)

    def logits(self, tokens):
        self.model.reset()
        self.model.eval(tokens)
        rows = [np.ctypeslib.as_array(self.api.llama_get_logits_ith(self.model.ctx, at), shape=(self.model.n_vocab(),)).copy()
                for at in range(CHUNK // 2, CHUNK - 1)]
        return np.stack(rows)


def log_softmax(x):
    x = torch.from_numpy(np.array(x)).double()
    return torch.log_softmax(x, -1)


def compare(exact, found):
    """Divergence and agreement at each position."""
    p, q = log_softmax(exact), log_softmax(found)
    kl = (p.exp() * (p - q)).sum(-1)
    return kl.numpy(), (p.argmax(-1) == q.argmax(-1)).double().numpy()


def interval(values, samples=4000):
    """Of the mean of [chunks, positions], by samples of whole chunks."""
    chance = np.random.default_rng(1)
    means = values.mean(1)
    drawn = means[chance.integers(0, len(means), (samples, len(means)))].mean(1)
    return np.percentile(drawn, [2.5, 97.5])


def chunks_of(program, model, n_chunks):
    """(kind, text, tokens of its chunks as perplexity cuts it), all kinds in equal parts as far as they go."""
    bos = first_token(program, model)
    found = []
    kinds = texts()
    for kind, text in kinds.items():
        tokens = ([] if bos is None else [bos]) + outrider_tokens(program, model, text)
        n = min(len(tokens) // CHUNK, max(1, n_chunks // len(kinds)))
        found.append((kind, text, [tokens[i * CHUNK:(i + 1) * CHUNK] for i in range(n)]))
    return found


def first_token(program, model):
    """BOS if the model expects it: perplexity makes it the first token of every chunk."""
    metadata = json.loads(subprocess.run([program, "inspect", model, "--json"], capture_output=True, text=True, check=True).stdout)["metadata"]
    return metadata.get("tokenizer.ggml.bos_token_id") if metadata.get("tokenizer.ggml.add_bos_token", False) else None


def measure(program, path, n_chunks):
    judge, peer = Judge(path), LlamaCpp(path)
    bos = first_token(program, path)
    rows = {"outrider": [], "llama.cpp": []}
    kinds = []
    for kind, text, chunks in chunks_of(program, path, n_chunks):
        ours = outrider_logits(program, path, text, len(chunks)) if chunks else []
        for tokens, own in zip(chunks, ours):
            if bos is not None:
                tokens = [bos] + tokens[1:]
            exact = judge.logits(tokens)
            rows["outrider"].append(compare(exact, own))
            rows["llama.cpp"].append(compare(exact, peer.logits(tokens)))
            kinds.append(kind)
            print(f"{path}: chunk {len(kinds)}, {kind}: KL {rows['outrider'][-1][0].mean():.6f}, llama.cpp {rows['llama.cpp'][-1][0].mean():.6f}",
                  file=sys.stderr, flush=True)
    kl = {name: np.stack([row[0] for row in found]) for name, found in rows.items()}
    same = {name: np.stack([row[1] for row in found]) for name, found in rows.items()}
    print(f"\n{pathlib.Path(path).name}: {kl['outrider'].size} positions in {len(kinds)} chunks, {len(set(kinds))} kinds of text")
    for name in kl:
        quantiles = np.percentile(kl[name], [50, 90, 99, 99.9])
        print(f"  {name:9}  KL mean {kl[name].mean():.6f}, median {quantiles[0]:.6f}, 90 % {quantiles[1]:.5f}, 99 % {quantiles[2]:.4f}, "
              f"99.9 % {quantiles[3]:.4f}, largest {kl[name].max():.4f}; same best token {100 * same[name].mean():.2f} %")
    reference = kl["llama.cpp"].mean()
    low, high = interval(kl["outrider"] - kl["llama.cpp"]) / reference * 100
    same_low, same_high = interval(same["outrider"] - same["llama.cpp"]) * 100
    print(f"  difference of the mean KL, of llama.cpp's: {low:+.1f} to {high:+.1f} %; of the agreement: {same_low:+.2f} to {same_high:+.2f} points", flush=True)
    return high <= 5 and same_low >= -0.5


def write_guard(program, path):
    judge = Judge(path)
    bos = first_token(program, path)
    positions = []
    kinds = chunks_of(program, path, 6)
    for kind, _, chunks in kinds:
        tokens = ([bos] + chunks[0][1:]) if bos is not None else chunks[0]
        logits = torch.log_softmax(torch.from_numpy(judge.logits(tokens)).double(), -1)
        text = {"tokens": tokens, "positions": []}
        for at in np.linspace(0, logits.shape[0] - 1, GUARD_POSITIONS // len(kinds)).astype(int).tolist():
            best = logits[at].topk(GUARD_BEST)
            text["positions"].append({"position": CHUNK // 2 + at, "tokens": best.indices.tolist(), "log_probabilities": [round(v, 4) for v in best.values.tolist()]})
        positions.append(text)
    out = ROOT / "tests" / "golden" / "fidelity" / f"{pathlib.Path(path).stem}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(positions, separators=(",", ":")) + "\n")
    print(f"{out}: {out.stat().st_size} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--outrider", default=str(ROOT / "build" / "release" / "outrider"))
    parser.add_argument("--chunks", type=int, default=72)
    parser.add_argument("--guard", action="store_true")
    options = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    if options.guard:
        for path in options.models:
            write_guard(options.outrider, path)
        return
    good = [measure(options.outrider, path, options.chunks) for path in options.models]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
