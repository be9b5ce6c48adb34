"""Classes of Java that Spark's own compiler makes of a text, where a call for each object costs too much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Only py4j calls the JVM, so only its package can get a class of ours in the loader of the program.
PACKAGE = "py4j.reflection"


def define_class(jvm: Any, name: str, make_text: Callable[[], str]) -> Any:
    """Return a class of the JVM as an object of `java.lang.Class`; made if the JVM lacks it.

    Args:
        jvm: The view of the JVM.
        name: Name of the class in `PACKAGE`.
        make_text: Makes its text.

    Cost:
        A compilation, once in a JVM.
    """
    from py4j.protocol import Py4JJavaError

    try:
        return jvm.java.lang.Class.forName(f"{PACKAGE}.{name}")
    except Py4JJavaError:
        pass
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(make_text())
    code = compiler.getBytecodes().get(f"{PACKAGE}.{name}")
    return jvm.java.lang.invoke.MethodHandles.lookup().defineClass(code)


_BATCH = "LakebedBatch"
_TEXT_OF_BATCH = """
package py4j.reflection;

import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

public class LakebedBatch implements Batch {
  private final Batch inner;
  private InputPartition[] parts;
  private PartitionReaderFactory factory;

  public LakebedBatch(Batch inner) { this.inner = inner; }

  public synchronized InputPartition[] planInputPartitions() {
    if (parts == null) parts = inner.planInputPartitions();
    return parts;
  }

  public synchronized PartitionReaderFactory createReaderFactory() {
    if (factory == null) factory = inner.createReaderFactory();
    return factory;
  }

  public boolean equals(Object other) {
    return other instanceof LakebedBatch && inner.equals(((LakebedBatch) other).inner);
  }

  public int hashCode() { return inner.hashCode(); }

  public String toString() { return inner.toString(); }
}
"""


def define_batch(jvm: Any) -> Any:
    """Return the class of a batch that makes its partitions and its reader once.

    Spark copies its plan several times, and each copy of a scan asks again: it put the settings of
    Hadoop into as many broadcasts.

    Args:
        jvm: The view of the JVM.
    """
    define_class(jvm, _BATCH, lambda: _TEXT_OF_BATCH)
    return getattr(jvm.py4j.reflection, _BATCH)


_PARTS = "LakebedParts"
_TEXT_OF_PARTS = """
package py4j.reflection;

import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.InMemoryFileIndex;
import org.apache.spark.sql.execution.datasources.NoopCache$;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetScanBuilder;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

public class LakebedParts {
  public static Object index(SparkSession session, String paths, String base, StructType schema) {
    String[] names = paths.split("\\n");
    Object[] found = new Object[names.length];
    for (int i = 0; i < names.length; i++) found[i] = new org.apache.hadoop.fs.Path(names[i]);
    java.util.HashMap options = new java.util.HashMap();
    if (base != null) options.put("basePath", base);
    InMemoryFileIndex index = new InMemoryFileIndex(
      session,
      scala.collection.immutable.ArraySeq$.MODULE$.unsafeWrapArray(found),
      org.apache.spark.api.python.PythonUtils.toScalaMap(options),
      scala.Option.apply(schema),
      NoopCache$.MODULE$,
      scala.Option.empty(),
      scala.Option.empty());
    return index.inputFiles().length == names.length ? index : null;
  }

  public static Object scan(
      SparkSession session, PartitioningAwareFileIndex index, StructType read, StructType stored,
      StructType wanted, CaseInsensitiveStringMap options, Filter[] filters) throws Exception {
    ParquetScanBuilder builder = new ParquetScanBuilder(session, index, read, stored, options);
    builder.pruneColumns(wanted);
    Object scan = builder.build();
    return filters == null ? scan : copied(scan, "pushedFilters", builder.pushDataFilters(filters));
  }

  public static String names(Identifier identifier) throws Exception {
    java.util.ArrayList names = new java.util.ArrayList(java.util.Arrays.asList(identifier.namespace()));
    names.add(identifier.name());
    return new com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(names);
  }

  public static Object copied(Object value, String name, Object changed) throws Exception {
    scala.Product product = (scala.Product) value;
    Object[] parts = new Object[product.productArity()];
    for (int i = 0; i < parts.length; i++) {
      parts[i] = product.productElementName(i).equals(name) ? changed : product.productElement(i);
    }
    java.lang.reflect.Method[] methods = value.getClass().getMethods();
    for (int i = 0; i < methods.length; i++) {
      if (methods[i].getName().equals("copy") && methods[i].getParameterCount() == parts.length) {
        return methods[i].invoke(value, parts);
      }
    }
    throw new NoSuchMethodException("copy");
  }

