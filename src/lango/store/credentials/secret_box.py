"""Encrypt secrets with a key from the environment.

The variable holds one or more keys, with commas between them: the first one encrypts, every one decrypts. To replace a
key, put the new one in front, run `lango credentials rotate`, and remove the old one.
"""

import json
import os
from typing import TYPE_CHECKING, Any, Self

from lango.errors import CredentialKeyError

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

KEY_VARIABLE = "LANGO_CREDENTIAL_KEY"
_HOW_TO = "make a key with `lango credentials key`"


class SecretBox:
    """Encrypts values for one purpose, and decrypts them for the same purpose only.

    The key is needed at the first use, and not before: an agent without credentials needs none.
    """

    def __init__(self, keys: str) -> None:
        """`keys` is the value of the variable; empty: it is not set."""
        self._keys = keys
        self._cipher: MultiFernet | None = None

    @classmethod
    def from_environment(cls) -> Self:
        """Make a box with the keys of the environment."""
        return cls(os.environ.get(KEY_VARIABLE, ""))

    def check(self) -> None:
        """Raise `CredentialKeyError` unless there is a key."""
        self._open()

    def seal(self, value: Any, *purpose: str) -> str:
        """Encrypt a JSON value. `purpose` says what it is for, such as the table, the user and the name."""
        return self._open().encrypt(json.dumps([purpose, value]).encode()).decode()

    def open(self, sealed: str, *purpose: str) -> Any:
        """Decrypt a value. Raise `CredentialKeyError` if no key fits, or if it was encrypted for another purpose."""
        from cryptography.fernet import InvalidToken

        try:
            sealed_for, value = json.loads(self._open().decrypt(sealed.encode()))
        except InvalidToken as error:
            raise CredentialKeyError(
                f"a stored credential cannot be decrypted: no key in {KEY_VARIABLE} is the one that encrypted it. Add "
                "the earlier key after the new one, with a comma between them, or delete the credential with `lango "
                "credentials delete`"
            ) from error
        if sealed_for != [*purpose]:
            raise CredentialKeyError("a stored credential belongs to another user, name or request: delete it")
        return value

    def rotate(self, sealed: str) -> str:
        """Encrypt a value again, with the first key."""
        from cryptography.fernet import InvalidToken

        try:
            return self._open().rotate(sealed.encode()).decode()
        except InvalidToken as error:
            raise CredentialKeyError(
                f"a stored credential cannot be decrypted: {KEY_VARIABLE} lacks the key that encrypted it"
            ) from error

    def _open(self) -> "MultiFernet":
        if self._cipher is None:
            from cryptography.fernet import Fernet, MultiFernet

            keys = [key.strip() for key in self._keys.split(",") if key.strip()]
            if not keys:
                raise CredentialKeyError(
                    f"credentials are stored encrypted, and {KEY_VARIABLE} is not set: {_HOW_TO}, and set it in the "
                    "environment of every process that uses this store"
                )
            try:
                self._cipher = MultiFernet([Fernet(key) for key in keys])
            except ValueError as error:
                raise CredentialKeyError(f"{KEY_VARIABLE} holds a key that is not valid: {_HOW_TO}") from error
        return self._cipher


def new_key() -> str:
    """Generate a key."""
    from cryptography.fernet import Fernet

    return Fernet.generate_key().decode()
