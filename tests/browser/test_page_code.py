"""Code on the page: coloured once it is complete, with unchanged text, and never run."""

from playwright.async_api import Page, Request, expect

from lango.providers import Finish, TextDelta
from tests.browser.page_actions import answer, ask, send, wait_until_finished
from tests.browser.page_monitor import check_accessibility
from tests.browser.site import PAUSE, Site
from tests.browser.test_page_safety import EVIL, assert_inert

PYTHON = (
    'class A(B):\n    """A <b>doc</b>."""\n\n    @wraps\n    def f(self, n: int = 0x1F) -> str:  # why\n'
    '        return f"{n}" + None\n'
)
BLOCKS = "[...document.querySelectorAll('pre code')]"
INSIDE = "[...document.querySelectorAll('pre code *')]"
MANY = {
    "python": PYTHON,
    "sql": "SELECT COUNT(*) FROM orders WHERE id > 10 AND name = 'x'; -- all\n",
    "html": '<!doctype html>\n<p class="a" id=b>hi <!-- no --></p>\n<style>p.a:hover { color: #fff; }</style>\n',
    "css": "@media (width > 3px) { #a .b::before, a[href] { color: rgb(1 2 3 / 5%) !important; } }\n",
    "typescript": "export const f = async <T>(x: T[]): Promise<RegExp> => { return /a+/g; };\n",
    "bash": 'for i in "$@"; do echo "${i%.*}" | grep -q "x" && exit 1; done # done\n',
    "yaml": "a: &b\n  - 'c'\n  - 1.5\n  - true\n",
    "json": '{"a": [1, null, true, "x"]}\n',
    "rust": 'fn main() -> Option<u8> { let x: &\'static str = "a\\n"; println!("{x}"); None }\n',
    "diff": "--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n",
    "markdown": "# Title\n\n**bold** _it_ [a](http://b) `c`\n\n> quote\n",
    "powershell": "Get-ChildItem -Path $env:HOME | Where-Object { $_.Length -gt 1KB } # all\n",
    "f#": 'let rec f (x: int) : string = match x with | 0 -> "none" | _ -> f (x - 1) // down\n',
    "nonsense": "there is no such language\n",
    "": "none at all\n",
}


def fenced(language: str, code: str) -> str:
    return f"````{language}\n{code}````"


async def test_complete_code_is_coloured_and_the_library_is_loaded_with_the_first_block(page: Page, site: Site) -> None:
    requested: list[str] = []

    def record(request: Request) -> None:
        requested.append(request.url)

    page.on("request", record)
    halves = PYTHON.partition("return ")
    text = f"No code yet.{PAUSE}\n\n```python\n{halves[0]}{halves[1]}{PAUSE}{halves[2]}```\n\nDone."
    site.script.add([TextDelta(text), Finish("stop")])
    await page.goto(site.url)
    await send(page, "code")
    await expect(answer(page)).to_contain_text("No code yet.")
    site.provider.resume.set()
    code = answer(page).locator("pre code")
    await expect(code).to_contain_text("return")
    assert not [url for url in requested if "highlight" in url], "nothing is complete yet"
    await expect(code.locator("span")).to_have_count(0)
    site.provider.resume.set()
    await expect(code.locator(".hljs-keyword").first).to_have_text("class")
    await wait_until_finished(page)
    assert await code.text_content() == PYTHON
    assert len([url for url in requested if "highlight" in url]) == 1
    await page.reload()
    await expect(code.locator(".hljs-number")).to_have_text("0x1F")
    assert await code.text_content() == PYTHON


async def test_code_colours_have_enough_contrast(page: Page, site: Site) -> None:
    site.script.add("\n\n".join(fenced(language, code) for language, code in MANY.items()) + "\n\nThe end.")
    await page.goto(site.url)
    await ask(page, "many", "The end.")
    known = len(MANY) - 2
    await page.wait_for_function(
        f"(count) => {BLOCKS}.filter((element) => element.querySelector('span')).length === count", arg=known
    )
    shown = await page.evaluate(f"{BLOCKS}.map((element) => element.textContent)")
    assert shown == list(MANY.values())
    word = page.locator("code.language-python .hljs-keyword").first
    for scheme in ("light", "dark"):
        await check_accessibility(page, scheme)
        ink = await page.evaluate("getComputedStyle(document.querySelector('pre code')).color")
        assert await word.evaluate("(element) => getComputedStyle(element).color") != ink


ATTACKS = {
    "html": f'{EVIL}\n<a href="javascript:window.hacked=5" onclick=window.hacked=6>x</a><iframe srcdoc="<script>">\n',
    "javascript": "const a = `${'<img src=x onerror=window.hacked=7>'}`; // </code><script>window.hacked=8</script>\n",
    "php": '<?php echo "<script>window.hacked=9</script>"; ?><svg onload=window.hacked=10>\n',
    "markdown": "[a](javascript:window.hacked=11) <details open ontoggle=window.hacked=12>\n",
    "xml": '<span class="primary" id="send" data-copy="code">&lt;script&gt;</span><![CDATA[<b>]]>\n',
    'python"><img src=x onerror=window.hacked=13>': "print(1)\n",
    "__proto__": "constructor\n",
}


async def test_script_in_coloured_code_is_shown_as_text(page: Page, site: Site) -> None:
    site.script.add("\n\n".join(fenced(language, code) for language, code in ATTACKS.items()) + "\n\nThe end.")
    await page.goto(site.url)
    await ask(page, "attack", "The end.")
    for _ in ("streamed", "stored"):
        for language in ("html", "javascript", "php", "markdown", "xml"):
            await expect(page.locator(f"code.language-{language} span").first).to_be_attached()
        await assert_inert(page)
        shown = await page.evaluate(f"{BLOCKS}.map((element) => element.textContent)")
        assert shown == list(ATTACKS.values())
        inside = await page.evaluate(
            f"{INSIDE}.map((element) => [element.tagName, ...element.getAttributeNames()].join())"
        )
        assert set(inside) == {"SPAN,class"}
        classes = await page.evaluate(f"{INSIDE}.map((element) => element.className)")
        assert all(name.startswith(("hljs-", "language-")) for name in classes), set(classes)
        await page.reload()
        await expect(answer(page)).to_contain_text("The end.")


async def test_a_very_long_code_block_is_not_coloured(page: Page, site: Site) -> None:
    blocks = fenced("python", "x = 1\n" * 20_000), fenced("python", "y = 2\n"), "The end."
    site.script.add("\n\n".join(blocks))
    await page.goto(site.url)
    await ask(page, "long", "The end.")
    await expect(page.locator("pre code").last.locator(".hljs-number")).to_have_text("2")
    assert await page.locator("pre code").first.locator("span").count() == 0
