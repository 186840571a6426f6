"""Checks of nodes by subject. Importing this package fills the register, in the order of the report.

Pure.
"""

from sparkdash.doctor.nodes.checks import box, login, equal, images, link, rdma, reach  # noqa: I001 - that order

__all__ = ["box", "equal", "images", "link", "login", "rdma", "reach"]
