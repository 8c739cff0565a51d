#!/usr/bin/env python3
# requirements: llama-cpp-python==0.3.36 tokenizers==0.23.3 mistral-common==1.13.1 sentencepiece==0.2.1 gguf==0.19.0 numpy==2.3.5 torch==2.15.0 transformers==5.24.0
"""Compares tokens with those of the programs that defined real vocabularies.

    scripts/agreement_tokens.py FOLDER [MODEL.gguf...] [--fuzz 20000] [--dump build/release/bench/outrider-dump-tokens]

FOLDER holds llama.cpp/ as scripts/golden/families.py leaves it, with the folder models/ of llama.cpp's sources: vocabulary
files (ggml-vocab-*.gguf) with texts and the tokens that each model's own tokenizer gives. mistral-common brings its own
vocabularies. Texts are those files', the strings of scripts/golden/tokenization.py, and a stream of random ones (--fuzz).

Prints per vocabulary how many texts have the same tokens as by

    own         the model's own tokenizer: the tokens in llama.cpp's files, or mistral-common
    tokenizers  the Python package, with the file's vocabulary and the rules of the tokenizer.json that the model was
                published with (scripts/golden/tokenization.py)
    llama.cpp   well-formed texts only: others end its process

and for the last two also with special tokens parsed. "composed" counts the differences from llama.cpp in texts that
normal form C changes.
"""

import argparse
import importlib.resources
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

import llama_cpp
import tokenizers

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts/golden"))
import tokenization

# Blocks of Unicode, a script or a kind of sign each.
BLOCKS = [(0x20, 0x7f), (0x20, 0x7f), (0xa0, 0x180), (0x180, 0x250), (0x300, 0x370), (0x370, 0x400), (0x400, 0x530), (0x531, 0x590), (0x591, 0x600),
          (0x600, 0x700), (0x900, 0x980), (0x980, 0xa00), (0xa00, 0xa80), (0xb00, 0xb80), (0xb80, 0xc00), (0xc00, 0xc80), (0xc80, 0xd00), (0xd00, 0xd80),
          (0xd80, 0xe00), (0xe00, 0xe80), (0xe80, 0xf00), (0xf00, 0x1000), (0x1000, 0x10a0), (0x10a0, 0x1100), (0x1100, 0x1200), (0x1100, 0x1200), (0x1200, 0x1380),
          (0x1780, 0x1800), (0x1b00, 0x1b80), (0x1e00, 0x1f00), (0x1f00, 0x2000), (0x2000, 0x2070), (0x2070, 0x20a0), (0x20d0, 0x2100), (0x2100, 0x2190),
          (0x2190, 0x2300), (0x2460, 0x2500), (0x3000, 0x3040), (0x3040, 0x3100), (0x3040, 0x3100), (0x3100, 0x3190), (0x4e00, 0xa000), (0x4e00, 0xa000),
          (0xac00, 0xd7a4), (0xac00, 0xd7a4), (0xe000, 0xe010), (0xf900, 0xfb00), (0xfb00, 0xfb50), (0xfe00, 0xfe30), (0xff00, 0xfff0), (0x10300, 0x10350),
          (0x1d100, 0x1d200), (0x1d400, 0x1d800), (0x1f300, 0x1f650), (0x1f300, 0x1f650), (0x1f1e6, 0x1f200), (0x20000, 0x20100), (0x2f800, 0x2fa00)]


def is_well_formed(text):
    return text == text.decode("utf-8", "replace").encode()


def fixed_strings():
    return tokenization.make_strings()


def is_compared(character):
    """Whether both sides know it: tokenizers takes the order of marks from Unicode 9."""
    if not tokenization.is_stable(ord(character)):
        return False
    marks = "\u0315" + character + "\u0334"
    return tokenizers.normalizers.NFC().normalize_str(marks) == unicodedata.normalize("NFC", marks)


def random_strings(n, special):
    """`special`: the texts of special tokens."""
    chance = random.Random(19)
    strings = [text.decode("utf-8", "replace") for text in fixed_strings() if text]
    blocks = [[c for c in map(chr, range(begin, end)) if is_compared(c)] for begin, end in BLOCKS]

    def piece():
        kind = chance.randrange(16)
        if kind < 4:
            block = chance.choice(blocks)
            return "".join(chance.choice(block) for _ in range(chance.randint(1, 8)))
        if kind < 6:
            text = chance.choice(strings)
            begin = chance.randrange(len(text))
            return text[begin:begin + chance.randint(1, 12)]
        if kind == 6:
            return "".join(chance.choices(tokenization.SPACES, k=chance.randint(1, 3)))
        if kind == 7:
            return chance.choice(" \n\t\r") * chance.choice([1, 1, 2, 3, 4, 7, 8, 16, 40])
        if kind == 8:
            return str(chance.randrange(10 ** chance.randint(1, 12)))
        if kind == 9:
            return chance.choice(tokenization.DIGITS + tokenization.EMOJI)
        if kind == 10:
            return chance.choice(tokenization.DECOMPOSED + tokenization.MARKS)
        if kind == 11:
            return chance.choice(special or tokenization.LOOK_ALIKES)
        if kind == 12:
            text = chance.choice(special or tokenization.LOOK_ALIKES)
            return text[:chance.randint(1, len(text))] if chance.random() < 0.5 else text[chance.randrange(len(text)):]
        if kind == 13:
            return chance.choice(["'s", "'LL", "'Re", "’s", "ÄB", "aB", "Ab", "HTTPServer", "//", "...", "\r\n", "();\n", "!=", "-->", "##", "__x", "/*"])
        if kind == 14:
            return chance.choice(tokenization.CONTROLS)
        return "".join(chance.choice("abcdefghijklmnopqrstuvwxyzABCDEFGHIJ") for _ in range(chance.randint(1, 10)))

    def text():
        made = [piece().encode() for _ in range(chance.choice([1, 2, 3, 4, 5, 6, 8, 12, 40]))]
        if chance.random() < 0.15:
            made.insert(chance.randint(0, len(made)), chance.choice([chance.choice(tokenization.ILL_FORMED), bytes([chance.randrange(0x80, 0x100)])]))
        return b"".join(made)

    return [text() for _ in range(n)]


