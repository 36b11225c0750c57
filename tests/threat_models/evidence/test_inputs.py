"""How a report names what an auditor brought."""

from hashlib import sha256

from threat_models.evidence.transcripts import input_of


def test_file_is_named_by_its_place_and_digest(tmp_path, monkeypatch):
    """A file below the working folder has its path from there, any other its last parts; the digest is its bytes'."""
    path = tmp_path / "here" / "known.csv"
    path.parent.mkdir()
    path.write_bytes(b"a,b\n1,2\n")
    digest = sha256(b"a,b\n1,2\n").hexdigest()
    monkeypatch.chdir(tmp_path)
    for source in ("here/known.csv", str(path), "./here/../here/known.csv"):
        found = input_of("known", source, 1)
        assert (found.role, found.name, found.sha256, found.records) == ("known", "here/known.csv", digest, 1)
    monkeypatch.chdir(path.parent)
    assert input_of("known", str(path), 1).name == "known.csv"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert input_of("known", str(path), 1).name == "here/known.csv"


def test_digest_of_a_folder_is_that_of_all_its_files(tmp_path):
    """It changes with a byte, a name or a file more, and not with the order in which files were written."""

    def digest(files):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
        return input_of("public", str(folder), 0).sha256

    files = {"a.csv": "1", "sub/b.csv": "2"}
    lines = "".join(f"{sha256(text.encode()).hexdigest()}  {name}\n" for name, text in files.items())
    first = digest(files)
    assert first == sha256(lines.encode()).hexdigest() == digest(dict(reversed(files.items())))
    others = [digest({**files, "a.csv": "3"}), digest({"a.csv": "1", "sub/c.csv": "2"}), digest({**files, "c": ""})]
    assert len({first, *others}) == 4


def test_bundled_data_set_has_its_name_alone(tmp_path, monkeypatch):
    """There is no file whose digest could be taken."""
    monkeypatch.chdir(tmp_path)
    assert (input_of("public", "digits", 9).name, input_of("public", "digits", 9).sha256) == ("digits", "")
