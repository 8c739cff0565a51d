"""Reads a folder of `outrider features`: what it holds, lazily and without copying.

A text of n tokens has n - 2 rows, of positions 1 to n - 2. Row j - 1 holds what the target computed at position j: the
outputs of the tapped layers side by side, and the final-normed state, which the output matrix turns into logits for the
token at j + 1.
"""

import dataclasses
import hashlib
import json
import math
import pathlib
import re
import struct

import numpy as np
import torch

from .errors import InputError

FORMAT = 1
HELD_OUT = (20, 19)  # texts whose prompt's number leaves 19 when divided by 20 are never trained on

_TYPES = {"BF16": (np.uint16, torch.bfloat16), "F32": (np.float32, torch.float32), "I32": (np.int32, torch.int32)}


def is_held_out(prompt):
    return prompt % HELD_OUT[0] == HELD_OUT[1]


def _is_entry(entry):
    """Whether a header has of a tensor what it must have."""
    if not isinstance(entry, dict):
        return False
    shape, offsets = entry.get("shape"), entry.get("data_offsets")
    are_sizes = all(isinstance(sizes, list) and all(type(size) is int and size >= 0 for size in sizes)
                    for sizes in (shape, offsets))
    return isinstance(entry.get("dtype"), str) and are_sizes and len(offsets) == 2


def map_tensors(path, expected):
    """The tensors of a safetensors file as views of the mapped file. expected: name -> (type, shape), where None stands
    for any size; other tensors are ignored, and names that end in "?" may be absent."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else size
            if length > size - 8:
                raise InputError(f"{path}: ends after {size} bytes, inside its header: the file was cut or is none of "
                                 "safetensors")
            header = json.loads(file.read(length))
            if not isinstance(header, dict):
                raise ValueError
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path}: has no header of safetensors") from None
    found = {}
    begin, raw = 8 + length, None
    for name, (kind, shape) in expected.items():
        name, is_optional = name.rstrip("?"), name.endswith("?")
        entry = header.get(name)
        if entry is None:
            if is_optional:
                continue
            raise InputError(f"{path}: tensor {name} is missing")
        if not _is_entry(entry):
            raise InputError(f"{path}: its header is damaged: tensor {name} is {str(entry)[:100]}, expected dtype, "
                             "shape and data_offsets")
        has = entry["dtype"], entry["shape"]
        if has[0] != kind or len(has[1]) != len(shape) or any(w not in (None, h) for w, h in zip(shape, has[1])):
            wanted = [("any" if w is None else w) for w in shape]
            raise InputError(f"{path}: tensor {name} is {has[0]} {has[1]}, expected {kind} {wanted}")
        numpy_type, torch_type = _TYPES[kind]
        first, last = entry["data_offsets"]
        if last - first != math.prod(has[1]) * np.dtype(numpy_type).itemsize:
            raise InputError(f"{path}: tensor {name} has {last - first} bytes, which do not fit its shape {has[1]}")
        if begin + last > size:
            raise InputError(f"{path}: ends after {size} bytes, but tensor {name} ends at {begin + last}: the file was "
                             "cut")
        if raw is None:
            raw = np.memmap(path, np.uint8, "c")  # private: nothing is ever written to it
        array = raw[begin + first : begin + last].view(numpy_type).reshape(has[1])
        found[name] = torch.from_numpy(array).view(torch_type) if array.size else torch.empty(has[1], dtype=torch_type)
    return found


@dataclasses.dataclass(frozen=True)
class Text:
    shard: int
    number: int  # in its shard
    token_begin: int  # [token_begin, token_begin + n_tokens) in its shard's tokens
    n_tokens: int
    row_begin: int  # in its shard's rows
    row_number: int  # of its first row, counted over all shards
    prompt_length: int
    temperature: float
    prompt: int

    @property
    def first_start(self):
        """The first position from which a draft may begin whose token is an answer's, and which has features."""
        return max(2, self.prompt_length - 1)

    @property
    def n_starts(self):
        """Rows that count: positions first_start to n_tokens - 2."""
        return self.n_tokens - 1 - self.first_start


