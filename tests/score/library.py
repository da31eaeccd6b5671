# SPDX-License-Identifier: LGPL-2.1-or-later
"""libshade-score by ctypes, as bindings see it, for the tests."""
import ctypes as c

MODES = {"uniform": 0, "replacement": 1, "paper": 2, "pads": 3, "echo": 4, "prune": 6, "iis": 7}
BACKENDS = {"auto": 0, "cpu": 1, "cuda": 2}


class Options(c.Structure):
    _fields_ = [("size", c.c_uint32), ("samples", c.c_uint32), ("seed", c.c_uint64),
                ("mode", c.c_uint32), ("backend", c.c_uint32), ("lookahead", c.c_uint32),
                ("draws", c.c_uint32), ("rep", c.c_double), ("uses", c.c_double),
                ("most_uses", c.c_double), ("strength", c.c_double), ("max_repeats", c.c_uint32),
                ("cover_epochs", c.c_uint32), ("capacity", c.c_uint32), ("device", c.c_int32),
                ("keep", c.c_double), ("epochs", c.c_uint32), ("multiple", c.c_uint32),
                ("substitute", c.c_uint32), ("package", c.c_uint32)]


class Batch(c.Structure):
    _fields_ = [("size", c.c_uint32), ("count", c.c_uint32), ("ids", c.c_void_p),
                ("memory", c.c_uint32), ("dtype", c.c_uint32), ("logits", c.c_void_p),
                ("row_stride", c.c_uint64), ("classes", c.c_uint32), ("label_bytes", c.c_uint32),
                ("labels", c.c_void_p), ("losses", c.c_void_p), ("losses_out", c.c_void_p),
                ("scores_out", c.c_void_p), ("stream", c.c_void_p)]


def load(path):
    lib = c.CDLL(path)
    lib.shade_score_error.restype = c.c_char_p
    lib.shade_scorer_backend.restype = c.c_char_p
    lib.shade_scorer_backend.argtypes = [c.c_void_p]
    lib.shade_scorer_create.argtypes = [c.POINTER(c.c_void_p), c.POINTER(Options)]
    lib.shade_scorer_update.argtypes = [c.c_void_p] * 3 + [c.c_uint32, c.c_void_p]
    lib.shade_scorer_update_batch.argtypes = [c.c_void_p, c.POINTER(Batch)]
    lib.shade_scorer_merge.argtypes = [c.c_void_p] * 3 + [c.c_uint32]
    for name in ("sync", "destroy"):
        getattr(lib, "shade_scorer_" + name).argtypes = [c.c_void_p]
    lib.shade_scorer_scores.argtypes = [c.c_void_p] * 2
    lib.shade_scorer_begin.argtypes = [c.c_void_p, c.c_uint64, c.c_void_p]
    lib.shade_scorer_order.argtypes = [c.c_void_p, c.c_uint64, c.c_uint32, c.c_uint32, c.c_void_p,
                                       c.c_uint64]
    lib.shade_scorer_order.restype = c.c_int64
    return lib


class Scorer:
    def __init__(self, lib, mode="pads", backend="cpu", **options):
        self.lib, self.handle = lib, c.c_void_p()
        self.options = Options()
        lib.shade_scorer_defaults(c.byref(self.options))
        self.options.mode, self.options.backend = MODES[mode], BACKENDS[backend]
        for name, value in options.items():
            setattr(self.options, name, value)
        self.check(lib.shade_scorer_create(c.byref(self.handle), c.byref(self.options)))

    def check(self, code):
        if code < 0:
            raise OSError(-code, self.lib.shade_score_error().decode())
        return code

    def __del__(self):
        self.lib.shade_scorer_destroy(self.handle)
