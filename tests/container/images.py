"""Builds images and runs containers without a daemon: buildah in a chroot, runc for a root that cannot be written.

ONDEVICE_TEST_BASE names the base; else Python's own image is pulled, and where no registry can be reached debootstrap
makes one. ONDEVICE_TEST_IMAGES names a folder that keeps layers between runs, which then take seconds.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PULLED = "python:3.11-slim-bookworm"
PROFILE = Path("/usr/share/containers/seccomp.json")  # the default of container engines, which buildah brings
MADE, SUITE = "localhost/ondevice-base", "bookworm"
MODELS = "/opt/ondevice/models"
UID = 10001


def require_tools() -> None:
    """Skip, with the reason, where no image can be built or no container run."""
    for tool in ("buildah", "runc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed here")
    if not PROFILE.exists():
        pytest.skip(f"there is no {PROFILE} here")
    if os.geteuid():
        pytest.skip("only root can build in a chroot and mount what was built")


class Images:
    """Images in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.driver = "overlay" if self._has_overlay() else "vfs"

    def buildah(self, *arguments: str, limit: int = 1200, driver: str = "") -> subprocess.CompletedProcess[str]:
        places = ["--root", str(self.folder / "storage"), "--runroot", str(self.folder / "run")]
        command = ["buildah", *places, "--storage-driver", driver or self.driver, *arguments]
        isolated = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit, env=isolated)

    def checked(self, *arguments: str) -> str:
        done = self.buildah(*arguments)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout.strip()

    def _has_overlay(self) -> bool:
        return self.buildah("info", driver="overlay", limit=60).returncode == 0

    def base(self) -> str:
        """The name of a base with Python 3.11; skips where none can be had."""
        named = os.environ.get("ONDEVICE_TEST_BASE", "")
        for name in (named, MADE, PULLED):
            if name and self.buildah("inspect", "--type", "image", name, limit=60).returncode == 0:
                return name
        if self.buildah("pull", named or PULLED, limit=300).returncode == 0:
            return named or PULLED
        return self._made()

    def _made(self) -> str:
        if shutil.which("debootstrap") is None:
            pytest.skip("no registry can be reached for a base, and debootstrap is not installed here")
        root = self.folder / "debian"
        command = [
            "debootstrap",
            "--variant=minbase",
            "--include=python3,python3-venv,ca-certificates",
            SUITE,
            str(root),
        ]
        if subprocess.run(command, capture_output=True, timeout=900).returncode:
            pytest.skip("neither a registry nor a mirror of Debian can be reached for a base")
        container = self.checked("from", "scratch")
        self.checked("copy", "--quiet", container, str(root), "/")
        self.checked("commit", "--quiet", "--rm", container, MADE)
        shutil.rmtree(root)
        return MADE

    def built(self, name: str, **arguments: str) -> str:
        """The image of the Dockerfile, under a name."""
        given = [part for key, value in arguments.items() for part in ("--build-arg", f"{key}={value}")]
        self.checked("bud", "--format", "docker", "--layers", "-t", name, *pip_settings(), *given, ".")
        return name

    def config(self, image: str) -> dict[str, Any]:
        """As the image says how it is to be run."""
        found = json.loads(self.checked("inspect", "--type", "image", image))["Docker"]["config"]
        assert isinstance(found, dict)
        return found