  public static InputPartition[] numbered(InputPartition[] parts, String lines, int count) throws Exception {
    java.util.HashMap numbers = new java.util.HashMap();
    String[] rows = lines.split("\\n");
    for (int i = 0; i < rows.length; i++) {
      int tab = rows[i].indexOf('\\t');
      numbers.put(rows[i].substring(tab + 1), Long.valueOf(rows[i].substring(0, tab)));
    }
    InputPartition[] made = new InputPartition[parts.length];
    for (int i = 0; i < parts.length; i++) {
      PartitionedFile[] files = ((FilePartition) parts[i]).files();
      PartitionedFile[] copies = new PartitionedFile[files.length];
      for (int k = 0; k < files.length; k++) {
        Object[] level = new Object[count];
        Object number = numbers.get(files[k].filePath().toPath().getName());
        if (number == null) throw new java.util.NoSuchElementException(files[k].filePath().toString());
        java.util.Arrays.fill(level, number);
        Object values = new JoinedRow(files[k].partitionValues(), new GenericInternalRow(level));
        copies[k] = (PartitionedFile) copied(files[k], "partitionValues", values);
      }
      made[i] = (InputPartition) copied(parts[i], "files", copies);
    }
    return made;
  }
}
"""


def define_parts(jvm: Any) -> Any:
    """Return the functions on parts of Spark's scans, each of which takes one call.

    Its `copied` returns a copy of an object of a Scala case class with another value of one of its
    parts, whatever its parts are in this release. Its `numbered` returns partitions whose files have
    a number as one or more further levels, by lines of a number, a tab and the name of a file. Its
    `index` looks at files by their paths in lines, and is null if one is missing. Its `scan` returns
    Spark's scan of some columns, with or without filters. Its `names` returns the parts of
    an identifier as an array of JSON.

    Args:
        jvm: The view of the JVM.
    """
    define_class(jvm, _PARTS, lambda: _TEXT_OF_PARTS)
    return getattr(jvm.py4j.reflection, _PARTS)


_ANSWERS = "LakebedAnswers"
_TEXT_OF_ANSWERS = """
package py4j.reflection;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.Collection;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

public class LakebedAnswers implements InvocationHandler {
  private static final Object NOTHING = new Object();
  private static final Method DEFAULT = findDefault();
  private final Object inner;
  private final Collection own, kept;
  private final Map constants, answers = new ConcurrentHashMap();
  private volatile String text;

  private LakebedAnswers(Object inner, String text, Collection own, Collection kept, Map constants) {
    this.inner = inner;
    this.text = text;
    this.own = own;
    this.kept = kept;
    this.constants = constants;
  }

  public static Object of(Object inner, String text, String own, String kept, Map constants) {
    Collection names = new java.util.HashSet(Arrays.asList(own.split(" ")));
    Collection lasting = new java.util.HashSet(Arrays.asList(kept.split(" ")));
    InvocationHandler handler = new LakebedAnswers(inner, text, names, lasting, constants);
    Class class_ = inner.getClass();
    return Proxy.newProxyInstance(class_.getClassLoader(), class_.getInterfaces(), handler);
  }

  public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
    String name = method.getName();
    int count = method.getParameterCount();
    if (count == 1 && name.equals("equals")) {
      Object other = arguments[0];
      return Boolean.valueOf(proxy == other || other != null && proxy.toString().equals(other.toString()));
    }
    if (count == 0) {
      if (name.equals("hashCode")) return Integer.valueOf(proxy.toString().hashCode());
      if (name.equals("toString")) {
        if (text == null) text = (String) call(method, inner, arguments);
        return text;
      }
      if (constants.containsKey(name)) return constants.get(name);
      Object known = answers.get(name);
      if (known != null) return known == NOTHING ? null : known;
    }
    Object answer = !own.contains(name) && method.isDefault()
      ? call(DEFAULT, null, new Object[] {proxy, method, arguments})
      : call(method, inner, arguments);
    if (count == 0 && kept.contains(name)) answers.put(name, answer == null ? NOTHING : answer);
    if (method.getReturnType() == Void.TYPE) {
      answers.clear();
      text = null;
    }
    return answer;
  }

  private static Object call(Method method, Object target, Object[] arguments) throws Throwable {
    try {
      return method.invoke(target, arguments);
    } catch (InvocationTargetException error) {
      throw error.getCause();
    }
  }

  // The compiler writes no call of a static method of an interface.
  private static Method findDefault() {
    Method[] methods = InvocationHandler.class.getMethods();
    for (int i = 0; i < methods.length; i++) {
      if (methods[i].getName().equals("invokeDefault")) return methods[i];
    }
    throw new IllegalStateException("invokeDefault");
  }
}
"""


def define_answers(jvm: Any) -> Any:
    """Return the function that makes an object of Java which asks one of Python.

    The object answers by itself what its interfaces have methods for, what is constant, and what it
    has asked before and is kept. After a method without a result it asks again. Objects with the
    same text are equal.

    Args:
        jvm: The view of the JVM.
    """
    define_class(jvm, _ANSWERS, lambda: _TEXT_OF_ANSWERS)
    return getattr(jvm.py4j.reflection, _ANSWERS).of
