"""What the server writes to its log: a line each, as text or as JSON, with session, turn and trace."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from lango.telemetry.traces import ids

_EXTRA = ("session", "turn", "status", "trace_id")


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON."""
        told: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        told |= ids()
        told |= {name: getattr(record, name) for name in _EXTRA if hasattr(record, name)}
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told)


def configure(log_format: str) -> None:
    """Write to standard error. ADK's own log repeats whole requests and answers: it stays silent."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if log_format == "json" else plain)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("lango").setLevel(logging.INFO)
    logging.getLogger("google_adk").setLevel(logging.CRITICAL)