class Container:
    """A container of an image: its root is read-only, its user has no privileges, its network is the machine's."""

    def __init__(self, images: Images, image: str, folder: Path, models: Path) -> None:
        self._images, self._folder = images, folder
        self.name = f"ondevice-test-{os.getpid()}"
        self._buildah_name = images.checked("from", image)
        self._config = images.config(image)
        self._root = images.checked("mount", self._buildah_name)
        self._mounts = [_mount("/tmp", "tmpfs", "tmpfs", "nosuid", "nodev", "noexec", "mode=1777")]
        for place in self._config["Volumes"]:
            own = folder / place.strip("/")
            own.mkdir()
            os.chown(own, UID, UID)
            self._mounts.append(_mount(place, "bind", str(own), "rbind", "rw"))
        self._mounts.append(_mount(MODELS, "bind", str(models), "rbind", "ro"))

    def close(self) -> None:
        subprocess.run(["runc", "delete", "--force", self.name], capture_output=True)
        self._images.checked("umount", self._buildah_name)
        self._images.checked("rm", self._buildah_name)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """The image's own command with arguments."""
        self._write_spec(arguments, environment)
        command = ["runc", "run", "--bundle", str(self._folder), self.name]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, standard output and standard error."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command beside what was started."""
        return subprocess.run(["runc", "exec", self.name, *command], capture_output=True, text=True, timeout=60)

    def _write_spec(self, arguments: tuple[str, ...], environment: dict[str, str]) -> None:
        file = self._folder / "config.json"
        file.unlink(missing_ok=True)
        subprocess.run(["runc", "spec", "--bundle", str(self._folder)], check=True)
        spec = json.loads(file.read_text())
        spec["root"] = {"path": self._root, "readonly": True}
        process, linux = spec["process"], spec["linux"]
        process.update(
            terminal=False,
            user={"uid": int(self._config["User"]), "gid": UID},
            args=[*self._config["Entrypoint"], *arguments],
            env=[*self._config["Env"], *(f"{key}={value}" for key, value in environment.items())],
            cwd=self._config["WorkingDir"],
            capabilities={},
            noNewPrivileges=True,
        )
        process.pop("rlimits", None)
        linux["namespaces"] = [one for one in linux["namespaces"] if one["type"] in ("mount", "pid", "ipc")]
        linux.pop("resources", None)
        linux["seccomp"] = default_seccomp()
        spec["mounts"] = [one for one in spec["mounts"] if one["type"] != "cgroup"] + self._mounts
        spec.pop("hostname", None)
        file.write_text(json.dumps(spec))


def default_seccomp() -> dict[str, Any]:
    """The default profile of container engines, as it stands for a process that has no capabilities."""
    profile = json.loads(PROFILE.read_text())
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())

    def holds(rule: dict[str, Any]) -> bool:
        wanted, unwanted = rule.get("includes") or {}, rule.get("excludes") or {}
        is_other = wanted.get("arches") and machine not in wanted["arches"]
        return not (wanted.get("caps") or is_other or machine in unwanted.get("arches", ()))

    known = ("names", "action", "args", "errnoRet")
    rules = [{key: rule[key] for key in known if rule.get(key)} for rule in profile["syscalls"] if holds(rule)]
    names = next(one for one in profile["archMap"] if one["architecture"] == f"SCMP_ARCH_{platform.machine().upper()}")
    return {
        "defaultAction": profile["defaultAction"],
        "architectures": [names["architecture"], *names["subArchitectures"]],
        "syscalls": rules,
    }


def pip_settings() -> list[str]:
    """What a build needs in order to install as this machine does: pip's own files, and what lies where they say."""
    pip = [sys.executable, "-m", "pip", "config"]
    told = subprocess.run([*pip, "debug"], capture_output=True, text=True).stdout
    files = re.findall(r"^\s*(/\S+), exists: True$", told, re.MULTILINE)
    values = "".join(Path(file).read_text() for file in files)
    there = [path for path in re.findall(r"(?<![\w/:])(/[\w./-]+)", values) if Path(path).exists()]
    return [
        *(part for path in dict.fromkeys(files + there) for part in ("-v", f"{path}:{path}:ro")),
        *("--build-arg", f"TORCH_ARGS={os.environ.get('TORCH_ARGS', '')}"),
    ]


def _mount(place: str, kind: str, source: str, *options: str) -> dict[str, Any]:
    return {"destination": place, "type": kind, "source": source, "options": list(options)}
