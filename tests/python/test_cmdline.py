# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's command line, as parsed by the tool and by the module: the same cases for both."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from xsmmu import cmdline, defaults, machine
from xsmmu_lab.project import PROJECT

CASES: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "cmdline.toml").read_text())["case"]
NAMES = [" ".join((case["line"], *(case[key] for key in ("arch", "kernel") if key in case))) for case in CASES]

# Definitions of Linux that kmod/policy/boot.c needs in a program.
LINUX = """
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define __init
#define __initdata
#define __ro_after_init
#define GFP_KERNEL	0
#define SZ_64K		65536
#define O_RDONLY	0
#define CONFIG_X	1
#define IS_ENABLED(x)	x
#define IS_ERR(x)	(!(x))

struct file;

static const char *given;
static size_t given_at;

static struct file *filp_open(const char *name, int flags, int mode) { return (struct file *)given; }
static void filp_close(struct file *file, void *owner) { }
static void *kvzalloc(size_t bytes, int flags) { return calloc(1, bytes); }
static void kvfree(void *memory) { free(memory); }
static bool strstarts(const char *text, const char *begin) { return !strncmp(text, begin, strlen(begin)); }
static char *skip_spaces(char *text) { while (isspace(*text)) text++; return text; }

/* In small parts, as a file may be read. */
static ssize_t kernel_read(struct file *file, void *to, size_t bytes, loff_t *at)
{
	size_t left = strlen(given + given_at), some = left < 7 ? left : 7;

	some = some < bytes ? some : bytes;
	memcpy(to, given + given_at, some);
	given_at += some;
	*at += some;
	return some;
}

static void strreplace(char *text, char old, char new)
{
	for (; *text; text++)
		if (*text == old)
			*text = new;
}

static int kstrtobool(const char *text, bool *found)
{
	switch (text[0]) {
	case 'e': case 'E':
		if (!ENABLED)
			return -EINVAL;
		/* fall through */
	case 'y': case 'Y': case 't': case 'T': case '1':
		*found = true;
		return 0;
	case 'd': case 'D':
		if (!ENABLED)
			return -EINVAL;
		/* fall through */
	case 'n': case 'N': case 'f': case 'F': case '0':
		*found = false;
		return 0;
	case 'o': case 'O':
		if (!text[1] || !strchr("nNfF", text[1]))
			return -EINVAL;
		*found = text[1] == 'n' || text[1] == 'N';
		return 0;
	}
	return -EINVAL;
}

extern bool xs_boot_is_strict;
"""
MAIN = """
#include "boot.c"

int main(int count, char **words)
{
	given = words[1];
	xs_boot_start();
	puts(xs_boot_is_strict ? "strict" : "lazy");
	return 0;
}
"""


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """kmod/policy/boot.c as a program, for each architecture and each kstrtobool()."""
    folder = tmp_path_factory.mktemp("boot")
    text = shutil.copy(PROJECT / "kmod/policy/boot.c", folder)
    for line in Path(text).read_text().splitlines():
        if line.startswith("#include <linux/"):
            header = folder / line.split("<")[1].rstrip(">")
            header.parent.mkdir(exist_ok=True)
            header.touch()
    (folder / "floor.h").write_text(LINUX)
    (folder / "main.c").write_text(MAIN)
    made = {}
    for arch, x86 in (("x86_64", 1), ("aarch64", 0)):
        for kernel, enabled in (("6.12", 0), ("7.2", 1), ("7.3", 1)):
            program = folder / f"{arch}-{kernel}"
            options = [f"-DCONFIG_INTEL_IOMMU={x86}", f"-DCONFIG_AMD_IOMMU={x86}", f"-DENABLED={enabled}"]
            options += ["-DCONFIG_IOMMU_DEFAULT_DMA_STRICT=0", "-fsanitize=address,undefined", f"-I{folder}"]
            subprocess.run(["cc", "-w", "-g", *options, "-o", program, folder / "main.c"], check=True)
            made[arch, kernel] = program
    return made


@pytest.fixture(autouse=True)
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in machine.ROOTS:
        monkeypatch.setenv(f"XSMMU_{name.upper()}", str(tmp_path / name))


