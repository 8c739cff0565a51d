"""Batches of whole texts.

The rows of all texts of a batch lie one after another, without padding:

all rows    positions 2 to n - 2 of each text of n tokens: row p has token p and the target's features of p - 1
start rows  those of them from which a draft can begin that guesses tokens of the answer: [first_start, n - 2].
            Targets are theirs: row p is followed by token p + 1, whose distribution the final-normed state of p gives

Attention alone wants texts side by side: `key_index` [texts, longest] and `query_index` lead from there to rows.
"""

import dataclasses

import torch
from torch.nn.utils.rnn import pad_sequence

WINDOW = 256  # texts sorted by length together


@dataclasses.dataclass
class Batch:
    taps: torch.Tensor  # bf16 [rows, taps * width]; None where a head needs none
    tokens: torch.Tensor  # [rows], token p
    positions: torch.Tensor  # [rows], p
    starts: torch.Tensor  # [start rows], which of all rows they are
    final: torch.Tensor  # bf16 [start rows, width]
    next_tokens: torch.Tensor  # [start rows], token p + 1
    number_in_text: torch.Tensor  # [start rows], from 0 in each text
    row_numbers: torch.Tensor  # [start rows], over all shards, always on the CPU
    key_index: torch.Tensor  # [texts, longest of all rows], 0 where there is none
    query_index: torch.Tensor  # [texts, longest of start rows], 0 where there is none
    query_place: torch.Tensor  # [start rows], where each is in query_index, flat
    first_query: torch.Tensor  # [texts], number in key_index of the text's first start row
    is_greedy: torch.Tensor  # [start rows], whether the text was made at temperature 0

    @property
    def n_rows(self):
        return len(self.tokens)

    @property
    def n_starts(self):
        return len(self.starts)

    def to(self, device):
        if device == "cpu":
            return self
        moved = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return Batch(**{name: value if value is None or name == "row_numbers" else value.to(device, non_blocking=True)
                        for name, value in moved.items()})


def make_batch(features, texts, needs_taps=True):
    taps, tokens, positions, starts, final, following, numbers, row_numbers = ([] for _ in range(8))
    key_index, query_index, first_query, greedy = [], [], [], []
    n_rows = n_starts = 0
    for text in texts:
        n, first = text.n_tokens, text.first_start
        ids = features.tokens(text).long()
        if needs_taps:
            taps.append(features.rows(text, "features", 1, n - 3))
        final.append(features.rows(text, "final", first, n - 2))
        tokens.append(ids[2 : n - 1])
        positions.append(torch.arange(2, n - 1))
        following.append(ids[first + 1 :])
        starts.append(torch.arange(first - 2, n - 3) + n_rows)
        numbers.append(torch.arange(text.n_starts))
        row_numbers.append(torch.arange(first - 1, n - 2) + text.row_number)
        key_index.append(torch.arange(n - 3) + n_rows)
        query_index.append(torch.arange(text.n_starts) + n_starts)
        first_query.append(first - 2)
        greedy.append(torch.full((text.n_starts,), text.temperature == 0))
        n_rows += n - 3
        n_starts += text.n_starts
    longest = max(len(index) for index in query_index)
    places = [torch.arange(len(index)) + longest * i for i, index in enumerate(query_index)]
    return Batch(
        taps=torch.cat(taps) if needs_taps else None, tokens=torch.cat(tokens), positions=torch.cat(positions),
        starts=torch.cat(starts), final=torch.cat(final), next_tokens=torch.cat(following),
        number_in_text=torch.cat(numbers), row_numbers=torch.cat(row_numbers),
        key_index=pad_sequence(key_index, batch_first=True), query_index=pad_sequence(query_index, batch_first=True),
        query_place=torch.cat(places), first_query=torch.tensor(first_query), is_greedy=torch.cat(greedy))


def group(texts, n_starts_max):
    """Texts of similar lengths in groups of at most so many start rows, or of one text."""
    groups, rows = [], 0
    for text in sorted(texts, key=lambda text: (text.n_tokens, text.row_number)):
        if not groups or rows + text.n_starts > n_starts_max:
            groups.append([])
            rows = 0
        groups[-1].append(text)
        rows += text.n_starts
    return groups


def epoch_groups(texts, n_starts_max, seed, epoch):
    """Each text once, in an order that seed and epoch give."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(len(texts), generator=generator).tolist()
    groups = []
    for begin in range(0, len(order), WINDOW):
        groups += group([texts[i] for i in order[begin : begin + WINDOW]], n_starts_max)
    return [groups[i] for i in torch.randperm(len(groups), generator=generator).tolist()]
