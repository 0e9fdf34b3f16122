"""Build and test the SDKs of all languages: the same programs, the same vectors, the same answers.

    python sdk/check.py [LANGUAGE ...]

A language whose tools are missing is named and skipped. Needs nothing but Python.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILT = HERE / "build"
VECTORS = json.loads((HERE / "vectors.json").read_text(encoding="utf-8"))


class Missing(Exception):
    """A tool is not on this machine."""


def main(names: list[str]) -> int:
    """Check the languages; return how many failed."""
    failed = 0
    for name, build in LANGUAGES.items():
        if names and name not in names:
            continue
        began = time.monotonic()
        try:
            check(build())
        except Missing as missing:
            print(f"{name:<11} skipped: {missing}")
        except (AssertionError, subprocess.SubprocessError, OSError) as error:
            failed += 1
            print(f"{name:<11} FAILED: {error}")
            for text in (getattr(error, "stdout", None), getattr(error, "stderr", None)):
                if text:
                    print(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)
        else:
            print(f"{name:<11} ok  {time.monotonic() - began:.1f} s")
    return failed


def need(*tools: str) -> None:
    """Go on only with tools that are there and run: a rustup without a toolchain has a rustc that does not."""
    for tool in tools:
        if shutil.which(tool) is None:
            raise Missing(f"no {tool}")
        asked = [tool, "version"] if tool == "go" else [tool, "--version"]
        if subprocess.run(asked, check=False, capture_output=True).returncode != 0:
            raise Missing(f"{tool} does not run")


def run(*command: str, folder: Path = HERE) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def python() -> list[str]:
    return [sys.executable, "-S", str(HERE / "python" / "programs.py")]


def c() -> list[str]:
    need("gcc")
    target = BUILT / "c"
    run("gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(target), "c/programs.c")
    return [str(target)]


def go() -> list[str]:
    need("go")
    target = BUILT / "go"
    run("go", "vet", "./...", folder=HERE / "go")
    run("go", "build", "-o", str(target), "./programs", folder=HERE / "go")
    return [str(target)]


def rust() -> list[str]:
    need("cargo")
    folder = BUILT / "rust"
    run(
        "cargo",
        "build",
        "--quiet",
        "--release",
        "--offline",
        "--target-dir",
        str(folder),
        folder=HERE / "rust",
    )
    return [str(folder / "release" / "programs")]


def java() -> list[str]:
    need("javac", "java")
    folder = BUILT / "java"
    run(
        "javac",
        "-Xlint:all",
        "-Werror",
        "-d",
        str(folder),
        "java/millstream/Action.java",
        "java/millstream/Programs.java",
    )
    return [
        "java",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        str(folder),
        "millstream.Programs",
    ]


def typescript() -> list[str]:
    """Build with tsc, fetched once as a tool for this folder alone; node 20 does not strip types itself."""
    need("node", "npm")
    folder = BUILT / "typescript"
    folder.mkdir(exist_ok=True)
    for name in ("action.ts", "programs.ts", "tsconfig.json", "package.json"):
        shutil.copy(HERE / "typescript" / name, folder / name)
    if not (folder / "node_modules").exists():
        try:
            run("npm", "install", "--no-audit", "--no-fund", "--silent", folder=folder)
        except subprocess.SubprocessError as error:
            raise Missing("tsc could not be fetched") from error
    run("node", "node_modules/typescript/bin/tsc", "-p", ".", folder=folder)
    return ["node", str(folder / "programs.js")]


LANGUAGES: dict[str, Callable[[], list[str]]] = {
    "python": python,
    "c": c,
    "go": go,
    "rust": rust,
    "java": java,
    "typescript": typescript,
}


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def frames(payloads: list[bytes]) -> bytes:
    return b"".join(map(frame, payloads))


def number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def answer(program: list[str], data: bytes, *args: str) -> tuple[int, bytes, bytes]:
    """Run a program over all of its input; return its code, output and log."""
    done = subprocess.run(
        [*program, *args], input=data, capture_output=True, timeout=300, check=False
    )
    return done.returncode, done.stdout, done.stderr


def expect(what: str, got: object, wanted: object) -> None:
    assert got == wanted, f"{what}: got {got!r:.200}, expected {wanted!r:.200}"


def check(program: list[str]) -> None:
    """Ask a language's programs all that every language is asked."""
    check_vectors(program)
    check_contracts(program)
    check_errors(program)
    check_flushing(program)


def check_vectors(program: list[str]) -> None:
    wanted = b""
    for vector in VECTORS["frames"]:
        payload = bytes.fromhex(vector["payload"]) * vector.get("repeat", 1)
        wire = (
            bytes.fromhex(vector["bytes"])
            if "bytes" in vector
            else bytes.fromhex(vector["head"]) + payload
        )
        wanted += wire
    expect("all vectors", answer(program, wanted, "echo")[:2], (0, wanted))
    expect("no input at all", answer(program, b"", "echo")[:2], (0, b""))
    for vector in VECTORS["broken"]:
        code, out, log = answer(program, bytes.fromhex(vector["bytes"]), "echo")
        expect(
            vector["name"],
            (code, out),
            (1, frames([bytes.fromhex(one) for one in vector.get("frames", [])])),
        )
        assert log.startswith(b"fatal: "), f"{vector['name']}: the log says {log!r}"


def check_contracts(program: list[str]) -> None:
    numbers = [number(n) for n in (*range(1, 20_001), 2**32 - 1)]
    wanted = frames([n if int.from_bytes(n, "big") % 3 == 0 else b"" for n in numbers])
    expect("filter", answer(program, frames(numbers), "filter", "3")[:2], (0, wanted))
    texts = [b"a,b", b"", b",,c,", b"long" * 100_000 + b",x"]
    wanted = frames([b"a", b"b", b"", b"", b"c", b"", b"long" * 100_000, b"x", b""])
    expect("split", answer(program, frames(texts), "split")[:2], (0, wanted))


def check_errors(program: list[str]) -> None:
    data = frames([number(2), b"no number", number(4)])
    code, out, log = answer(program, data, "filter", "2")
    expect("an error is an empty answer", (code, out), (0, frames([number(2), b"", number(4)])))
    expect("an error's log", log.strip(), b"error: 9 bytes are no number")
    code, out, log = answer(program, frames([number(2), b"fatal", number(4)]), "filter", "2")
    expect("fatal", (code, out, log.strip()), (1, frames([number(2)]), b"fatal: as you wish"))


def check_flushing(program: list[str]) -> None:
    """Nobody waits for an answer that is held back, and a slow program answers one by one."""
    with subprocess.Popen(
        [*program, "slow", "5"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for n in range(5):
            process.stdin.write(frame(number(n)))
            process.stdin.flush()
            expect("an answer while the input stays open", process.stdout.read(8), frame(number(n)))
        process.stdin.close()
        expect("the end", (process.stdout.read(), process.wait(20)), (b"", 0))


if __name__ == "__main__":
    BUILT.mkdir(exist_ok=True)
    sys.exit(main(sys.argv[1:]))
