"""Curves of a run as curves.png and curves.svg."""

from .export import write_atomically


def draw(folder, progress, evaluations):
    """progress: events "progress"; evaluations: events "evaluation". False if matplotlib is not there."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    for key, name in (("cross_entropy", "soft cross-entropy"), ("variation", "total variation")):
        points = [(p["tokens"] / 1e6, p[key]) for p in progress if p.get(key) is not None]
        if points:
            left.plot(*zip(*points), label=name)
    left.set(xlabel="million tokens of answers", ylabel="loss at depth 1", ylim=(0, None))
    if progress:
        left.legend()
    depths = len(evaluations[0]["greedy"]) if evaluations else 0
    for depth in range(depths):
        x = [e["tokens"] / 1e6 for e in evaluations]
        right.plot(x, [e["greedy"][depth] for e in evaluations], f"C{depth}-", label=f"depth {depth + 1}, greedy")
        right.plot(x, [e["sampled"][depth] for e in evaluations], f"C{depth}--", label=f"depth {depth + 1}, sampled")
    right.set(xlabel="million tokens of answers", ylabel="accepted of held-out drafts", ylim=(0, 1))
    if depths:
        right.legend(fontsize="small", ncols=2)
    figure.tight_layout()
    for kind in ("png", "svg"):
        write_atomically(folder / f"curves.{kind}", lambda path, kind=kind: figure.savefig(path, format=kind))
    pyplot.close(figure)
    return True
