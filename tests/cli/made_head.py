"""Makes small heads for a .gguf model: of EAGLE-3's kind in SpecForge's layout, of Medusa's in TGI's. No NumPy is
needed.

EAGLE-3's knows one thing, so that some of its drafts are accepted: its attention looks for where the text's last token
stood before, and says what followed there. A row has its token beside the embedding of the token before (a tap), so
keys are tokens before, queries and values are tokens. All else is small random numbers."""

import array
import json
import math
import random
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "server"))
from made_models import Model  # noqa: E402


def random_matrix(chance, rows, columns, size):
    """F16, of numbers between size / 2 and size and their negatives."""
    exponent = 15 + math.frexp(size)[1] - 1 - 1
    top = bytes((byte & 0x80) | (exponent << 2) | (byte & 3) for byte in range(256))
    values = bytearray(chance.randbytes(2 * rows * columns))
    values[1::2] = values[1::2].translate(top)
    return "F16", [rows, columns], bytes(values)


def with_entries(matrix, entries):
    """The same matrix with these numbers, by row and column."""
    kind, (rows, columns), values = matrix
    values = bytearray(values)
    for (row, column), value in entries.items():
        struct.pack_into("<e", values, 2 * (row * columns + column), value)
    return kind, [rows, columns], bytes(values)


def identity(rows, columns):
    """F16, the identity and zeros beside it."""
    return with_entries(("F16", [rows, columns], bytes(2 * rows * columns)), {(i, i): 1 for i in range(rows)})


def ones(size):
    return "F16", [size], struct.pack("<e", 1) * size


def write_safetensors(path, tensors):
    header, offset = {}, 0
    for name, (kind, shape, values) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + len(values)]}
        offset += len(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(values for *_, values in tensors.values()))


def width_of(model):
    [at] = [at for name, at in model.values.items() if name.endswith(b".embedding_length")]
    return struct.unpack_from("<I", model.data, at)[0]


def write_medusa_heads(model_path, folder, seed=0, n_heads=3):
    """They say nearly what the model does for the next token, so drafts are accepted where a token is repeated."""
    width = width_of(Model(Path(model_path)))
    chance = random.Random(seed)
    tensors = {}
    for head in range(n_heads):
        tensors[f"{head}.0.linear.weight"] = random_matrix(chance, width, width, 1 / 1024)
        tensors[f"{head}.0.linear.bias"] = "F16", [width], bytes(2 * width)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "medusa_lm_head.safetensors", tensors)
    # As published: the number of heads is wrong.
    (folder / "config.json").write_text(json.dumps({"medusa_num_heads": 2, "medusa_num_layers": 1}))
    return str(folder)


