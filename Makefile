# `make demo` and `make test` need Python 3.11 or newer with ensurepip or pip, and nothing else.
# The environments are rebuilt when what they are made from changes. Only `make browser-env`, and
# SYSTEM_PACKAGES=install, install packages of the system.

# The Pythons that the package names: `make test-pythons` tests on those that the machine has.
PYTHONS := 3.13 3.12 3.11
PYTHON_CANDIDATES := python3 $(PYTHONS:%=python%)
# The pins of locks/develop.txt have wheels up to 3.14; PYTHON=… overrides the choice.
PYTHON ?= $(shell for candidate in $(PYTHON_CANDIDATES); do \
	$$candidate -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null \
	&& { echo $$candidate; break; }; done)

VENV := .venv
# Exact versions, with the hashes of all files, of what goes into $(VENV); empty takes the newest of all.
LOCK := locks/develop.txt
# Environments that are made of nothing but pins: what locks/NAME.txt names goes into .venv-NAME.
PINNED := plateau datalake peers doors dist docs sail lakebench
KARTOTHEK_VENV := .venv-kartothek
# kartothek 5.3 knows no later Python; where there is none, make compat-env says so and goes on.
KARTOTHEK_PYTHON ?= $(shell version=3.9; $(FIND_PYTHON))
# Servers of S3 that the tests of many writers run on.
SERVERS := .servers
# An environment for each Spark that is not the newest, which is in $(VENV).
OLDER_SPARKS := 40 41 42
# Environments whose locks/NAME.txt goes before locks/develop.txt.
OVERLAID := $(OLDER_SPARKS:%=spark%) pandas3
LOCKS := develop tools lowest all fuzz $(PINNED) kartothek $(OVERLAID)
# What the tests need of the project: extras, and groups that `make test` has and the others.
EXTRAS := spark pandas s3
GROUPS := test browser lint demo
BIN := $(VENV)/bin/python
# By marker: what `make test` leaves to other targets, and what `make quick` takes.
OUTSIDE := thorough or compat or browser or long
FAST := not ($(OUTSIDE) or spark)
SLOWEST := --durations=10
PYTEST := $(BIN) -m pytest $(SLOWEST)
# A worker a core. ARGS='-n 0' takes none.
WORKERS := -n auto --maxprocesses 4
# tests/conftest.py says which tests stay together, such as those of one Spark.
PARALLEL := $(WORKERS) --dist loadgroup
ARGS ?=
# `install` lets root install python3-venv where Python cannot make an environment without it.
SYSTEM_PACKAGES ?=

# Where it is set, each worker and each process that a test starts would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup compat-env doors-env servers-env browser-env browser pages chromium doors servers demo quick test test-trees test-pythons test-lowest test-newest test-pandas3 thorough compat gate test-long spark-connect spark-versions sail coverage check format dist docs
.PHONY: locks sbom check-tag
.PHONY: proof reliability fuzz judge chaos
.PHONY: bench bench-archive bench-erase bench-far bench-publish bench-doors bench-index bench-scale bench-streams bench-merge bench-small bench-peers-spark bench-catalog bench-lakebench bench-year soak clean

