"""The fused loss and its gradient are those that PyTorch derives from the definition."""

import math
import pathlib
import sys

import pytest
import torch

sys.path[:0] = [str(pathlib.Path(__file__).parents[1])]

from outrider_train import losses
from outrider_train.optimizer import orthogonalize


@pytest.mark.parametrize("scale, cap", [(1.0, 0.0), (0.5, 0.0), (1.0, 5.0), (2.0, 4.0)])
@pytest.mark.parametrize("cross_entropy, variation", [(1.0, 0.0), (0.0, 1.0), (0.1, 0.9)])
def test_gradient(scale, cap, cross_entropy, variation, monkeypatch):
    monkeypatch.setattr(losses, "CHUNK_ELEMENTS", 64 * 11)  # several chunks
    torch.manual_seed(0)
    whole, width, n = 17, 6, 150
    output, final = torch.randn(whole, width), torch.randn(n, width)
    draft = torch.tensor([0, 1, 3, 4, 7, 8, 9, 11, 13, 14, 16])
    everything = losses.soft_cap(final @ output.T * scale, cap)
    p = everything.softmax(-1)
    class Features:
        model = dict(logit_scale=scale, logit_softcap=cap)
    Features.output = output
    target = losses.Target(Features, draft, torch.float32, "cpu")
    log_whole = target.log_sum_exp(final)
    assert torch.allclose(log_whole, everything.logsumexp(-1), atol=1e-5)
    assert torch.equal(target.choices(final), everything.argmax(-1))
    aim = losses.Aim.of(target, final, log_whole)
    weight = torch.rand(n)
    states = torch.randn(n, width, requires_grad=True)
    value, parts = losses.draft_loss(states, output[draft], aim, weight, cross_entropy, variation, scale, cap)
    (found,) = torch.autograd.grad(value * 3, states)
    log_q = losses.soft_cap(states @ output[draft].T * scale, cap).log_softmax(-1)
    inside = p[:, draft]
    renormalized = inside / inside.sum(-1, keepdim=True)
    plain = cross_entropy * -(renormalized * log_q).sum(-1)
    plain = plain + variation * (1 - torch.minimum(inside, log_q.exp()).sum(-1))
    expected_value = (plain * weight).sum()
    (expected,) = torch.autograd.grad(expected_value * 3, states)
    assert math.isclose(value.item(), expected_value.item(), rel_tol=1e-5)
    assert torch.allclose(found, expected, atol=1e-5)
    assert math.isclose(parts @ torch.tensor([cross_entropy, variation]), value.item(), rel_tol=1e-5)


def test_orthogonalize():
    torch.manual_seed(1)
    for shape in ((40, 20), (20, 40)):
        values = torch.linalg.svdvals(orthogonalize(torch.randn(shape), torch.float32))
        assert 0.6 < values.min() and values.max() < 1.3
