"""Commands and options of other tools, and their names in Lakebed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from lakebed.model.names import nearest

# By group: our command, and the words for it in Delta, Iceberg, SQL, git, DVC, sqlite-utils, shells
# and other tools.
WORDS: Mapping[str, Mapping[str, str]] = {
    "lakebed": {
        "create": "new make create-table create-dataset",
        "import": "load read-csv load-data copy-into",
        "create --like": "copy clone copy-table create-like cp",
        "append": "insert insert-into add write",
        "overwrite": "replace insert-overwrite",
        "merge": "upsert merge-into",
        "update": "update-rows update-where set",
        "delete": "remove-rows delete-from truncate rm remove",
        "query": "select read scan head peek preview rows cat count find",
        "explain": "plan",
        "show": "info describe desc detail details stat stats status inspect summary",
        "show --partitions": "partitions show-partitions list-partitions",
        "report": "html",
        "serve": "web ui browse server http",
        "history": "log commits versions snapshots describe-history refs",
        "list": "ls dir tables datasets show-tables list-tables",
        "schema show": "columns fields",
        "schema rename": "rename-column rename-field",
        "schema update": "alter alter-table add-column evolve",
        "drop": "drop-table drop-dataset destroy rm remove",
        "rerun": "replay retry",
        "diff": "compare",
        "changes": "cdf cdc change-feed change-data-feed table-changes feed",
        "rollback": "restore revert undo reset roll-back",
        "staged add": "stage branch draft",
        "staged list": "branches",
        "staged commit": "commit",
        "staged discard": "discard abort",
        "archive push": "push put upload",
        "archive fetch": "fetch get download",
        "index build": "create-index",
        "index show": "indices indexes",
        "compact": "optimize optimise zorder z-order rewrite rewrite-data-files defragment",
        "cleanup": "vacuum clean gc prune purge expire expire-snapshots remove-orphan-files",
        "protection add": "protect tag pin keep lock",
        "protection remove": "unprotect untag unpin unlock",
        "protection list": "protections tags",
        "check": "fsck verify validate repair msck audit",
        "publish": "sync register-table delta iceberg hive",
        "adopt": "convert migrate register convert-to-delta",
        "doctor": "env diagnose debug",
        "--version": "version",
    },
    "archive": {
        "init": "create new",
        "push": "put add store save import",
        "list": "ls find search query show log",
        "latest": "last newest head",
        "fetch": "get download pull copy",
        "cat": "read open print",
        "retract": "drop hide hold",
        "delete": "rm remove",
        "restore": "unretract undelete undo release",
        "reindex": "rebuild index scan repair",
        "serve": "http web server",
    },
    "staged": {
        "list": "ls show",
        "add": "stage write append create new",
        "commit": "publish apply merge",
        "discard": "abort drop delete rm remove",
    },
    "protection": {
        "list": "ls show",
        "add": "protect create new set",
        "remove": "unprotect drop delete rm unset",
    },
    "index": {
        "build": "create add make rebuild update",
        "drop": "delete remove rm",
        "show": "list ls info describe",
    },
    "schema": {
        "show": "describe list get print history log",
        "infer": "guess detect",
        "rename": "rename-column rename-field mv",
        "add": "add-column add-field",
        "update": "evolve alter set change",
    },
}


# Groups that were verbs of their own before the release, and the verb that does the same now.
FORMER_VERBS: Mapping[str, str] = {"staged": "list", "protection": "list"}


# Options of other tools, by ours; of several, the first that the verb has is used.
OPTIONS: Mapping[str, str] = {
    "--on": "--key --keys --primary-key --unique-key",
    "--where": "--filter --condition --predicate --query",
    "--columns": "--select --fields --cols --column",
    "--limit": "--head --top --rows --max-rows --last --max-count",
    "--time": "--as-of --at --timestamp --timestamp-as-of",
    "--version": "--version-as-of --snapshot --snapshot-id --rev --revision",
    "--output": "--format --output-format --out",
    "--file": "--html --page",
    "--races": "--store",
    "--yes": "--force --assume-yes --no-confirm -y -f --apply --no-dry-run",
    "--older-than": "--retain --retention --days --age --min-age",
    "--dry-run": "--simulate --preview --plan -n",
    "--partition-by": "--partition --partitioned-by --partition-columns",
    "--delimiter": "--sep --separator --delim",
    "--null-text": "--na --null --null-value --null-values",
    "--repair": "--fix",
    "--schema": "--schema-file --avsc",
    "--like": "--sample --infer-from --infer-schema",
    "--if-exists": "--if-not-exists --exist-ok --ignore-existing",
    "--reason": "--comment --message -m",
    "--into": "--to --dest --destination --target --dataset",
    "--sort-by": "--zorder --z-order --cluster-by --order-by",
    "--target-size": "--target-bytes --file-size --target-file-size",
    "--storage-option": "--region --endpoint --profile",
    "--storage": "--archive --url --uri",
}


def option_here(name: str, known: Collection[str]) -> str:
    """Return our name for the option of another tool; empty if there is none.

    Args:
        name: The option of the other tool.
        known: The options of our verb.

    >>> option_here("--filter", ["--where", "--limit"])
    '--where'
    """
    for ours, names in OPTIONS.items():
        if name in names.split() and ours in known:
            return f"{ours} {name.lstrip('-')}=VALUE" if ours == "--storage-option" else ours
    return ""


def command_here(group: str, word: str, commands: Iterable[str]) -> str:
    """Return a hint for an unknown command: our name, or a near one; empty if none is near.

    Args:
        group: The group of the command: `lakebed` or a group below it.
        word: The unknown command.
        commands: The commands of the group.

    >>> command_here("lakebed", "vacuum", ["cleanup", "compact"])
    "In Lakebed it is 'cleanup': see `lakebed cleanup --help`."
    >>> command_here("lakebed", "cleanupp", ["cleanup", "compact"])
    "Did you mean 'cleanup'?"
    """
    known: dict[str, list[str]] = {}
    for ours, words in WORDS.get(group, {}).items():
        for theirs in words.split():
            known.setdefault(theirs, []).append(ours)
    plain = word.casefold().replace("_", "-")
    if plain in known:
        return _pointer(group, known[plain])
    question = nearest(word, [*commands, *known])
    slip = question.partition("'")[2].partition("'")[0]
    return f"{question} {_pointer(group, known[slip])}" if slip in known else question


def _pointer(group: str, commands: Sequence[str]) -> str:
    above = [] if group == "lakebed" else [group]
    names = " or ".join(repr(" ".join([*above, command])) for command in commands)
    helps = " or ".join(
        f"`{' '.join(['lakebed', *above, *_names(command), '--help'])}`" for command in commands
    )
    return f"In Lakebed it is {names}: see {helps}."


def _names(command: str) -> list[str]:
    return [name for name in command.split() if not name.startswith("-")]