class Features:
    """only_shards: names and sizes of the shards to use, of an earlier run; None: all that are there."""

    def __init__(self, folder, only_shards=None):
        self.folder = pathlib.Path(folder)
        self.description = self._read_description()
        model = self.model = self.description["model"]
        self.width, self.vocabulary = model["embedding"], model["vocabulary_size"]
        self.taps = self.description["taps"]
        matrix = ("BF16", [self.vocabulary, self.width])
        target = map_tensors(self.folder / "target.safetensors", {"embedding": matrix, "output?": matrix})
        self.embedding = target["embedding"]
        self.output = target.get("output", self.embedding)
        self.shards, self._tensors, self.texts, self.n_rows = [], [], [], 0
        self._read_shards(only_shards)

    def _read_description(self):
        path = self.folder / "features.json"
        try:
            description = json.loads(path.read_text())
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise InputError(f"{path}: is no JSON: {error}") from None
        model = description.get("model") if isinstance(description, dict) else None
        if not isinstance(model, dict) or description.get("format") != FORMAT:
            found = description.get("format") if isinstance(description, dict) else None
            raise InputError(f"{path}: format is {found}, expected {FORMAT}")
        for key in ("layers", "embedding", "vocabulary_size", "heads", "kv_heads", "head_dim", "feed_forward"):
            if not isinstance(model.get(key), int) or model[key] < 1:
                raise InputError(f"{path}: model.{key} is {model.get(key)}, expected a positive integer")
        for key in ("rms_epsilon", "rope_theta", "logit_scale", "embedding_scale"):
            if not isinstance(model.get(key), (int, float)) or not model[key] > 0:
                raise InputError(f"{path}: model.{key} is {model.get(key)}, expected a positive number")
        if model["heads"] % model["kv_heads"] or model["head_dim"] % 2:
            raise InputError(f"{path}: {model['heads']} heads of {model['head_dim']} channels over {model['kv_heads']} "
                             "key/value heads: expected a multiple, and an even number of channels")
        taps = description.get("taps")
        if not isinstance(taps, list) or not taps or not all(isinstance(tap, int) for tap in taps):
            raise InputError(f"{path}: taps is {taps}, expected a list of layers")
        return description

    def _read_shards(self, only_shards):
        model = self.model
        names = sorted(p.name for p in self.folder.glob("shard-*.safetensors")
                       if re.fullmatch(r"shard-\d{5,}\.safetensors", p.name))
        if only_shards is not None:
            names = [name for name, _ in only_shards]
        if not names:
            raise InputError(f"{self.folder}: has no shard-00000.safetensors: nothing to learn from")
        for shard, name in enumerate(names):
            path = self.folder / name
            tensors = map_tensors(path, {
                "tokens": ("I32", [None]), "lengths": ("I32", [None]), "prompt_lengths": ("I32", [None]),
                "temperatures": ("F32", [None]), "prompts": ("I32", [None]),
                "features": ("BF16", [None, len(self.taps) * self.width]), "final": ("BF16", [None, self.width])})
            self.shards.append([name, path.stat().st_size])
            if only_shards is not None and self.shards[-1] != list(only_shards[shard]):
                raise InputError(f"{path}: has {self.shards[-1][1]} bytes, but the checkpoint was made with "
                                 f"{only_shards[shard][1]}")
            lengths, n_texts = tensors["lengths"].tolist(), len(tensors["lengths"])
            n_rows = sum(lengths) - 2 * n_texts
            for each, wanted in (("prompt_lengths", n_texts), ("temperatures", n_texts), ("prompts", n_texts),
                                 ("tokens", sum(lengths)), ("features", n_rows), ("final", n_rows)):
                if len(tensors[each]) != wanted:
                    raise InputError(f"{path}: tensor {each} has {len(tensors[each])} entries, but its {n_texts} texts "
                                     f"need {wanted}")
            tokens = tensors["tokens"]
            if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < model["vocabulary_size"]:
                raise InputError(f"{path}: tokens are {int(tokens.min())} to {int(tokens.max())}, but the vocabulary "
                                 f"has {model['vocabulary_size']}")
            self._tensors.append(tensors)
            token_begin = row_begin = 0
            for number, (length, prompt_length, temperature, prompt) in enumerate(zip(
                    lengths, *(tensors[key].tolist() for key in ("prompt_lengths", "temperatures", "prompts")))):
                if length < 3 or not 0 <= prompt_length <= length:
                    raise InputError(f"{path}: text {number} has {length} tokens, {prompt_length} of them its prompt's")
                self.texts.append(Text(shard, number, token_begin, length, row_begin, self.n_rows + row_begin,
                                       prompt_length, temperature, prompt))
                token_begin += length
                row_begin += length - 2
            self.n_rows += row_begin

    def fingerprint(self):
        """Of features.json and of the shards in use."""
        text = json.dumps([self.description, self.shards], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def training_texts(self):
        return [text for text in self.texts if not is_held_out(text.prompt) and text.n_starts > 0]

    def held_out_texts(self):
        return [text for text in self.texts if is_held_out(text.prompt) and text.n_starts > 0]

    def tokens(self, text):
        return self._tensors[text.shard]["tokens"][text.token_begin : text.token_begin + text.n_tokens]

    def rows(self, text, name, first, last):
        """Rows of positions first to last, last included, of "features" or "final"."""
        begin = text.row_begin + first - 1
        rows = self._tensors[text.shard][name][begin : begin + last - first + 1]
        if not math.isfinite(float(rows.sum(dtype=torch.float32))):
            raise InputError(f"{self.folder / self.shards[text.shard][0]}: {name} of text {text.number} hold a value "
                             "that is no number")
        return rows

    def draft_tokens(self, n_rows):
        """The tokens that draft rows stand for, ascending: the end tokens, then the most frequent of answers; of equal
        ones those that prompts have more often, then the first."""
        answers, prompts = np.zeros(self.vocabulary, np.int64), np.zeros(self.vocabulary, np.int64)
        for text in self.training_texts():
            tokens = self.tokens(text).numpy()
            answers += np.bincount(tokens[text.prompt_length :], minlength=self.vocabulary)
            prompts += np.bincount(tokens[: text.prompt_length], minlength=self.vocabulary)
        is_end = np.zeros(self.vocabulary, bool)
        ends = [end for end in self.model.get("eos") or [] if 0 <= end < self.vocabulary]
        is_end[ends] = True
        order = np.lexsort((np.arange(self.vocabulary), -prompts, -answers, ~is_end))
        return torch.from_numpy(np.sort(order[: min(n_rows, self.vocabulary)]))
