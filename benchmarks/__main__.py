"""Run every benchmark of this folder, or those that are named: `python -m benchmarks [name ...] [--quick]`."""

import importlib
import inspect
import pkgutil
import sys
import traceback

import benchmarks
from benchmarks.table import say


def main() -> int:
    """Run them one after the other; one that fails is reported, and the others go on."""
    wanted = [name for name in sys.argv[1:] if not name.startswith("-")]
    known = [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.name.startswith("_")]
    if options := sorted({*sys.argv[1:]} - {*wanted, "--quick"}):
        say(f"{__doc__}\nThere are: {', '.join(known)}")
        return 0 if options == ["--help"] else 2
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        say(f"there is no benchmark {', '.join(unknown)}; there are: {', '.join(known)}")
        return 2
    failed = [name for name in wanted or known if not _run(name)]
    if failed:
        say(f"\nfailed: {', '.join(failed)}")
    return 1 if failed else 0


def _run(name: str) -> bool:
    try:
        module = importlib.import_module(f"benchmarks.{name}")
        run = getattr(module, "main", None)
        # a module without main() helps the others
        if run is not None and not inspect.signature(run).parameters:
            say(f"\n# {name}")
            run()
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a benchmark may fail in any way, or call sys.exit
        say(traceback.format_exc())
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
