# SPDX-License-Identifier: Apache-2.0
"""Ratios of times that were measured in turns, side by side: each turn with something is compared with the turns without it before and after."""

import random
import statistics


def pairs_of(turns, is_with, value):
    """(with, mean of the neighbours without) of each turn with."""
    for at, turn in enumerate(turns):
        if not is_with(turn):
            continue
        neighbours = [turns[i] for i in (at - 1, at + 1) if 0 <= i < len(turns) and not is_with(turns[i])]
        if neighbours:
            yield value(turn), statistics.fmean(value(each) for each in neighbours)


def ratio(pairs, rounds=2000, seed=1):
    """(median ratio, lower and upper end of its 95 % confidence interval by bootstrap, number of pairs)."""
    ratios = [with_ / without for with_, without in pairs]
    if len(ratios) < 2:
        return (ratios[0] if ratios else None, None, None, len(ratios))
    chance = random.Random(seed)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(rounds))
    return statistics.median(ratios), medians[rounds // 40], medians[-rounds // 40 - 1], len(ratios)


def text(name, pairs):
    middle, low, high, n = ratio(list(pairs))
    if middle is None:
        return f"{name}: not measured"
    return f"{name}: {middle:.3f}" + (f" ({low:.3f} to {high:.3f}, 95 %)" if low is not None else " (one pair: no interval)") + f", {n} pairs"
