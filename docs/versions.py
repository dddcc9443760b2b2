"""Build the documentation of several versions: ``python docs/versions.py build/versions [TAG...]``.

Each tag, by default every tag of the repository, is built from its own files into a folder of its name; a folder that exists is
kept. The script ``versions.js`` beside the folders adds a menu of versions to all pages, also to those of older tags, and
``index.html`` leads to the newest version. The result is static: copy the folder to any web server, or open it as files.
"""

import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

#: The menu: it stands above the search field, and leads to the same page of another version, or to its front page.
MENU = """\
const root = new URL(".", document.currentScript.src).href;
addEventListener("DOMContentLoaded", () => {
  const [here, ...rest] = location.href.slice(root.length).split(/[?#]/)[0].split("/");
  const menu = document.createElement("select");
  menu.setAttribute("aria-label", "version");
  menu.style.margin = "0 1rem 0.5rem";
  for (const name of Object.keys(VERSIONS)) menu.add(new Option(name, name, false, name === here));
  menu.addEventListener("change", () => {
    const page = rest.join("/");
    location.href = root + menu.value + "/" + (VERSIONS[menu.value].includes(page) ? page : "index.html");
  });
  document.querySelector(".sidebar-brand")?.after(menu);
});
"""


def tags() -> list[str]:
    """Return the tags of the repository, the newest version first."""
    done = subprocess.run(["git", "tag", "--sort=-version:refname"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def build(name: str, target: Path) -> None:
    """Build the pages of a tag, from a copy of its files."""
    files = subprocess.run(["git", "archive", name], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(files)) as archive:
            archive.extractall(folder, filter="data")
        labels = {"version": name, "release": name, "html_title": f"aggarray {name}", "html_js_files": "../../versions.js"}
        settings = [word for label, value in labels.items() for word in ("-D", f"{label}={value}")]
        command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-d", "doctrees", *settings, "docs", "pages"]
        subprocess.run(command, cwd=folder, check=True)
        shutil.move(Path(folder, "pages"), target)


def main(folder: str, *names: str) -> None:
    """Build what is missing, and write the menu."""
    target = Path(folder).resolve()
    versions = names or tags()
    if not versions:
        sys.exit("the repository has no tags: git tag v0.1.0, or name a branch")
    target.mkdir(parents=True, exist_ok=True)
    for name in versions:
        if not (target / name).exists():
            build(name, target / name)
    pages = {
        name: sorted(str(path.relative_to(target / name)) for path in (target / name).rglob("*.html")) for name in versions
    }
    (target / "versions.js").write_text(f"const VERSIONS = {json.dumps(pages)};\n{MENU}", encoding="utf-8")
    newest = f'<!doctype html><meta http-equiv="refresh" content="0; url={versions[0]}/index.html"><title>aggarray</title>\n'
    (target / "index.html").write_text(newest, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
