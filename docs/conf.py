"""How is the documentation built? Settings of Sphinx: ``make docs``.

Pages are MyST. Docstrings are plain text in which `name` is code: it becomes a link where it names something that the
reference describes, by whatever module.
"""

import locale
import sys
from pathlib import Path

from docutils.nodes import Element, TextElement
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import aggarray

sys.path.insert(0, str(Path(__file__).parent))
# Sphinx takes the user's locale; cf_units cannot be imported under some (C.UTF-8), and numbers must be written as in Python.
locale.setlocale(locale.LC_NUMERIC, "C")

project = "aggarray"
author = "aggarray developers"
copyright = "aggarray developers"
version = release = aggarray.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "parameters", "notebook_pages"]
exclude_patterns = ["_build"]
nitpicky = True
smartquotes = False

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

default_role = "py:obj"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = True

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"aggarray {version}"
html_show_sphinx = False
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["pages.css"]


def found_by_last_name(app: Sphinx, env: BuildEnvironment, node: pending_xref, words: TextElement) -> Element | None:
    """Resolve a name by its last parts, as docstrings and types name things; leave it as code where nothing has them.

    Names are documented where users import them from, which is not where they are defined.
    """
    if node.get("refdomain") != "py":
        return None
    objects = env.domains.python_domain.objects
    # `MasterArray.local` and `aggarray.arrays.master.MasterArray` alike: the longest ending that is known by one name.
    parts = str(node["reftarget"]).strip("()").split(".")
    for start in range(len(parts)):
        ending = ".".join(parts[start:])
        if start and start == len(parts) - 1 and ending[:1].islower():
            break
        names = sorted({name for name in objects if name == ending or name.endswith(f".{ending}")}, key=len)
        if names and (ending[:1].isupper() or len(names) == 1):
            return env.domains.python_domain.resolve_xref(env, node["refdoc"], app.builder, "obj", names[0], node, words)
    return words


def setup(app: Sphinx) -> None:
    """Connect what is above."""
    app.connect("missing-reference", found_by_last_name)
