"""Pages of commands, each one file in the look of the audit's: no script, no request, every name in them escaped."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from secagg.system.printable import escaped


def render(template: str, style: str, **values: object) -> str:
    """A page of this package's templates; `style` is added to the audit's."""
    whole = (resources.files("threat_models.report") / "page.css").read_text(encoding="utf-8") + style
    environment = Environment(
        loader=PackageLoader("secagg.cli", "."), autoescape=True, undefined=StrictUndefined, finalize=_clean
    )
    return environment.get_template(template).render(
        style=Markup(whole),  # noqa: S704 (our own files)
        style_sha256=b64encode(sha256(whole.encode()).digest()).decode(),
        **values,
    )


def _clean(value: object) -> object:
    return value if isinstance(value, Markup) else escaped(str(value))