def our_tokens(dump, path, texts, special):
    data = b"".join(str(len(text)).encode() + b"\n" + text for text in texts)
    shown = subprocess.run([dump, path] + ["special"] * special, input=data, stdout=subprocess.PIPE, check=True).stdout
    return [[int(token) for token in line.split()] for line in shown.decode().splitlines()]


def llama_tokens(model, texts, special):
    return [model.tokenize(text, add_bos=False, special=special) if is_well_formed(text) else None for text in texts]


def reference(metadata):
    """The tokenizer by the Python package, or nothing where its rules are not written down here."""
    if metadata["model"] == "gpt2":
        try:
            tokenization.pre_tokenizer(metadata.get("pre"))
        except KeyError:
            return None
        return tokenization.reference_byte_bpe(metadata)
    if metadata["model"] == "llama" and not metadata.get("add_space_prefix", True):
        return tokenization.reference_sentencepiece(metadata)
    return None


def reference_tokens(made, texts, special):
    made.encode_special_tokens = not special
    return [encoding.ids for encoding in made.encode_batch([text.decode("utf-8", "replace") for text in texts], add_special_tokens=False)]


def own_tests(path):
    """Texts, and the tokens of the model's own tokenizer."""
    texts, tokens = pathlib.Path(f"{path}.inp"), pathlib.Path(f"{path}.out")
    if not texts.exists():
        return []
    separator = "\n__ggml_vocab_test__\n"
    return list(zip((text.encode() for text in texts.read_text().split(separator)), ([int(t) for t in line.split()] for line in tokens.read_text().split("\n"))))


def mistral_vocabularies(folder, only):
    """(name, GGUF file made by llama.cpp's converter, function from a text to its tokens) of mistral-common's files."""
    import gguf
    from conversion.llama import LlamaModel
    from conversion.mistral import MistralModel
    MistralModel.get_community_chat_template = staticmethod(lambda *_: "")
    from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    data = pathlib.Path(str(importlib.resources.files("mistral_common"))) / "data"
    for source in sorted([*data.glob("tokenizer.model*"), *data.glob("mistral_instruct_tokenizer*.model*"), *data.glob("tekken*.json")]):
        if only not in source.name:
            continue
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


def composes(text):
    text = text.decode()
    return unicodedata.normalize("NFC", text) != text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("models", type=pathlib.Path, nargs="*", help="further GGUF files")
    parser.add_argument("--fuzz", type=int, default=20000)
    parser.add_argument("--dump", default=ROOT / "build/release/bench/outrider-dump-tokens")
    parser.add_argument("--only", default="", help="vocabularies whose name holds this")
    parser.add_argument("--show", type=int, default=0, help="differences to show per comparison")
    options = parser.parse_args()
    sys.path[:0] = [str(options.folder / "llama.cpp"), str(options.folder / "llama.cpp" / "gguf-py")]
    fixed = fixed_strings()

    def report(name, path, own):
        metadata = tokenization.read_metadata(path)
        try:
            ours = our_tokens(options.dump, path, [text for text, _ in own(fixed[:1])], False)
        except subprocess.CalledProcessError:
            print(f"{name:32} not supported", flush=True)
            return
        kinds = metadata.get("token_type", [])
        special = [text for text, kind in zip(metadata["tokens"], kinds) if kind in (tokenization.CONTROL, tokenization.USER_DEFINED)][:400]
        texts = fixed + random_strings(options.fuzz, special)
        print(f"{name}: {len(fixed)} fixed and {options.fuzz} random texts", flush=True)

        def compare(title, texts, ours, theirs):
            compared = [(text, a, b) for text, a, b in zip(texts, ours, theirs) if b is not None]
            differing = [(text, a, b) for text, a, b in compared if a != b]
            composed = sum(is_well_formed(text) and composes(text) for text, _, _ in differing)
            print(f"    {title:28} {len(compared) - len(differing):6} of {len(compared):6}" + (f"   composed: {composed} of {len(differing)}" if differing else ""), flush=True)
            for text, a, b in sorted(differing, key=lambda d: len(d[0]))[:options.show]:
                print(f"        {text!r}: {a} and {b}")

        pairs = own(texts)
        if pairs:
            own_texts, tokens = zip(*pairs)
            compare("own", own_texts, our_tokens(options.dump, path, own_texts, False), tokens)
        made, peer = reference(metadata), llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
        for parsed in (False, True):
            ours = our_tokens(options.dump, path, texts, parsed)
            suffix = ", special parsed" if parsed else ""
            if made:
                compare("tokenizers" + suffix, texts, ours, reference_tokens(made, texts, parsed))
            compare("llama.cpp" + suffix, texts, ours, llama_tokens(peer, texts, parsed))

    for path in sorted((options.folder / "llama.cpp" / "models").glob("ggml-vocab-*.gguf")) + options.models:
        if options.only in path.stem:
            report(path.stem, path, lambda _: own_tests(path))
    for name, path, encode in mistral_vocabularies(options.folder, options.only):
        report(name, path, lambda texts: [(text, encode(text.decode())) for text in texts if is_well_formed(text)])


if __name__ == "__main__":
    main()
