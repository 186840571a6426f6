"""Memory of the box: what launches need, the page cache, large free blocks, debts, and the memory guard's engines."""
