"""`python -m tests.reference`: write the pages."""

from tests.reference.pages import FOLDER, PAGES

if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), "utf-8")
        print(f"wrote docs/reference/{name}")
