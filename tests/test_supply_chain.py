"""What is installed, built and released is what was named before: by hash, by commit, by signature."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from lock_files import FOLDER, ROOT, pinned_versions, read_pins
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
LINES = MAKEFILE.replace("\\\n", "")
IS_CLONE = (ROOT / ".github").is_dir()
of_the_repository = pytest.mark.skipif(
    not IS_CLONE, reason="The source distribution has no workflows"
)
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text())
    for path in sorted((ROOT / ".github/workflows").glob("*.yml"))
}
# The servers of S3 are built by Go and Cargo, which compare checksums of their own.
LOCKS = sorted(path.stem for path in FOLDER.glob("*.txt") if path.stem != "servers")


def steps() -> Iterator[tuple[str, dict]]:
    """Yield each step of each job, and each job that is another workflow."""
    for name, workflow in WORKFLOWS.items():
        for job in workflow["jobs"].values():
            yield from ((name, step) for step in job.get("steps", [job]))


# Pins


@pytest.mark.parametrize("name", LOCKS)
def test_each_pin_is_one_version_with_hashes_and_no_place_to_get_it_from(name: str) -> None:
    pins = list(read_pins(FOLDER / f"{name}.txt"))

    assert pins
    for pin in pins:
        (specifier,) = pin.requirement.specifier
        assert (specifier.operator, pin.requirement.url) == ("==", None), pin
        assert pin.hashes, pin
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in pin.hashes), pin


def variable(name: str) -> list[str]:
    """Return the words of a variable of the Makefile."""
    value = re.search(rf"^{name} := (.+)$", MAKEFILE, re.MULTILINE)[1]
    return re.sub(
        r"\$\((\w+)(?::%=(\w*)%)?\)",
        lambda match: " ".join(f"{match[2] or ''}{word}" for word in variable(match[1])),
        value,
    ).split()


def test_each_lock_file_is_made_by_the_makefile() -> None:
    assert sorted(variable("LOCKS")) == LOCKS


def requirements(extras: list[str], groups: list[str]) -> Iterator[Requirement]:
    optional = PROJECT["project"]["optional-dependencies"]
    texts = list(PROJECT["project"]["dependencies"])
    for extra in extras:
        texts += optional[extra]
    for group in groups:
        texts += PROJECT["dependency-groups"][group]
    for requirement in map(Requirement, texts):
        if requirement.name == PROJECT["project"]["name"]:
            yield from requirements(sorted(requirement.extras), [])
        elif requirement.marker is None or requirement.marker.evaluate():
            yield requirement


@pytest.mark.parametrize(
    ("lock", "extras", "groups"),
    [
        ("develop", variable("EXTRAS"), variable("GROUPS")),
        ("lowest", variable("EXTRAS"), ["test"]),
        ("all", ["all"], []),
        ("fuzz", [], ["fuzz"]),
    ],
)
def test_a_lock_file_has_all_that_the_project_asks_for(
    lock: str, extras: list[str], groups: list[str]
) -> None:
    pins = pinned_versions(lock) | (pinned_versions("develop") if lock == "fuzz" else {})

    asked = list(requirements(extras, groups))

    assert asked
    for requirement in asked:
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement}: call `make locks`"
        assert requirement.specifier.contains(version), requirement


def test_what_builds_the_package_is_pinned() -> None:
    pins = pinned_versions("tools")

    for requirement in map(Requirement, PROJECT["build-system"]["requires"]):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)])


def test_make_installs_nothing_without_hashes_but_the_newest_lane_and_the_project() -> None:
    installs = re.findall(
        r"^.*?pip.*? (?:install|wheel) --quiet .+$|^INSTALL_TOOLS := .+$", LINES, re.M
    )

    loose = [line for line in installs if "--require-hashes" not in line]

    assert len(installs) == 6
    wheels, newest, lakebed = loose
    assert "--no-index" in wheels
    assert newest in recipe("install-newest")
    assert lakebed.endswith("--no-build-isolation --no-deps -e .")
    assert "-m build --no-isolation" in LINES


def recipe(macro: str) -> str:
    return re.search(rf"^define {macro}\n(.+?)^endef", MAKEFILE, re.MULTILINE | re.DOTALL)[1]


# Workflows


@of_the_repository
def test_each_action_is_named_by_its_commit() -> None:
    actions = [(name, step["uses"]) for name, step in steps() if "uses" in step]

    assert len(actions) > 10
    for name, action in actions:
        is_own = action.startswith("./.github/workflows/")
        assert is_own or re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action), (name, action)


@of_the_repository
def test_each_commit_of_an_action_says_its_release_and_an_action_has_one_commit() -> None:
    lines = [
        line.strip()
        for path in (ROOT / ".github/workflows").glob("*.yml")
        for line in path.read_text().splitlines()
        if "uses:" in line and "./" not in line
    ]

    named = {}
    for line in lines:
        action, commit, release = re.fullmatch(
            r"- uses: (\S+)@(\S+) # (v\d+\.\d+\.\d+)", line
        ).groups()
        named.setdefault(action, set()).add((commit, release))

    assert {action: found for action, found in named.items() if len(found) > 1} == {}


@of_the_repository
def test_no_checkout_leaves_its_token_in_the_clone() -> None:
    checkouts = [
        step for _, step in steps() if step.get("uses", "").startswith("actions/checkout@")
    ]

    assert len(checkouts) >= 5
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@of_the_repository
def test_a_job_may_write_only_what_it_is_for() -> None:
    rights = {
        (name, job): settings["permissions"]
        for name, workflow in WORKFLOWS.items()
        for job, settings in workflow["jobs"].items()
        if "permissions" in settings
    }

    assert all(workflow["permissions"] == {"contents": "read"} for workflow in WORKFLOWS.values())
    assert rights == {
        ("release", "upload"): {"id-token": "write"},
        ("release", "draft"): {"contents": "write"},
    }
    # YAML reads the key `on` as true.
    assert all("pull_request_target" not in workflow[True] for workflow in WORKFLOWS.values())


@of_the_repository
def test_no_command_of_a_workflow_has_the_text_of_a_tag_or_a_title_in_it() -> None:
    commands = [step["run"] for _, step in steps() if "run" in step]

    found = {one for command in commands for one in re.findall(r"\$\{\{\s*(.+?)\s*\}\}", command)}

    assert found <= {"matrix.target"}


@of_the_repository
def test_a_release_follows_its_tag_and_the_gate_and_is_attested() -> None:
    jobs = WORKFLOWS["release"]["jobs"]

    assert {name: job.get("needs") for name, job in jobs.items()} == {
        "tag": None,
        "gate": "tag",
        "build": "gate",
        "upload": "build",
        "draft": "upload",
    }
    assert "make check-tag" in [step.get("run") for step in jobs["tag"]["steps"]]
    assert jobs["gate"]["uses"] == "./.github/workflows/test.yml"
    assert "workflow_call" in WORKFLOWS["test"][True]
    assert jobs["upload"]["environment"] == "pypi"
    assert jobs["upload"]["steps"][-1]["with"]["attestations"] is True
    uploaded = [
        step["with"]["path"] for step in jobs["build"]["steps"] if "path" in step.get("with", {})
    ]
    assert uploaded == ["dist/", "build/sbom/"]


# Tags

needs_ssh_keygen = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="needs ssh-keygen, which signs tags"
)
PROJECT_FILE = '[project]\nname = "lakebed"\nversion = "0.1.0"\n'


class Clone:
    """A repository with a main branch and a maintainer, whose key may sign releases."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "--quiet", "--initial-branch", "main")
        self.key = self.make_key("ada")
        signers = folder / ".github" / "allowed_signers"
        signers.parent.mkdir()
        signers.write_text(
            f'ada@example.org namespaces="git" {self.key.with_suffix(".pub").read_text()}'
        )
        (folder / "pyproject.toml").write_text(PROJECT_FILE)
        self.commit("Begin")

    def git(self, *arguments: str) -> str:
        environ = {
            **os.environ,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            **{f"GIT_{who}_NAME": "ada" for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_EMAIL": "ada@example.org" for who in ("AUTHOR", "COMMITTER")},
        }
        command = ["git", "-c", "gpg.format=ssh", *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=environ, check=True, capture_output=True, text=True
        ).stdout

    def make_key(self, name: str) -> Path:
        key = self.folder.parent / f"{self.folder.name}-{name}"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key)], check=True
        )
        return key

    def commit(self, subject: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", subject)

    def sign(self, tag: str, key: Path | None = None, at: str = "HEAD") -> None:
        self.git("-c", f"user.signingKey={key or self.key}", "tag", "-s", "-m", tag, tag, at)

    def refusal(self, tag: str) -> str | None:
        """Return why the tag is refused; None if it may be released."""
        result = subprocess.run(
            ["bash", str(ROOT / ".ci/check-tag"), tag],
            cwd=self.folder,
            env={**os.environ, "MAIN": "main"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (result.returncode == 0) == ("may be released" in result.stdout), result
        return None if result.returncode == 0 else result.stderr.splitlines()[-1]


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    (tmp_path / "clone").mkdir()
    return Clone(tmp_path / "clone")


@needs_ssh_keygen
def test_a_tag_that_a_maintainer_has_signed_on_main_may_be_released(clone: Clone) -> None:
    clone.sign("v0.1.0")
    clone.commit("Go on")

    assert clone.refusal("v0.1.0") is None


@needs_ssh_keygen
def test_a_tag_without_a_signature_of_a_maintainer_is_refused(clone: Clone) -> None:
    clone.git("tag", "v0.1.0")
    assert "no annotated tag" in clone.refusal("v0.1.0")
    clone.git("tag", "--delete", "v0.1.0")
    clone.git("tag", "-a", "-m", "x", "v0.1.0")
    assert "no key of .github/allowed_signers" in clone.refusal("v0.1.0")
    clone.git("tag", "--delete", "v0.1.0")
    clone.sign("v0.1.0", clone.make_key("eve"))

    assert "no key of .github/allowed_signers" in clone.refusal("v0.1.0")
    assert "no annotated tag" in clone.refusal("v9.9.9")


@needs_ssh_keygen
def test_a_tag_beside_main_is_refused_even_if_it_names_its_own_signer(clone: Clone) -> None:
    clone.git("checkout", "--quiet", "-b", "other")
    key = clone.make_key("eve")
    signers = clone.folder / ".github" / "allowed_signers"
    signers.write_text(f"eve@example.org {key.with_suffix('.pub').read_text()}")
    clone.commit("Let me in")
    clone.sign("v0.1.0", key)

    assert "is not on main" in clone.refusal("v0.1.0")


@needs_ssh_keygen
def test_a_tag_has_the_number_of_the_package_and_its_own_name(clone: Clone) -> None:
    clone.sign("v0.2.0")
    assert "Tag it as v0.1.0" in clone.refusal("v0.2.0")
    clone.sign("trial")
    clone.git("update-ref", "refs/tags/v0.1.0", "refs/tags/trial")

    assert "signed as trial" in clone.refusal("v0.1.0")


@of_the_repository
def test_the_list_of_signers_is_read_as_ssh_keygen_reads_it() -> None:
    lines = (ROOT / ".github" / "allowed_signers").read_text().splitlines()

    for line in lines:
        assert line.startswith("#") or re.fullmatch(
            r'\S+ namespaces="git" (ssh-|sk-|ecdsa-)\S+ \S+.*', line
        ), line
