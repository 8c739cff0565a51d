"""What the target says, and how far a head is from it, over the draft rows.

p is the target's distribution over its whole vocabulary, q the head's over the draft rows.
Soft cross-entropy: -sum p' log q, where p' is p over the draft rows, renormalised.
Total variation:    1 - sum min(p, q): the share of sampled drafts that verification rejects (Leviathan et al. 2023).
"""

import dataclasses

import torch

CHUNK_ELEMENTS = 1 << 21  # logits at a time, which stay in the processor's cache


def soft_cap(logits, cap):
    return torch.tanh(logits / cap) * cap if cap else logits


class Target:
    """The target's output matrix on the device, and its draft rows."""

    def __init__(self, features, draft_tokens, precision, device):
        self.scale, self.cap = features.model["logit_scale"], features.model.get("logit_softcap") or 0
        self.draft_tokens = draft_tokens.to(device)
        self.whole = features.output.to(device, precision)
        self.rows = features.output[draft_tokens].to(device, precision)
        self.rows_exact = self.rows.float()

    def logits(self, final, rows):
        return soft_cap((final.to(rows.dtype) @ rows.T).float() * self.scale, self.cap)

    def log_sum_exp(self, final):
        """[n], over the whole vocabulary."""
        chunk = max(64, 8 * CHUNK_ELEMENTS // len(self.whole))
        return torch.cat([self.logits(part, self.whole).logsumexp(-1) for part in final.split(chunk)])

    def choices(self, final):
        """The most probable token of each row [n], exactly: logits in bfloat16 tell the candidates."""
        chosen = []
        for part in final.split(max(64, 8 * CHUNK_ELEMENTS // len(self.whole))):
            candidates = (part.to(self.whole.dtype) @ self.whole.T).float().topk(min(8, len(self.whole)), -1).indices
            exact = torch.einsum("nh,nch->nc", part.float(), self.whole[candidates].float())
            best = (exact == exact.amax(-1, keepdim=True))
            chosen.append(torch.where(best, candidates, len(self.whole)).amin(-1))
        return torch.cat(chosen)


@dataclasses.dataclass
class Aim:
    """The target's distributions at a batch's start rows."""

    logits: torch.Tensor  # [n, draft rows], as computed
    log_draft: torch.Tensor  # [n], log of the sum of their exponentials
    log_whole: torch.Tensor  # [n], the same over the whole vocabulary; None: not needed

    @staticmethod
    def of(target, final, log_whole):
        logits = target.logits(final, target.rows).to(target.rows.dtype)
        log_draft = torch.cat([part.float().logsumexp(-1) for part in logits.split(chunk_of(logits.shape[1]))])
        return Aim(logits, log_draft, log_whole)


def chunk_of(n_columns):
    return max(64, CHUNK_ELEMENTS // n_columns)


class _DraftLoss(torch.autograd.Function):
    """The weighted sum of both losses over rows. Draft rows are frozen, so the gradient of the states is all that is
    needed, and it is computed beside the loss, a few rows at a time."""

    @staticmethod
    def forward(ctx, states, rows, scale, cap, aim, weight, cross_entropy, variation):
        gradient = torch.empty_like(states)
        sums = torch.zeros(2)
        chunk = chunk_of(len(rows))
        for begin in range(0, len(states), chunk):
            part = slice(begin, begin + chunk)
            logits = soft_cap((states[part] @ rows.T).float() * scale, cap)
            log_q = logits.logsumexp(-1, keepdim=True)
            slope = (1 - (logits / cap).square_()) * scale if cap else scale
            p = (aim.logits[part].float() - aim.log_draft[part, None]).exp_()
            entropy = log_q[:, 0] - torch.linalg.vecdot(p, logits)
            sums[0] += (entropy @ weight[part]).cpu()
            q = logits.sub_(log_q).exp_()
            change = None
            if variation:
                within = (aim.log_draft[part] - aim.log_whole[part]).exp_()[:, None]
                if cross_entropy:
                    change = (q - p).mul_(cross_entropy)
                p = p.mul_(within)
                below = (q < p).float()
                sums[1] += ((1 - torch.minimum(p, q).sum(-1)) @ weight[part]).cpu()
                inside = torch.linalg.vecdot(q, below)[:, None]
                pull = below.neg_().add_(inside).mul_(q).mul_(variation)
                change = pull if change is None else change.add_(pull)
            else:
                change = q.sub_(p).mul_(cross_entropy)
            change.mul_(weight[part, None])
            if cap or scale != 1:
                change.mul_(slope)
            torch.mm(change.to(rows.dtype), rows, out=gradient[part])
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(sums)
        return (cross_entropy * sums[0] + variation * sums[1]).to(states.device), sums

    @staticmethod
    def backward(ctx, upstream, _):
        (gradient,) = ctx.saved_tensors
        return (gradient * upstream.to(gradient.dtype), *[None] * 7)


def draft_loss(states, rows, aim, weight, cross_entropy, variation, scale=1.0, cap=0.0):
    """states: [n, width], what the output rows multiply, in the rows' type. weight: [n]. Returns the loss, and both
    parts of it [2] without their factors; that of the total variation is 0 where it has none."""
    return _DraftLoss.apply(states, rows, scale, cap, aim, weight, cross_entropy, variation)
