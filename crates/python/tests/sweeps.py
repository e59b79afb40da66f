"""Sweeps of which the tests of every change take samples; `--whole` runs the others too."""

import pytest


def sampled(cases, one_in):
    """Of these parameters, those that run with `--whole` alone are marked: all but the first of every so many."""
    marked = []
    for place, case in enumerate(cases):
        case = case if isinstance(case, type(pytest.param())) else pytest.param(case)
        marks = case.marks if place % one_in == 0 else (*case.marks, pytest.mark.whole)
        marked.append(pytest.param(*case.values, id=case.id, marks=marks))
    return marked
