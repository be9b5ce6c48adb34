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


_PARTS = "LakebedParts"
_TEXT_OF_PARTS = """
package py4j.reflection;

import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.PartitionedFile;

public class LakebedParts {
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
    a number as one or more further levels, by lines of a number, a tab and the name of a file.

    Args:
        jvm: The view of the JVM.
    """
    define_class(jvm, _PARTS, lambda: _TEXT_OF_PARTS)
    return getattr(jvm.py4j.reflection, _PARTS)
