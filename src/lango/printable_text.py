"""Make control characters in texts harmless, for terminals and logs.

A control character in the text of a model, a tool or a file could move the cursor, rewrite the screen, set the
clipboard, type input or forge lines of a log. Each becomes a visible sign of the same width.
"""

_KEPT_CHARACTERS = "\n\t"
_REPLACEMENTS = {
    # ␛ for escape, ␇ for the bell
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in _KEPT_CHARACTERS},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),  # C1: an escape sequence in one character
    # change the direction of text
    **dict.fromkeys([0x200E, 0x200F, 0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD),
    **dict.fromkeys([0x2028, 0x2029], 0x20),
    **dict.fromkeys(range(0xD800, 0xE000), 0xFFFD),  # lone surrogates
}
_LINE_END = "\N{SYMBOL FOR LINE FEED}"


def printable(text: str) -> str:
    """Return text without control characters, except line ends and tabs."""
    return text.replace("\r\n", "\n").translate(_REPLACEMENTS)


def printable_line(text: str) -> str:
    """Return text without control characters as one line, with a sign for each line end."""
    return printable(text).replace("\n", _LINE_END)
