"""Escape invisible characters in foreign text before screens or logs show it.

Control characters move a terminal's cursor, format characters turn the direction of writing (U+202E) or hide
(U+200B): either can forge what a person reads before consenting.
"""

from __future__ import annotations

import re

_BEGIN_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_RANGES = ((0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
_BLANK = {0x2800, 0xFFFC, 0x16FE4, 0x1D159}
"""Symbols without ink: the blank braille pattern, the object replacement character, a filler, a null notehead."""
_INVISIBLE = {0x034F, 0x3164, 0xFFA0} | _BLANK | {code for low, high in _RANGES for code in range(low, high + 1)}
"""Invisible letters and marks: Default_Ignorable_Code_Point (Unicode, DerivedCoreProperties.txt) outside C*."""


def is_printable(text: str) -> bool:
    """Return whether every character is visible: no control, format, private-use or unassigned one.

    Nor any space but U+0020, a line or paragraph break, or a letter that shows nothing.
    """
    return text.isprintable() and (text.isascii() or _INVISIBLE.isdisjoint(map(ord, text)))


def escaped(text: str) -> str:
    r"""Return the text on one line, with Python's escapes (\n, \x1b, \u202e) for what `is_printable` refuses."""
    if is_printable(text):
        return text
    return "".join(each if is_printable(each) else each.encode("unicode_escape").decode() for each in text)


def as_cell(text: str) -> str:
    """Return the text for a spreadsheet's cell, with an apostrophe before text that would be read as a formula.

    So OWASP has it ("CSV Injection"); numbers stay as they are.
    """
    return f"'{text}" if text.startswith(_BEGIN_FORMULAS) and not _NUMBER.fullmatch(text) else text


def first_unprintable(text: str) -> str | None:
    """Return the code point ("U+001B") of the first unprintable character; None if there is none."""
    if is_printable(text):
        return None
    return next(f"U+{ord(each):04X}" for each in text if not is_printable(each))
