"""Re-export `Sessions` and `import_session` of `lango.runtime`."""

from lango.runtime.session_transfer import import_session
from lango.runtime.sessions import Sessions

__all__ = ["Sessions", "import_session"]
