"""The strict template environment: nothing undefined, nothing unescaped, errors that name variable, template and line.

Templates have no defaults and no arithmetic; they print values through the filters of `pbtxt.py` and loop over lists.
Before rendering, every missing variable is listed at once; a printed expression without a filter is refused unread.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seekserve.errors import RenderError
from seekserve.output import problems_text

from .pbtxt import FILTERS

if TYPE_CHECKING:
    from jinja2 import Environment, Template

__all__ = ["render_template", "render_text", "template_folder"]


def template_folder() -> Path:
    """The checkout's own templates in a source tree, the copy inside the package in a wheel."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_templates", package.parents[1] / "model_repo_templates"):
        if folder.is_dir():
            return folder
    raise RenderError(
        f"no templates at {package / '_templates'}", hint="the installation is incomplete: install seekserve again"
    )


def render_template(name: str, values: Mapping[str, object]) -> str:
    """Renders a template of this toolkit, named relative to the template folder."""
    path = template_folder() / name
    try:
        source = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RenderError(f"no template {name} in {path.parent}", hint="install seekserve again") from None
    return render_text(source, values, name=name)


def render_text(source: str, values: Mapping[str, object], *, name: str) -> str:
    """Renders `source`; `name` stands in the errors."""
    import jinja2

    try:
        prepared = _prepare(source, name)
        problems = prepared.problems(values)
        if problems:
            raise RenderError(problems_text(f"template {name}", problems))
        return prepared.template.render(values)
    except jinja2.TemplateSyntaxError as error:
        raise RenderError(f"template {name}, line {error.lineno}: {error.message}") from error
    except jinja2.TemplateError as error:
        raise RenderError(f"template {name}, line {_line_of(error, name)}: {error.message}") from error
    except RenderError as error:
        line = _line_of(error, name)
        if line is None:
            raise
        raise RenderError(f"template {name}, line {line}: {error.message}", hint=error.hint) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    template: Template
    variables: Mapping[str, tuple[int, ...]]
    """Every one that must be given -> the lines that use it."""
    unescaped: tuple[int, ...]
    """Lines that print an expression without an escaping filter."""

    def problems(self, values: Mapping[str, object]) -> list[str]:
        missing = sorted(set(self.variables) - set(values))
        return [
            *(f"variable {name!r} has no value ({_lines_text(self.variables[name])})" for name in missing),
            *(f"line {line} prints a value without one of the filters {', '.join(FILTERS)}" for line in self.unescaped),
        ]


@functools.lru_cache(maxsize=8)
def _prepare(source: str, name: str) -> _Prepared:
    """Read and compiled once; a repository renders several models from one template."""
    import jinja2
    from jinja2 import meta, nodes

    environment = _environment()
    tree = environment.parse(source, filename=name)
    uses: dict[str, set[int]] = {variable: set() for variable in meta.find_undeclared_variables(tree)}
    for use in tree.find_all(nodes.Name):
        if use.name in uses:
            uses[use.name].add(use.lineno)
    unescaped = tuple(
        node.lineno
        for output in tree.find_all(nodes.Output)
        for node in output.nodes
        if not isinstance(node, nodes.TemplateData) and not (isinstance(node, nodes.Filter) and node.name in FILTERS)
    )
    code = environment.compile(tree, name=name, filename=name)
    return _Prepared(
        template=jinja2.Template.from_code(environment, code, environment.make_globals(None)),
        variables={variable: tuple(sorted(lines)) for variable, lines in uses.items()},
        unescaped=unescaped,
    )


def _environment() -> Environment:
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # the filters escape, for formats that HTML escaping knows nothing of
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.clear()
    environment.filters.update({name: _defined_only(function) for name, function in FILTERS.items()})
    return environment


def _defined_only(function: Callable[[Any], str]) -> Callable[[Any], str]:
    """A filter is handed an undefined attribute as an object; the error shall name the attribute."""
    from jinja2 import Undefined

    def apply(value: Any) -> str:
        return function(str(value) if isinstance(value, Undefined) else value)

    return apply


def _line_of(error: BaseException, template: str) -> int | None:
    """Jinja rewrites tracebacks so that a frame names the template and its own line."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == template]
    return frames[-1].lineno if frames else None


def _lines_text(lines: Sequence[int]) -> str:
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}"
