"""The past of the box: recorded figures, requests added up by hour, and marks on the time line.

Pure.
"""
