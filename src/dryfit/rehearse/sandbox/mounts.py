"""The program's own view of the file system: all is readable where it is, and writes go to a layer that is thrown away.

A new root is put together from the old one, mount by mount: a folder becomes an overlay of the real folder and an
empty one in the scratch folder; temporary folders, /dev and /sys are real; what cannot be overlaid is made read-only.
"""

from __future__ import annotations

import os
import stat

from dryfit.rehearse.sandbox import kernel

OLD, NEW = "/old", "/new"

# Above this many mounts in one top-level folder (container hosts, automounted homes) a layer for each would take longer
# than the rehearsal; the folder is then read-only but for the mounts that hold a protected folder.
_MANY_MOUNTS = 64
_MANY_ENTRIES = 200
_SMALL_FILE_BYTES = 1 << 20

# Less than one chunk that torch.save or safetensors writes: a program that ran out of room leaves no more than this.
_NO_ROOM_BYTES = 1 << 20

_KEPT_AS_THEY_ARE = ("/dev", "/sys")

# Folders of the system, where a program writes little if anything: a layer in memory is made and removed sooner.
_SYSTEM = ("/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/lost+found", "/run", "/sbin", "/usr", "/var")

ON_DISK, IN_MEMORY = "on disk", "in memory"


class Layers:
    """The layers that what is written goes to, on disk or in memory, and where the kernel accepted neither."""

    def __init__(self, places: dict[str, str], unprivileged: bool, expected: list[str]) -> None:
        self.places = places
        self.unprivileged = unprivileged
        self.expected = expected
        self.small = [path for path in _SYSTEM if not any(is_within(folder, path) for folder in expected)]
        own_attributes = "userxattr" if unprivileged else "redirect_dir=on"  # linux/Documentation/filesystems/overlayfs
        self.options = [f"{own_attributes},volatile", own_attributes]
        self.covered: dict[str, str] = {}
        self.read_only: list[str] = []
        self.refusals: list[str] = []

    def cover(self, path: str) -> bool:
        """Put a layer over the folder at `path` of the new root; false when no kind of layer could be had."""
        refused: list[str] = []
        for kind in sorted(self.places, reverse=path not in self.small):
            for options in list(self.options):
                try:
                    self._overlay(path, self.places[kind], options)
                except OSError as error:
                    reason = f"{path} cannot have a layer {kind} ({error.strerror})."
                    continue
                self.covered[path] = kind
                self.options = [options]
                for other in refused:  # the folder does not stand in the way: spare the others the attempt
                    del self.places[other]
                return True
            refused.append(kind)
            self.refusals.append(reason)
        return False

    def around(self, path: str) -> str:
        """What became of the folder that `path` lies in: the kind of its layer, or "" where it is read-only."""
        known = {**dict.fromkeys(self.read_only, ""), **self.covered}
        inner = max((folder for folder in known if is_within(path, folder)), key=len, default=None)
        return IN_MEMORY if inner is None else known[inner]

    def _overlay(self, path: str, place: str, options: str) -> None:
        number = len(os.listdir(place))
        upper, work = f"{place}/{number}", f"{place}/{number}.work"
        os.mkdir(upper)
        os.mkdir(work)
        copy_attributes(OLD + path, upper)
        if self.unprivileged:
            self._make_ways(path, upper)
        # By descriptor: a path may hold the commas and colons that mount options are separated by.
        opened = [os.open(folder, os.O_PATH | os.O_CLOEXEC) for folder in (OLD + path, upper, work)]
        try:
            names = [f"{OLD}/proc/self/fd/{number}" for number in opened]
            kept = kernel.READ_ONLY | kernel.NO_SUID | kernel.NO_DEV | kernel.NO_EXEC
            same_flags = os.statvfs(OLD + path).f_flag & kept
            kernel.mount(
                "dryfit", NEW + path, "overlay", same_flags,
                f"lowerdir={names[0]},upperdir={names[1]},workdir={names[2]},{options}",
            )  # fmt: skip
        finally:
            for number in opened:
                os.close(number)

    def _make_ways(self, path: str, upper: str) -> None:
        """Make in the layer the folders that lead to where writes are expected.

        The kernel makes them when first needed, but then as their owner's, which a user namespace has no number for if
        it is another user: it would say EOVERFLOW.
        """
        for folder in self.expected:
            part = path
            while part != folder and is_within(folder, part):
                part = f"{part.rstrip('/')}/{folder[len(part.rstrip('/')) + 1 :].split('/')[0]}"
                made = upper + part[len(path.rstrip("/")) :]
                if not os.path.isdir(OLD + part):
                    break
                if not os.path.isdir(made):
                    os.mkdir(made)
                    copy_attributes(OLD + part, made)


