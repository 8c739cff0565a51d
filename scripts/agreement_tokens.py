#!/usr/bin/env python3
# requirements: llama-cpp-python==0.3.36 mistral-common==1.13.1 sentencepiece==0.2.1 gguf==0.19.0 numpy==2.3.5 torch==2.15.0 transformers==5.24.0
"""Compares tokens with those of the programs that defined real vocabularies.

    scripts/agreement_tokens.py FOLDER [--fuzz 20000] [--dump build/release/bench/outrider-dump-tokens]

FOLDER holds llama.cpp/ as scripts/golden/families.py leaves it, with the folder models/ of llama.cpp's sources: vocabulary
files (ggml-vocab-*.gguf) with texts and the tokens that each model's own tokenizer gives. mistral-common brings its own
vocabularies. Texts are those files', tests/golden/tokenizers/strings.json, and random ones (--fuzz). Prints a line per
vocabulary: how many texts have the same tokens by the model's own tokenizer (where that is here), and by llama.cpp.
"""

import argparse
import importlib.resources
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import llama_cpp

ROOT = pathlib.Path(__file__).resolve().parent.parent


def is_well_formed(text):
    return text == text.decode("utf-8", "replace").encode()


def golden_strings():
    strings = json.loads((ROOT / "tests/golden/tokenizers/strings.json").read_text())
    return [text.encode() if isinstance(text, str) else bytes.fromhex(text["hex"]) for text in strings]


def random_strings(n):
    """Pieces of the golden strings and single characters, put together."""
    chance = random.Random(18)
    strings = [text.decode("utf-8", "replace") for text in golden_strings() if text]
    def piece():
        if chance.random() < 0.5:
            text = chance.choice(strings)
            begin = chance.randrange(len(text))
            return text[begin:begin + chance.randint(1, 12)]
        return chance.choice(["".join(chance.choices(" \n\t'", k=chance.randint(1, 4))), str(chance.randrange(10 ** chance.randint(1, 7))),
                              chance.choice(strings)[:1], chance.choice(["'s", "'LL", "ÄB", "aB", "Ab", "中文", "한국", "é", "e\u0301", "//", "...", "\r\n"])])
    return ["".join(piece() for _ in range(chance.randint(1, 8))).encode() for _ in range(n)]


def our_tokens(dump, path, texts):
    data = b"".join(str(len(text)).encode() + b"\n" + text for text in texts)
    shown = subprocess.run([dump, path], input=data, stdout=subprocess.PIPE, check=True).stdout
    return [[int(token) for token in line.split()] for line in shown.decode().splitlines()]


def llama_tokens(path, texts):
    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    # Ill-formed text ends its process.
    return [model.tokenize(text, add_bos=False, special=False) if is_well_formed(text) else None for text in texts]


def own_tests(path):
    """Texts, and the tokens of the model's own tokenizer."""
    texts, tokens = pathlib.Path(f"{path}.inp"), pathlib.Path(f"{path}.out")
    if not texts.exists():
        return []
    separator = "\n__ggml_vocab_test__\n"
    return list(zip((text.encode() for text in texts.read_text().split(separator)), ([int(t) for t in line.split()] for line in tokens.read_text().split("\n"))))


def mistral_vocabularies(folder):
    """(name, GGUF file made by llama.cpp's converter, function from a text to its tokens) of mistral-common's files."""
    sys.path[:0] = [str(folder / "llama.cpp"), str(folder / "llama.cpp" / "gguf-py")]
    import gguf
    from conversion.llama import LlamaModel
    from conversion.mistral import MistralModel
    MistralModel.get_community_chat_template = staticmethod(lambda *_: "")
    from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    data = pathlib.Path(str(importlib.resources.files("mistral_common"))) / "data"
    for source in sorted([*data.glob("tokenizer.model*"), *data.glob("mistral_instruct_tokenizer*.model*"), *data.glob("tekken*.json")]):
        is_tekken = source.suffix == ".json"
        with tempfile.TemporaryDirectory(dir=folder) as work:
            work = pathlib.Path(work)
            (work / ("tekken.json" if is_tekken else source.name)).write_bytes(source.read_bytes())
            made = object.__new__(LlamaModel)
            made.dir_model, made.hparams, made.disable_mistral_community_chat_template = work, {}, True
            made.gguf_writer = gguf.GGUFWriter(folder / f"{source.name}.gguf", "llama")
            made._set_vocab_mistral()
            made.gguf_writer.write_header_to_file()
            made.gguf_writer.write_kv_data_to_file()
            made.gguf_writer.write_tensors_to_file()
            made.gguf_writer.close()
        tokenizer = Tekkenizer.from_file(source) if is_tekken else SentencePieceTokenizer(str(source))
        yield source.name, folder / f"{source.name}.gguf", lambda text: tokenizer.encode(text, bos=False, eos=False)


def same(pairs):
    pairs = [(a, b) for a, b in pairs if b is not None]
    return f"{sum(a == b for a, b in pairs)} of {len(pairs)}" if pairs else "-"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--fuzz", type=int, default=20000)
    parser.add_argument("--dump", default=ROOT / "build/release/bench/outrider-dump-tokens")
    parser.add_argument("--only", default="", help="vocabularies whose name holds this")
    parser.add_argument("--show", type=int, default=0, help="differences to show per vocabulary")
    options = parser.parse_args()
    texts = golden_strings() + random_strings(options.fuzz)

    def report(name, path, own):
        ours = our_tokens(options.dump, path, [text for text, _ in own] + texts)
        theirs = llama_tokens(path, texts)
        own_pairs = list(zip(ours, (tokens for _, tokens in own)))
        peer_pairs = list(zip(ours[len(own):], theirs))
        print(f"{name:32} own tokenizer {same(own_pairs):>16}   llama.cpp {same(peer_pairs):>16}", flush=True)
        well_formed_pairs = [(text, (a, b)) for text, (a, b) in zip(texts, peer_pairs) if b is not None]
        shown = [(text, a, b) for (text, _), (a, b) in zip(own, own_pairs) if a != b] or [(text, a, b) for text, (a, b) in well_formed_pairs if a != b]
        for text, a, b in shown[:options.show]:
            print(f"    {text!r}: {a} and {b}")

    for path in sorted((options.folder / "llama.cpp" / "models").glob("ggml-vocab-*.gguf")):
        try:
            if options.only in path.stem:
                report(path.stem, path, own_tests(path))
        except subprocess.CalledProcessError:
            print(f"{path.stem:32} not supported")
    for name, path, encode in mistral_vocabularies(options.folder):
        if options.only not in name:
            continue
        well_formed = [text for text in texts if is_well_formed(text)]
        report(name, path, [(text, encode(text.decode())) for text in well_formed])


if __name__ == "__main__":
    main()