def boot(folder: Path, case: dict[str, Any], config: str = "CONFIG_INTEL_IOMMU=y\nCONFIG_AMD_IOMMU=y\n") -> None:
    release = f"{case.get('kernel', '6.12')}.9-amd64"
    files = {"sys/kernel/osrelease": release, "sys/kernel/arch": case.get("arch", "x86_64"), "cmdline": case["line"]}
    for name, content in files.items():
        (folder / "proc" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "proc" / name).write_text(f"{content}\n")
    (folder / "boot").mkdir(exist_ok=True)
    (folder / f"boot/config-{release}").write_text(config)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_tool_reads_it_as_the_kernel_does(tmp_path: Path, case: dict[str, Any]) -> None:
    boot(tmp_path, case)
    passthrough, strict = defaults.passthrough(), defaults.strict()
    assert passthrough and strict
    assert (strict.on, passthrough.on) == (case.get("strict", False), case.get("passthrough", False))


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_module_reads_it_as_the_kernel_does(module: dict[tuple[str, str], Path], case: dict[str, Any]) -> None:
    program = module[case.get("arch", "x86_64"), case.get("kernel", "6.12")]
    line = f"{case['line']}\n"
    said = subprocess.run([program, line], capture_output=True, text=True, check=True).stdout.strip()
    assert said == ("strict" if case.get("strict") else "lazy")


def test_what_cannot_be_read_as_a_whole_is_strict(module: dict[tuple[str, str], Path]) -> None:
    program = module["x86_64", "6.12"]
    for line, said in (("x" * 65535, "lazy"), ("x" * 65536, "strict"), ("", "strict")):
        found = subprocess.run([program, line], capture_output=True, text=True, check=True).stdout.strip()
        assert found == said, len(line)


def test_words_are_shown_as_the_kernel_has_them(tmp_path: Path) -> None:
    boot(tmp_path, {"line": 'a "b=c d" e="f g" =h -i'})
    assert [word.plain for word in cmdline.words()] == ["a", "b=c d", "e=f g", "=h", "-i"]
    assert [word.text for word in cmdline.words()] == ["a", '"b=c d"', 'e="f g"', "=h", "-i"]


def test_words_end_at_what_is_blank_to_the_kernel() -> None:
    """The kernel's table of characters is Latin-1, where 0xa0 is a blank; other bytes of UTF-8 are not."""
    line = "a\xa0b\tc\v d\f\r\n\xa0e\x85f\x1cg"
    assert [word.plain for word in cmdline.parse(line)] == ["a", "b", "c", "d", "e\x85f\x1cg"]


def test_an_option_of_a_driver_that_is_not_there(tmp_path: Path) -> None:
    boot(tmp_path, {"line": "intel_iommu=strict amd_iommu=fullflush"}, "CONFIG_INTEL_IOMMU=n\n")
    assert defaults.strict() == defaults.Setting(False)
    boot(tmp_path, {"line": "intel_iommu=on amd_iommu=fullflush"}, "CONFIG_AMD_IOMMU=y\n")
    assert defaults.strict() == defaults.Setting(True, "amd_iommu=fullflush")


def test_the_configuration_counts_where_no_word_does(tmp_path: Path) -> None:
    config = "CONFIG_IOMMU_DEFAULT_DMA_STRICT=y\nCONFIG_IOMMU_DEFAULT_PASSTHROUGH=y\n"
    boot(tmp_path, {"line": "iommu.strict=2 iommu=soft"}, config)
    assert (defaults.strict(), defaults.passthrough()) == (defaults.Setting(True), defaults.Setting(True))
    boot(tmp_path, {"line": "iommu.strict=0 iommu=nopt"}, config)
    assert defaults.strict() == defaults.Setting(False, "iommu.strict=0")
    assert defaults.passthrough() == defaults.Setting(False, "iommu=nopt")


@pytest.mark.parametrize(
    ("line", "vendor", "word"),
    [
        ("intel_iommu=off", "intel", "intel_iommu=off"),
        ("intel_iommu=off intel_iommu=on", "intel", None),
        ("intel_iommu=on,off", "intel", "intel_iommu=on,off"),
        ("intel_iommu=off", "amd", None),
        ("amd_iommu=off amd_iommu=on", "amd", "amd_iommu=off"),
        ("iommu=off", "intel", "iommu=off"),
        ('"iommu=soft,off"', "amd", "iommu=soft,off"),
        ("iommu=usedac,off", "amd", None),
        ("-- iommu=off", "amd", None),
        ("intel_iommu=igfx_off,sm_off", "intel", None),
    ],
)
def test_which_word_switches_it_off(tmp_path: Path, line: str, vendor: str, word: str | None) -> None:
    boot(tmp_path, {"line": line})
    assert defaults.switched_off(vendor) == word
