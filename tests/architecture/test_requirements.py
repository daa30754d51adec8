"""The list of requirements and the markers of the tests fit together."""

from __future__ import annotations

import pytest

from tests.requirements_report import marked, proofs, report, requirements


def test_the_list_is_whole() -> None:
    assert list(requirements()) == [f"R{n}" for n in range(1, 117)]


def test_every_marker_names_a_requirement_of_the_list() -> None:
    unknown = {number: tests for number, tests in proofs().items() if number not in requirements()}
    assert unknown == {}


def test_the_report_tells_tests_from_gaps() -> None:
    text = report()
    assert "tests/runs/test_state_matrix_sql.py::test_run" in text
    assert "      open" in text
    assert f"of {len(requirements())} requirements have a test." in text


def test_a_marker_is_found_on_functions_classes_modules_and_parameters() -> None:
    source = (
        "pytestmark = pytest.mark.requirement('R1')\n"
        "@pytest.mark.requirement('R2', 'R3')\n"
        "def test_a(): ...\n"
        "class TestB:\n"
        "    @pytest.mark.parametrize('x', [\n"
        "        pytest.param(1, marks=pytest.mark.requirement('R4'))])\n"
        "    def test_c(self): ...\n"
    )
    assert marked(source) == [
        ("", "R1"),
        ("test_a", "R2"),
        ("test_a", "R3"),
        ("TestB::test_c", "R4"),
    ]


def test_a_number_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(ValueError, match="line 2"):
        marked("x = 1\npytestmark = pytest.mark.requirement(NUMBER)\n")
