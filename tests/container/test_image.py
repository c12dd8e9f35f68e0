"""The image: it is built over a bare base, and everything works under a root that cannot be written."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from ondevice import __version__
from ondevice.model.loading.catalogue import SMOLLM2
from ondevice.model.loading.stored import stored
from tests.container.images import MODELS, UID, Container, Images, require_tools

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Images:
    """One folder for all processes of a run: what one of them has built is there for the others."""
    require_tools()
    kept = os.environ.get("ONDEVICE_TEST_IMAGES")
    of_the_run = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        of_the_run = of_the_run.parent
    folder = Path(kept) if kept else of_the_run / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return Images(folder)


@pytest.fixture(scope="module")
def image(images: Images) -> str:
    """Without a model: the one that is here is lent."""
    with FileLock(images.folder / "built.lock"):
        return images.built("localhost/ondevice:test", BASE=images.base(), MODEL="")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the model that is here, which the user of the image may read."""
    model = stored(SMOLLM2)
    if model is None:
        pytest.skip("the smallest model is not here: `make setup` fetches it")
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(model, folder / model.name)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


@pytest.fixture
def container(images: Images, image: str, models: Path, tmp_path: Path) -> Iterator[Container]:
    made = Container(images, image, tmp_path, models)
    yield made
    made.close()


def test_the_image_says_how_it_is_to_be_run(images: Images, image: str) -> None:
    config = images.config(image)
    assert config["User"] == str(UID)
    assert set(config["Volumes"]) == {"/data", "/cache"}
    assert config["StopSignal"] in ("SIGTERM", str(int(signal.SIGTERM)))
    assert f"ONDEVICE_MODELS={MODELS}" in config["Env"]


def test_it_starts(container: Container) -> None:
    code, out, err = container.run("--version")
    assert code == 0, err
    assert __version__ in out


def test_doctor_finds_nothing_wrong(container: Container) -> None:
    code, out, err = container.run("doctor", "--json")
    assert code == 0, err
    findings = {one["topic"]: one for one in json.loads(out.splitlines()[-1])["findings"]}
    assert not [one for one in findings.values() if one["state"] == "failure"]
    assert f"in {MODELS}, which is only read" in findings["models"]["text"]
    assert "in /cache/ondevice" in findings["disk"]["text"]


def test_the_model_of_the_image_is_not_removed(container: Container) -> None:
    code, out, _ = container.run("models", "remove", SMOLLM2.name, "--json")
    assert code == 2
    assert "ONDEVICE_MODELS" in json.loads(out.splitlines()[-1])["error"]["fix"]


def test_the_app_is_healthy_and_stops_when_told(images: Images, image: str, container: Container) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    process = container.start("app", "--model", SMOLLM2.name, "--port", port, ONDEVICE_AUTH="me:a-long-password")
    try:
        assert healthy(port) == {"status": "ok"}
        check = [part.replace("7860", port) for part in images.config(image)["Healthcheck"]["Test"][1:]]
        done = container.execute(*check)
        assert done.returncode == 0, done.stderr
        tried = "touch /tmp/a /data/a /cache/a && ! touch /opt/ondevice/a && ! touch ~/a && id -u"
        done = container.execute("sh", "-c", tried)
        assert done.stdout == f"{UID}\n", shlex.join(check) + done.stderr
        done = container.execute("grep", "-h", "^Seccomp:", "/proc/1/status")
        assert done.stdout.split() == ["Seccomp:", "2"], "under the filter of container engines"
        container.execute("sh", "-c", "kill -TERM 1")
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        _, err = process.communicate(timeout=30)
    assert "Traceback" not in err, err


def healthy(port: str) -> dict[str, str]:
    end = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                found: dict[str, str] = json.load(answer)
                return found
        except (urllib.error.URLError, OSError):
            assert time.monotonic() < end, "it does not answer"
            time.sleep(0.5)
