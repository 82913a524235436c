"""What is uploaded comes out as it went in, or not at all."""

from __future__ import annotations

import bz2
import io
import lzma
import stat
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.tiers import examples

from legato.client.packing import pack
from legato.uploads.unpacking import Caps, UnpackingError, unpack

CAPS = Caps(num_entries=50, file_bytes=2**21, total_bytes=2**22, depth=5, ratio=50)


def tar_of(*entries: tarfile.TarInfo | tuple[str, bytes], mode: str = "w:gz") -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode=mode) as tar:  # type: ignore[call-overload]
        for entry in entries:
            if isinstance(entry, tuple):
                info = tarfile.TarInfo(entry[0])
                info.size = len(entry[1])
                tar.addfile(info, io.BytesIO(entry[1]))
            else:
                tar.addfile(entry)
    return raw.getvalue()


def zip_of(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in entries:
            packed.writestr(name, content)
    return raw.getvalue()


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zip_link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


def refuse(tmp_path: Path, content: bytes, match: str, caps: Caps = CAPS) -> None:
    archive = tmp_path / "upload"
    archive.write_bytes(content)
    with pytest.raises(UnpackingError, match=match):
        unpack(archive, tmp_path / "out", caps)
    assert [path.name for path in tmp_path.iterdir()] == ["upload"], "nothing is left behind"


names = st.text(st.characters(categories=["Ll", "Nd"], max_codepoint=0x17F), min_size=1, max_size=8)
trees = st.dictionaries(st.lists(names, min_size=1, max_size=3).map("/".join), st.binary(max_size=300), min_size=1)


def can_be(tree: dict[str, bytes]) -> bool:
    folders = {"/".join(path.split("/")[:end]) for path in tree for end in range(1, path.count("/") + 1)}
    return not folders & set(tree) and len(tree) < 20


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(tree=trees.filter(can_be))
def test_what_was_packed_comes_out(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, bytes]) -> None:
    root = tmp_path_factory.mktemp("upload")
    for name, content in tree.items():
        path = root / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    packed = pack(root / "in")
    assert set(packed.names) == set(tree)
    archive = root / "archive"
    for number, content in enumerate((packed.content, zip_of(*tree.items()), tar_of(*tree.items(), mode="w"))):
        archive.write_bytes(content)
        out = root / f"out-{number}"
        # Two names that differ only in letters which some file systems take for one are refused, not mixed up.
        try:
            num_bytes = unpack(archive, out, msgspec.structs.replace(CAPS, num_entries=200))
        except UnpackingError as error:
            assert "only in case or accents" in str(error)  # noqa: PT017
            assert not out.exists()
            continue
        found = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
        assert found == tree
        assert num_bytes == sum(map(len, tree.values()))


def test_a_script_stays_executable_and_nothing_more(tmp_path: Path) -> None:
    info = tarfile.TarInfo("run.sh")
    info.mode = 0o6777
    archive = tmp_path / "upload"
    archive.write_bytes(tar_of(info, ("train.py", b"")))
    unpack(archive, tmp_path / "out", CAPS)
    assert stat.S_IMODE((tmp_path / "out" / "run.sh").stat().st_mode) & ~0o022 == 0o755
    assert stat.S_IMODE((tmp_path / "out" / "train.py").stat().st_mode) & 0o111 == 0


@pytest.mark.parametrize("make", [tar_of, zip_of])
@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("/etc/passwd", "absolute"),
        ("C:/x", "absolute"),
        ("a\\b", "the form of another system"),
        ("../x", "leads out"),
        ("a/../../x", "leads out"),
        ("a/b/c/d/e/f", "folders are nested more than 5 deep"),
        ("a" * 300, "too long"),
        ("a\nb", "control characters"),
    ],
)
def test_names_that_lead_elsewhere(tmp_path: Path, make: Callable[..., bytes], name: str, match: str) -> None:
    refuse(tmp_path, make(("fine.py", b"x"), (name, b"x")), match)


@pytest.mark.parametrize(
    "entry",
    [
        special("x", tarfile.SYMTYPE, "/etc/passwd"),
        special("x", tarfile.LNKTYPE, "fine.py"),
        special("x", tarfile.CHRTYPE),
        special("x", tarfile.FIFOTYPE),
    ],
)
def test_special_files_in_a_tar(tmp_path: Path, entry: tarfile.TarInfo) -> None:
    refuse(tmp_path, tar_of(("fine.py", b"x"), entry), "link or another special file")


def test_a_link_in_a_zip(tmp_path: Path) -> None:
    refuse(tmp_path, zip_of(("fine.py", b"x"), (zip_link("x"), b"/etc/passwd")), "link or another special file")


