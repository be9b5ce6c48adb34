"""How much a test looks at, by the Hypothesis profile: `quick`, `test`, `ci` or `long` (see conftest.py)."""

from typing import Any

from hypothesis import HealthCheck, settings

_LEAST = 2


def examples(share: float, *, long: int | None = None, **more: Any) -> settings:
    """Return settings with a share of the examples of the profile.

    Args:
        share: 1 for what costs a millisecond an example, less for what writes datasets.
        long: How many examples the profile `long` looks at, in place of its share.
        more: Further settings.
    """
    count = max(_LEAST, round(share * settings().max_examples))
    if long is not None and settings.get_current_profile_name() == "long":
        count = long
    return settings(max_examples=count, **more)


def cases(count: int) -> int:
    """Return how many cases a test takes that draws them itself: in `test` half, in `quick` a third."""
    return count // {"test": 2, "quick": 3}.get(settings.get_current_profile_name() or "", 1)


def examples_with_fixtures(share: float) -> settings:
    """Return the settings of a test whose examples may share what a fixture gives."""
    ignored = [*settings().suppress_health_check, HealthCheck.function_scoped_fixture]
    return examples(share, suppress_health_check=ignored)
