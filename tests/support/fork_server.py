"""The server that the processes of tests are forked from: it has imported everything, so that each starts at once.

A test run has one such server per worker. `tests.support.preloaded` is what it imports; in `make quick`, whose few
processes only use a store, less.
"""

import multiprocessing
import os

context = multiprocessing.get_context("forkserver")
_is_quick = os.environ.get("LANGO_EXAMPLES") == "few"
context.set_forkserver_preload(["tests.support.store_workers" if _is_quick else "tests.support.preloaded"])
