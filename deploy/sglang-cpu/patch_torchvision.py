"""Make torchvision importable beside a CPU build of torch.

The index serves torchvision as a CUDA build, whose library does not load beside a CPU torch, and
`import torchvision` then dies with "operator torchvision::nms does not exist".  Declaring the two
operators is all that its Python half needs.  Beside a CUDA torch the patch does nothing.

Run with the interpreter of the environment to patch.  Running it again changes nothing.
"""

import importlib.util
import sys
from pathlib import Path

MARK = "# inquest: declared for a CPU torch"
ANCHOR = "import torchvision.extension  # noqa: F401\n"
DECLARATION = f"""{ANCHOR}if not torchvision.extension._has_ops():  {MARK}
    for _name in ("nms", "qnms"):
        torch.library.define("torchvision::" + _name, "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def main() -> None:
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        sys.exit("torchvision is not installed in this environment")
    path = Path(spec.origin).with_name("_meta_registrations.py")
    text = path.read_text()
    if MARK in text:
        return
    if ANCHOR not in text:
        sys.exit(f"{path}: the line to patch is not there; was torchvision's pinned version changed?")
    path.write_text(text.replace(ANCHOR, DECLARATION, 1))


if __name__ == "__main__":
    main()