help:
	@echo "make demo       a year of real flights: load, query, overwrite; archive, ingest; rerun, publish; a year of pipeline runs"
	@echo "make quick      half a minute: what tests the changes since main, and a core of fast tests"
	@echo "make test       everything that is not below, in $(VENV) alone (ARGS='-k head -x' narrows it)"
	@echo "make test-trees  the tests of make test once more, on trees with tiny leaves as heads"
	@echo "make test-pythons  make test on each Python that the package names, where the machine has it"
	@echo "make test-lowest  make quick and the command line with the oldest packages that are allowed"
	@echo "make test-newest  make test with the newest packages, without a lock file"
	@echo "make test-pandas3  make test with pandas 3"
	@echo "make thorough   what takes long for what it shows: killed processes, failures at each call, servers, pages"
	@echo "make compat     comparisons with plateau, kartothek, datalake, Kite and telemetry, as a table"
	@echo "make browser    report, server and site in Chromium, with the pictures of the documentation"
	@echo "make browser-env  installs Chromium by apt-get, as root, where there is none"
	@echo "make pages      the short part of browser: report and server"
	@echo "make gate       test, thorough, compat and pages in one run; test-pythons, -lowest, -pandas3: before a release"
	@echo "make test-long  the tests that take minutes, and many more random examples of the others: some hours on two cores"
	@echo "make proof      orders of the requests of pairs of verbs, of threads and of triples, without faults and with them: days; goes on where it was stopped"
	@echo "make fuzz       hostile input for all that is parsed, guided by coverage; ARGS='--seconds 600' for each parser"
	@echo "make reliability  a quarter of an hour of proof, all seeded bugs, models, losses of power, damage, and docs/reliability.md with the figures"
	@echo "make judge      writers on S3 behind a proxy that fails: Lakebed, deltalake, pyiceberg, Lance and DuckLake"
	@echo "make chaos      verbs by Spark on a cluster whose executors, drivers and disk fail (part of test-long)"
	@echo "make soak       an hour of changes to two datasets: memory, number of files and head stay as they are"
	@echo "make spark-connect   the Spark tests on Spark Connect (part of test-long)"
	@echo "make spark-versions  the Spark tests on each older Spark, in environments of their own (part of test-long)"
	@echo "make sail       Lakebed with Sail instead of Spark, without Java (part of test-long)"
	@echo "make doors      published tables read by Spark with Delta and Iceberg, and by DuckDB's extensions"
	@echo "make servers    the contract of stores, many writers and killed ones on servers of S3; builds these (part of test-long)"
	@echo "make coverage   the tests with branch coverage"
	@echo "make check      lint, format, types, layers"
	@echo "make format     put the code into shape"
	@echo "make bench      Lakebed against Spark's own Parquet reader and writer; partitioned writes"
	@echo "make bench-archive  100,000 archived files, and ingest against Spark alone"
	@echo "make bench-publish  1,000 changed partitions, beside as many ALTER TABLE … SET LOCATION"
	@echo "make bench-doors  publication to Delta and Iceberg after a commit of one file, up to 100,000 files"
	@echo "make bench-far  Spark's own reader, and Arrow's, on S3 that is 20 ms away; ARGS='--on hdfs' on HDFS"
	@echo "make bench-index  what inverted indices cost an append"
	@echo "make bench-scale  planning, lookups and commits up to a million files, beside the peers; trees up to ten million"
	@echo "make bench-merge  merges beside deltalake and pyiceberg; ARGS=--spark beside a join by hand"
	@echo "make bench-streams  a stream of a commit a second, and the compaction beside it"
	@echo "make bench-small  upserts and deletes of few rows, and their changes, beside deltalake in one process"
	@echo "make bench-erase  an erasure of 1,000 keys from 50 versions beside rewriting all rows"
	@echo "make bench-year  a year of hourly runs of a pipeline by a set clock: requests, files, bytes and time of a run"
	@echo "make bench-peers-spark  Lakebed, Delta Lake and Iceberg in one session of Spark; fetches their jars"
	@echo "make bench-catalog  the catalog of Spark SQL beside Delta Lake, plain Parquet, views and the format, in that session"
	@echo "make bench-lakebench  queries of TPC-H and TPC-DS on the catalog beside plain Parquet, and ELTBench beside Delta Lake"
	@echo "make docs       the documentation as a site, in build/site; strict, and without network"
	@echo "make dist       the source distribution and the wheel, checked as a package index would"
	@echo "make sbom       the packages that lakebed[all] takes, as CycloneDX, in build/sbom"
	@echo "make check-tag  whether TAG=vX.Y.Z may be released: signed, on main, with the number of the package"
	@echo "make setup      only the environment, in $(VENV)"
	@echo "make locks      exact versions with hashes, in locks; ARGS=--upgrade takes newer ones"
	@echo "make clean      remove environments, builds and caches"

