"""Recognition of the files of folders: unchanged, grown, renamed, copied, and rewritten.

A path alone does not show what lies there. A log is renamed by its rotation, an export is written
over the one of yesterday, a download is repeated under a second name. So a file is known by its
content: the record of what was read has the size and the hash of it. A file replaces rows only if
it begins with the content that they come from; a file with the content of another is a copy, which
is left out. If a path has other content, the former content may have moved: then the file is a new
one. Otherwise it may be a correction, or the next file of a program, and it is kept back until the
user declares which.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count

from lakebed.arrow.reading.files import contents_of, reading, without_codec
from lakebed.common.shown import counted
from lakebed.pipeline.attempts import PastFiles
from lakebed.pipeline.candidates import Supersede, real_slots
from lakebed.state.sources import RawContent, SourceFile
from lakebed.work.ingest.due import Candidate, ContentKey, Due, LeftOut, content_key

# A name that a rotation gives: the former name and a number, a date or a word.
_ROTATED = re.compile(r"(?:[.\-_](?:\d[\d.\-_T:]*|old|bak|prev)|~)+$")
# Before the suffix, as `app-20240101.log` and `app.1.log`; the former name is without it.
_INSIDE = re.compile(r"[.\-_]\d[\d.\-_T:]*(?=\.[A-Za-z][A-Za-z0-9]*$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lineage:
    """The states of one raw file that have rows in the dataset, or are current.

    Attributes:
        slot: Identity of the file.
        files: The states, in the order in which they were read.
    """

    slot: str
    files: tuple[SourceFile, ...]

    @property
    def last(self) -> SourceFile:
        return self.files[-1]

    @property
    def content(self) -> RawContent | None:
        return self.last.content


@dataclass(slots=True)
class _Look:
    """The content of a candidate, as far as it was needed.

    Attributes:
        whole: Its content.
        first: Its first bytes, by size.
    """

    whole: RawContent | None = None
    first: Mapping[int, RawContent] = field(default_factory=dict)

    def begins_with(self, content: RawContent | None) -> bool:
        return content is not None and self.first.get(content.size_bytes) == content


def find_due_in_folders(
    candidates: Sequence[Candidate], past: PastFiles, supersede: Supersede | None
) -> Due:
    """Choose the files of folders to read.

    Args:
        candidates: Files that may be read.
        past: The files that were read before.
        supersede: The meaning of other content at the path of a file that was read.

    Cost:
        Of files that changed, and of new ones whose name or size is that of another, the content is
        read and hashed.
    """
    return _Folders(candidates, past, supersede).due()


class _Folders:
    """The files of folders, and the lineages that they may continue."""

    def __init__(
        self, candidates: Sequence[Candidate], past: PastFiles, supersede: Supersede | None
    ) -> None:
        self._candidates, self._past, self._supersede = candidates, past, supersede
        by_slot: dict[str, list[SourceFile]] = {}
        for file in past.alive:
            by_slot.setdefault(file.slot, []).append(file)
        self._lineages = [
            _Lineage(slot=slot, files=tuple(files)) for slot, files in by_slot.items()
        ]
        self._slots = by_slot.keys()
        names = [candidate.name for candidate in candidates]
        self._real = real_slots([*names, *(lineage.last.name for lineage in self._lineages)])
        self._at_path: dict[str, list[_Lineage]] = {}
        self._of_base: dict[str, list[_Lineage]] = {}
        for lineage in reversed(self._lineages):  # the last one first
            location = lineage.last.location
            self._at_path.setdefault(self._real[lineage.last.name], []).append(lineage)
            for base in {base_name(location), _name(location)}:
                self._of_base.setdefault(base, []).append(lineage)
        # Former states too: the present one has their rows, or was declared to replace them.
        of_slot = {lineage.slot: lineage for lineage in self._lineages}
        self._of_content = {
            content_key(file.content, file.location): of_slot[file.slot]
            for file in past.known.files
            if file.content is not None and file.content.size_bytes and file.slot in of_slot
        }
        self._held = self._contents_of_held()
        self._claimed: set[str] = set()  # slots that a file at hand continues
        self._moved: set[str] = set()  # slots whose content lies at another path
        self._files: list[Candidate] = []
        self._replaces: dict[str, tuple[SourceFile, ...]] = {}
        self._left_out: list[LeftOut] = []
        self._unchanged_count = 0
        self._new: dict[ContentKey, str] = {}  # locations of files to read, by content

    def due(self) -> Due:
        changed = [candidate for candidate in self._candidates if not self._is_unchanged(candidate)]
        looks = self._look_at(changed)
        steps = (self._continues_path, self._is_copy_of_known, self._continues_renamed)
        others = changed
        for step in steps:
            others = [one for one in others if not step(one, looks[one.slot])]
        # Of equal files that are new, the one with the shortest name counts: it is no `… (1).csv`.
        for candidate in sorted(others, key=lambda one: len(one.file.location)):
            self._read_other(candidate, looks[candidate.slot])
        order = {candidate.file.location: n for n, candidate in enumerate(self._candidates)}
        return Due(
            files=tuple(sorted(self._files, key=lambda one: order[one.file.location])),
            replaces=self._replaces,
            unchanged_count=self._unchanged_count,
            left_out=tuple(self._left_out),
            known=self._past.known,
            contents=self._contents_in_dataset(),
        )

    def _contents_of_held(self) -> list[SourceFile]:
        """Return the states of files that are held: no copy of one is read either."""
        held = self._past.known.held
        if not held:
            return []
        names = set(real_slots(held).values())
        known = self._past.known.files
        files = [file for file in known if file.content is not None and file.content.size_bytes]
        real = real_slots(file.name for file in files)
        return [file for file in files if real[file.name] in names]

    def _contents_in_dataset(self) -> dict[ContentKey, str] | None:
        """Return where the contents were read that no further file may add; None if each file counts."""
        if self._supersede == "id":
            return None
        again = {
            candidate.slot
            for candidate in self._candidates
            if self._past.attempts.again.named(candidate)
        }
        return {
            key: lineage.last.location
            for key, lineage in self._of_content.items()
            if lineage.slot not in again and self._is_whole(lineage)
        }

    def _at(self, candidate: Candidate) -> Sequence[_Lineage]:
        """Return the lineages that were read from the path of a file, the last one first."""
        return self._at_path.get(self._real[candidate.name], ())

    def _related(self, candidate: Candidate) -> Iterator[_Lineage]:
        """Yield the lineages whose file may have got the name of a candidate by a rotation."""
        location = candidate.file.location
        for base in {base_name(location), _name(location)}:
            yield from self._of_base.get(base, ())
        plain = _INSIDE.sub("", _name(location))
        for lineage in self._of_base.get(plain, ()):
            if _name(lineage.last.location) == plain:
                yield lineage

    def _is_whole(self, lineage: _Lineage) -> bool:
        """Return whether all rows of a lineage are in the dataset, or were removed on purpose."""
        return len(lineage.files) == 1 and lineage.last.key in self._past.current

    def _is_settled(self, lineage: _Lineage) -> bool:
        """Return whether a file at hand continues a lineage, or is its content at another path."""
        return lineage.slot in self._claimed or lineage.slot in self._moved

    def _is_unchanged(self, candidate: Candidate) -> bool:
        """Skip a file whose size and time are those of what was read from its path."""
        for lineage in self._at(candidate):
            if self._past.holds(lineage.files, candidate):
                self._claimed.add(lineage.slot)
                self._unchanged_count += 1
                return True
        return False

    def _look_at(self, candidates: Sequence[Candidate]) -> dict[str, _Look]:
        """Read the contents of files whose path, name or size is that of another; by slot."""
        sizes = Counter(candidate.file.size_bytes for candidate in candidates)
        bases = Counter(base_name(candidate.file.location) for candidate in candidates)
        for known in self._past.known.files:
            sizes.update({known.size_bytes, known.content.size_bytes if known.content else 0})
        looks: dict[str, _Look] = {}
        for candidate in candidates:
            file, base = candidate.file, base_name(candidate.file.location)
            states = [lineage.last for lineage in (*self._at(candidate), *self._related(candidate))]
            states += [
                one for one in self._held if base in (base_name(one.location), _name(one.location))
            ]
            wanted = {state.content.size_bytes for state in states if state.content}
            # Copies of objects in a store are noticed when they are read.
            is_near = "://" not in file.location
            is_double = is_near and (sizes[file.size_bytes] > 1 or bases[base] > 1)
            look = _Look()
            if wanted or is_double:
                with reading(file.location):
                    look.whole, look.first = contents_of(file, wanted)
            looks[candidate.slot] = look
        return looks

    def _continues_path(self, candidate: Candidate, look: _Look) -> bool:
        """Read a file that begins with what was read from its path."""
        lineage = next(iter(self._at(candidate)), None)
        if lineage is None:
            return False
        last = lineage.last
        if last.fingerprint != candidate.fingerprint and not look.begins_with(last.content):
            return False
        same = replace(candidate, fingerprint=last.fingerprint)
        if look.whole == last.content and self._past.holds(lineage.files, same):
            self._claimed.add(lineage.slot)  # its time alone has changed
            self._unchanged_count += 1
        else:
            self._read(candidate, lineage, look)
        return True

    def _is_copy_of_known(self, candidate: Candidate, look: _Look) -> bool:
        """Leave out a file with a content that was read from another path."""
        if look.whole is None or self._past.attempts.again.named(candidate):
            return False
        held = next((file for file in self._held if look.begins_with(file.content)), None)
        if held is not None:
            detail = f"it begins with the content of {held.location}, which is held"
            self._left_out.append(LeftOut.of(candidate, "held", detail))
            return True
        lineage = self._of_content.get(content_key(look.whole, candidate.file.location))
        if lineage is None or (self._supersede == "id" and lineage.slot in self._claimed):
            return False
        if lineage in self._at(candidate) and look.whole != lineage.content:
            return False  # a former state of the same file
        if not self._is_whole(lineage) and lineage.slot not in self._claimed:
            # A rollback has removed some of its rows.
            self._read(candidate, lineage, look)
            return True
        self._moved.add(lineage.slot)
        detail = f"a copy of {lineage.last.location}"
        self._left_out.append(LeftOut.of(candidate, "copy", detail))
        return True

    def _continues_renamed(self, candidate: Candidate, look: _Look) -> bool:
        """Read a file that was renamed by a rotation and has grown before."""
        levels = content_key(_EMPTY, candidate.file.location)
        found = [
            lineage
            for lineage in self._related(candidate)
            if not self._is_settled(lineage)
            and lineage.content is not None
            and lineage.content.size_bytes
            and look.begins_with(lineage.content)
            and content_key(_EMPTY, lineage.last.location) == levels
        ]
        if not found:
            return False
        longest = max(found, key=lambda one: one.content.size_bytes if one.content else 0)
        self._read(candidate, longest, look)
        return True

    def _read_other(self, candidate: Candidate, look: _Look) -> None:
        """Read a file that continues nothing, or keep it back if its path has had other content."""
        counts_each = self._supersede == "id" or self._past.attempts.again.named(candidate)
        if look.whole is not None and look.whole.size_bytes and not counts_each:
            key = content_key(look.whole, candidate.file.location)
            if key in self._new:
                detail = f"a copy of {self._new[key]}"
                self._left_out.append(LeftOut.of(candidate, "copy", detail))
                return
        former = next(iter(self._at(candidate)), None)
        if former is None or self._is_settled(former) or self._supersede == "id":
            self._read(candidate, None, look)
        elif self._supersede == "path":
            self._read(candidate, former, look)
        else:
            rows = sum(file.row_count for file in former.files)
            detail = (
                "it does not begin with what was read from this path before, whose "
                f"{counted(rows, 'row stays', 'rows stay')}"
            )
            self._left_out.append(LeftOut.of(candidate, "unclear", detail))

    def _read(self, candidate: Candidate, lineage: _Lineage | None, look: _Look) -> None:
        slot = self._free_slot(candidate.slot) if lineage is None else lineage.slot
        chosen = replace(candidate, slot=slot)
        if lineage is not None:
            self._replaces[slot] = lineage.files
            if look.begins_with(lineage.content) and lineage.content is not None:
                file = replace(candidate.file, first_bytes=lineage.content.size_bytes)
                chosen = replace(chosen, file=file, continues=lineage.content)
        self._claimed.add(slot)
        self._files.append(chosen)
        if look.whole is not None:
            self._new.setdefault(
                content_key(look.whole, candidate.file.location), chosen.file.location
            )

    def _free_slot(self, plain: str) -> str:
        """Return a slot for a new file: its path, unless another file has been read from there."""
        slots = chain([plain], (f"{plain}#{n}" for n in count(2)))
        return next(slot for slot in slots if slot not in self._slots and slot not in self._claimed)


_EMPTY = RawContent(size_bytes=0, hash="")


def _name(location: str) -> str:
    return without_codec(location).rpartition("/")[2]


def base_name(location: str) -> str:
    """Return the name of a file before a rotation, without a compression.

    >>> base_name("/log/app.log.2.gz"), base_name("/log/app.log-20240101"), base_name("/log/day-1.csv")
    ('app.log', 'app.log', 'day-1.csv')
    """
    name = _name(location)
    return _ROTATED.sub("", name) or name
