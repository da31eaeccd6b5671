# SPDX-License-Identifier: LGPL-2.1-or-later
"""What torch's samplers draw, for those who have no torch."""
import random


def randperm(n, seed):
    """torch.randperm(n) after manual_seed(seed): the Mersenne Twister, seeded with one number."""
    state = [seed % 2**32]
    for number in range(1, 624):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + number) % 2**32)
    generator = random.Random()
    generator.setstate((3, (*state, 624), None))
    order = list(range(n))
    for at in range(n - 1):
        other = at + generator.getrandbits(32) % (n - at)
        order[at], order[other] = order[other], order[at]
    return order