setup: $(VENV)/.installed
compat-env: .venv-plateau/.installed $(KARTOTHEK_VENV)/.installed .venv-datalake/.installed
doors-env: .venv-doors/.installed
servers-env: $(SERVERS)/.installed

# The project itself has no hash: it comes last, alone, and is built by what locks/tools.txt names.
$(VENV)/.installed: pyproject.toml locks/tools.txt $(LOCK)
	$(call make-venv,$(VENV))
	@echo "Installing Lakebed and its tools into $(VENV) …"
	$(if $(LOCK),$(call install,$(VENV),$(LOCK)),$(call install-newest,$(VENV)))
	$(if $(LOCK),$(call install-lakebed,$(VENV)))
	@touch $@

$(PINNED:%=.venv-%/.installed): .venv-%/.installed: locks/tools.txt locks/%.txt
	$(call make-venv,.venv-$*)
	@echo "Installing what locks/$*.txt names into .venv-$* …"
	$(call install,.venv-$*,locks/$*.txt)
	@touch $@

# The pip of Python 3.9 takes `dask[dataframe]` for another package than the pinned dask, so it resolves nothing.
# `without` tells the tests why there is no kartothek to compare with.
$(KARTOTHEK_VENV)/.installed: locks/kartothek.txt
	@rm -rf $(KARTOTHEK_VENV) && mkdir $(KARTOTHEK_VENV)
	@if [ -n "$(KARTOTHEK_PYTHON)" ]; then \
		echo "Installing kartothek into $(KARTOTHEK_VENV) …"; \
		$(KARTOTHEK_PYTHON) -m venv $(KARTOTHEK_VENV) && \
		$(call install,$(KARTOTHEK_VENV),locks/kartothek.txt --no-deps); \
	else \
		echo "kartothek 5.3 needs Python 3.9, which was not found; KARTOTHEK_PYTHON names one" \
		| tee $(KARTOTHEK_VENV)/without; \
	fi
	@touch $@

# Who lacks Go or Cargo gets the servers of the other; tests of a server that is not there say so.
$(SERVERS)/.installed: locks/servers.txt
	@mkdir -p $(SERVERS)/bin
	@for tool in go cargo; do command -v $$tool >/dev/null \
		|| echo "Servers that are built with $$tool are left out: it is not installed." >&2; done
	@echo "Building servers of S3 into $(SERVERS) …"
	! command -v go >/dev/null || sed -n 's/^go //p' $< \
		| GOBIN=$(CURDIR)/$(SERVERS)/bin CGO_ENABLED=0 xargs -n 1 go install
	! command -v cargo >/dev/null || sed -n 's/^cargo //p' $< \
		| xargs -n 1 cargo install --quiet --locked --root $(SERVERS) --features binary
	@touch $@

$(OVERLAID:%=.venv-%/.installed): .venv-%/.installed: pyproject.toml locks/tools.txt locks/develop.txt locks/%.txt
	$(call make-venv,.venv-$*)
	@echo "Installing Lakebed with what locks/$*.txt names into .venv-$* …"
	@awk -F'==' 'FNR == NR { own[$$1]; print; next } /^[^ ]/ { is_replaced = $$1 in own } !is_replaced' \
		locks/$*.txt locks/develop.txt > .venv-$*/lock.txt
	$(call install,.venv-$*,.venv-$*/lock.txt)
	$(call install-lakebed,.venv-$*)
	@touch $@

# ARGS=--upgrade takes newer versions; without it those stay that pyproject.toml and locks/*.in allow.
locks: $(LOCKS:%=lock-%)

