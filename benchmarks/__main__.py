"""Run every benchmark of this folder, or the named ones: `python -m benchmarks [name ...] [--quick]`."""

import importlib
import inspect
import pkgutil
import sys
import traceback

import benchmarks
from benchmarks.table import print_line


def main() -> int:
    """Run the benchmarks one after the other. Report one that fails, and continue."""
    wanted = [name for name in sys.argv[1:] if not name.startswith("-")]
    known = [module.name for module in pkgutil.iter_modules(benchmarks.__path__) if not module.name.startswith("_")]
    if options := sorted({*sys.argv[1:]} - {*wanted, "--quick"}):
        print_line(f"{__doc__}\nThere are: {', '.join(known)}")
        return 0 if options == ["--help"] else 2
    unknown = sorted(set(wanted) - set(known))
    if unknown:
        print_line(f"there is no benchmark {', '.join(unknown)}; there are: {', '.join(known)}")
        return 2
    failed = [name for name in wanted or known if not _run(name)]
    if failed:
        print_line(f"\nfailed: {', '.join(failed)}")
    return 1 if failed else 0


def _run(name: str) -> bool:
    try:
        module = importlib.import_module(f"benchmarks.{name}")
        run = getattr(module, "main", None)
        # a module without main() is shared code
        if run is not None and not inspect.signature(run).parameters:
            print_line(f"\n# {name}")
            run()
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - a benchmark may fail in any way, or call sys.exit
        print_line(traceback.format_exc())
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
