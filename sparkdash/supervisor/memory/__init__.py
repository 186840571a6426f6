"""Memory of the box around a load: what launches take, the page cache, large free blocks."""