SOURCES = locks/$*.in
OLDEST_PYTHON = 3.11
lock-develop: SOURCES = pyproject.toml $(EXTRAS:%=--extra %) $(GROUPS:%=--group %)
lock-tools: SOURCES = locks/tools.in --constraint locks/develop.txt
lock-all: SOURCES = pyproject.toml --extra all --constraint locks/develop.txt
lock-fuzz: SOURCES = --group fuzz --constraint locks/develop.txt
lock-lowest: SOURCES = pyproject.toml $(EXTRAS:%=--extra %) --group test --constraint locks/lowest.in
lock-sail: SOURCES = pyproject.toml locks/sail.in --constraint locks/develop.txt
lock-docs: OLDEST_PYTHON = 3.11.5
lock-kartothek: OLDEST_PYTHON = 3.9
$(OVERLAID:%=lock-%): SOURCES = locks/$*.in --no-deps

lock-%: .venv-dist/.installed
	.venv-dist/bin/uv pip compile --quiet --universal --fork-strategy fewest --generate-hashes --no-annotate \
		--custom-compile-command 'make locks' --python-version $(OLDEST_PYTHON) $(SOURCES) $(ARGS) -o locks/$*.txt

demo: setup
	$(BIN) examples/flights.py
	$(BIN) examples/archive.py
	$(BIN) examples/batches.py
	$(BIN) examples/pipeline.py

quick: setup
	HYPOTHESIS_PROFILE=quick $(PYTEST) $(WORKERS) --dist worksteal -m '$(FAST)' $(ARGS) \
		$$($(BIN) tests/quick_selection.py)

test: setup
	HYPOTHESIS_PROFILE=test $(PYTEST) $(PARALLEL) -m 'not ($(OUTSIDE))' $(ARGS)

# tests/of_documents.txt names those that are not for trees. LAKEBED_TEST_HEAD=tree goes with the other tiers, too.
test-trees: setup
	LAKEBED_TEST_HEAD=tree HYPOTHESIS_PROFILE=test $(PYTEST) $(PARALLEL) -m 'not ($(OUTSIDE))' $(ARGS)

# What is not there is said, and left out.
test-pythons:
	@for version in $(PYTHONS); do \
		python=$$($(FIND_PYTHON)); \
		if [ -z "$$python" ]; then \
			echo "No Python $$version that can make environments was found: it is not tested." >&2; \
		else \
			echo "Python $$version, $$python:"; \
			$(MAKE) test PYTHON="$$python" VENV=.venv-py$$(echo $$version | tr -d .) || exit 1; \
		fi; \
	done

# The oldest releases that pyproject.toml allows; the oldest of some have no wheels for later Pythons.
test-lowest:
	@python=$$(version=3.11; $(FIND_PYTHON)); \
	if [ -z "$$python" ]; then echo "make test-lowest needs Python 3.11, which was not found" >&2; exit 1; fi; \
	$(MAKE) quick PYTHON="$$python" VENV=.venv-lowest LOCK=locks/lowest.txt ARGS='tests/cli $(ARGS)'

# Made anew each time: what was the newest once says nothing.
test-newest:
	rm -rf .venv-newest
	$(MAKE) test VENV=.venv-newest LOCK=

test-pandas3: .venv-pandas3/.installed
	HYPOTHESIS_PROFILE=test .venv-pandas3/bin/python -m pytest $(SLOWEST) $(PARALLEL) -m 'not ($(OUTSIDE))' $(ARGS)

thorough: setup
	$(PYTEST) $(PARALLEL) -m 'thorough and not long' $(ARGS)

# One run, so that one worker does what needs Spark while the others go on, and one line closes it.
# Then the versions of Python and of packages that are named.
gate: setup compat-env
	$(PYTEST) $(PARALLEL) -m 'not long' $(ARGS)
	$(MAKE) test-pythons test-lowest test-pandas3

