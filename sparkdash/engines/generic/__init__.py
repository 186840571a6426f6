"""Any other server that sparkdash starts, by its profile's own description (`server:`). Pure."""

from sparkdash.engines.generic.engine import ENGINE as ENGINE
