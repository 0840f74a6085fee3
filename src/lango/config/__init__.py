"""Settings: `lango.toml`, each key also as an environment variable `LANGO_SECTION__KEY`.

Python arguments override the environment, the environment the file, the file the defaults. An unknown key is an error:
a misspelt setting should not be silently ignored.
"""

from lango.config.sections import (
    AgentSettings,
    ChoiceSettings,
    CredentialSettings,
    HistorySettings,
    Language,
    McpOAuthSettings,
    McpSettings,
    MemorySettings,
    PriceSettings,
    ProviderSettings,
    StoreSettings,
    SubAgentSettings,
    TelemetrySettings,
    ToolSettings,
    TraceSettings,
)
from lango.config.server_sections import OidcSettings, ServerLimits, ServerSettings
from lango.config.settings import Settings
from lango.config.webhook_sections import TriggerSettings, WebhookSettings

__all__ = [
    "AgentSettings",
    "ChoiceSettings",
    "CredentialSettings",
    "HistorySettings",
    "Language",
    "McpOAuthSettings",
    "McpSettings",
    "MemorySettings",
    "OidcSettings",
    "PriceSettings",
    "ProviderSettings",
    "ServerLimits",
    "ServerSettings",
    "Settings",
    "StoreSettings",
    "SubAgentSettings",
    "TelemetrySettings",
    "ToolSettings",
    "TraceSettings",
    "TriggerSettings",
    "WebhookSettings",
]