def copy_attributes(source: str, target: str) -> None:
    """Give a folder or file the mode, owner and times of another, as far as this user may."""
    found = os.stat(source)
    mode = found.st_mode & 0o7777
    if os.geteuid() != found.st_uid:
        try:
            os.chown(target, found.st_uid, found.st_gid)
        except OSError:  # it becomes this user's, who may do with it what they may do with the original
            mode = 0o111 * sum(right for right in (os.R_OK, os.W_OK, os.X_OK) if os.access(source, right))
    os.chmod(target, mode)
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def is_within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies below it; both absolute and without links."""
    return path == folder or folder == "/" or path.startswith(folder + "/")


def is_full(folder: str) -> bool:
    """Whether next to nothing can be written any more to the file system of a folder."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_blocks > 0 and found.f_bavail * found.f_frsize < _NO_ROOM_BYTES


def visible_mounts() -> list[str]:
    """Where something is mounted that a path leads to, parents first; hidden and unreachable mounts are left out."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        fields = [line.split(" ", 5)[:5] for line in file]
    found = []
    for identity, _, _, _, escaped in fields:
        first, *rest = escaped.split("\\")
        path = first + "".join(chr(int(part[:3], 8)) + part[3:] for part in rest)
        try:
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            with open(f"/proc/self/fdinfo/{opened}", encoding="ascii") as file:
                if any(line.split() == ["mnt_id:", identity] for line in file):
                    found.append(path)
        finally:
            os.close(opened)
    return sorted(found, key=depth)


def depth(path: str) -> int:
    """How many folders lead to a path; the root has none."""
    return 0 if path == "/" else path.count("/")


def plan(
    mounts: list[str], temporary: list[str], protected: list[str], writable: list[str], scratch: str
) -> dict[str, str]:
    """What to do where: path -> "cover" (a layer over it), "real" (as it is) or "read-only", for all but the top level.

    A temporary folder is real, but not the part of it in which a protected folder lies.
    """
    steps: dict[str, str] = {}
    for path in mounts:
        top = _top(path)
        if top in (*_KEPT_AS_THEY_ARE, "/proc", "/"):
            continue
        if sum(is_within(other, top) for other in mounts) <= _MANY_MOUNTS:
            steps[path] = "cover"
            continue
        steps[top] = "read-only"
        inside = [folder for folder in protected if folder != top and is_within(folder, top)]
        steps.update(dict.fromkeys(inside, "cover"))
        if any(is_within(path, folder) for folder in inside):
            steps[path] = "cover"
    for folder in temporary:
        if folder not in protected:
            steps[folder] = "real"
    for folder in protected:
        around = max((place for place in temporary if is_within(folder, place)), key=len, default=None)
        if around is None or around == folder or folder == "/":
            continue
        below = folder[len(around.rstrip("/")) + 1 :].split("/")
        for length in range(1, len(below) + 1):
            part = "/".join([around.rstrip("/"), *below[:length]])
            if not is_within(scratch, part):  # a layer cannot lie in the folder that it covers
                steps[part] = "cover"
                break
    return steps | dict.fromkeys(writable, "real")


def build(
    base: str, steps: dict[str, str], mounts: list[str], layers: Layers | None, memory_bytes: int, fresh_proc: bool
) -> None:
    """Leave the new root at `NEW`, not yet entered, with the old one at `OLD`; without `layers` all of it is read-only.

    Raises:
        OSError: the kernel refused a step without which there is no new root.
    """
    kernel.mount("dryfit", base, "tmpfs", kernel.NO_DEV, f"mode=755,size={memory_bytes}")
    os.mkdir(base + OLD)
    os.mkdir(base + NEW)
    os.mkdir(base + "/layers")
    kernel.pivot_root(base, base + OLD)
    os.chdir("/")
    kernel.mount(NEW, NEW, flags=kernel.BIND)

    _expand("/", steps, mounts, layers)
    if not fresh_proc:
        _bind("/proc")
    for path in sorted(steps, key=depth):
        if depth(path) > 1:  # the top level is made already
            _place(path, steps, mounts, layers)
    if os.path.isdir(NEW + "/dev/shm"):
        # Its own shared memory: a killed program cannot leave any behind.
        size = os.statvfs(OLD + "/dev/shm")
        kernel.mount("dryfit", NEW + "/dev/shm", "tmpfs", kernel.NO_SUID | kernel.NO_DEV,
                     f"mode=1777,size={size.f_blocks * size.f_frsize}")  # fmt: skip


def enter() -> None:
    """Make the new root the root of this mount namespace; the old one is gone."""
    os.chdir(NEW)
    kernel.pivot_root(".", ".")
    kernel.detach(".")
    os.chdir("/")


def _place(path: str, steps: dict[str, str], mounts: list[str], layers: Layers | None) -> None:
    step = steps.get(path, "cover")
    if path in _KEPT_AS_THEY_ARE or step == "real":
        _bind(path)
    elif not os.path.isdir(NEW + path):
        if os.path.lexists(NEW + path):
            _bind_read_only(path, layers)
    elif step == "read-only" or layers is None:
        _bind_read_only(path, layers)
    elif layers.unprivileged and any(other != path and is_within(other, path) for other in mounts):
        # To an overlay in a user namespace the kernel gives no folder that others are mounted in, for they may be
        # there to hide something. So each folder in it gets a layer of its own.
        _expand(path, steps, mounts, layers)
    elif not layers.cover(path):
        _bind_read_only(path, layers)


def _expand(path: str, steps: dict[str, str], mounts: list[str], layers: Layers | None) -> None:
    """Make again, in memory, a folder whose folders each get their own step."""
    entries = sorted(os.scandir(OLD + path), key=lambda entry: entry.name)
    if len(entries) > _MANY_ENTRIES and path != "/":
        _bind_read_only(path, layers)
        return
    for entry in entries:
        child = f"{path.rstrip('/')}/{entry.name}"
        new = NEW + child
        try:
            kind = entry.stat(follow_symlinks=False).st_mode & 0o170000
        except OSError:
            continue  # a dead network mount, say: the program could not reach it either
        if kind == stat.S_IFLNK:
            os.symlink(os.readlink(entry.path), new)
        elif kind == stat.S_IFDIR:
            os.mkdir(new)
            copy_attributes(entry.path, new)
            if layers is not None and child not in steps and _is_empty(entry.path):
                continue
            if child != "/proc" and (path == "/" or child not in steps):
                _place(child, steps, mounts, layers)
        elif kind != stat.S_IFREG or not _copied(entry.path, new):
            os.close(os.open(new, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            _bind_read_only(child, layers)
    copy_attributes(OLD + path, NEW + path)


def _copied(source: str, target: str) -> bool:
    if os.stat(source).st_size > _SMALL_FILE_BYTES or not os.access(source, os.R_OK):
        return False
    with open(source, "rb") as original, open(target, "wb") as copy:
        copy.write(original.read())
    copy_attributes(source, target)
    return True


def _is_empty(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError:
        return False


def _bind(path: str) -> None:
    kernel.mount(OLD + path, NEW + path, flags=kernel.BIND | kernel.RECURSIVE)


def _bind_read_only(path: str, layers: Layers | None) -> None:
    try:
        _bind(path)
    except OSError:
        return  # not ours to see: what is there is empty, or the layer of the folder around it
    try:
        kernel.make_read_only(NEW + path)
    except OSError:
        kernel.detach(NEW + path)
    if layers is not None and os.path.isdir(NEW + path):
        layers.read_only.append(path)


def _top(path: str) -> str:
    return "/".join(path.split("/", 2)[:2])
