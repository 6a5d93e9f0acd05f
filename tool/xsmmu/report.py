# SPDX-License-Identifier: GPL-2.0-only
"""`xsmmu report`: packs results and a description of the machine into a file for an issue."""

from __future__ import annotations

import hashlib
import io
import json
import math
import stat
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click

from xsmmu import calibration, compare, describe, doctor, module, output, status
from xsmmu.errors import UserError
from xsmmu.scrub import Scrub

RESULTS: Final = frozenset(
    f"xsmmu.{name}/1"
    for name in ("bench", "compare", "compare-setup", "compare-run", "doctor", "doctor-sample", "status")
)
"""Schemas that a bundle accepts."""
MAX_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class Part:
    """A file of the bundle."""

    name: str
    schema: str
    """Schema of the first document."""
    content: bytes

    def as_dict(self) -> dict[str, Any]:
        """Entry in the manifest."""
        digest = hashlib.sha256(self.content).hexdigest()
        return {"name": self.name, "document": self.schema, "bytes": len(self.content), "sha256": digest}


def parts(files: Sequence[Path], scrub: Scrub) -> list[Part]:
    """Parts of a bundle: machine, status, doctor, the saved bench, and the named files."""
    loaded = module.version() if module.is_loaded() else None
    findings = [asdict(each) for each in doctor.examine(())]
    made = {
        "machine": output.document("machine", **describe.describe()),
        "status": output.document("status", module=loaded, devices=status.rows((), everything=False)),
        "doctor": output.document("doctor", findings=findings),
    }
    found = [_part(f"{name}.json", [document], scrub) for name, document in made.items()]
    saved = calibration.bench_file()
    if saved.exists() and saved.resolve() not in {file.resolve() for file in files}:
        found.append(_packed("saved-bench.json", saved, scrub))
    for number, file in enumerate(_files(files), 1):
        found.append(_packed(f"results/{number:02}-{scrub.text(file.name)}", file, scrub))
    return found


def _packed(name: str, file: Path, scrub: Scrub) -> Part:
    try:
        return _part(name, _documents(file), scrub)
    except RecursionError as error:
        raise _no_result(file, str(error)) from None


def _files(named: Sequence[Path]) -> Iterator[Path]:
    """Files to pack; a folder is a result of `xsmmu compare`."""
    for path in named:
        if not path.is_dir():
            yield path
            continue
        inside = [path / name for name in (compare.RESULT_FILE, compare.RUNS_FILE) if (path / name).exists()]
        if not inside:
            raise UserError(
                f"{path} has no {compare.RESULT_FILE}: name a file, or a folder of xsmmu compare", code="no-file"
            )
        yield from inside


def _text(file: Path) -> str:
    try:
        about = file.stat()
        # Reading a pipe could block forever.
        if not stat.S_ISREG(about.st_mode):
            raise _no_result(file, "not a regular file")
        if about.st_size > MAX_BYTES:
            raise _no_result(file, f"more than {MAX_BYTES >> 20} MiB")
        return file.read_text()
    except FileNotFoundError:
        raise UserError(
            f"{file} does not exist: name an output file of bench, compare, status or doctor", code="no-file"
        ) from None
    except PermissionError:
        raise UserError(f"{file} is not readable for this user: try sudo", code="no-permission") from None
    except (OSError, UnicodeDecodeError) as error:
        raise _no_result(file, str(error)) from None


