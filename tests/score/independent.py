# SPDX-License-Identifier: LGPL-2.1-or-later
"""Ranks, scores, cross-entropies and draws against a computation of their own in numpy:
independent.py LIBRARY. SHADE_SCORE_DEVICE names the emulated device."""
import ctypes as c
import sys

try:
    import numpy as np
except ImportError:
    print("SKIP: there is no numpy for", sys.executable)
    sys.exit(77)

from library import Batch, Scorer, load

lib = load(sys.argv[1])
failed = 0


def check(holds, what):
    global failed
    print("ok" if holds else "FAILED", what)
    failed += not holds


def pointer(array):
    return array.ctypes.data


def scores_of(losses):
    """By counting, in double precision. Equal losses share the mean of their ranks."""
    if len(losses) == 1:
        return np.log([31.5 + 10])
    _, number, counts = np.unique(losses, return_inverse=True, return_counts=True)
    less = np.cumsum(counts) - counts
    return np.log((less + (counts - 1) / 2)[number] + 10)


def ranks_and_scores(chance):
    scorer = Scorer(lib, samples=5000)
    expected = np.full(5000, -1.0)
    for size in (1, 2, 64, 512, 4096):
        for ties in (False, True):
            ids = chance.integers(0, 5000, size).astype(np.uint32)
            losses = chance.exponential(size=size).astype(np.float32)
            if ties:
                losses = np.round(losses, 1)
            got = np.empty(size, np.float32)
            scorer.check(lib.shade_scorer_update(scorer.handle, pointer(ids), pointer(losses), size,
                                                 pointer(got)))
            wanted = scores_of(losses)
            check(np.abs(got - wanted).max() < 1e-6, f"scores of {size}, ties {ties}")
            for number, score in zip(ids, wanted):  # the last visit wins
                expected[number] = score
    stored = np.empty(5000, np.float32)
    scorer.check(lib.shade_scorer_scores(scorer.handle, pointer(stored)))
    check(np.abs(stored - expected).max() < 1e-6, "scores are stored by id")