test-long: setup compat-env doors-env servers-env .venv-sail/.installed docs
	HYPOTHESIS_PROFILE=long $(PYTEST) $(PARALLEL) --timeout 3600 -m 'long or hypothesis' $(ARGS)
	$(MAKE) spark-connect spark-versions

# What is done stays in build/proof.jsonl; ARGS='--minutes 10' stops after that time, ARGS='--ways orders' plays one way.
proof: setup
	cd tests && nice $(CURDIR)/$(BIN) -m schedules.prove --results $(CURDIR)/build/proof.jsonl $(ARGS)

# ARGS='--seconds 600 predicate sql' takes more time, or some targets. Where atheris has no wheel,
# mutations are not guided by coverage.
fuzz: setup
	$(call install,$(VENV),locks/fuzz.txt) \
		|| echo "atheris cannot be installed here: mutations are blind" >&2
	cd tests && nice $(CURDIR)/$(BIN) -m fuzz $(ARGS)

# Figures of this machine, by a run of its own.
reliability: setup
	cd tests && nice $(CURDIR)/$(BIN) -m protocol --short
	cd tests && nice $(CURDIR)/$(BIN) -m crash_points --results $(CURDIR)/build/power.json
	cd tests && nice $(CURDIR)/$(BIN) -m damage --results $(CURDIR)/build/damage.json
	cd tests && nice $(CURDIR)/$(BIN) -m schedules.reliability --results $(CURDIR)/build/proof.jsonl $(ARGS)

# What is done stays in build/judge.jsonl; ARGS='--systems lakebed --minutes 5' takes less.
judge: setup .venv-peers/.installed
	cd tests && nice $(CURDIR)/$(BIN) -m judge --results $(CURDIR)/build/judge.jsonl $(ARGS)

# Figures for docs/reliability.md, which `make reliability` writes into it.
chaos: setup
	@mkdir -p build && rm -f build/chaos.jsonl
	CHAOS_RESULTS=$(CURDIR)/build/chaos.jsonl nice $(PYTEST) tests/chaos $(ARGS)

# Once on each: a run starts one JVM, and one session.
spark-connect: setup
	LAKEBED_TEST_SPARK=connect $(PYTEST) tests/spark -m 'spark and not long' $(ARGS)

# Older releases leave sockets to the garbage collector.
OLDER_SOCKETS := -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning

spark-versions: $(OLDER_SPARKS:%=spark-%)

spark-%: .venv-spark%/.installed
	.venv-spark$*/bin/python -m pytest $(SLOWEST) tests/spark -m 'spark and not long' $(OLDER_SOCKETS) $(ARGS)

sail: setup .venv-sail/.installed
	$(PYTEST) tests/spark/test_sail.py -m long $(ARGS)

coverage: setup compat-env
	$(PYTEST) $(PARALLEL) -m 'not long' --cov $(ARGS)

# The table of docs/interop.md with what each row has shown; Kite's vectors need no other environment.
compat: setup compat-env
	LAKEBED_ORACLES=1 $(PYTEST) $(PARALLEL) -m compat tests/interop tests/golden tests/kite tests/telemetry $(ARGS)

# Its pictures are those that docs/report.md shows.
browser: chromium setup docs
	LAKEBED_PICTURES=docs/assets $(PYTEST) tests/browser $(ARGS)

# The part that needs no site; skipped where there is no Chromium.
pages: setup
	$(PYTEST) $(PARALLEL) -m 'browser and not long' tests/browser $(ARGS)

chromium:
	@$(FIND_CHROMIUM); \
	echo "The tests of pages need Chromium, which was not found. On Debian: make browser-env, as root" >&2; \
	exit 1

# Debian's package, where there is no Chromium and the user may; else the tests of pages are skipped.
browser-env:
	@$(FIND_CHROMIUM); \
	if [ "$$(id -u)" = 0 ]; then as_root=; else as_root="sudo -n"; fi; \
	if command -v apt-get >/dev/null && $$as_root true 2>/dev/null; then \
		echo "Installing chromium, which the tests of pages look with …"; \
		$$as_root apt-get update -qq && $$as_root env DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -qq --no-install-recommends chromium && exit 0; \
	fi; \
	echo "No Chromium: tests of pages are skipped. On Debian: sudo apt-get install chromium" >&2

