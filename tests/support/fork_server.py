"""The server that the processes of tests are forked from: it has imported everything, so that each starts at once.

A test run has one such server per worker. `tests.support.preloaded` is what it imports.
"""

import multiprocessing

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.support.preloaded"])
