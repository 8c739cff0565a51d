"""Heads written out plainly, for scripts/golden/heads.py: what the classes of their producers must agree with, and what
is changed to see that a mistake would show. Learned heads are EAGLE-1 (Li et al. 2024, arXiv:2401.15077), EAGLE-3
(Li et al. 2025, arXiv:2503.01840), modules for multi-token prediction (MTP; DeepSeek-AI 2024, arXiv:2412.19437), DFlash
(arXiv:2602.06036), DSpark and Medusa (Cai et al. 2024, arXiv:2401.10774)."""

import dataclasses

import torch
from torch.nn.functional import silu


@dataclasses.dataclass
class Layers:
    """What heads with attention share: their tensors by name, and how they are computed."""

    tensors: dict
    head_dim: int
    rope_theta: float
    eps: float = 1e-6
    rotated: int | None = None  # how many channels RoPE turns, the first; None: all
    norms_add: float = 0  # to the weights of norms
    adjacent_pairs: bool = False  # RoPE turns channels 2 i and 2 i + 1, not i and i + half of those that it turns
    # Mistakes:
    without: tuple = ()  # norms and biases that are left out

    def norm(self, name, x):
        if name in self.without:
            return x
        weight = self.tensors[f"{name}.weight"] + self.norms_add
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * weight

    def norm_if_any(self, name, x):
        return self.norm(name, x) if f"{name}.weight" in self.tensors else x

    def product(self, name, x):
        y = x @ self.tensors[f"{name}.weight"].T
        has_bias = f"{name}.bias" in self.tensors and f"{name}.bias" not in self.without
        return y + self.tensors[f"{name}.bias"] if has_bias else y

    def heads(self, name, x, positions=None):
        """Of queries, keys or values: [rows][heads][head_dim]."""
        y = self.product(f"{name}_proj", x).unflatten(-1, (-1, self.head_dim))
        return y if positions is None else self.placed(name, y, positions)

    def placed(self, name, y, positions):
        """Queries or keys after their norm, if there is one, and RoPE."""
        y = self.norm_if_any(f"{name}_norm", y)
        y, rest = y[..., :self.rotated], y[..., self.rotated or self.head_dim:]
        half = y.shape[-1] // 2
        angle = positions[:, None, None] * self.rope_theta ** (-torch.arange(half) / half)
        a, b = (y[..., ::2], y[..., 1::2]) if self.adjacent_pairs else (y[..., :half], y[..., half:])
        turned = a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()
        turned = torch.stack(turned, -1).flatten(-2) if self.adjacent_pairs else torch.cat(turned, -1)
        return torch.cat([turned, rest], -1)

    def feed_forward(self, name, x):
        return self.product(
            f"{name}.down_proj", silu(self.product(f"{name}.gate_proj", x)) * self.product(f"{name}.up_proj", x)
        )


@dataclasses.dataclass
class Chain(Layers):
    """A head of one layer whose rows go on from states: the target's at first, then its own."""

    feeds_back_normed: bool = False  # a further row takes the state after the last norm

    def logits(self, embedded, state, n_depths):
        """[depth][start][draft vocabulary] as heads.py defines them; embedded: [rows][width] of the tokens of positions
        1 and on; state: [rows][width], of the positions before those."""
        found = []
        keys, values = [], []  # of depth 1: all rows; of further ones: one row of each start
        for depth in range(1, n_depths + 1):
            n = len(embedded) - depth + 1
            positions = torch.arange(n) + depth
            residual, x = self.begin(embedded[depth - 1:], state[:n])
            query, gate = self.query(x, positions)
            keys.append(self.heads("self_attn.k", x, positions))
            values.append(self.heads("self_attn.v", x))
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
            added = self.product("self_attn.o_proj", seen.flatten(1) * gate)
            state = residual + self.norm_if_any("post_self_attn_layernorm", added)
            added = self.feed_forward("mlp", self.norm("post_attention_layernorm", state))
            state = state + self.norm_if_any("post_mlp_layernorm", added)
            last = self.last(state)
            found.append(self.product("lm_head", last))
            if self.feeds_back_normed:
                state = last
        return found

    def begin(self, embedded, state):
        """What attention's output is added to, and what attention takes."""
        raise NotImplementedError

    def query(self, x, positions):
        """And what attention's output is multiplied by."""
        return self.heads("self_attn.q", x, positions), 1

    def last(self, state):
        """What the output takes."""
        return self.norm("norm", state)


@dataclasses.dataclass
class Eagle(Chain):
    """A head of EAGLE-3 in any layout; its layer's tensors have no prefix."""

    norm_before_residual: bool = False  # the residual is the normed state

    def fuse(self, taps):
        """State of each row from taps [rows][n][width]."""
        if "fc_norm.0.weight" in self.tensors:
            taps = torch.stack([self.norm(f"fc_norm.{i}", taps[:, i]) for i in range(taps.shape[1])], 1)
        x = taps.flatten(1)
        return self.product("fc", self.norm_if_any("input_norm", x))

    def logits(self, embedded, taps, n_depths):
        return super().logits(embedded, self.fuse(taps), n_depths)

    def begin(self, embedded, state):
        normed = self.norm("hidden_norm", state)
        return (
            normed if self.norm_before_residual else state,
            torch.cat([self.norm("input_layernorm", embedded), normed], -1),
        )


