"""The methods of methods/ADDING.md, as modules of this process."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import methods


def readme_blocks() -> list[str]:
    """The Python blocks of the guide: a file, then its line in the registry, for each method."""
    text = (Path(methods.__file__).parent / "ADDING.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def readme_method(name: str) -> Any:
    """The class of the method with this name."""
    for source in readme_blocks()[::2]:
        if f'name: ClassVar[str] = "{name}"' in source:
            module = ModuleType(f"methods.{name.replace('-', '_')}")
            sys.modules[module.__name__] = module  # where dataclasses look types up
            exec(compile(source, f"ADDING.md ({name})", "exec"), module.__dict__)  # noqa: S102
            return next(each for each in vars(module).values() if getattr(each, "name", None) == name)
    raise ValueError(name)