@pytest.mark.parametrize(
    "names", [("a", "a"), ("a", "A"), ("a/b", "a"), ("a", "a/b"), ("straße", "STRASSE"), ("é", "e\u0301"), ("a", "./a")]
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("make", [tar_of, zip_of])
def test_two_entries_of_one_name(tmp_path: Path, make: Callable[..., bytes], names: tuple[str, str]) -> None:
    refuse(tmp_path, make(*((name, b"x") for name in names)), "two entries of this name|only in case or accents")


@pytest.mark.parametrize("make", [tar_of, zip_of])
def test_caps(tmp_path: Path, make: Callable[..., bytes]) -> None:
    noise = bytes(range(256)) * 40
    few = msgspec.structs.replace(CAPS, num_entries=2)
    refuse(tmp_path, make(("a", b""), ("b", b""), ("c", b"")), "more than 2 files and folders", few)
    small = msgspec.structs.replace(CAPS, file_bytes=100)
    refuse(tmp_path, make(("a", noise)), "larger than 100 bytes", small)
    little = msgspec.structs.replace(CAPS, total_bytes=15_000)
    refuse(tmp_path, make(("a", noise), ("b", noise)), "together are larger than 15000", little)
    refuse(
        tmp_path,
        make(("a", b"0" * (2**21 - 1))),
        "the upload unpacks to more than",
        msgspec.structs.replace(CAPS, ratio=10),
    )


def test_descriptions_that_would_fill_the_memory(tmp_path: Path) -> None:
    info = tarfile.TarInfo("a")
    info.pax_headers = {"comment": "0" * 10**6}
    refuse(tmp_path, tar_of(info), "an extended header of more than")
    many = zip_of(*((f"{number:0200}", b"") for number in range(600)))
    refuse(tmp_path, many, "more than 50 files", CAPS)


@pytest.mark.parametrize(
    "described",
    [
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"},  # its list is as long as its content
        {"GNU.sparse.map": "0,1"},
        {"GNU.sparse.size": "1", "GNU.sparse.offset": "0", "GNU.sparse.numbytes": "1"},
        None,  # of GNU's own format: its list continues for as many blocks as say so
    ],
)
def test_lists_of_holes_are_refused_before_they_are_read(tmp_path: Path, described: dict[str, str] | None) -> None:
    content = b"1000000000\n" + b"1\n" * 10**5
    info = tarfile.TarInfo("a")
    info.size, info.pax_headers = len(content), described or {}
    info.type = tarfile.REGTYPE if described else tarfile.GNUTYPE_SPARSE
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(content))
    refuse(tmp_path, raw.getvalue(), "is sparse")


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x03\x04 nonsense", b"nonsense", b"\x1f\x8b nonsense", tar_of(("a", b"x" * 5000))[:60]],
    ids=["empty", "zip", "unknown", "gzip", "cut off"],
)
def test_what_is_damaged(tmp_path: Path, content: bytes) -> None:
    refuse(tmp_path, content, "damaged|incomplete|it contains no file")


@pytest.mark.parametrize(
    ("method", "told"), [(zipfile.ZIP_BZIP2, "bzip2"), (zipfile.ZIP_LZMA, "lzma"), (97, "method 97")]
)
def test_a_zip_takes_stored_and_deflated_members_alone(tmp_path: Path, method: int, told: str) -> None:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_STORED if method == 97 else method) as packed:
        packed.writestr("main.py", b"print()")
    content = raw.getvalue()
    if method == 97:  # no Python packs so; said in both places in which a zip says it
        local, central = content.index(b"PK\3\4") + 8, content.index(b"PK\1\2") + 10
        content = content[:local] + b"a\0" + content[local + 2 : central] + b"a\0" + content[central + 2 :]
    refuse(tmp_path, content, f"'main.py' is packed with {told}. Pack it stored or with deflate")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (bz2.compress(tar_of(("main.py", b""), mode="w")), "packed with bzip2"),
        (lzma.compress(tar_of(("main.py", b""), mode="w")), "packed with xz"),
        (lzma.compress(tar_of(("main.py", b""), mode="w"), lzma.FORMAT_ALONE), "packed with lzma"),
        (b"(\xb5/\xfd" + b"\0" * 20, "packed with zstd"),
    ],
    ids=["bzip2", "xz", "lzma", "zstd"],
)
def test_a_tar_is_plain_or_packed_by_gzip(tmp_path: Path, content: bytes, told: str) -> None:
    refuse(tmp_path, content, f"it is {told}, which Legato does not unpack. Pack a tar file")


@pytest.mark.parametrize("make", [tar_of, zip_of], ids=["tar.gz", "zip"])
def test_a_bomb_never_takes_more_memory_than_a_piece_of_it(tmp_path: Path, make: Callable[..., bytes]) -> None:
    content = make(("zeros", b"\0" * 2**26))
    caps = msgspec.structs.replace(CAPS, file_bytes=2**27, total_bytes=2**27)
    tracemalloc.start()
    try:
        refuse(tmp_path, content, "the upload unpacks to more than", caps)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
