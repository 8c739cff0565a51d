"""Medusa (Cai et al. 2024, arXiv:2401.10774): heads x + SiLU(W x + b) of the final-normed state x at position p; head h
from 0 guesses token p + 2 + h through the target's own output matrix."""

import torch
from torch import nn
from torch.nn.functional import linear, silu

HEADS = 3


class Medusa(nn.Module):
    first_number = 1  # at depth 1 a guess for the first start row's target would need the state before
    needs_taps = False

    def __init__(self, model, precision, heads=HEADS):
        super().__init__()
        self.width, self.heads, self.precision = model["embedding"], heads, precision
        self.depths_max = heads
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(self.width, self.width)) for _ in range(heads))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(self.width)) for _ in range(heads))

    def tensors(self):
        """Names as in TGI's files."""
        named = {}
        for h in range(self.heads):
            named[f"{h}.0.linear.weight"], named[f"{h}.0.linear.bias"] = self.weights[h], self.biases[h]
        return named

    def flops(self, batch, depths, n_outputs):
        return 2 * batch.n_starts * (depths * (2 * self.width**2 + 2 * self.width * n_outputs) + self.width * n_outputs)

    def states(self, batch, depths):
        """Yields for each depth [start rows, width]: what guesses the target of each start row, from the state depth
        rows before. Those of the first depth start rows of a text mean nothing."""
        for h in range(min(depths, self.heads)):
            x = batch.final.to(self.precision).roll(1 + h, 0)
            yield x + silu(linear(x, self.weights[h].to(self.precision), self.biases[h].to(self.precision)))
