"""The template environment: all missing variables at once, nothing printed unescaped, errors with line numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from seekserve.errors import RenderError
from seekserve.repository.environment import render_template, render_text, template_folder


def fault(source: str, **values: object) -> str:
    with pytest.raises(RenderError) as caught:
        render_text(source, values, name="t.j2")
    return str(caught.value)


def test_a_clean_template_renders_and_keeps_its_last_newline() -> None:
    source = "a: {{ a | pbtxt_string }}\n{% for n in ns %}\n  n: {{ n | pbtxt_int }}\n{% endfor %}\n"
    assert render_text(source, {"a": "x", "ns": [1, 2]}, name="t.j2") == 'a: "x"\n  n: 1\n  n: 2\n'


def test_all_missing_variables_are_named_with_their_lines() -> None:
    text = fault("{{ one | pbtxt_int }}\n{{ two | pbtxt_int }}\n{{ one | pbtxt_int }}\n{{ ok | pbtxt_int }}", ok=1)
    assert "template t.j2: 2 problems" in text
    assert "variable 'one' has no value (lines 1, 3)" in text
    assert "variable 'two' has no value (line 2)" in text


def test_a_missing_attribute_names_template_and_line() -> None:
    text = fault("x\n{% for t in ts %}\n{{ t.name | pbtxt_string }}\n{% endfor %}", ts=[{"nam": "x"}])
    assert "template t.j2, line 3" in text
    assert "has no attribute 'name'" in text


@pytest.mark.parametrize(
    "source",
    [
        "{{ a }}",
        "{{ a | upper }}",
        "{{ a | pbtxt_string ~ 'x' }}",
        "{{ 'literal' }}",
        "{{ (a | pbtxt_string) if a else a }}",
        "{% if a %}\n{{ a }}\n{% endif %}",
        "{% macro m() %}x{% endmacro %}{{ m() }}",
    ],
)
def test_a_value_printed_without_a_filter_is_refused(source: str) -> None:
    text = fault(source, a="x")
    assert "without one of the filters pbtxt_string" in text or "No filter named" in text


def test_a_value_is_never_rendered_again() -> None:
    value = "{{ 7 * 7 }}{% for %}"
    assert "49" not in render_text("{{ a | pbtxt_string }}", {"a": value}, name="t.j2")


def test_a_filter_that_refuses_a_value_names_the_line() -> None:
    assert "template t.j2, line 2: expected an integer, got '1'" in fault("x\n{{ a | pbtxt_int }}", a="1")


def test_a_syntax_error_names_the_line() -> None:
    assert "template t.j2, line 2" in fault("x\n{% for %}\n")


def test_an_unknown_template_is_named() -> None:
    with pytest.raises(RenderError, match=r"no template none\.j2"):
        render_template("none.j2", {})


def test_this_checkout_uses_its_own_templates(repository_root: Path) -> None:
    assert template_folder() == repository_root / "model_repo_templates"


def test_every_template_of_the_toolkit_is_clean(repository_root: Path) -> None:
    templates = sorted((repository_root / "model_repo_templates").rglob("*.j2"))
    assert templates
    for path in templates:
        text = fault(path.read_text(encoding="utf-8"))
        assert "without one of the filters" not in text
        assert "has no value" in text
