"""Muon for matrices (Jordan et al. 2024: momentum whose singular values are made equal by Newton-Schulz steps), AdamW
for norms and biases; or AdamW for all."""

import math

import torch

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
STEPS = 5


def orthogonalize(matrix, precision):
    """A matrix of the same singular vectors, with singular values near to 1."""
    a, b, c = NEWTON_SCHULZ
    x = matrix.to(precision)
    is_tall = x.shape[0] > x.shape[1]
    if is_tall:
        x = x.mT
    x = (x / (x.float().norm() + 1e-7)).to(precision)
    for _ in range(STEPS):
        square = x @ x.mT
        x = a * x + (b * square + c * (square @ square)) @ x
    return (x.mT if is_tall else x).float()


class Muon(torch.optim.Optimizer):
    """rate: what AdamW would take; each entry of an update is about 0.2 of it (Liu et al. 2025, arXiv:2502.16982)."""

    def __init__(self, parameters, rate, precision, momentum=0.95, decay=0.01):
        super().__init__(parameters, dict(lr=rate, momentum=momentum, decay=decay))
        self.precision = precision

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                mean = state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                update = orthogonalize(parameter.grad.lerp(mean, group["momentum"]), self.precision)
                parameter.mul_(1 - group["lr"] * group["decay"])
                parameter.add_(update, alpha=-group["lr"] * 0.2 * math.sqrt(max(parameter.shape)))


def make_optimizers(head, recipe, precision):
    parameters = list(head.parameters())
    matrices = [p for p in parameters if p.dim() == 2]
    rest = [p for p in parameters if p.dim() != 2]
    rate, betas = recipe["rate"], (0.9, 0.95)
    if recipe["optimizer"] == "muon":
        return [Muon(matrices, rate, precision),
                torch.optim.AdamW(rest, lr=rate, betas=betas, weight_decay=0.0)]
    return [torch.optim.AdamW([dict(params=matrices, weight_decay=0.01), dict(params=rest, weight_decay=0.0)], lr=rate,
                              betas=betas)]


def rate_share(done):
    """Of the learning rate, when this share of the plan is done: warm-up for 2 %, then half a cosine to 0."""
    return max(1e-4, min(done / 0.02, (1 + math.cos(math.pi * min(1.0, done))) / 2))
