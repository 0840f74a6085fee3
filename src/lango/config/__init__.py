"""Settings: `lango.toml`, each key also as an environment variable `LANGO_SECTION__KEY`.

What is given in Python wins over the environment, the environment over the file, the file over the defaults. A key
that nobody knows is an error: a setting that is misspelt should not be silently without effect.
"""

from lango.config.sections import (
    AgentSettings,
    HistorySettings,
    McpSettings,
    MemorySettings,
    OidcSettings,
    ProviderSettings,
    ServerSettings,
    StoreSettings,
    SubAgentSettings,
    TelemetrySettings,
    ToolSettings,
)
from lango.config.settings import CONFIG_ENV, CONFIG_FILE, DEFAULT_MODEL, Settings

__all__ = [
    "CONFIG_ENV",
    "CONFIG_FILE",
    "DEFAULT_MODEL",
    "AgentSettings",
    "HistorySettings",
    "McpSettings",
    "MemorySettings",
    "OidcSettings",
    "ProviderSettings",
    "ServerSettings",
    "Settings",
    "StoreSettings",
    "SubAgentSettings",
    "TelemetrySettings",
    "ToolSettings",
]