doors: setup doors-env
	$(PYTEST) tests/publication tests/sql/test_corpus.py -m long $(ARGS)

servers: setup servers-env
	$(PYTEST) tests/contract/test_servers.py tests/test_concurrency.py tests/test_crash.py -m long $(ARGS)

check: setup
	$(BIN) -m ruff check .
	$(BIN) -m ruff format --check .
	$(BIN) -m mypy --strict src
	$(VENV)/bin/lint-imports --no-logo

format: setup
	$(BIN) -m ruff check --fix .
	$(BIN) -m ruff format .

# The reference is made from docstrings and from --help, for which Lakebed is imported.
docs: .venv-docs/.installed
	PYTHONPATH=src NO_MKDOCS_2_WARNING=1 \
		.venv-docs/bin/python -m mkdocs build --clean --strict
	.venv-docs/bin/python tests/site_search.py

# The wheel is built from the source distribution, so that this one is known to be whole; both by what
# locks/tools.txt names, since an isolated build would take the newest hatchling.
dist: .venv-dist/.installed
	rm -rf dist
	.venv-dist/bin/python -m build --no-isolation --outdir dist .
	.venv-dist/bin/python -m twine check --strict dist/*

# What `lakebed[all]` needs, at the versions that were tested, with licences: a bill of materials in CycloneDX.
# It is read from an environment that has nothing else, so the wheels are made in another one.
sbom: dist
	rm -rf build/sbom build/wheels && mkdir -p build/sbom
	.venv-dist/bin/python -m pip wheel --quiet --require-hashes --no-build-isolation --no-deps \
		-r locks/all.txt --wheel-dir build/wheels
	.venv-dist/bin/python -m venv --clear --without-pip build/sbom-venv
	.venv-dist/bin/python -m pip --python build/sbom-venv/bin/python install --quiet --no-index \
		--find-links build/wheels --find-links dist 'lakebed[all]'
	.venv-dist/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
		--output-file build/sbom/$$(basename dist/*.tar.gz .tar.gz).cdx.json build/sbom-venv/bin/python

# A tag may be released if it is signed, on main, and has the number of pyproject.toml. TAG=v0.1.0
check-tag:
	.ci/check-tag "$$TAG"

bench: setup
	$(BIN) bench/movielens.py
	$(BIN) bench/partitions.py
	$(BIN) bench/run.py
	$(BIN) bench/reading.py --rounds 3

bench-publish: setup
	$(BIN) bench/publish.py $(ARGS)

bench-doors: setup
	$(BIN) bench/doors_publish.py $(ARGS)

bench-archive: setup
	$(BIN) bench/archive.py $(ARGS)

bench-index: setup
	$(BIN) bench/indices.py $(ARGS)

bench-streams: setup
	$(BIN) bench/streams.py $(ARGS)

bench-scale: setup .venv-plateau/.installed .venv-peers/.installed
	$(BIN) bench/scale/run.py $(ARGS)
	$(BIN) bench/scale/trees.py $(TREE_ARGS)

bench-merge: setup .venv-peers/.installed
	$(BIN) bench/merge.py $(ARGS)

bench-small: setup
	$(BIN) bench/small_changes.py $(ARGS)
	$(BIN) bench/changes.py $(ARGS)

bench-year: setup
	$(BIN) bench/year.py $(ARGS)

# ARGS='--minutes 5' takes less.
soak: setup
	$(BIN) bench/soak.py $(ARGS)

bench-erase: setup
	$(BIN) bench/erase.py $(ARGS)

bench-far: setup
	$(BIN) bench/far_reading.py $(ARGS)

bench-peers-spark: .venv-spark41/.installed
	.venv-spark41/bin/python bench/peers_spark.py $(ARGS)

bench-catalog: .venv-spark41/.installed
	.venv-spark41/bin/python bench/catalog.py $(ARGS)

# ARGS='--scale 1' makes more rows.
bench-lakebench: setup .venv-spark41/.installed .venv-lakebench/.installed
	.venv-lakebench/bin/python bench/lakebench_inputs.py build/lakebench $(ARGS)
	$(BIN) bench/lakebench.py build/lakebench
	.venv-spark41/bin/python bench/lakebench.py build/lakebench --elt

clean:
	rm -rf $(VENV) $(PINNED:%=.venv-%) $(KARTOTHEK_VENV) $(SERVERS) $(OVERLAID:%=.venv-%)
	rm -rf .venv-py* .venv-lowest .venv-newest
	rm -rf build dist .coverage htmlcov .hypothesis
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache spark-warehouse metastore_db derby.log
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Prints a Python of $version that can make environments; nothing where there is none.
define FIND_PYTHON
flat=$$(echo $$version | tr -d .); \
for candidate in python$$version $$HOME/.pyenv/versions/$$version.*/bin/python \
	"$$(uv python find --no-python-downloads $$version 2>/dev/null)" /opt/python/cp$$flat-cp$$flat/bin/python; do \
	! "$$candidate" -c 'import sys, venv, ensurepip; sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])' \
		$$version 2>/dev/null || { echo "$$candidate"; break; }; \
