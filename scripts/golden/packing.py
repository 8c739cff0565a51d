"""Packs golden files that nobody reads by eye; cmake/golden.cmake unpacks them into the build folder."""

import io
import pathlib
import tarfile

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"


def pack(name, files):
    """Writes tests/golden/NAME.tar.xz from bytes by file name; returns its size. Equal files in equal order give equal
    bytes: members have no time and no owner."""
    archive = GOLDEN / f"{name}.tar.xz"
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for file, content in files.items():
            member = tarfile.TarInfo(file)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return archive.stat().st_size
