"""For mkdocstrings: the sections `Example:` of our docstrings are shown as code."""

import re

from griffe import Extension


class Examples(Extension):
    """Give the sections the name under which Griffe finds code in them."""

    def on_instance(self, *, obj, **kwargs):
        """Rename the section, if there is one."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.M
            )
