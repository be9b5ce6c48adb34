"""A published table shows one version after the other, whoever stands still while it publishes."""

from __future__ import annotations

import pytest

from schedules.interleavings import schedule_from
from schedules.play import play, simulated
from schedules.verbs import NAME
from schedules.verbs import play as play_verb
from schedules.world import World, running

PLACES = (1, 2, 3, 5)  # before which request the first publisher stands still


@pytest.mark.parametrize("place", PLACES)
def test_a_suspended_publisher_does_not_take_the_log_of_delta_back(place: int) -> None:
    with simulated():
        played = play(schedule_from(f"document: publish | append+publish ; ann {place}"))

    assert not played.violations, str(played)


@pytest.mark.parametrize("place", PLACES)
def test_a_suspended_publisher_does_not_take_a_table_of_iceberg_back(place: int) -> None:
    text = f"document: publish_iceberg | append+publish_iceberg ; ann {place}"
    with simulated():
        world = World(schedule_from(text), play_verb)
        with running(world):
            world.run()
            shown = list(_versions_of_metadata(world))

    assert shown
    assert shown == sorted(shown)
    assert len(shown) == len(set(shown)), "a version was published twice"


def _versions_of_metadata(world: World) -> list[int]:
    """Return the version of the dataset that each metadata file of the table shows."""
    from lakebed.tables.iceberg.homes import FilesBeside

    home = FilesBeside(world.inner, NAME, "s3://lake")
    table = home.find("")
    assert table is not None
    return [int(one.summary["lakebed.version"]) for one in table.metadata.snapshots]
