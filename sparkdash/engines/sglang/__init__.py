"""SGLang.

Pure.
"""

from sparkdash.engines.sglang.engine import ENGINE as ENGINE
