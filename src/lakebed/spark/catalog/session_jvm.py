"""The JVM of a classic session: conversions, and Python objects that implement interfaces of Java.

A call from the JVM costs little. A call into it takes a tenth of a millisecond, so objects of the
JVM are made once and kept. A package, a class and a function of a class are looked up by a call
each, so those of every query are kept, too.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from lakebed.errors import LakebedError
from lakebed.spark.callbacks import note_thread
from lakebed.spark.catalog.compiled_class import define_answers, define_batch, define_parts
from lakebed.spark.catalog.java_errors import raised_in_java, to_java_error
from lakebed.spark.file_lists import STRICT_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_PACKAGE = "org.apache.spark.sql"
_KEPT_SCHEMAS = 256
_CONNECTIVES = ("AND", "OR", "NOT")
# Rules of Spark's optimizer that leave comparisons of columns with constants.
_PLAIN_FORMS = (
    *("ReplaceExpressions", "RewriteWithExpression", "ConstantFolding"),
    *("UnwrapCastInBinaryComparison", "LikeSimplification"),
)


def release_of(spark: SparkSession) -> tuple[int, ...]:
    """Return the release of Spark, such as (4, 3)."""
    return tuple(int(part) for part in spark.version.split(".")[:2])


class Jvm:
    """The JVM of a session.

    Attributes:
        spark: The session.
        gateway: Its gateway.
        java: The package `java`.
        connector: The package of Spark's interfaces for catalogs and sources.
        sources: The package of Spark's own sources.
        sql: The package `org.apache.spark.sql`.
    """

    def __init__(self, spark: SparkSession) -> None:
        """Look up the packages.

        Args:
            spark: A classic session.
        """
        context: Any = spark.sparkContext
        session: Any = spark
        self.spark = spark
        self.session = session._jsparkSession
        self.gateway = context._gateway
        self.root: Any = session._jvm
        self.java = self.root.java
        self.sql = self.root.org.apache.spark.sql
        self.connector = self.sql.connector
        self.sources = self.sql.execution.datasources
        self._lookup = getattr(getattr(self.sources, "DataSource$"), "MODULE$")

    def to_array(self, class_: Any, items: Iterable[Any]) -> Any:
        """Return items as an array of a class of Java."""
        items = list(items)
        array = self.gateway.new_array(class_, len(items))
        for position, item in enumerate(items):
            # Assignment to an array of py4j does not take a Python object.
            self._set_item(array, position, _to_java(item))
        return array

    @functools.cached_property
    def _set_item(self) -> Any:
        return self.java.lang.reflect.Array.set

    def to_texts(self, texts: Iterable[str]) -> Any:
        """Return texts as an array of Java."""
        return self.to_array(self.java.lang.String, texts)

    def to_set(self, items: Iterable[Any]) -> Any:
        """Return items as a set of Java."""
        made = self.java.util.HashSet()
        for item in items:
            made.add(item)
        return made

    def to_map(self, items: Mapping[str, Any]) -> Any:
        """Return a mapping as a map of Java."""
        made = self.java.util.HashMap()
        for name, value in items.items():
            made.put(name, value)
        return made

    def to_options(self, items: Mapping[str, str]) -> Any:
        """Return options as Spark passes them to a source."""
        return self.sql.util.CaseInsensitiveStringMap(self.to_map(items))

    def to_seq(self, items: Iterable[Any]) -> Any:
        """Return items as a sequence of Scala."""
        return self._to_seq(list(items))

    @functools.cached_property
    def _to_seq(self) -> Any:
        return self.root.PythonUtils.toSeq

    def to_schema(self, struct: StructType) -> Any:
        """Return a schema as Spark's JVM has it."""
        return self._schema_of(struct.json())

    @functools.lru_cache(_KEPT_SCHEMAS)  # noqa: B019 - lives as long as its session
    def _schema_of(self, text: str) -> Any:
        return self.sql.types.DataType.fromJson(text)

    def to_references(self, names: Iterable[str]) -> Any:
        """Return names of top-level columns as references."""
        references = [self._reference(name) for name in names]
        return self.to_array(self._reference_class, references)

    @functools.lru_cache(_KEPT_SCHEMAS)  # noqa: B019
    def _reference(self, name: str) -> Any:
        # `Expressions.column` would parse the name.
        return self.connector.expressions.FieldReference(self.to_seq([name]))

    @functools.cached_property
    def _reference_class(self) -> Any:
        return self.connector.expressions.NamedReference

    @functools.cached_property
    def filter_class(self) -> Any:
        """Spark's class of filters in their older form."""
        return self.sql.sources.Filter

    @functools.cached_property
    def no_texts(self) -> Any:
        """A set without texts."""
        return self.to_set(())

    @functools.cached_property
    def no_filters(self) -> Any:
        """An array without filters."""
        return self.to_array(self.filter_class, ())

    @functools.cached_property
    def no_metrics(self) -> Mapping[str, Any]:
        """The answers of a scan or a write without metrics."""
        metric = self.connector.metric
        return {
            "supportedCustomMetrics": self.to_array(metric.CustomMetric, ()),
            "reportDriverMetrics": self.to_array(metric.CustomTaskMetric, ()),
        }

    @functools.cached_property
    def no_answers(self) -> Any:
        """A map without answers."""
        return self.to_map({})

    @functools.cached_property
    def answers_of_scans(self) -> Any:
        """Answers of all scans of planned files, and of their builders; Spark only shows the filters."""
        answers = {"columnarSupportMode": self.by_partition, "pushedFilters": self.no_filters}
        return self.to_map({**answers, **self.no_metrics})

    @functools.cached_property
    def to_answers(self) -> Callable[..., Any]:
        """Makes an object of Java of one of Python, see `define_answers`."""
        function: Callable[..., Any] = define_answers(self.root)
        return function

    @functools.cached_property
    def refreshes_cached_tables(self) -> bool:
        """True if what Spark caches follows a commit. Spark 4.0 reads the old version again."""
        return release_of(self.spark) >= (4, 1)

    @functools.cached_property
    def none(self) -> Any:
        """Scala's empty option."""
        return self.root.scala.Option.empty()

    @functools.cached_property
    def by_partition(self) -> Any:
        """The mode in which each partition has its own way of reading: rows or columns."""
        modes = getattr(self.connector.read, "Scan$ColumnarSupportMode")
        return modes.PARTITION_DEFINED

    @functools.lru_cache  # noqa: B019 - lives as long as its session
    def capabilities(self, *names: str) -> Any:
        """Return capabilities of a table by their names, without those that this Spark lacks."""
        kinds = self.connector.catalog.TableCapability
        known = {str(kind.name()) for kind in kinds.values()}
        return self.to_set(getattr(kinds, name) for name in names if name in known)

    def rows_of(self, frame: DataFrame) -> Any:
        """Return rows that the driver has, in Spark's own form."""
        planned: Any = frame
        return planned._jdf.queryExecution().executedPlan().executeCollect()

    def to_frame(self, rows: Any) -> DataFrame:
        """Return a frame of the JVM in Python."""
        from pyspark.sql import DataFrame, SparkSession

        session = rows.sparkSession()
        # A session of the JVM alone, such as one of Connect, has no object in Python yet.
        is_own = session.equals(self.session)
        return DataFrame(
            rows, self.spark if is_own else SparkSession(self.spark.sparkContext, session)
        )

    def scan_by_format(self, options: Mapping[str, str], schema: Any) -> Any:
        """Return Spark's scan of the format `lakebed`, which reads in Python."""
        table = self._source_table(options, schema)
        return table.newScanBuilder(self.to_options(options)).build()

    def writer_by_format(self, options: Mapping[str, str], info: Any) -> Any:
        """Return the builder of a write by the format `lakebed`, with other options than Spark's."""
        to_options = self.to_options(options)
        own = Made(
            self,
            "connector.write.LogicalWriteInfo",
            options=to_options,
            queryId=info.queryId,
            schema=info.schema,
            rowIdSchema=info.rowIdSchema,
            metadataSchema=info.metadataSchema,
        )
        return self._source_table(options, info.schema()).newWriteBuilder(own.to_java())

    def _source_table(self, options: Mapping[str, str], schema: Any) -> Any:
        """Return Spark's table of the format `lakebed`."""
        source = self._lookup.lookupDataSourceV2("lakebed", self.session.sessionState().conf())
        transforms = self.to_array(self.connector.expressions.Transform, ())
        return source.get().getTable(schema, transforms, self.to_options(options))

    @functools.cached_property
    def strict_options(self) -> Any:
        """Options of a read that leaves nothing out."""
        return self.to_options(STRICT_OPTIONS)

    @functools.cached_property
    def parts(self) -> Any:
        """Functions of Java on parts of scans, see `define_parts`; each is looked up once."""
        parts = define_parts(self.root)
        names = ("copied", "numbered", "index", "scan", "names")
        return SimpleNamespace(**{name: getattr(parts, name) for name in names})

    @functools.cached_property
    def to_batch(self) -> Callable[[Any], Any]:
        """Makes a batch that plans once, see `define_batch`."""
        class_: Callable[[Any], Any] = define_batch(self.root)
        return class_

    @functools.cached_property
    def to_lines(self) -> Callable[[Any], str]:
        """Returns the texts of the items of an array as lines."""
        wrap = self.root.scala.collection.immutable.ArraySeq.unsafeWrapArray
        return lambda array: str(wrap(array).mkString("\n"))

    def find_condition(self, frame: DataFrame) -> Any:
        """Return the filter of a frame whose last step is WHERE; None if it has no such form.

        Constants are computed as the session computes them, such as those that depend on its zone.
        """
        plan = cast("Any", frame)._jdf.queryExecution().analyzed()
        if plan.containsPattern(self.sql.catalyst.trees.TreePattern.CURRENT_LIKE()):
            return None  # it would be the time of today for ever
        for rule in _PLAIN_FORMS:
            plan = getattr(getattr(self.sql.catalyst.optimizer, f"{rule}$"), "MODULE$").apply(plan)
        strategy = getattr(getattr(self.sources, "DataSourceStrategy$"), "MODULE$")
        translated = strategy.translateFilter(plan.condition(), True)  # noqa: FBT003 - Spark's signature
        return translated.get() if translated.isDefined() else None

    def cast_literal(self, literal: Any, type_: Any) -> Any:
        """Return the value of a literal of a source, as another type has it in Spark's own form.

        Raises:
            ArithmeticException: The type has no such value; or another error of Spark.
        """
        expressions = self.sql.catalyst.expressions
        no_rows = self.session.emptyDataFrame().queryExecution().analyzed()
        source = expressions.V2ExpressionUtils.toCatalyst(literal, no_rows, self.none)
        zone = self.root.scala.Option.apply(self.spark.conf.get("spark.sql.session.timeZone"))
        cast = getattr(getattr(expressions, "Cast$"), "MODULE$")
        return cast.apply(source, type_, zone, True).eval(None)  # noqa: FBT003 - as ANSI SQL

    def find_filters(self, predicates: Iterable[Any]) -> list[Any] | None:
        """Return predicates in their older form, with column and value; None if one has none."""
        convert = self.sql.internal.connector.PredicateUtils.toV1
        filters = []
        for predicate in predicates:
            found = convert(predicate)
            is_leaf = predicate.name() not in _CONNECTIVES
            if not found.isDefined() or not (is_leaf or _is_plain(predicate, convert)):
                return None
            filters.append(found.get())
        return filters


