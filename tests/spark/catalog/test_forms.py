"""Objects of a catalog have each method that Java's interfaces leave to them."""

from typing import Any

import pytest

from lakebed.spark.catalog.changelog import LakeChangelog
from lakebed.spark.catalog.lake_catalog import LakeCatalog
from lakebed.spark.catalog.lake_tables import LakeTable
from lakebed.spark.catalog.metadata_tables import FactsScanBuilder, FactsTable, ReadOnlyTable
from lakebed.spark.catalog.procedures import LakeProcedure
from lakebed.spark.catalog.row_operations import RowChange
from lakebed.spark.catalog.scans import GroupScan, LakeScan, LakeScanBuilder
from lakebed.spark.catalog.session_jvm import Jvm, Proxied
from lakebed.spark.catalog.writes import LakeWriteBuilder, StagedLakeTable

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the objects of a catalog are in the process of the JVM's driver"),
]

CLASSES = [
    *(LakeCatalog, LakeTable, ReadOnlyTable, FactsTable, FactsScanBuilder, LakeProcedure),
    *(
        LakeScan,
        LakeScanBuilder,
        GroupScan,
        LakeWriteBuilder,
        StagedLakeTable,
        RowChange,
        pytest.param(
            LakeChangelog,
            marks=pytest.mark.since_spark("4.2", "there is no interface of changes"),
            id="LakeChangelog",
        ),
    ),
]


@pytest.mark.parametrize("class_", CLASSES, ids=lambda class_: class_.__name__)
def test_each_abstract_method_is_there(spark: Any, class_: type[Proxied]):
    names = {name for base in class_.__mro__ for name in vars(base)}
    names.update(Jvm(spark).answers_of_scans.keySet().toArray())
    missing = set()
    for interface in class_.Java.implements:
        for method in spark._jvm.java.lang.Class.forName(interface).getMethods():
            is_abstract = spark._jvm.java.lang.reflect.Modifier.isAbstract(method.getModifiers())
            if is_abstract and method.getName() not in names:
                missing.add(method.getName())

    assert missing == set()
