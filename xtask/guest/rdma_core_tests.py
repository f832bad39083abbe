#!/usr/bin/env python3
"""Runs modules of rdma-core's tests in the current folder: `rdma_core_tests.py LINK SKIPS MODULE...`.

SKIPS has a line for each test that is known not to pass: its links, its name, and the reason of the
skip. A link may end in a kernel's version: `roce@6.1`. Where a test cannot skip itself, the reason is
`failed: ` and the error. The run fails if a test does not pass for another reason, and if a known one
passes.
"""

import collections
import os
import sys
import unittest
from importlib.machinery import SourceFileLoader

LINK, SKIPS, *MODULES = sys.argv[1:]


def is_here(link):
    """Whether a line is of this link and kernel."""
    link, _, kernel = link.partition("@")
    return link == LINK and (not kernel or os.uname().release.startswith(kernel + "."))


def known_reasons():
    """The reasons that are known on this link and kernel, by test."""
    known = {}
    for line in open(SKIPS):
        if line.strip() and not line.startswith("#"):
            links, test, reason = line.rstrip("\n").split(" ", 2)
            if any(map(is_here, links.split(","))):
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
failed = {
    test.id(): "failed: " + trace.rstrip().rsplit("\n", 1)[-1]
    for test, trace in result.failures + result.errors
}
reasons, known = skipped | failed, known_reasons()
complaints = [
    f"{test}: {reasons.get(test, 'passed')!r}, known is {known.get(test)!r}"
    for test in sorted(reasons.keys() | known.keys())
    if reasons.get(test) != known.get(test)
]
passed = result.testsRun - len(reasons)
print(f"{result.testsRun} tests: {passed} passed, {len(skipped)} skipped, {len(failed)} failed")
for reason, count in collections.Counter(reasons.values()).most_common():
    print(f"  {count}: {reason}")
print("\n".join(complaints))
sys.exit(1 if complaints else 0)