done
endef

# Ends the recipe with success where there is a Chromium.
define FIND_CHROMIUM
for name in chromium chromium-browser google-chrome-stable google-chrome; do \
	! command -v $$name >/dev/null || exit 0; \
done
endef

# An environment with a pip that knows dependency groups. Debian splits ensurepip off Python:
# then the pip of the machine fills the gap, or with SYSTEM_PACKAGES=install the system's package.
define make-venv
	@if [ -z "$(PYTHON)" ]; then \
		echo "No Python from 3.11 to 3.14 was found (looked for: $(PYTHON_CANDIDATES))." >&2; \
		echo "Install one, or name it: make PYTHON=/path/to/python …" >&2; \
		exit 1; \
	fi
	@if ! $(1)/bin/python -m pip --version >/dev/null 2>&1; then \
		rm -rf $(1); \
		if $(PYTHON) -c 'import ensurepip' 2>/dev/null && $(PYTHON) -m venv $(1); then :; \
		elif $(PYTHON) -m pip --python $(PYTHON) --version >/dev/null 2>&1; then \
			$(PYTHON) -m venv --clear --without-pip $(1) && \
			$(PYTHON) -m pip --python $(1)/bin/python $(INSTALL_TOOLS); \
		elif [ "$(SYSTEM_PACKAGES)" = install ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			package=$$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
			echo "Installing $$package, which this Python needs to make environments …"; \
			apt-get update -qq && \
			DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$package && \
			$(PYTHON) -m venv --clear $(1); \
		else \
			echo "$(PYTHON) can make no environment: its modules ensurepip and pip are missing." >&2; \
			echo "On Debian and Ubuntu: sudo apt-get install python3-venv; as root: make SYSTEM_PACKAGES=install …" >&2; \
			exit 1; \
		fi; \
	fi
	@$(1)/bin/python -m pip $(INSTALL_TOOLS)
endef

INSTALL_TOOLS := install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r locks/tools.txt

# Installs a lock file into an environment. Packages without a wheel are built by the tools that are
# there already: an isolated build would take the newest ones, without hashes.
define install
$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --require-hashes -r $(2)
endef

define install-newest
$(1)/bin/python -m pip install --quiet -e '.[$(subst $(space),$(comma),$(EXTRAS))]' $(GROUPS:%=--group %)
endef

define install-lakebed
$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
endef

empty :=
space := $(empty) $(empty)
comma := ,