def _documents(file: Path) -> list[dict[str, Any]]:
    """A JSON document, or documents by lines."""

    def number(word: str) -> float:
        """Refuse NaN, Infinity and 1e999, which Python accepts and JSON does not have."""
        found = float(word)
        if not math.isfinite(found):
            raise _no_result(file, f"{word} is no number")
        return found

    text, read = _text(file), json.JSONDecoder(parse_float=number, parse_constant=number).decode
    try:
        found = [read(text)]
    except ValueError:
        try:
            found = [read(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            raise _no_result(file, str(error)) from None
    for each in found:
        schema = each.get("schema") if isinstance(each, dict) else None
        if schema not in RESULTS:
            raise _no_result(file, f"unknown schema {schema}" if schema else "no schema")
    if not found:
        raise _no_result(file, "empty file")
    return found


def _no_result(file: Path, why: str) -> UserError:
    return UserError(
        f"{file} is no result ({why}): name an output file of bench, compare, status or doctor with -o json or jsonl",
        code="bad-value",
    )


def _part(name: str, documents: Sequence[dict[str, Any]], scrub: Scrub) -> Part:
    clean = [scrub.value(each) for each in documents]
    # A single document is indented for people; several documents take a line each.
    text = json.dumps(clean[0], indent=1) if len(clean) == 1 else "\n".join(json.dumps(each) for each in clean)
    return Part(name, str(documents[0]["schema"]), f"{text}\n".encode())


def pack(bundle: Path, found: Sequence[Part], manifest: dict[str, Any]) -> None:
    """Write the bundle atomically, without replacing a file."""
    top = bundle.name.removesuffix(".tar.xz")
    first = Part("manifest.json", manifest["schema"], f"{json.dumps(manifest, indent=1)}\n".encode())
    try:
        stream = bundle.open("xb")
    except FileExistsError:
        raise UserError(f"{bundle} exists already: name another --output-file", code="file-exists") from None
    except OSError as error:
        raise UserError(
            f"cannot write {bundle}: {error.strerror}: name another --output-file", code="cannot-write"
        ) from None
    try:
        with stream, tarfile.open(fileobj=stream, mode="w:xz") as tar:
            for part in (first, *found):
                about = tarfile.TarInfo(f"{top}/{part.name}")
                about.size, about.mtime = len(part.content), int(time.time())
                tar.addfile(about, io.BytesIO(part.content))
    except BaseException as error:
        bundle.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UserError(
                f"cannot write {bundle}: {error.strerror}: name another --output-file", code="cannot-write"
            ) from None
        raise


@click.command()
@click.argument("file", nargs=-1, type=click.Path(path_type=Path))
@click.option("--bundle", is_flag=True, help="Write the bundle; without --bundle only its parts are listed.")
@click.option(
    "--output-file", type=click.Path(path_type=Path), help="Name of the bundle; by default xsmmu-report-TIME.tar.xz."
)
@output.option
def report(file: tuple[Path, ...], bundle: bool, output_file: Path | None, form: str) -> None:
    """Pack results and a description of the machine into a file for an issue.

    FILE is output of bench, compare, status or doctor with -o json or jsonl, or a folder of compare. The bundle also
    has the costs of bench --save, the present output of status and doctor, and a description of the machine (kernel,
    processor, IOMMU, versions). Host name, serial numbers, MAC and IP addresses and names of homes are removed. The
    command of compare, and names of interfaces and disks, stay: read the bundle before you publish it.

    \b
    Examples:
      xsmmu report
      xsmmu report --bundle
      xsmmu report --bundle bench.json xsmmu-compare-2026-11-25T10-00-00
      xsmmu report --bundle --output-file lazy-is-slow.tar.xz bench.json
    """
    if output_file and not bundle:
        raise UserError("--output-file needs --bundle: add --bundle, or leave out --output-file", code="usage")
    if output_file and not output_file.name.endswith(".tar.xz"):
        raise UserError(
            f"--output-file {output_file} does not end with .tar.xz: choose a name that ends with .tar.xz",
            code="bad-value",
        )
    scrub = Scrub()
    found = parts(file, scrub)
    target = (output_file or Path(time.strftime("xsmmu-report-%Y-%m-%dT%H-%M-%S.tar.xz"))) if bundle else None
    rows = [part.as_dict() for part in found]
    taken = {kind: count for kind, count in sorted(scrub.taken.items()) if count}
    if target:
        made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        pack(target, found, output.document("report-manifest", made=made, taken_out=taken, files=rows))
    if form != "table":
        output.emit(form, "report", "files", rows, bundle=str(target) if target else None, taken_out=taken)
        return
    output.table(["file", "schema", "bytes"], [[part.name, part.schema, f"{len(part.content):,}"] for part in found])
    if taken:
        click.echo(f"removed: {', '.join(f'{count} of {kind}' for kind, count in taken.items())}")
    click.echo(f"bundle: {target}" if target else "nothing was written: add --bundle")
