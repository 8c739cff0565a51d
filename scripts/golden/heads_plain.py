"""Heads written out plainly, for scripts/golden/heads.py: what the classes of their producers must agree with, and what
is changed to see that a mistake would show. Learned heads are EAGLE-3 (Li et al. 2025, arXiv:2503.01840) and Medusa
(Cai et al. 2024, arXiv:2401.10774)."""

import dataclasses

import torch
from torch.nn.functional import silu


@dataclasses.dataclass
class Eagle:
    """A head of EAGLE-3 in any layout: its tensors by name, without the prefix of its layer, and how it is computed."""

    tensors: dict
    head_dim: int
    rope_theta: float
    eps: float = 1e-6
    norm_before_residual: bool = False  # the residual is the normed state
    feeds_back_normed: bool = False  # a further row takes the state after the last norm
    # Mistakes:
    without: tuple = ()  # norms that are left out
    adjacent_pairs: bool = False  # RoPE turns channels 2 i and 2 i + 1, not i and i + head_dim / 2

    def norm(self, name, x):
        if name in self.without:
            return x
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.tensors[f"{name}.weight"]

    def product(self, name, x):
        return x @ self.tensors[f"{name}.weight"].T

    def heads(self, name, x, positions=None):
        """Of queries, keys or values: [rows][heads][head_dim]."""
        y = self.product(f"self_attn.{name}_proj", x).unflatten(-1, (-1, self.head_dim))
        if f"self_attn.{name}_norm.weight" in self.tensors:
            y = self.norm(f"self_attn.{name}_norm", y)
        if positions is None:
            return y
        half = self.head_dim // 2
        angle = positions[:, None, None] * self.rope_theta ** (-torch.arange(half) / half)
        a, b = (y[..., ::2], y[..., 1::2]) if self.adjacent_pairs else (y[..., :half], y[..., half:])
        turned = a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()
        return torch.stack(turned, -1).flatten(-2) if self.adjacent_pairs else torch.cat(turned, -1)

    def fuse(self, taps):
        """State of each row from taps [rows][n][width]."""
        if "fc_norm.0.weight" in self.tensors:
            taps = torch.stack([self.norm(f"fc_norm.{i}", taps[:, i]) for i in range(taps.shape[1])], 1)
        x = taps.flatten(1)
        return self.product("fc", self.norm("input_norm", x) if "input_norm.weight" in self.tensors else x)

    def logits(self, embedded, taps, n_depths):
        """[depth][start][draft vocabulary] as heads.py defines them; embedded: [rows][width] of the tokens of positions
        1 and on; taps: [rows][n][width], of the positions before those."""
        state, found = self.fuse(taps), []
        keys, values = [], []  # of depth 1: all rows; of further ones: one row of each start
        for depth in range(1, n_depths + 1):
            n = len(embedded) - depth + 1
            state, positions = state[:n], torch.arange(n) + depth
            normed = self.norm("hidden_norm", state)
            x = torch.cat([self.norm("input_layernorm", embedded[depth - 1:]), normed], -1)
            query = self.heads("q", x, positions)
            keys.append(self.heads("k", x, positions))
            values.append(self.heads("v", x))
            group = query.shape[1] // keys[0].shape[1]

            def of_queries(y):
                return y.repeat_interleave(group, 1)

            true = torch.einsum("shd,rhd->shr", query, of_queries(keys[0])[:n])
            true = true.masked_fill(torch.ones(n, n).triu(1).bool()[:, None], -torch.inf)
            own = [(query * of_queries(y[:n])).sum(-1, keepdim=True) for y in keys[1:]]
            weights = torch.softmax(torch.cat([true, *own], -1) * self.head_dim**-0.5, -1)
            seen = torch.einsum("shr,rhd->shd", weights[..., :n], of_queries(values[0])[:n])
            for i, y in enumerate(values[1:]):
                seen = seen + weights[..., n + i, None] * of_queries(y[:n])
            state = (normed if self.norm_before_residual else state) + self.product("self_attn.o_proj", seen.flatten(1))
            y = self.norm("post_attention_layernorm", state)
            state = state + self.product(
                "mlp.down_proj", silu(self.product("mlp.gate_proj", y)) * self.product("mlp.up_proj", y)
            )
            last = self.norm("norm", state)
            found.append(self.product("lm_head", last))
            if self.feeds_back_normed:
                state = last
        return found


def medusa_logits(heads, state):
    """[head][row][vocabulary]; heads: of each the weight and the bias, or None, of its blocks, and the output's weight;
    state: [rows][width], what the target's own output is given."""
    found = []
    for blocks, output in heads:
        x = state
        for weight, bias in blocks:
            x = x + silu(x @ weight.T + (0 if bias is None else bias))
        found.append(x @ output.T)
    return found