def to_dict(items: Any) -> dict[str, str]:
    """Return a map of Java, such as options.

    The iterators of Java end by an exception, which PySpark looks at by 200 calls.
    """
    entries = items.entrySet().toArray() if len(items) else ()
    return {entry.getKey(): entry.getValue() for entry in entries}


def _is_plain(predicate: Any, convert: Callable[[Any], Any]) -> bool:
    """Return whether each leaf of a predicate compares a column with constants.

    Spark's translation to the older form silently leaves out a side of OR that has none. It tests
    the constants of a leaf by itself: at run time an IN may have a hundred thousand of them.
    """
    if predicate.name() in _CONNECTIVES:
        return all(_is_plain(child, convert) for child in predicate.children())
    return bool(convert(predicate).isDefined())


def _to_java(item: Any) -> Any:
    return item.to_java() if isinstance(item, Proxied) else item


def _answering(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method whose errors the JVM can pass on to the caller."""

    @functools.wraps(method)
    def answer(self: Proxied, *arguments: Any) -> Any:
        from pyspark.errors.exceptions.captured import CapturedException

        note_thread()
        try:
            return _to_java(method(self, *arguments))
        except LakebedError as error:
            raise to_java_error(self._jvm.root, error) from error
        except CapturedException as error:  # of Spark, from a job of ours
            origin = getattr(error, "_origin", None)
            if origin is None:
                raise
            raise raised_in_java(origin) from error

    return answer


def interfaces(*names: str) -> type:
    """Return what py4j asks for: the interfaces that a Python object implements.

    Args:
        names: Names below `org.apache.spark.sql`.
    """
    return type("Java", (), {"implements": tuple(f"{_PACKAGE}.{name}" for name in names)})


class Proxied:
    """A Python object that Spark uses as an object of Java; absent methods are Java's defaults."""

    Java: ClassVar[Any]
    _kept = ""  # names of methods whose answers last, between spaces
    _own = ""  # names of methods that are not Java's defaults
    _numbers: ClassVar[Iterable[int]] = itertools.count(1)

    def __init__(self, jvm: Jvm) -> None:
        """Give the object a text of its own.

        Args:
            jvm: The JVM of its session.
        """
        self._jvm = jvm
        self._key = f"{type(self).__name__}({next(iter(self._numbers))})"

    def __init_subclass__(cls) -> None:
        """Let the public methods pass errors on."""
        for name, value in list(vars(cls).items()):
            if callable(value) and not name.startswith("_") and name != "Java":
                setattr(cls, name, _answering(value))
        cls._own = " ".join(name for name in dir(cls) if not name.startswith("_"))

    def to_java(self) -> Any:
        """Return the object of Java, which asks this one only what it has to.

        This one must not keep it: both would stay for ever.
        """
        jvm = self._jvm
        return jvm.to_answers(self, self._key, self._own, self._kept, self._find_constants())

    def _find_constants(self) -> Any:
        """Return a map of Java of answers that all such objects have."""
        return self._jvm.no_answers

    def toString(self) -> str:
        """Return the text that is equal for equal objects."""
        return self._key


class Made(Proxied):
    """A small object of Java whose methods are functions, or values that they return."""

    def __init__(self, jvm: Jvm, interface: str, **methods: Any) -> None:
        """Make the object.

        Args:
            jvm: The JVM of its session.
            interface: Name of its interface below `org.apache.spark.sql`.
            methods: Its methods by name, or what they return.
        """
        super().__init__(jvm)
        self.Java = interfaces(interface)  # type: ignore[misc]  # each object has its own
        self._own = " ".join(methods)
        self._kept = " ".join(name for name, method in methods.items() if not callable(method))
        for name, method in methods.items():
            setattr(self, name, functools.partial(_answering(_without_self(method)), self))


def _without_self(method: Any) -> Callable[..., Any]:
    return lambda _self, *arguments: method(*arguments) if callable(method) else method