def write_head(model_path, folder, seed=0, n_outputs=None, changes=None, without=()):
    """n_outputs: of a head that names its tokens (d2t), the model's first ones; None: it has the model's outputs.
    changes: of config.json; without: tensors that are left out."""
    model = Model(Path(model_path))
    [family] = [name.split(b".")[0] for name in model.values if name.endswith(b".embedding_length")]

    def number(key):
        return struct.unpack_from("<I", model.data, model.values[family + b"." + key])[0]

    width, n_layers, head_dim, ffn = width_of(model), number(b"block_count"), 64, 64
    n_heads = width // head_dim
    vocabulary = model.tensors[b"token_embd.weight"][0][1]
    chance = random.Random(seed)
    layer = "midlayer."
    # Channels of a head that hardly turn with the position: queries and keys have these alone.
    still = [i for i in range(head_dim) if i % (head_dim // 2) >= 12]
    matched = {(head * head_dim + channel): (head * len(still) + i) % width
               for head in range(n_heads) for i, channel in enumerate(still)}
    nothing = "F16", [width, 2 * width], bytes(4 * width * width)
    tensors = {
        "fc.weight": with_entries(random_matrix(chance, width, 3 * width, 1 / 1024), {(i, i): 1 for i in range(width)}),
        "norm.weight": ones(width),
        layer + "hidden_norm.weight": ones(width),
        layer + "input_layernorm.weight": ones(width),
        layer + "post_attention_layernorm.weight": ones(width),
        layer + "self_attn.q_proj.weight": with_entries(nothing, {(i, at): 2 for i, at in matched.items()}),
        layer + "self_attn.k_proj.weight": with_entries(nothing, {(i, width + at): 2 for i, at in matched.items()}),
        layer + "self_attn.v_proj.weight": identity(width, 2 * width),
        layer + "self_attn.o_proj.weight": identity(width, width),
        layer + "mlp.gate_proj.weight": random_matrix(chance, ffn, width, 1 / 64),
        layer + "mlp.up_proj.weight": random_matrix(chance, ffn, width, 1 / 64),
        layer + "mlp.down_proj.weight": random_matrix(chance, width, ffn, 1 / 64),
    }
    config = {
        "architectures": ["LlamaForCausalLMEagle3"], "hidden_size": width, "intermediate_size": ffn,
        "num_attention_heads": n_heads, "num_key_value_heads": n_heads, "head_dim": head_dim, "num_hidden_layers": 1,
        "rms_norm_eps": 1e-6, "rope_theta": 1e12, "vocab_size": vocabulary,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, n_layers // 2, n_layers - 2]},
    }
    if n_outputs is not None:
        tensors["d2t"] = "I64", [n_outputs], array.array("q", [0] * n_outputs).tobytes()
        tensors["lm_head.weight"] = random_matrix(chance, n_outputs, width, 1 / 16)
        config["draft_vocab_size"] = n_outputs
    for name in without:
        del tensors[name]
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({**config, **(changes or {})}))
    return str(folder)


def write_random_head(model_path, folder, kind, seed=0, changes=None):
    """A head of another kind that knows nothing: "eagle" (EAGLE-1), "mtp" (DeepSeek's layout), "dflash" (z-lab's) or
    "dspark" (DeepSpec's, with a confidence). changes: of config.json."""
    model = Model(Path(model_path))
    [n_layers] = [struct.unpack_from("<I", model.data, at)[0] for name, at in model.values.items()
                  if name.endswith(b".block_count")]
    width, head_dim, ffn, rank = width_of(model), 64, 64, 16
    vocabulary = model.tensors[b"token_embd.weight"][0][1]
    chance = random.Random(seed)

    def matrix(rows, columns):
        return random_matrix(chance, rows, columns, 1 / 16)

    def layer(name):
        names = {f"{name}self_attn.{which}_proj.weight": matrix(width, width) for which in "qkvo"}
        return names | {
            name + "input_layernorm.weight": ones(width), name + "post_attention_layernorm.weight": ones(width),
            name + "mlp.gate_proj.weight": matrix(ffn, width), name + "mlp.up_proj.weight": matrix(ffn, width),
            name + "mlp.down_proj.weight": matrix(width, ffn)}

    config = {"hidden_size": width, "intermediate_size": ffn, "num_attention_heads": width // head_dim,
              "num_hidden_layers": 1, "head_dim": head_dim}
    if kind == "eagle":
        tensors = layer("layers.0.") | {"fc.weight": matrix(width, 2 * width)}
        del tensors["layers.0.input_layernorm.weight"]
        config["bias"] = False
    elif kind == "mtp":
        name = f"model.layers.{n_layers}."
        tensors = layer(name) | {name + "eh_proj.weight": matrix(width, 2 * width), name + "enorm.weight": ones(width),
                                 name + "hnorm.weight": ones(width), name + "shared_head.norm.weight": ones(width)}
    else:
        tensors = layer("layers.0.") | {"fc.weight": matrix(width, 2 * width), "hidden_norm.weight": ones(width),
                                        "norm.weight": ones(width)}
        drafter = {"mask_token_id": 0, "target_layer_ids": [1, n_layers // 2]}
        config |= {"block_size": 5, **(drafter if kind == "dspark" else {"dflash_config": drafter})}
        if kind == "dspark":
            tensors |= {"markov_head.markov_w1.weight": matrix(vocabulary, rank),
                        "markov_head.markov_w2.weight": matrix(vocabulary, rank),
                        "confidence_head.proj.weight": matrix(1, width + rank),
                        "confidence_head.proj.bias": ones(1)}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({**config, **(changes or {})}))
    return str(folder)