@dataclasses.dataclass
class Eagle1(Chain):
    """A head of EAGLE-1; tensors have the target's output as lm_head, too."""

    # Mistakes:
    input_norm: str | None = None  # a norm before attention
    output_norm: str | None = None  # a norm before the output

    def begin(self, embedded, state):
        x = self.product("fc", torch.cat([embedded, state], -1))
        return x, self.norm(self.input_norm, x) if self.input_norm else x

    def last(self, state):
        return self.norm(self.output_norm, state) if self.output_norm else state


@dataclasses.dataclass
class Mtp(Chain):
    """A module for multi-token prediction; tensors have transformers' names, and the target's output as lm_head."""

    hidden_first: bool = False  # the state is before the embedding
    has_gate: bool = False  # rows of q_proj are, for each head, those of its query and of its gate

    def begin(self, embedded, state):
        parts = [self.norm("enorm", embedded), self.norm("hnorm", state)]
        x = self.product("eh_proj", torch.cat(parts[::-1] if self.hidden_first else parts, -1))
        return x, self.norm("input_layernorm", x)

    def query(self, x, positions):
        if not self.has_gate:
            return super().query(x, positions)
        query, gate = self.product("self_attn.q_proj", x).unflatten(-1, (-1, 2, self.head_dim)).unbind(-2)
        return self.placed("self_attn.q", query, positions), torch.sigmoid(gate.flatten(1))


@dataclasses.dataclass
class Block(Layers):
    """A drafter of blocks: DFlash and DSpark. Its rows are the anchor, the text's last token, and mask tokens; they see
    the text before the anchor, which has keys and values of the target's states, and each other."""

    windows: tuple = (None,)  # of each layer: how many positions a row sees back to, with its own; None: all
    causal: tuple = (False,)  # of each layer: a row sees no later one
    window_from_anchor: bool = False  # a window is the positions before the anchor, beside the block
    # Mistakes:
    sees_anchor: bool = False  # as a token of the text, too
    offset: int = 0  # of the block's positions
    spread: int = 1  # of the block's positions
    norms_text: bool = False  # as rows are before attention
    markov_first: bool = False  # the previous token's vector is before the state

    def states(self, embedded, taps, anchor):
        """[rows][width] after the last norm; embedded: [rows][width]; taps: [positions][n][width]."""
        text = self.norm("hidden_norm", self.product("fc", taps[:anchor + self.sees_anchor].flatten(1)))
        x, n = embedded, len(text)
        positions = anchor + self.offset + self.spread * torch.arange(len(x))
        at = torch.cat([torch.arange(n), positions])
        for i, (window, causal) in enumerate(zip(self.windows, self.causal)):
            layer, normed = f"layers.{i}", self.norm(f"layers.{i}.input_layernorm", x)
            seen = torch.cat([self.norm(f"{layer}.input_layernorm", text) if self.norms_text else text, normed])
            query = self.heads(f"{layer}.self_attn.q", normed, positions)
            key, value = self.heads(f"{layer}.self_attn.k", seen, at), self.heads(f"{layer}.self_attn.v", seen)
            group = query.shape[1] // key.shape[1]
            key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
            visible = torch.ones(len(x), n + len(x), dtype=torch.bool)
            if causal:
                visible[:, n:] = torch.ones(len(x), len(x)).tril().bool()
            if window and self.window_from_anchor:
                visible[:, :n] &= at[:n] >= anchor - window
            elif window:
                visible &= positions[:, None] - at < window
            scores = torch.einsum("qhd,khd->qhk", query, key) * self.head_dim**-0.5
            weights = torch.softmax(scores.masked_fill(~visible[:, None], -torch.inf), -1)
            x = x + self.product(f"{layer}.self_attn.o_proj", torch.einsum("qhk,khd->qhd", weights, value).flatten(1))
            x = x + self.feed_forward(f"{layer}.mlp", self.norm(f"{layer}.post_attention_layernorm", x))
        return self.norm("norm", x)

    def after(self, name, state, previous):
        """What a linear layer says of states and, where it is wide enough, of the previous token's vector."""
        parts = [previous, state] if self.markov_first else [state, previous]
        wide = self.tensors[f"{name}.weight"].shape[1] > state.shape[1]
        return self.product(name, torch.cat(parts, -1) if wide else state)

    def markov(self, state, tokens):
        """[rows][draft vocabulary]: what is added to the logits of rows that follow these tokens; DSpark's kinds."""
        vectors = self.tensors["markov_head.markov_w1.weight"][tokens]
        if "markov_head.gate_proj.weight" in self.tensors:
            vectors = torch.sigmoid(self.after("markov_head.gate_proj", state, vectors)) * vectors
        if "markov_head.joint_proj.weight" in self.tensors:
            memory, found = torch.zeros(vectors.shape[1]), []
            for row, vector in zip(state, vectors):
                joint = self.product("markov_head.joint_proj", torch.cat([memory, vector, row]))
                gate, candidate, out = joint.chunk(3)
                memory = torch.sigmoid(gate) * memory + (1 - torch.sigmoid(gate)) * torch.tanh(candidate)
                found.append(torch.tanh(out))
            vectors = torch.stack(found)
        return self.product("markov_head.markov_w2", vectors)

    def confidence(self, state, tokens):
        """[rows][1]: before the sigmoid."""
        vectors = self.tensors["markov_head.markov_w1.weight"][tokens] if tokens is not None else None
        return self.after("confidence_head.proj", state, vectors)


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