def narrow(logits, dtype):
    """As the type has them: (what the library gets, the same in double precision)."""
    if dtype == 0:
        return logits, logits.astype(np.float64)
    if dtype == 1:
        half = logits.astype(np.float16)
        return half.view(np.uint16), half.astype(np.float64)
    bits = (logits.view(np.uint32) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def cross_entropies(chance, backend, rows, classes, dtype):
    scorer = Scorer(lib, samples=5000, backend=backend)
    check(lib.shade_scorer_backend(scorer.handle).decode() == backend, f"the backend is {backend}")
    ids = np.arange(rows, dtype=np.uint32)
    labels = chance.integers(0, classes, rows)
    given, exact = narrow((chance.normal(size=(rows, classes)) * 5).astype(np.float32), dtype)
    given = np.ascontiguousarray(given)
    losses, scores = np.empty(rows, np.float32), np.empty(rows, np.float32)
    batch = Batch(size=c.sizeof(Batch), count=rows, ids=pointer(ids), memory=backend == "cuda",
                  dtype=dtype, logits=pointer(given), classes=classes, label_bytes=8,
                  labels=pointer(labels), losses_out=pointer(losses), scores_out=pointer(scores))
    scorer.check(lib.shade_scorer_update_batch(scorer.handle, c.byref(batch)))
    scorer.check(lib.shade_scorer_sync(scorer.handle))
    largest = exact.max(1)
    wanted = (largest + np.log(np.exp(exact - largest[:, None]).sum(1))
              - exact[np.arange(rows), labels])
    worst = (np.abs(losses - wanted) / (1 + np.abs(wanted))).max()
    check(worst < 1e-6, f"cross-entropy {backend} {rows}x{classes} dtype {dtype}: {worst:.1e}")
    check(np.abs(scores - scores_of(losses)).max() < 1e-5, "and their scores")


def philox(seed, epoch, purpose, index):
    """Philox4x32-10 from its paper, for an array of counters: the first two words as 64 bits."""
    low = np.uint64(0xffffffff)
    word = [index & low, (index >> np.uint64(32)) ^ np.uint64(purpose << 24),
            np.full_like(index, epoch & 0xffffffff), np.full_like(index, epoch >> 32)]
    key = [seed & 0xffffffff, seed >> 32]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * word[0], np.uint64(0xCD9E8D57) * word[2]
        word = [(b >> np.uint64(32)) ^ word[1] ^ np.uint64(key[0]), b & low,
                (a >> np.uint64(32)) ^ word[3] ^ np.uint64(key[1]), a & low]
        key = [(key[0] + 0x9E3779B9) & 0xffffffff, (key[1] + 0xBB67AE85) & 0xffffffff]
    return word[0] << np.uint64(32) | word[1]


def counts_of(scorer, epoch, samples, draws):
    scorer.check(lib.shade_scorer_begin(scorer.handle, epoch, None))
    order = np.empty(draws, np.uint32)
    assert scorer.check(lib.shade_scorer_order(scorer.handle, epoch, 0, 1, pointer(order),
                                               draws)) == draws
    return np.bincount(order, minlength=samples)


def scored(mode, chance, samples, **options):
    """A scorer where every sample has a score."""
    scorer = Scorer(lib, mode, samples=samples, seed=12345678901, **options)
    scores = np.log(chance.integers(0, 64, samples) + 10.0).astype(np.float32)
    ids = np.arange(samples, dtype=np.uint32)
    scorer.check(lib.shade_scorer_merge(scorer.handle, pointer(ids), pointer(scores), samples))
    return scorer, scores.astype(np.float64)


def exact_draws(chance):
    """The very draws, from random numbers and weights of our own."""
    samples, draws, epoch = 300, 100000, 7
    scorer, scores = scored("paper", chance, samples, draws=draws)
    weights = 1 + np.floor(scores.astype(np.float32) / np.float32(scores.max())
                           * np.float32(1 << 20)).astype(np.uint64)
    ends = np.cumsum(weights)
    uniform = philox(12345678901, epoch, 0, np.arange(draws, dtype=np.uint64))
    places = np.array([int(u) * int(ends[-1]) >> 64 for u in uniform], np.uint64)
    wanted = np.bincount(np.searchsorted(ends, places, side="right"), minlength=samples)
    check((counts_of(scorer, epoch, samples, draws) == wanted).all(), "each draw is the same")


def chi_square(counts, shares):
    expected = counts.sum() * shares
    freedom = len(counts) - 1
    return ((counts - expected) ** 2 / expected).sum(), freedom + 5 * np.sqrt(2 * freedom)


def frequencies(chance):
    samples, draws = 1000, 1000000
    scorer, scores = scored("paper", chance, samples, draws=draws)
    shares = scores / scores.sum()
    counts = counts_of(scorer, 3, samples, draws)
    found, bound = chi_square(counts, shares)
    check(found < bound, f"paper: chi-square {found:.0f} of a million draws, below {bound:.0f}")
    found, bound = chi_square(counts, np.full(samples, 1 / samples))
    check(found > bound, f"(against equal shares it is {found:.0f}: the test can fail)")

    cover = 10
    scorer, scores = scored("pads", chance, samples, draws=draws, cover_epochs=cover,
                            max_repeats=1000000)
    counts = counts_of(scorer, 3, samples, draws)
    shares = ((draws - samples // cover) * scores / scores.sum() + 1 / cover) / draws
    found, bound = chi_square(counts, shares)
    check(found < bound, f"pads: chi-square {found:.0f} of a million draws, below {bound:.0f}")


def main():
    chance = np.random.default_rng(5)
    ranks_and_scores(chance)
    for backend in ("cpu", "cuda"):
        for rows, classes in ((64, 10), (33, 100), (8, 1000)):
            for dtype in range(3):
                cross_entropies(chance, backend, rows, classes, dtype)
    exact_draws(chance)
    frequencies(chance)
    sys.exit(1 if failed else 0)


main()
