# SPDX-License-Identifier: LGPL-2.1-or-later
"""scripts/bench tier"""
import os
import sys

import lab

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tier"))
import private  # noqa: E402 pylint: disable=wrong-import-position
import tier_engine  # noqa: E402 pylint: disable=wrong-import-position


def main():
    private.enter()
    options, bench, report = lab.begin("tier", lambda parser: parser.add_argument("--engine", action="store_true", help="the engine alone"))
    if options.engine:
        tier_engine.run(options, bench, report)
    report.end()


main()
