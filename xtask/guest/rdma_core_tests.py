#!/usr/bin/env python3
"""Runs modules of rdma-core's tests in the current folder: `rdma_core_tests.py LINK SKIPS MODULE...`.

SKIPS has a line for each test that is known to be skipped: its links, its name, and its reason. The
run fails if a test fails, if one is skipped for another reason, and if a known one is not skipped.
"""

import collections
import os
import sys
import unittest
from importlib.machinery import SourceFileLoader

LINK, SKIPS, *MODULES = sys.argv[1:]


def known_skips():
    """The reasons of the skips that are known on this link, by test."""
    known = {}
    for line in open(SKIPS):
        if line.strip() and not line.startswith("#"):
            links, test, reason = line.rstrip("\n").split(" ", 2)
            if LINK in links.split(","):
                known["tests.test_" + test] = reason
    return known


sys.path.insert(0, os.getcwd())
sys.argv[1:] = ["--dev", "mlx5_0"]
from args_parser import parser

parser.parse_args()
tests = SourceFileLoader("tests", os.path.join(os.getcwd(), "__init__.py")).load_module()
suite = unittest.defaultTestLoader.loadTestsFromNames(MODULES)
result = unittest.TextTestRunner(stream=open("/tmp/report", "w"), verbosity=2).run(suite)

skipped = {test.id(): reason for test, reason in result.skipped}
known = known_skips()
complaints = [f"failed: {test.id()}" for test, _ in result.failures + result.errors]
for test in sorted(skipped.keys() | known.keys()):
    if skipped.get(test) != known.get(test):
        complaints.append(f"{test}: skipped for {skipped.get(test)!r}, known is {known.get(test)!r}")
passed = result.testsRun - len(skipped) - len(result.failures) - len(result.errors)
print(f"{result.testsRun} tests: {passed} passed, {len(skipped)} skipped")
for reason, count in collections.Counter(skipped.values()).most_common():
    print(f"  {count} skipped: {reason}")
print("\n".join(complaints))
sys.exit(1 if complaints else 0)
