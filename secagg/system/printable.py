"""Foreign text on screens and in logs: characters that cannot be seen are escaped first.

Control characters move a terminal's cursor, format characters turn the direction of writing (U+202E) or hide
(U+200B): either can forge what a person reads before consenting.
"""

from __future__ import annotations

import re

_BEGIN_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_RANGES = ((0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
_BLANK = {0x2800, 0xFFFC, 0x16FE4, 0x1D159}
"""Symbols drawn as nothing: the braille pattern without a dot, a stand-in for an object, a filler, a null notehead."""
_INVISIBLE = {0x034F, 0x3164, 0xFFA0} | _BLANK | {code for low, high in _RANGES for code in range(low, high + 1)}
"""Letters and marks that show nothing: Default_Ignorable_Code_Point (Unicode, DerivedCoreProperties.txt) outside C*."""


def is_printable(text: str) -> bool:
    """Whether every character shows and stands where it is: no control, format, private or unassigned one.

    Nor any space but U+0020, a line or paragraph break, or a letter that shows nothing.
    """
    return text.isprintable() and (text.isascii() or _INVISIBLE.isdisjoint(map(ord, text)))


def escaped(text: str) -> str:
    r"""The text on one line, every character that `is_printable` refuses as Python writes it: \n, \x1b, \u202e."""
    if is_printable(text):
        return text
    return "".join(each if is_printable(each) else each.encode("unicode_escape").decode() for each in text)


def as_cell(text: str) -> str:
    """The text for a table that spreadsheets open: with an apostrophe before what they would take for a formula.

    So OWASP has it ("CSV Injection"); numbers stay as they are.
    """
    return f"'{text}" if text.startswith(_BEGIN_FORMULAS) and not _NUMBER.fullmatch(text) else text


def first_unprintable(text: str) -> str | None:
    """The first unprintable character by its Unicode number ("U+001B"); None without any."""
    if is_printable(text):
        return None
    return next(f"U+{ord(each):04X}" for each in text if not is_printable(each))
