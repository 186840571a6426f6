"""llama.cpp's llama-server.

Pure.
"""

from sparkdash.engines.llamacpp.engine import ENGINE as ENGINE
