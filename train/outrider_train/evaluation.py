"""How often a head is right on texts that it never saw.

Depth d of a draft counts where the d - 1 before it were right: the head's choice is the target's, and the text goes on
with it. greedy: the head's choice is the target's over its whole vocabulary. sampled: sum of min(p, q), the chance that
a drafted token is accepted at temperature 1. length: tokens per pass of chains of so many, the target's own included.
"""

import torch

from .batches import group, make_batch
from .losses import Aim, chunk_of, soft_cap

DEPTHS = 4
QUICK_ROWS = 12_000  # of an evaluation during training


def chain_length(acceptance):
    length, reached = 1.0, 1.0
    for share in acceptance:
        reached *= share
        length += reached
    return length


class HeldOut:
    def __init__(self, features, texts, target, needs_taps, n_starts_max, device):
        self.features, self.target, self.needs_taps, self.device = features, target, needs_taps, device
        self.groups = group(texts, n_starts_max)
        self._of_target = {}  # number of a group -> the target's choices and log_sum_exp, which never change

    def _targets(self, number, batch):
        if number not in self._of_target:
            self._of_target[number] = self.target.choices(batch.final), self.target.log_sum_exp(batch.final)
        return self._of_target[number]

    @torch.no_grad()
    def evaluate(self, head, scale=1.0, cap=0.0, check=lambda: None):
        depths = min(DEPTHS, getattr(head, "depths_max", DEPTHS))
        sums = torch.zeros(4, depths, dtype=torch.float64)  # reached, right, rows, accepted mass
        covered = rows_all = 0
        for number, texts in enumerate(self.groups):
            check()
            batch = make_batch(self.features, texts, self.needs_taps).to(self.device)
            choices, log_whole = self._targets(number, batch)
            aim = Aim.of(self.target, batch.final, log_whole)
            covered += torch.isin(choices, self.target.draft_tokens).sum().item()
            rows_all += len(choices)
            reached = torch.ones(batch.n_starts, dtype=torch.bool, device=choices.device)
            for depth, states in enumerate(head.states(batch, depths)):
                is_valid = batch.number_in_text >= head.first_number + depth
                right, mass = self._judge(states, aim, choices, scale, cap)
                reached &= is_valid
                sums[0, depth] += reached.sum().item()
                sums[1, depth] += (reached & right).sum().item()
                sums[2, depth] += is_valid.sum().item()
                sums[3, depth] += mass[is_valid].sum().item()
                reached = (reached & right & (choices == batch.next_tokens)).roll(1)
        rows = sums.clamp_min(1)
        greedy, sampled = (sums[1] / rows[0]).tolist(), (sums[3] / rows[2]).tolist()
        lengths = chain_length(greedy[:3]), chain_length(sampled[:3])
        return dict(greedy=[round(x, 4) for x in greedy], sampled=[round(x, 4) for x in sampled],
                    greedy_length=round(lengths[0], 4), sampled_length=round(lengths[1], 4),
                    length=round(sum(lengths) / 2, 4), positions=int(sums[0, 0].item()),
                    covered=round(covered / max(1, rows_all), 4))

    def _judge(self, states, aim, choices, scale, cap):
        """Whether the head's choice is the target's, and the sum of min(p, q); logits in float32, because in bfloat16
        the first two are often equal."""
        right, mass = [], []
        chunk = chunk_of(len(self.target.rows))
        for begin in range(0, len(states), chunk):
            part = slice(begin, begin + chunk)
            logits = soft_cap(states[part].float() @ self.target.rows_exact.T * scale, cap)
            right.append(self.target.draft_tokens[logits.argmax(-1)] == choices[part])
            p = (aim.logits[part].float() - aim.log_whole[part, None]).exp_()
            mass.append(torch.minimum(p, logits.softmax(-1)).sum(-1))
        return torch.cat(right), torch.cat(mass)


@torch.no_grad()
def agreement(features, texts, target, rows_max, device, check=lambda: None):
    """Over answers made at temperature 0: the share of tokens that are the choice of the recomputed logits, and how
    many were looked at."""
    same = rows = 0
    for texts in group([text for text in texts if text.temperature == 0], 1024):
        if rows >= rows_max:
            break
        check()
        batch = make_batch(features, texts, needs_taps=False).to(device)
        same += (target.choices(batch.final) == batch.next_tokens).sum().item()
        rows += batch.n_starts
    return (same / rows if rows else None), rows
