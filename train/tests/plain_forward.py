"""Heads as an engine runs them when it drafts, read from the exported files alone: plain loops over positions, and
lists of keys and values that grow."""

import json
import math
import pathlib

import safetensors.torch
import torch


def norm(x, weight, epsilon):
    return x / (x.square().mean() + epsilon).sqrt() * weight


def turn(x, position, theta):
    """x: [head_dim]."""
    half = len(x) // 2
    out = x.clone()
    for i in range(half):
        angle = position * theta ** (-2 * i / len(x))
        a, b = x[i].item(), x[half + i].item()
        out[i] = a * math.cos(angle) - b * math.sin(angle)
        out[half + i] = b * math.cos(angle) + a * math.sin(angle)
    return out


class PlainEagle3:
    def __init__(self, folder, embedding):
        folder = pathlib.Path(folder)
        self.config = json.loads((folder / "config.json").read_text())
        self.w = {name: tensor.float() if tensor.is_floating_point() else tensor
                  for name, tensor in safetensors.torch.load_file(folder / "model.safetensors").items()}
        self.embedding = embedding.float()
        self.epsilon, self.theta = self.config["rms_norm_eps"], self.config["rope_theta"]
        self.tokens = [i + d for i, d in enumerate(self.w["d2t"].tolist())]

    def row(self, token, state, position, cache):
        """One row; its key and value are appended to cache. Returns h, which the next row takes, and logits."""
        c, w, layer = self.config, self.w, "midlayer."
        heads, kv_heads, dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        x = torch.cat((norm(self.embedding[token], w[layer + "input_layernorm.weight"], self.epsilon),
                       norm(state, w[layer + "hidden_norm.weight"], self.epsilon)))
        q = (w[layer + "self_attn.q_proj.weight"] @ x).view(heads, dim)
        k = (w[layer + "self_attn.k_proj.weight"] @ x).view(kv_heads, dim)
        v = (w[layer + "self_attn.v_proj.weight"] @ x).view(kv_heads, dim)
        cache.append((torch.stack([turn(each, position, self.theta) for each in k]), v))
        read = []
        for head in range(heads):
            query, kv = turn(q[head], position, self.theta), head // (heads // kv_heads)
            scores = torch.stack([query @ keys[kv] for keys, _ in cache]) / math.sqrt(dim)
            read.append(sum(share * values[kv] for share, (_, values) in zip(scores.softmax(0), cache)))
        middle = state + w[layer + "self_attn.o_proj.weight"] @ torch.cat(read)
        y = norm(middle, w[layer + "post_attention_layernorm.weight"], self.epsilon)
        gate = w[layer + "mlp.gate_proj.weight"] @ y
        inner = gate * torch.sigmoid(gate) * (w[layer + "mlp.up_proj.weight"] @ y)
        h = middle + w[layer + "mlp.down_proj.weight"] @ inner
        return h, w["lm_head.weight"] @ norm(h, w["norm.weight"], self.epsilon)

    def drafts(self, tokens, taps, first, depths):
        """tokens: a text. taps: [positions], the target's features, [i] those of position i + 1. Yields for each start
        p from `first` on (p, [logits of depth 1, 2, ...]), where the text itself gives the tokens of later depths."""
        cache = []
        for p in range(2, len(tokens) - 1):
            h, logits = self.row(tokens[p], self.w["fc.weight"] @ taps[p - 2].float(), p, cache)
            if p < first:
                continue
            found, branch = [logits], list(cache)
            for later in range(p + 1, min(p + depths, len(tokens) - 1)):
                h, logits = self.row(tokens[later], h, later, branch)
                found.append(logits)
            yield p, found


def plain_medusa(folder, output, final):
    """[heads] logits over the whole vocabulary from one final-normed state."""
    w = {name: tensor.float() for name, tensor in
         safetensors.torch.load_file(pathlib.Path(folder) / "medusa_lm_head.safetensors").items()}
    x, logits = final.float(), []
    while f"{len(logits)}.0.linear.weight" in w:
        inner = w[f"{len(logits)}.0.linear.weight"] @ x + w[f"{len(logits)}.0.linear.bias"]
        logits.append(output.float() @ (x + inner * torch.sigmoid(inner)))
    return logits
