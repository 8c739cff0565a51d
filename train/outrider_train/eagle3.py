"""EAGLE-3 (Li et al. 2025, arXiv:2503.01840): one decoder layer over [embedding; state].

Row p has token p and a state of position p - 1, and guesses token p + 1. At depth 1 the state is fc(taps), at depth d
the head's own output h of row p - 1 at depth d - 1. A row at depth d attends as it will when the engine drafts: to the
rows of depth 1 up to where its draft began, p - d + 1, and then to its own ancestors, one of each depth.
"""

import math

import torch
from torch import nn
from torch.nn.functional import linear, rms_norm, silu

LAYER = "midlayer."


def default_feed_forward(model):
    """2.7 times the width, or what the target has, if that is less."""
    return min(model["feed_forward"], max(64, round(2.7 * model["embedding"] / 64) * 64))


class Eagle3(nn.Module):
    first_number = 0  # at depth 1 the first start row of a text counts
    needs_taps = True

    def __init__(self, model, n_taps, feed_forward, embedding, precision):
        super().__init__()
        self.width, self.n_taps, self.feed_forward = model["embedding"], n_taps, feed_forward
        self.heads, self.kv_heads, self.head_dim = model["heads"], model["kv_heads"], model["head_dim"]
        self.epsilon, self.theta = model["rms_epsilon"], model["rope_theta"]
        self.precision = precision
        width, q, kv = self.width, self.heads * self.head_dim, self.kv_heads * self.head_dim

        def matrix(rows, columns, gain=1.0):
            return nn.Parameter(torch.randn(rows, columns) * (gain / math.sqrt(columns)))

        self.fc = matrix(width, n_taps * width)
        self.q, self.k, self.v = matrix(q, 2 * width), matrix(kv, 2 * width), matrix(kv, 2 * width)
        self.o = matrix(width, q, 0.1)
        self.gate, self.up = matrix(feed_forward, width), matrix(feed_forward, width)
        self.down = matrix(width, feed_forward, 0.1)
        self.hidden_norm, self.input_norm, self.mlp_norm, self.norm = (nn.Parameter(torch.ones(width))
                                                                      for _ in range(4))
        self.register_buffer("feature_scale", torch.ones(n_taps * width))
        self.embedding = embedding  # [vocabulary, width], frozen, no parameter

    def begin(self, tap_rms, final_rms):
        """Taps differ by orders of magnitude between channels: fc learns weights for channels of equal size, and what
        makes them equal is multiplied into it (`fused_fc`). The norm before the output begins with the scale that the
        target's final-normed states have."""
        self.feature_scale.copy_(1 / tap_rms.clamp_min(1e-6))
        self.norm.data.copy_(final_rms)

    def fused_fc(self):
        return self.fc * self.feature_scale

    def tensors(self):
        """Names as in SpecForge's files."""
        return {"fc.weight": self.fused_fc(), "norm.weight": self.norm,
                LAYER + "hidden_norm.weight": self.hidden_norm, LAYER + "input_layernorm.weight": self.input_norm,
                LAYER + "post_attention_layernorm.weight": self.mlp_norm,
                LAYER + "self_attn.q_proj.weight": self.q, LAYER + "self_attn.k_proj.weight": self.k,
                LAYER + "self_attn.v_proj.weight": self.v, LAYER + "self_attn.o_proj.weight": self.o,
                LAYER + "mlp.gate_proj.weight": self.gate, LAYER + "mlp.up_proj.weight": self.up,
                LAYER + "mlp.down_proj.weight": self.down}

    def flops(self, batch, depths, n_outputs):
        """Of a training step: twice the multiplications of the forward pass, twice that backward (once for frozen
        rows)."""
        w, q, kv = self.width, self.heads * self.head_dim, self.kv_heads * self.head_dim
        pairs = batch.key_index.numel() * batch.query_index.shape[1]
        once = batch.n_rows * (2 * self.n_taps * w * w + 3 * 2 * w * 2 * kv) + batch.n_starts * 3 * 2 * w * q
        layer = batch.n_starts * 3 * (q * w + 3 * w * self.feed_forward) + 3 * 2 * pairs * q
        later = batch.n_starts * 3 * 2 * w * (q + 2 * kv)
        return 2 * (once + depths * layer + (depths - 1) * later + batch.n_starts * (1 + 2 * depths) * w * n_outputs)

    def _turn(self, rows, cosine, sine):
        """Rotary embedding, halves paired. rows: [n, heads, head_dim]."""
        a, b = rows.chunk(2, -1)
        return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)

    def states(self, batch, depths):
        """Yields for each depth the normed states of all start rows [start rows, width], in the precision of the
        training. Those of the first depth - 1 start rows of a text mean nothing."""
        kind = self.precision
        w = {name: getattr(self, name).to(kind) for name in ("q", "k", "v", "o", "gate", "up", "down")}
        kv_weight, qkv_weight = torch.cat((w["k"], w["v"])), torch.cat((w["q"], w["k"], w["v"]))
        gate_up = torch.cat((w["gate"], w["up"]))
        n_texts, longest = batch.query_index.shape
        group = self.heads // self.kv_heads
        frequencies = self.theta ** (-torch.arange(0, self.head_dim, 2, dtype=torch.float64) / self.head_dim)
        angles = batch.positions[:, None].double() * frequencies.to(batch.positions.device)
        cosine, sine = angles.cos().to(kind)[:, None], angles.sin().to(kind)[:, None]
        start_cosine, start_sine = cosine[batch.starts], sine[batch.starts]

        def norm(rows, weight):
            return rms_norm(rows, (self.width,), weight, self.epsilon)

        def side_by_side(rows, index, n_heads):
            """[n, heads * head_dim] -> [texts, heads, longest, head_dim]."""
            chosen = rows.reshape(len(rows), -1).index_select(0, index.flatten())
            return chosen.view(*index.shape, n_heads, self.head_dim).transpose(1, 2)

        embedded = self.embedding.index_select(0, batch.tokens).float()
        embedded = norm(embedded, self.input_norm).to(kind)
        state = linear(batch.taps.to(kind), self.fused_fc().to(kind)).float()
        row = torch.cat((embedded, norm(state, self.hidden_norm).to(kind)), -1)
        k, v = linear(row, kv_weight).split(self.kv_heads * self.head_dim, -1)
        k = self._turn(k.unflatten(-1, (self.kv_heads, -1)), cosine, sine)
        first_k, first_v = (side_by_side(rows, batch.key_index, self.kv_heads) for rows in (k, v))
        row, state, embedded = (rows.index_select(0, batch.starts) for rows in (row, state, embedded))
        q = linear(row, w["q"])
        own = []  # keys and values of later depths
        key_number = torch.arange(batch.key_index.shape[1], device=row.device)
        last_key = batch.first_query[:, None] + torch.arange(longest, device=row.device)
        for depth in range(depths):
            if depth:
                state = state.roll(1, 0)  # of the row before
                row = torch.cat((embedded, norm(state, self.hidden_norm).to(kind)), -1)
                q, k, v = linear(row, qkv_weight).split(
                    [self.heads * self.head_dim] + 2 * [self.kv_heads * self.head_dim], -1)
                k = self._turn(k.unflatten(-1, (self.kv_heads, -1)), start_cosine, start_sine)
                own.append([side_by_side(rows, batch.query_index, self.kv_heads) for rows in (k, v)])
            q = self._turn(q.unflatten(-1, (self.heads, -1)), start_cosine, start_sine) / math.sqrt(self.head_dim)
            q = side_by_side(q, batch.query_index, self.heads).unflatten(1, (self.kv_heads, group))
            hidden = key_number > (last_key - depth)[:, :, None]
            bias = torch.zeros(hidden.shape, dtype=kind, device=row.device).masked_fill_(hidden, -math.inf)
            scores = [(q.flatten(2, 3) @ first_k.mT).unflatten(2, (group, longest)) + bias[:, None, None]]
            ancestors = [[rows.roll(depth - 1 - i, 2)[:, :, None] for rows in pair] for i, pair in enumerate(own)]
            scores += [(q * key).sum(-1, keepdim=True) for key, _ in ancestors]
            shares = torch.cat(scores, -1).softmax(-1) if depth else scores[0].softmax(-1)
            n_keys = first_k.shape[2]
            read = (shares[..., :n_keys].flatten(2, 3) @ first_v).unflatten(2, (group, longest))
            for i, (_, value) in enumerate(ancestors):
                read = read + shares[..., n_keys + i, None] * value
            read = read.flatten(1, 2).transpose(1, 2).reshape(n_texts * longest, -1).index_select(0, batch.query_place)
            middle = state + linear(read, w["o"]).float()
            gate, up = linear(norm(middle, self.mlp_norm).to(kind), gate_up).chunk(2, -1)
            state = middle + linear(silu(gate) * up, w["down"]).float()
            yield norm(state, self.norm).to(kind)
