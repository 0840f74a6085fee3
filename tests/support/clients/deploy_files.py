"""Check `deploy/` with other people's programs: the chart as Helm renders it, and the compose file."""

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(json.loads(sys.argv[1])["folder"])
EVERYTHING = ("autoscaling.enabled=true", "ingress.enabled=true", "ingress.tlsSecretName=tls", "agents=/agents")
WRONG = ("replicas=0", "replica=2", "image.tag=", "secretName=")
KUBERNETES = ("1.30", "1.37")


def main() -> None:
    """Print what was found, as JSON."""
    print(json.dumps({"compose": check_compose(), "chart": check_chart()}))


def check_compose() -> list[str]:
    """Return the names of the services; raise for a file that the specification does not know."""
    compose_spec: Any = importlib.import_module("compose_spec")
    document: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    compose_spec.ComposeSpecification.model_validate(document)
    known = {field.alias or name for name, field in compose_spec.Service.model_fields.items()}
    for name, service in document["services"].items():
        assert set(service) <= known, f"{name}: {set(service) - known}"  # the models ignore unknown keys
    return sorted(document["services"])


def check_chart() -> dict[str, list[str]] | None:
    """Return the rendered kinds for each set of values, or None where there is no Helm for this machine."""
    kubernetes_validate: Any = importlib.import_module("kubernetes_validate")
    own = Path(sys.executable).with_name("helm")
    helm = str(own) if own.exists() else shutil.which("helm")
    if helm is None:
        return None
    rendered: dict[str, list[str]] = {}
    for values in ((), EVERYTHING):
        resources = [one for one in yaml.safe_load_all(_render(helm, values).stdout) if one]
        for resource in resources:
            for version in KUBERNETES:
                kubernetes_validate.validate(resource, version, strict=True)
        rendered[",".join(values)] = sorted(resource["kind"] for resource in resources)
    for value in WRONG:
        assert _render(helm, (value,)).returncode != 0, f"{value} was accepted"
    return rendered


def _render(helm: str, values: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    options = [part for value in values for part in ("--set", value)]
    command = [helm, "template", "demo", str(DEPLOY / "chart"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


main()
